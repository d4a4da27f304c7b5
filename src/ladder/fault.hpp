// Faults a user asks for, as text: `cqe=0x13@5/qp=1`. Only what they say; the NIC, the links and
// the control path make them happen.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace peal::ladder {

struct FaultSpec {
  enum class Kind : std::uint8_t {
    kCorrupt,    // corrupt@K      one wrong byte arrives
    kNoop,       // noop@K         the WQE completes without moving
    kCqe,        // cqe=SYNDROME@K the WQE completes in error
    kHold,       // hold=MS        CQEs are held back
    kDelay,      // delay=US       CQEs come late
    kPreset,     // preset=PI      queues start at this index
    kDrop,       // drop=P         segments are lost
    kDup,        // dup=P          segments arrive twice
    kReorder,    // reorder=P      segments overtake one another
    kLinkDelay,  // linkdelay=US   segments are delayed
    kUarFail,    // uarfail        the doorbell page cannot be mapped for the GPU
    kRegFail,    // regfail=ERRNO  memory cannot be registered
  };

  Kind kind = Kind::kCorrupt;
  std::uint64_t value = 0;  // syndrome, milliseconds, microseconds, producer index or errno
  double probability = 0;   // kDrop, kDup, kReorder
  std::uint64_t at = 0;     // kCorrupt, kNoop, kCqe: 0-based WQE of the timed traffic on `qp`
  std::uint32_t qp = 0;     // the stage's QP, counted from 0
  std::string text;         // as the user wrote it
};

// Whether it is of the link between the ends, and so of no WQE.
constexpr bool is_of_link(FaultSpec::Kind kind) {
  return kind == FaultSpec::Kind::kDrop || kind == FaultSpec::Kind::kDup ||
         kind == FaultSpec::Kind::kReorder || kind == FaultSpec::Kind::kLinkDelay;
}

// Throws UsageError: one sentence with the text and what is expected in its place.
FaultSpec parse_fault(std::string_view text);

}  // namespace peal::ladder
