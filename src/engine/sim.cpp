#include "engine/sim.hpp"

#include <algorithm>

namespace peal::engine {

SimEngine::~SimEngine() {
  stop_ = true;
  while (running_ != 0) {
    for (const sim::Agent a : agents_) sim_.scheduler().wake(a);
    sim_.scheduler().yield();
  }
}

sim::Agent SimEngine::add(std::string name, std::uint32_t weight,
                          std::vector<SimulatedCore> cores) {
  ++running_;
  // A device of its own: only an ordering of system scope reaches it.
  const sim::Place place{.device = 100 + static_cast<std::uint32_t>(agents_.size())};
  agents_.push_back(
      sim_.start(std::move(name), place, weight, [this, all = std::move(cores)] { run(all); }));
  return agents_.back();
}

void SimEngine::run(const std::vector<SimulatedCore>& cores) {
  sim::Scheduler& scheduler = sim_.scheduler();
  std::uint64_t idle_ns = kIdleNs;
  while (!stop_) {
    sim_.start_polling();
    bool worked = false;
    ++stepping_;
    for (const SimulatedCore& core : cores) worked |= core.step(scheduler.now_ns());
    --stepping_;
    if (worked) {
      idle_ns = kIdleNs;
      scheduler.point();
      continue;
    }
    std::uint64_t until_ns = scheduler.now_ns() + idle_ns;
    for (const SimulatedCore& core : cores) until_ns = std::min(until_ns, core.next_event_ns());
    idle_ns = std::min(idle_ns * 2, kIdleNsMax);
    sim_.pause(until_ns);
  }
  --running_;
}

void SimEngine::call(const std::function<void()>& f) {
  sim::Scheduler& scheduler = sim_.scheduler();
  while (stepping_ != 0) scheduler.yield();
  scheduler.hold();
  sim_.machine().settle();
  try {
    f();
  } catch (...) {
    scheduler.release();
    throw;
  }
  sim_.machine().settle();
  scheduler.release();
  for (const sim::Agent a : agents_) scheduler.wake(a);
}

}  // namespace peal::engine
