// What a data-path call can answer, and the error a queue keeps.
#pragma once

#include <cstdint>

#include "peal/core/config.hpp"

namespace peal {

enum class Status : std::uint8_t {
  kOk = 0,
  kPending,          // not yet; only from a `try_` function
  kInvalid,          // the arguments can never be served; nothing was done
  kDeadline,         // the wait's deadline passed
  kStopped,          // the queue's stop word was set
  kCompletionError,  // an error CQE was seen; see LatchedError
};

PEAL_HOST_DEVICE constexpr const char* status_name(Status s) {
  switch (s) {
    case Status::kOk: return "ok";
    case Status::kPending: return "pending";
    case Status::kInvalid: return "invalid argument";
    case Status::kDeadline: return "deadline passed";
    case Status::kStopped: return "stopped";
    case Status::kCompletionError: return "completion error";
  }
  return "unknown status";
}

// The first error of a queue, as one 64-bit word so that it can be latched by one compare-swap and
// is never seen in part:
//   index[63:32] | flags[31:24] | opcode[23:16] | vendor_syndrome[15:8] | syndrome[7:0]
// The word 0 means that there is none.
struct LatchedError {
  std::uint8_t syndrome = 0;
  std::uint8_t vendor_syndrome = 0;
  std::uint8_t opcode = 0;  // of the WQE that failed
  bool abandoned = false;   // no CQE: a publisher gave up at its deadline, so the ring has a hole
  bool index_unknown = false;  // a collapsed CQ shows the last CQE only: a flushed one, perhaps
  std::uint32_t index = 0;     // low 32 bits of the failed WQE's index
};

namespace error_word {
inline constexpr std::uint32_t kValid = 1;
inline constexpr std::uint32_t kAbandoned = 2;
inline constexpr std::uint32_t kIndexUnknown = 4;
}  // namespace error_word

PEAL_HOST_DEVICE constexpr std::uint64_t encode_error(const LatchedError& e) {
  const std::uint32_t flags = error_word::kValid | (e.abandoned ? error_word::kAbandoned : 0u) |
                              (e.index_unknown ? error_word::kIndexUnknown : 0u);
  return (std::uint64_t{e.index} << 32) | (flags << 24) | (std::uint32_t{e.opcode} << 16) |
         (std::uint32_t{e.vendor_syndrome} << 8) | e.syndrome;
}

PEAL_HOST_DEVICE constexpr LatchedError decode_error(std::uint64_t word) {
  LatchedError e;
  e.syndrome = static_cast<std::uint8_t>(word);
  e.vendor_syndrome = static_cast<std::uint8_t>(word >> 8);
  e.opcode = static_cast<std::uint8_t>(word >> 16);
  e.abandoned = ((word >> 24) & error_word::kAbandoned) != 0;
  e.index_unknown = ((word >> 24) & error_word::kIndexUnknown) != 0;
  e.index = static_cast<std::uint32_t>(word >> 32);
  return e;
}

}  // namespace peal
