#include "explore/run.hpp"

#include <memory>
#include <utility>

#include "explore/checkers.hpp"
#include "explore/producer_agent.hpp"
#include "explore/world.hpp"

namespace peal::explore {
namespace {

using Memory = sim::SimMemory;
using sim::Agent;

constexpr std::uint64_t kIdleNs = 1'000;
constexpr std::uint64_t kIdleNsMax = 100'000;
// After so many operations on memory a run is taken to be without end: far more than any needs.
constexpr std::uint64_t kPoints = 100'000'000;
constexpr std::uint64_t kPointsAnOperation = 10'000;
constexpr std::uint64_t kOverrunNs = 1'000'000;  // that a wait may outlive its deadline

// Producers of one kind of sharing, and who serves them.
template <Sharing S>
class Run {
 public:
  Run(World& world, Findings& findings)
      : w_(world),
        c_(world.c),
        findings_(findings),
        landing_(findings, world.target.data(), world.target.size()),
        verified_signals_(c_.producers) {
    for (std::uint32_t i = 0; i < c_.qps; ++i) {
      counters_.emplace_back(findings, w_.queues[i], "QP " + std::to_string(i));
    }
    w_.sim.scheduler().at_switch([this] {
      for (CounterChecker& counter : counters_) counter.look();
    });
    w_.sim.at_copy([this](const std::byte* to, std::uint32_t bytes) { check_copy(to, bytes); });
    for (std::uint32_t p = 0; p < c_.producers; ++p) {
      producers_.push_back(std::make_unique<ProducerAgent<S>>(w_, findings_, landing_, p));
    }
  }

  void run() {
    if (c_.mixed != 0) start("receiver", {.device = 201}, [this] { receive(); });
    const std::uint32_t services = running_;
    for (std::uint32_t p = 0; p < c_.producers; ++p) {
      start("producer " + std::to_string(p), {.block = S == Sharing::kBlock ? 0 : p},
            [this, p] { producers_[p]->run(); });
    }
    await(services);
    flush_queues();
    stop_ = true;
    await(0);
    check_signals();
    w_.sim.scheduler().at_switch({});
    w_.sim.at_copy({});
  }

  std::uint64_t operations() const {
    std::uint64_t all = 0;
    for (const auto& p : producers_) all += p->done_operations();
    return all;
  }

 private:
  void start(std::string name, sim::Place place, std::function<void()> body) {
    ++running_;
    agents_.push_back(w_.sim.start(std::move(name), place, 1 + w_.sim.random().below(4),
                                   [this, work = std::move(body)] {
                                     work();
                                     // As joining a thread does.
                                     sim::ViewMachine& machine = w_.sim.machine();
                                     machine.hear(0, machine.tell(w_.sim.scheduler().running()));
                                     --running_;
                                   }));
  }
  // Until no more than so many are left.
  void await(std::uint32_t left) {
    sim::Scheduler& scheduler = w_.sim.scheduler();
    while (running_ > left) {
      if (stop_) {
        for (const Agent a : agents_) scheduler.wake(a);
      }
      scheduler.park(stop_ ? scheduler.now_ns() + kIdleNs : sim::Scheduler::kNever);
    }
  }

  // Whoever polls signals finds the payload behind each of them.
  void receive() {
    while (!stop_) {
      w_.sim.start_polling();
      for (std::uint32_t p = 0; p < c_.producers; ++p) look_at_signal(p);
      w_.sim.pause(Memory::now_ns() + kIdleNsMax);
    }
  }
  void look_at_signal(std::uint32_t p) {
    const std::byte* part = w_.target_of(p);
    const std::uint64_t signal = Memory::load_signal_acquire(
        reinterpret_cast<const std::uint64_t*>(part + w_.layout.signal), FenceScope::kSystem);
    std::vector<std::uint32_t> words(c_.payload_bytes / 4);
    while (verified_signals_[p] < signal && verified_signals_[p] < Layout::kSignals) {
      const std::uint32_t n = verified_signals_[p]++;
      w_.sim.read(part + w_.layout.signal_target_of(n), words.data(), c_.payload_bytes);
      const std::uint64_t sequence = producers_[p]->sequence_of_signal(n);
      for (std::uint32_t i = 0; i < words.size(); ++i) {
        if (words[i] == w_.pattern(p, sequence, i)) continue;
        findings_.add("signal", "producer " + std::to_string(p) + "'s signal " +
                                    std::to_string(n + 1) + " was seen, but byte " +
                                    std::to_string(i * 4) + " of its payload was not");
        return;
      }
    }
  }

  // Everything that was posted ends, though nobody may have waited for it.
  void flush_queues() {
    for (std::uint32_t i = 0; i < c_.qps; ++i) {
      SendQueue<Memory, S> queue(w_.queues[i], {c_.doorbell, c_.publish});
      const Status status = flush(queue, c_.timeout_us * 1000);
      const bool may_fail = i == 0 && (c_.fault.ends_in_error() || c_.ends_at_deadline());
      if (status != Status::kOk && !may_fail) {
        const QueueState& s = *w_.queues[i].state;
        findings_.add("lost", "QP " + std::to_string(i) +
                                  " did not come to rest: " + status_name(status) + " (reserved " +
                                  std::to_string(s.reserved) + ", rung " + std::to_string(s.rung) +
                                  ", completed " + std::to_string(s.completed) + ")");
      }
      if (i == 0 && c_.fault.ends_in_error() && status != Status::kOk) check_error(queue);
      const std::uint64_t completed = queue.completions().completed();
      for (const auto& p : producers_) {
        if (p->qp() != i) continue;
        if (c_.work == Work::kTickets) {
          p->finish([completed](const Operation& o) { return o.ticket < completed; });
        } else if (status == Status::kOk) {
          p->finish([](const Operation&) { return true; });
        }
      }
    }
  }

  // The latch tells of the WQE that failed first, and why.
  void check_error(SendQueue<Memory, S>& queue) {
    LatchedError e;
    if (!queue.completions().error(&e)) {
      findings_.add("error", "the queue ended in error, and nothing is latched");
      return;
    }
    if (e.index_unknown) return;  // a collapsed CQ shows the last CQE only
    const std::uint64_t syndrome = c_.fault.kind == FaultKind::kCqe ? c_.fault.value : 0x13;
    const auto index = static_cast<std::uint32_t>(c_.first_index + c_.fault.at);
    const bool wrong_place = c_.fault.kind == FaultKind::kCqe && e.index != index;
    if (e.syndrome == syndrome && !wrong_place) return;
    // The peer's refusal may be lost, and it says so once only.
    const bool no_answer = e.syndrome == 0x15;
    if (no_answer && c_.fault.kind == FaultKind::kRkey && c_.trouble.lost != 0) return;
    findings_.add("error", "the first error was 0x" + hex(syndrome) + " at WQE " +
                               std::to_string(index) + ", but latched is 0x" + hex(e.syndrome) +
                               " at " + std::to_string(e.index));
  }
  static std::string hex(std::uint64_t byte) {
    char text[8];
    std::snprintf(text, sizeof text, "%02x", static_cast<unsigned>(byte & 0xff));
    return text;
  }

  void check_signals() {
    if (c_.mixed == 0 || findings_.first()) return;
    for (std::uint32_t p = 0; p < c_.producers; ++p) {
      look_at_signal(p);
      const bool may_fail = c_.fault.ends_in_error() || c_.ends_at_deadline();
      if (may_fail || verified_signals_[p] == producers_[p]->signals()) continue;
      findings_.add("signal", "producer " + std::to_string(p) + " sent " +
                                  std::to_string(producers_[p]->signals()) + " signals, but " +
                                  std::to_string(verified_signals_[p]) + " arrived");
    }
  }

  void check_copy(const std::byte* to, std::uint32_t bytes) {
    if (landing_.covers(to)) {
      landing_.landed(to, bytes);
    } else if (to < w_.source.data() || to >= w_.source.data() + w_.source.size()) {
      findings_.add("landing", "something was written outside of all registered memory");
    }
  }

  World& w_;
  const Configuration& c_;
  Findings& findings_;
  LandingChecker landing_;
  std::vector<std::uint32_t> verified_signals_;
  std::vector<CounterChecker> counters_;
  std::vector<std::unique_ptr<ProducerAgent<S>>> producers_;
  std::vector<Agent> agents_;
  std::uint32_t running_ = 0;
  bool stop_ = false;
};

template <Sharing S>
std::uint64_t run_as(World& world, Findings& findings) {
  Run<S> r(world, findings);
  r.run();
  return r.operations();
}

std::uint64_t run_in(World& world, Findings& findings) {
  switch (world.c.sharing) {
    case Sharing::kExclusive: return run_as<Sharing::kExclusive>(world, findings);
    case Sharing::kBlock: return run_as<Sharing::kBlock>(world, findings);
    case Sharing::kDevice: return run_as<Sharing::kDevice>(world, findings);
  }
  return 0;
}

void check_machine(const sim::Simulation& simulation, sim::Scheduler& scheduler,
                   Findings& findings) {
  switch (scheduler.trouble()) {
    case sim::Scheduler::Trouble::kNone: break;
    case sim::Scheduler::Trouble::kDeadlock:
      findings.add("deadlock", "no agent could go on, and none waited for a time");
      return;
    case sim::Scheduler::Trouble::kEndless: findings.add("endless", "the run had no end"); return;
  }
  if (simulation.overrun_ns_max() > kOverrunNs) {
    findings.add("bound", "a wait went on for " +
                              std::to_string(simulation.overrun_ns_max() / 1000) +
                              " us after its deadline");
  }
}

}  // namespace

RunResult run(const Configuration& c, const RunOptions& options) {
  sim::Simulation simulation(
      {.seed = options.seed,
       .pace = {.switches_per_mille = c.switches,
                .points_limit = kPoints + kPointsAnOperation * c.producers * c.puts},
       .stale_per_mille = c.stale,
       .plant = options.plant});
  sim::Scheduler& scheduler = simulation.scheduler();
  Findings findings([&simulation] { simulation.trace().stop(); });
  RunResult result;
  World world(simulation, c, options.seed);
  simulation.trace().keep(options.trace_events);
  if (options.trace_events != 0) world.name_memory();
  result.operations = run_in(world, findings);
  result.simulated_ns = scheduler.now_ns();
  simulation.trace().stop();
  if (!world.close()) findings.add("objects", "the NICs still have objects after all was closed");
  check_machine(simulation, scheduler, findings);
  result.finding = findings.first();
  result.trace = simulation.trace().lines([&scheduler](sim::Agent a) { return scheduler.name(a); });
  return result;
}

}  // namespace peal::explore
