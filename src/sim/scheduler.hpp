// Agents as fibers of one thread, one at a time, and a clock that goes on with what they do. Which
// agent goes on, and when, comes from the seed. Knows neither memory nor protocol.
//
// No agent throws out of its body. The thread that makes the scheduler is agent 0.
#pragma once

#include <boost/context/fiber.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sim/random.hpp"
#include "sim/view_machine.hpp"

namespace peal::sim {

struct Pace {
  std::uint32_t switches_per_mille = 100;  // points at which another agent may go on
  std::uint64_t ns_per_point = 5;
  std::uint64_t points_limit = 400'000'000;  // then the run is taken to be without end
};

class Scheduler {
 public:
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  Scheduler(Random& random, const Pace& pace);
  ~Scheduler();  // every other agent has ended
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // It runs from the next switch on. An agent of weight 2 goes on twice as often as one of 1.
  Agent start(std::string name, std::uint32_t weight, std::function<void()> body);

  Agent running() const { return running_; }
  const std::string& name(Agent agent) const { return agents_[agent]->name; }
  std::uint32_t agents() const { return static_cast<std::uint32_t>(agents_.size()); }
  const std::uint64_t& now_ns() const { return now_ns_; }

  // A place where time passes and another agent may go on.
  void point() {
    now_ns_ += pace_.ns_per_point;
    if (held_ != 0) return;
    if (now_ns_ >= next_timer_ns_ || ++points_ > pace_.points_limit) keep_time();
    if (random_.chance(pace_.switches_per_mille)) yield();
  }
  // Lets any agent go on that can, this one included.
  void yield();
  // Until it is woken, or `until_ns` has come; at once if it has.
  void park(std::uint64_t until_ns);
  void wake(Agent agent);
  // While it is held, no other agent goes on.
  void hold() { ++held_; }
  void release() { --held_; }

  // Nobody could go on and no time was waited for; or the run had no end. From then on time flies,
  // so that every wait with a deadline ends.
  enum class Trouble : std::uint8_t { kNone, kDeadlock, kEndless };
  Trouble trouble() const { return trouble_; }

  // Called whenever another agent is about to go on.
  void at_switch(std::function<void()> f) { at_switch_ = std::move(f); }

 private:
  enum class State : std::uint8_t { kRunnable, kParked, kEnded };
  struct Fiber {
    std::string name;
    std::uint32_t weight = 1;
    std::function<void()> body;
    State state = State::kRunnable;
    std::uint64_t until_ns = kNever;
    boost::context::fiber suspended;
    // For AddressSanitizer.
    const void* stack = nullptr;
    std::size_t stack_bytes = 0;
    void* fake_stack = nullptr;
  };

  Agent pick();
  void wake_due();
  void keep_time();
  void switch_to(Agent next);
  void enter(Agent self);
  void fly(Trouble why);

  Random& random_;
  Pace pace_;
  std::vector<std::unique_ptr<Fiber>> agents_;
  Agent running_ = 0;
  std::uint64_t now_ns_ = 1;
  std::uint64_t next_timer_ns_ = kNever;
  std::uint64_t points_ = 0;
  std::uint32_t held_ = 0;
  std::uint32_t runnable_weight_ = 1;
  Trouble trouble_ = Trouble::kNone;
  std::function<void()> at_switch_;
};

}  // namespace peal::sim
