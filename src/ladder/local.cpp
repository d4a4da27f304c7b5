// `peal ladder`: both ends in one process.
#include "engine/threads.hpp"
#include "ladder/runs.hpp"
#include "ladder/sender.hpp"
#include "link/loopback.hpp"

namespace peal::ladder {
Outcome run_local(const LadderOptions& options, const Interrupt& interrupt,
                  const RunEvents& events) {
  try {
    link::Loopback loopback;
    verbs::SoftwareNic sender(sender_options(options), loopback.a());
    verbs::SoftwareNic receiver({.nic_number = 2}, loopback.b());
    engine::ThreadsEngine engine({sender.step(), receiver.step()});
    LocalReceiver far_end(Context::open(receiver.provider(engine)));
    const RunEnds ends{sender,  engine,     open_sender(sender, engine, options, events),
                       far_end, "loopback", 2};
    return run_ladder(options, ends, interrupt, events);
  } catch (...) {
    return outcome_of_exception();
  }
}

}  // namespace peal::ladder
