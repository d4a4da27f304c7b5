// Runs whose NIC is a device and whose producers or payload are a GPU's.
#include "ladder/device_runs.hpp"

#include <memory>

#include "ladder/gpu/cuda_payload.hpp"
#include "ladder/gpu/runs.hpp"
#include "ladder/gpu/setup.hpp"
#include "ladder/gpu/topology.hpp"
#include "ladder/nics.hpp"
#include "peal/host/cuda.hpp"
#include "peal/host/rdma_core.hpp"
#include "verbs/cuda_check.hpp"

namespace peal::ladder::gpu {
namespace {

void require_gpus(const LadderOptions& o) {
  require_any_gpu();
  require_gpu(o.gpu.producers_gpu, "--gpu");
  require_payload_gpus(o);
}

// Queues lie where their producers are.
Provider provider(const LadderOptions& o) {
  const cuda::OnGpu on(static_cast<int>(o.gpu.producers_gpu));
  return rdma_core(cuda_nic_memory(o.initiator == Initiator::kGpu ? queue_bytes(o) : 0));
}

Outcome run_from(const LadderOptions& o, const Provider& from, Receiver& receiver,
                 std::uint64_t ends_here, const Interrupt& interrupt, const RunEvents& events,
                 Notices& notices) {
  CudaPayload source(gpu_of(o, o.source), region_bytes(o));
  const std::unique_ptr<Producers> who = make_producers(o);
  Context context = open_sender(from, o, events);
  RunFacts facts = device_facts(context, events);
  facts.memory = payload_text(o, ends_here == 2);
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
