// The kinds of faults that a QP can be told to commit.
#pragma once

#include <cstdint>

namespace peal::nic {

enum class FaultKind : std::uint8_t {
  kCorrupt,  // one bit of the payload is flipped on its way
  kNoop,     // a success CQE without moving data
  kCqe,      // an error CQE with syndrome `value`
  kHold,     // after the next doorbell no WQE is consumed for `value` nanoseconds
  kDelay,    // each CQE is written `value` nanoseconds late
};

}  // namespace peal::nic
