// One simulated machine: agents, their memory, its trace, and what was planted. All of it on one
// thread, and all from one seed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sim/plants.hpp"
#include "sim/random.hpp"
#include "sim/scheduler.hpp"
#include "sim/trace.hpp"
#include "sim/view_machine.hpp"

namespace peal::sim {

struct SimulationOptions {
  std::uint64_t seed = 1;
  Pace pace = {};
  std::uint32_t stale_per_mille = 500;
  Plant plant = Plant::kNone;
};

class Simulation final : private Watchers {
 public:
  // The one that SimMemory works on from now on, until it is destroyed.
  explicit Simulation(const SimulationOptions& options);
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  static Simulation& current() { return *current_; }

  Random& random() { return random_; }
  Scheduler& scheduler() { return scheduler_; }
  ViewMachine& machine() { return machine_; }
  Trace& trace() { return trace_; }
  bool planted(Plant plant) const { return plant_ == plant; }

  Agent start(std::string name, Place place, std::uint32_t weight, std::function<void()> body) {
    const Agent a = scheduler_.start(std::move(name), weight, std::move(body));
    machine_.place(a, place);
    return a;
  }

  // Operations of the agent that runs. Each is a place where another may go on.
  std::uint64_t load(const char* operation, const void* word, std::uint32_t bytes, Order order,
                     FenceScope scope) {
    scheduler_.point();
    return load_here(operation, word, bytes, order, scope);
  }
  void store(const char* operation, void* word, std::uint32_t bytes, std::uint64_t value,
             Order order, FenceScope scope) {
    scheduler_.point();
    store_here(operation, word, bytes, value, order, scope);
  }
  template <class Next>
  std::uint64_t update(const char* operation, void* word, std::uint32_t bytes, Order order,
                       FenceScope scope, const Next& next) {
    scheduler_.point();
    const Seen seen = machine_.update(scheduler_.running(), word, bytes, order, scope, next);
    remember(seen.location);
    note(operation, word, bytes, seen.value, 0);
    return seen.value;
  }
  bool compare_swap(const char* operation, void* word, std::uint32_t bytes, std::uint64_t* expected,
                    std::uint64_t desired, Order order, FenceScope scope);
  void copy(std::byte* to, const std::byte* from, std::uint32_t bytes);
  void read(const std::byte* from, void* to, std::uint32_t bytes);
  void write(std::byte* to, const void* from, std::uint32_t bytes);

  // The same without such a place: parts of one operation.
  std::uint64_t load_here(const char* operation, const void* word, std::uint32_t bytes, Order order,
                          FenceScope scope);
  void store_here(const char* operation, void* word, std::uint32_t bytes, std::uint64_t value,
                  Order order, FenceScope scope);

  // A turn of a polling loop: until something that was loaded since the last turn has changed, or
  // until `until_ns`.
  void pause(std::uint64_t until_ns);
  // Forgets what was loaded.
  void start_polling() { watch().clear(); }
  // By how much a turn has begun after the time at which its loop should have ended, at most.
  std::uint64_t overrun_ns_max() const { return overrun_ns_max_; }

  // Told of each copy, after it. For checkers.
  void at_copy(std::function<void(const std::byte* to, std::uint32_t bytes)> f) {
    at_copy_ = std::move(f);
  }

 private:
  // Much longer than a store is on its way anywhere; and less than the NIC's grace for a record.
  static constexpr std::uint64_t kVisibleAfterNs = 500'000;
  // How long a reader looks at old stores before it looks again.
  static constexpr std::uint64_t kStaleNs = 50;

  struct Watch {
    std::vector<Location*> locations;
    std::uint32_t turn = 1;
    void clear() {
      locations.clear();
      ++turn;
    }
  };

  void changed(std::uint32_t agents) override;
  Watch& watch() { return watches_[scheduler_.running()]; }
  // The agent that runs has looked at it in this turn.
  void remember(Location* l) {
    const Agent self = scheduler_.running();
    Watch& w = watches_[self];
    if (l->watched_at[self] == w.turn) return;
    l->watched_at[self] = w.turn;
    w.locations.push_back(l);
  }
  void note(const char* operation, const void* at, std::uint32_t bytes, std::uint64_t value,
            std::uint32_t newer) {
    if (trace_.on()) {
      trace_.add({scheduler_.now_ns(), operation, at, value, bytes, newer, scheduler_.running()});
    }
  }

  static inline thread_local Simulation* current_ = nullptr;

  Simulation* before_;
  Random random_;
  Plant plant_;
  Scheduler scheduler_;
  ViewMachine machine_;
  Trace trace_;
  std::vector<Watch> watches_ = std::vector<Watch>(kMaxAgents);
  std::vector<std::byte> buffer_;
  std::uint64_t overrun_ns_max_ = 0;
  std::function<void(const std::byte* to, std::uint32_t bytes)> at_copy_;
};

}  // namespace peal::sim
