#include "sim/scheduler.hpp"

#include <algorithm>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define PEAL_SIM_ASAN 1
#else
#define PEAL_SIM_ASAN 0
#endif

namespace peal::sim {
namespace {

namespace context = boost::context;

constexpr std::size_t kStackBytes = 256 << 10;
constexpr std::uint64_t kFlyingNs = 3'600'000'000'000;  // an hour

// Stacks are used again by later simulations of this thread.
class Stacks {
 public:
  context::stack_context take() {
    if (free_.empty()) return context::protected_fixedsize_stack(kStackBytes).allocate();
    const context::stack_context stack = free_.back();
    free_.pop_back();
#if PEAL_SIM_ASAN
    // Its last frames never returned.
    __asan_unpoison_memory_region(static_cast<std::byte*>(stack.sp) - stack.size, stack.size);
#endif
    return stack;
  }
  void give_back(const context::stack_context& stack) {
    free_.push_back(stack);
  }
  ~Stacks() {
    for (context::stack_context& stack : free_) {
      context::protected_fixedsize_stack(kStackBytes).deallocate(stack);
    }
  }

 private:
  std::vector<context::stack_context> free_;
};

Stacks& stacks() {
  static thread_local Stacks all;
  return all;
}

struct PooledStack {
  context::stack_context allocate() { return stacks().take(); }
  void deallocate(context::stack_context& stack) { stacks().give_back(stack); }
};

// AddressSanitizer must be told of each change of stacks, on both sides of it.
void leave_stack([[maybe_unused]] void** keep, [[maybe_unused]] const void* to,
                 [[maybe_unused]] std::size_t bytes) {
#if PEAL_SIM_ASAN
  __sanitizer_start_switch_fiber(keep, to, bytes);
#endif
}
void reach_stack([[maybe_unused]] void* kept, [[maybe_unused]] const void** from,
                 [[maybe_unused]] std::size_t* bytes) {
#if PEAL_SIM_ASAN
  __sanitizer_finish_switch_fiber(kept, from, bytes);
#endif
}

}  // namespace

Scheduler::Scheduler(Random& random, const Pace& pace) : random_(random), pace_(pace) {
  agents_.push_back(std::make_unique<Fiber>());
  agents_[0]->name = "main";
}

Scheduler::~Scheduler() {
  for (Agent a = 1; a < agents(); ++a) {
    if (agents_[a]->state == State::kEnded) continue;
    std::fprintf(stderr, "peal: simulated agent %s is destroyed before its end\n", name(a).c_str());
    std::abort();
  }
}

Agent Scheduler::start(std::string name, std::uint32_t weight, std::function<void()> body) {
  const auto self = static_cast<Agent>(agents_.size());
  if (self == kMaxAgents) {
    std::fprintf(stderr, "peal: a simulation has room for %u agents\n", kMaxAgents);
    std::abort();
  }
  agents_.push_back(std::make_unique<Fiber>());
  Fiber& f = *agents_.back();
  f.name = std::move(name);
  f.weight = weight;
  f.body = std::move(body);
  const context::stack_context stack = stacks().take();
  f.stack = static_cast<const std::byte*>(stack.sp) - stack.size;
  f.stack_bytes = stack.size;
  f.suspended =
      context::fiber(std::allocator_arg, context::preallocated(stack.sp, stack.size, stack),
                     PooledStack(), [this, self](context::fiber&&) {
                       enter(self);
                       // The fiber that goes on; this one is never resumed.
                       const Agent next = pick();
                       running_ = next;
                       leave_stack(nullptr, agents_[next]->stack, agents_[next]->stack_bytes);
                       return std::move(agents_[next]->suspended);
                     });
  runnable_weight_ += weight;
  return self;
}

void Scheduler::enter(Agent self) {
  const void* from = nullptr;
  std::size_t bytes = 0;
  reach_stack(nullptr, &from, &bytes);
  // Only that of agent 0 is not known by now, and it can only have been resumed from there first.
  if (agents_[0]->stack == nullptr) {
    agents_[0]->stack = from;
    agents_[0]->stack_bytes = bytes;
  }
  try {
    agents_[self]->body();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "peal: simulated agent %s threw: %s\n", name(self).c_str(), e.what());
    std::abort();
  }
  agents_[self]->state = State::kEnded;
  runnable_weight_ -= agents_[self]->weight;
  if (agents_[0]->state == State::kParked) wake(0);  // it may be waiting for this
}

void Scheduler::switch_to(Agent next) {
  if (at_switch_) at_switch_();
  if (next == running_) return;
  Fiber& from = *agents_[running_];
  Fiber& to = *agents_[next];
  running_ = next;
  leave_stack(&from.fake_stack, to.stack, to.stack_bytes);
  std::move(to.suspended).resume_with([&from](context::fiber&& back) {
    from.suspended = std::move(back);
    return context::fiber();
  });
  reach_stack(from.fake_stack, nullptr, nullptr);
}

void Scheduler::wake(Agent agent) {
  Fiber& f = *agents_[agent];
  if (f.state != State::kParked) return;
  f.state = State::kRunnable;
  runnable_weight_ += f.weight;
}

void Scheduler::wake_due() {
  next_timer_ns_ = kNever;
  for (Agent a = 0; a < agents(); ++a) {
    Fiber& f = *agents_[a];
    if (f.state != State::kParked) continue;
    if (f.until_ns <= now_ns_) {
      wake(a);
    } else {
      next_timer_ns_ = std::min(next_timer_ns_, f.until_ns);
    }
  }
}

void Scheduler::fly(Trouble why) {
  if (trouble_ == Trouble::kNone) trouble_ = why;
  now_ns_ += kFlyingNs;
  pace_.ns_per_point = kFlyingNs;
  for (Agent a = 0; a < agents(); ++a) wake(a);
}

void Scheduler::keep_time() {
  if (points_ > pace_.points_limit && trouble_ == Trouble::kNone) fly(Trouble::kEndless);
  if (now_ns_ >= next_timer_ns_) wake_due();
}

// The agent that goes on. Where none can, time jumps to what is waited for.
Agent Scheduler::pick() {
  while (runnable_weight_ == 0) {
    wake_due();
    if (runnable_weight_ != 0) break;
    if (next_timer_ns_ == kNever) {
      fly(Trouble::kDeadlock);
    } else {
      now_ns_ = next_timer_ns_;
    }
  }
  std::uint32_t left = random_.below(runnable_weight_);
  for (Agent a = 0;; ++a) {
    const Fiber& f = *agents_[a];
    if (f.state != State::kRunnable) continue;
    if (left < f.weight) return a;
    left -= f.weight;
  }
}

void Scheduler::yield() {
  if (held_ == 0) switch_to(pick());
}

void Scheduler::park(std::uint64_t until_ns) {
  if (held_ != 0 || until_ns <= now_ns_) return point();
  Fiber& self = *agents_[running_];
  self.state = State::kParked;
  self.until_ns = until_ns;
  runnable_weight_ -= self.weight;
  next_timer_ns_ = std::min(next_timer_ns_, until_ns);
  switch_to(pick());
}

}  // namespace peal::sim
