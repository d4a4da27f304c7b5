// An engine whose cores are stepped by agents of a simulation: in virtual time, and in an order
// that comes from its seed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "sim/simulation.hpp"

namespace peal::engine {

// A core, and when at the latest it must be stepped again though nothing it looks at has changed.
struct SimulatedCore {
  Step step;
  std::function<std::uint64_t()> next_event_ns = [] { return sim::Scheduler::kNever; };
};

class SimEngine final : public Engine {
 public:
  explicit SimEngine(sim::Simulation& simulation) : sim_(simulation) {}
  // Ends its agents, from agent 0.
  ~SimEngine() override;
  SimEngine(const SimEngine&) = delete;
  SimEngine& operator=(const SimEngine&) = delete;

  // One agent that steps all these cores in turn.
  sim::Agent add(std::string name, std::uint32_t weight, std::vector<SimulatedCore> cores);

  // By any agent. What runs is ordered before and after everything else.
  void call(const std::function<void()>& f) override;

 private:
  static constexpr std::uint64_t kIdleNs = 1'000;       // of the first idle turn; doubled by each
  static constexpr std::uint64_t kIdleNsMax = 100'000;  // that follows

  void run(const std::vector<SimulatedCore>& cores);

  sim::Simulation& sim_;
  std::vector<sim::Agent> agents_;
  std::uint32_t stepping_ = 0;
  std::uint32_t running_ = 0;
  bool stop_ = false;
};

}  // namespace peal::engine
