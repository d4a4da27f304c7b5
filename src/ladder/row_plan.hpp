// How one row's PUTs lie in its regions: a slot for each PUT of a segment, so that nothing is
// written twice between two checks.
#pragma once

#include <cstdint>

#include "ladder/options.hpp"
#include "ladder/payload.hpp"

namespace peal::ladder {

struct RowPlan {
  SlotLayout layout;
  std::uint64_t iters = 0;             // of each producer and repeat
  std::uint64_t puts_per_segment = 0;  // of each producer

  std::uint64_t region_bytes(const Stage& stage) const {
    return layout.bytes_for(puts_per_segment * stage.producers);
  }
};

// `region_bytes`: where the options say nothing. Throws UsageError when what they say is too
// little.
RowPlan plan_row(const LadderOptions& options, const Stage& stage, std::uint64_t payload_bytes,
                 std::uint64_t region_bytes);

}  // namespace peal::ladder
