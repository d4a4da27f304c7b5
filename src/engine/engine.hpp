// What runs the NIC cores. An engine owns the thread (or the test) that steps them.
#pragma once

#include <cstdint>
#include <functional>

namespace peal::engine {

// One thing to step: a core. True when it did something.
using Step = std::function<bool(std::uint64_t now_ns)>;

class Engine {
 public:
  virtual ~Engine() = default;

  // Runs `f` between two steps, so that it may change what the steps read, and returns when it has
  // run. Any thread. Throws what `f` throws, peal::Error when the engine does not answer within its
  // deadline, and, once a step has thrown, what that was; in the last two cases `f` has not run and
  // never will.
  virtual void call(const std::function<void()>& f) = 0;

  // The same for what takes something apart: runs also when a step has thrown, after which nothing
  // is stepped any more.
  virtual void call_to_undo(const std::function<void()>& f) { call(f); }
};

}  // namespace peal::engine
