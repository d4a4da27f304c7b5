// `peal ladder`: both ends in one process.
#include "engine/threads.hpp"
#include "ladder/nics.hpp"
#include "ladder/runs.hpp"
#include "link/loopback.hpp"

namespace peal::ladder {
namespace {

Outcome run_here(const LadderOptions& options, const Interrupt& interrupt, const RunEvents& events,
                 Notices& notices) {
  try {
    link::Loopback loopback;
    verbs::SoftwareNic sender(sender_options(options, notices.listener()), loopback.a());
    verbs::SoftwareNic receiver(receiver_options(options, notices.listener()), loopback.b());
    engine::ThreadsEngine engine({sender.step(), receiver.step()});
    LocalReceiver far_end(Context::open(receiver.provider(engine)));
    const RunEnds ends{
        sender.core(), engine, open_sender(sender, engine, options, events), far_end, notices,
        "loopback",    2};
    return run_ladder(options, ends, interrupt, events);
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
