// What a QP of the software ConnectX has done, and the faults it was told to commit.
#pragma once

#include <array>
#include <cstdint>

#include "nic/check.hpp"

namespace peal::nic {

struct QpCounters {
  std::uint64_t doorbells = 0;  // rings seen that named this QP
  std::uint64_t wqes_fetched = 0;
  std::uint64_t writes = 0;  // RDMA WRITE WQEs among them
  std::uint64_t noops = 0;   // NOP WQEs among them
  std::uint64_t cqes = 0;
  std::uint64_t error_cqes = 0;       // among them; flushed ones too
  std::uint64_t bytes_moved = 0;      // payload that the responder acknowledged
  std::uint64_t received_writes = 0;  // as responder
  std::uint64_t received_bytes = 0;
  std::array<std::uint64_t, static_cast<std::size_t>(Refusal::kCount)> refusals{};
  // The NIC's own view of the ring, for a look from outside.
  std::uint64_t producer_index = 0;
  std::uint64_t consumer_index = 0;
};

enum class FaultKind : std::uint8_t {
  kCorrupt,  // one bit of the payload is flipped on its way
  kNoop,     // a success CQE without moving data
  kCqe,      // an error CQE with syndrome `value`
  kHold,     // after the next doorbell no WQE is consumed for `value` nanoseconds
  kDelay,    // each CQE is written `value` nanoseconds late
};

struct Fault {
  FaultKind kind = FaultKind::kCorrupt;
  std::uint64_t value = 0;
  std::uint64_t at = 0;  // the WQE, counted from the moment of arming; kCorrupt, kNoop, kCqe
};

}  // namespace peal::nic
