// `peal ladder`: both ends in one process.
#include "engine/threads.hpp"
#include "ladder/device_runs.hpp"
#include "ladder/gpu/runs.hpp"
#include "ladder/links.hpp"
#include "ladder/nics.hpp"
#include "ladder/runs.hpp"

namespace peal::ladder {
namespace {

Outcome run_joined(const LadderOptions& options, LocalLinks& links, const Interrupt& interrupt,
                   const RunEvents& events, Notices& notices) {
  try {
    if (options.needs_gpu()) return gpu::run_local(options, links, interrupt, events, notices);
    const LinkEnd from = links.sender();
    const LinkEnd to = links.receiver();
    verbs::SoftwareNic sender(sender_options(options, notices.listener()), from.link, from.port);
    verbs::SoftwareNic receiver(receiver_options(options, notices.listener()), to.link, to.port);
    engine::ThreadsEngine engine({sender.step(), receiver.step()});
    HostPayload source;
    HostPayload destination;
    CpuProducers producers;
    LocalReceiver far_end(open_receiver(receiver.provider(engine), options), destination,
                          options.path.of_queue_pairs());
    const RunEnds ends{&sender.core(),
                       &engine,
                       open_sender(sender, engine, options, events),
                       producers,
                       source,
                       far_end,
                       notices,
                       {.link = from.name},
                       2};
    return run_ladder(options, ends, interrupt, events);
  } catch (...) {
    return outcome_of_exception();
  }
}

Outcome run_here(const LadderOptions& options, const Interrupt& interrupt, const RunEvents& events,
                 Notices& notices) {
  try {
    if (options.provider == ProviderKind::kRdmaCore) {
      return run_devices(options, interrupt, events, notices);
    }
    LocalLinks links(options);
    const Outcome outcome = run_joined(options, links, interrupt, events, notices);
    links.tell(events.note);
    return outcome;
  } catch (...) {
    return outcome_of_exception();
  }
}

}  // namespace

Outcome run_local(const LadderOptions& options, const Interrupt& interrupt,
                  const RunEvents& events) {
  Notices notices;
  const Outcome outcome = run_here(options, interrupt, events, notices);
  notices.tell(events.note);  // of how the ends ended
  return outcome;
}

}  // namespace peal::ladder
