#include "ladder/row_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ladder/usage_error.hpp"

namespace peal::ladder {

RowPlan plan_row(const LadderOptions& options, const Stage& stage, std::uint64_t payload_bytes,
                 std::uint64_t region_bytes) {
  RowPlan plan;
  plan.layout = SlotLayout::for_payload(payload_bytes);
  plan.iters = options.iters_for(stage, payload_bytes);
  const std::uint64_t least = plan.layout.bytes_for(stage.producers);
  std::uint64_t region = options.region_bytes.value_or(region_bytes);
  if (region < least) {
    if (options.region_bytes) {
      throw UsageError(fmt::format(
          "--region {} holds no slot of {} bytes for each of the {} producers of stage {}: it must "
          "be at least {}",
          region, payload_bytes, stage.producers, stage.name, least));
    }
    region = least;
  }
  plan.puts_per_segment = std::min(plan.iters, plan.layout.slots_in(region) / stage.producers);
  return plan;
}

}  // namespace peal::ladder
