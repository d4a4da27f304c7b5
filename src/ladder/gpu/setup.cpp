#include "ladder/gpu/setup.hpp"

#include <fmt/format.h>

#include "ladder/gpu/gpu_producers.hpp"
#include "ladder/gpu/topology.hpp"
#include "ladder/outcome.hpp"
#include "verbs/cuda_check.hpp"

namespace peal::ladder::gpu {

std::optional<std::uint32_t> gpu_of(const LadderOptions& o, const Place& place) {
  if (!place.on_gpu) return std::nullopt;
  return place.gpu.value_or(o.gpu.producers_gpu);
}

std::string place_text(const LadderOptions& o, const Place& place) {
  return place.on_gpu ? fmt::format("gpu{}", *gpu_of(o, place)) : "host";
}

std::string payload_text(const LadderOptions& o, bool both_ends) {
  const std::string source = place_text(o, o.source);
  const std::string destination = place_text(o, o.destination);
  return both_ends && destination != source ? source + "," + destination : source;
}

void require_any_gpu() {
  if (const std::string why = cuda::why_no_gpu(); !why.empty()) {
    throw MachineError("no GPU can be used: " + why);
  }
}

void require_payload_gpus(const LadderOptions& o) {
  for (const Place* p : {&o.source, &o.destination}) {
    if (p->on_gpu) require_gpu(*gpu_of(o, *p), "--memory");
  }
}

std::unique_ptr<Producers> make_producers(const LadderOptions& o) {
  if (o.initiator == Initiator::kCpu) return std::make_unique<CpuProducers>();
  return std::make_unique<GpuProducers>(o.gpu.producers_gpu, most(o.stages, &Stage::producers),
                                        most(o.stages, &Stage::window), o.exec);
}

}  // namespace peal::ladder::gpu
