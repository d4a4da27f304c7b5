#include "ladder/device_runs.hpp"

#include <fmt/format.h>

#include "ladder/gpu/runs.hpp"
#include "ladder/nics.hpp"
#include "peal/host/rdma_core.hpp"

namespace peal::ladder {
namespace {

Outcome run_from(const LadderOptions& options, Context context, Receiver& receiver,
                 std::uint64_t ends_here, const Interrupt& interrupt, const RunEvents& events,
                 Notices& notices) {
  HostPayload source;
  CpuProducers producers;
  RunFacts facts = device_facts(context, events);
  const RunEnds ends{nullptr,  nullptr, std::move(context), producers, source,
                     receiver, notices, std::move(facts),   ends_here};
  return run_ladder(options, ends, interrupt, events);
}

}  // namespace

RunFacts device_facts(const Context& context, const RunEvents& events) {
  if (events.counters) events.note("--counters: a device does not tell what it counted");
  RunFacts facts;
  facts.provider = provider_name(ProviderKind::kRdmaCore);
  facts.engine = "device";
  facts.doorbell_memory = "device";
  const auto port = context.gid();
  facts.link = gid_type_name(port ? port->gid.type : GidType::kInfiniBand);
  return facts;
}

Outcome run_devices(const LadderOptions& options, const Interrupt& interrupt,
                    const RunEvents& events, Notices& notices) {
  if (options.needs_gpu()) return gpu::run_devices(options, interrupt, events, notices);
  const Provider provider = rdma_core();
  HostPayload destination;
  LocalReceiver far_end(open_receiver(provider, options), destination,
                        options.path.of_queue_pairs());
  return run_from(options, open_sender(provider, options, events), far_end, 2, interrupt, events,
                  notices);
}

Outcome run_device_sender(const LadderOptions& options, Receiver& receiver,
                          const Interrupt& interrupt, const RunEvents& events, Notices& notices) {
  if (options.needs_gpu()) {
    return gpu::run_device_sender(options, receiver, interrupt, events, notices);
  }
  return run_from(options, open_sender(rdma_core(), options, events), receiver, 1, interrupt,
                  events, notices);
}

}  // namespace peal::ladder
