// Runs whose NIC is a device and whose producers or payload are a GPU's.
#include "ladder/device_runs.hpp"

#include <fmt/format.h>

#include <memory>

#include "ladder/gpu/cuda_payload.hpp"
#include "ladder/gpu/gpu_producers.hpp"
#include "ladder/gpu/runs.hpp"
#include "ladder/gpu/sizes.hpp"
#include "ladder/gpu/topology.hpp"
#include "ladder/nics.hpp"
#include "peal/host/cuda.hpp"
#include "peal/host/rdma_core.hpp"
#include "verbs/cuda_check.hpp"

namespace peal::ladder::gpu {
namespace {

using namespace cuda;

void require_gpus(const LadderOptions& o) {
  if (const std::string why = why_no_gpu(); !why.empty()) {
    throw MachineError("no GPU can be used: " + why);
  }
  require_gpu(o.gpu.producers_gpu, "--gpu");
  for (const Place* p : {&o.source, &o.destination}) {
    if (p->on_gpu) require_gpu(p->gpu.value_or(o.gpu.producers_gpu), "--memory");
  }
}

std::optional<std::uint32_t> gpu_of(const LadderOptions& o, const Place& p) {
  if (!p.on_gpu) return std::nullopt;
  return p.gpu.value_or(o.gpu.producers_gpu);
}

std::string text_of(const LadderOptions& o, const Place& p) {
  return p.on_gpu ? fmt::format("gpu{}", *gpu_of(o, p)) : "host";
}

// Queues lie where their producers are.
Provider provider(const LadderOptions& o) {
  const OnGpu on(static_cast<int>(o.gpu.producers_gpu));
  return rdma_core(cuda_nic_memory(o.initiator == Initiator::kGpu ? queue_bytes(o) : 0));
}

std::unique_ptr<Producers> producers(const LadderOptions& o) {
  if (o.initiator == Initiator::kCpu) return std::make_unique<CpuProducers>();
  return std::make_unique<GpuProducers>(o.gpu.producers_gpu, most(o.stages, &Stage::producers),
                                        most(o.stages, &Stage::window), o.exec);
}

Outcome run_from(const LadderOptions& o, const Provider& from, Receiver& receiver,
                 std::uint64_t ends_here, const Interrupt& interrupt, const RunEvents& events,
                 Notices& notices) {
  CudaPayload source(gpu_of(o, o.source), region_bytes(o));
  const std::unique_ptr<Producers> who = producers(o);
  Context context = open_sender(from, o, events);
  RunFacts facts = device_facts(context, events);
  facts.memory = text_of(o, o.source);
  if (ends_here == 2 && text_of(o, o.destination) != facts.memory) {
    facts.memory += "," + text_of(o, o.destination);
  }
  facts.gpu = gpu_name(o.gpu.producers_gpu);
  facts.driver = driver_version();
  const RunEnds ends{nullptr,  nullptr, std::move(context), *who,     source,
                     receiver, notices, std::move(facts),   ends_here};
  return run_ladder(o, ends, interrupt, events);
}

}  // namespace

Outcome run_devices(const LadderOptions& options, const Interrupt& interrupt,
                    const RunEvents& events, Notices& notices) {
  require_gpus(options);
  const Provider both = provider(options);
  CudaPayload destination(gpu_of(options, options.destination), region_bytes(options));
  LocalReceiver far_end(open_receiver(both, options), destination, options.path.of_queue_pairs());
  return run_from(options, both, far_end, 2, interrupt, events, notices);
}

Outcome run_device_sender(const LadderOptions& options, Receiver& receiver,
                          const Interrupt& interrupt, const RunEvents& events, Notices& notices) {
  require_gpus(options);
  return run_from(options, provider(options), receiver, 1, interrupt, events, notices);
}

}  // namespace peal::ladder::gpu
