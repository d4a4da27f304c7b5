// What runs with a GPU in them have in common, whatever the NIC is: how much memory they take,
// known before any kernel runs for ever, where it lies, and who PUTs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ladder/options.hpp"
#include "ladder/producers.hpp"
#include "ladder/row_plan.hpp"

namespace peal::ladder::gpu {

// Of an end, where nobody says how large: a segment of small PUTs takes milliseconds then.
inline constexpr std::uint64_t kGpuRegionBytes = std::uint64_t{4} << 30;

inline std::uint32_t most(const std::vector<Stage>& stages, std::uint32_t Stage::*knob) {
  return std::ranges::max(stages, {}, knob).*knob;
}

// The rings, counters and records of the stage that has most of them, and of the peers: pages.
inline std::uint64_t queue_bytes(const LadderOptions& o) {
  constexpr std::uint64_t kPageBytes = 4096;
  std::uint64_t all = 0;
  for (const Stage& s : o.stages) {
    const std::uint64_t slots = std::max<std::uint64_t>(o.depth_for(s), 1);
    const std::uint64_t one = slots * (mlx5::kSlotBytes + mlx5::kCqeBytes + 8) + 16 * kPageBytes;
    all = std::max(all, s.qps * one);
  }
  return all + (std::uint64_t{16} << 20);
}

// The largest region that a row of this run takes, or what was asked for.
inline std::uint64_t region_bytes(const LadderOptions& o) {
  std::uint64_t all = o.region_bytes.value_or(0);
  for (const std::uint64_t size : o.sizes) {
    for (const Stage& s : o.stages) {
      all = std::max(all, plan_row(o, s, size, kGpuRegionBytes).region_bytes(s));
    }
  }
  return all;
}

// Absent where it lies on the host.
std::optional<std::uint32_t> gpu_of(const LadderOptions& o, const Place& place);
// "gpu1" or "host"; for the payload of a run "gpu0,gpu1" where its two ends differ.
std::string place_text(const LadderOptions& o, const Place& place);
std::string payload_text(const LadderOptions& o, bool both_ends);

// Each throws MachineError: where CUDA has no GPU, and where one that `--memory` names is not
// there.
void require_any_gpu();
void require_payload_gpus(const LadderOptions& o);

// Of the GPU or the CPU.
std::unique_ptr<Producers> make_producers(const LadderOptions& o);

}  // namespace peal::ladder::gpu
