// CpuMemory with a test's clock: a pause steps the NICs once and lets time pass, so that a wait
// runs on one thread, and a deadline is reached at an exact time.
#pragma once

#include <cstdint>
#include <functional>

#include "peal/memory/cpu_memory.hpp"

namespace peal::test {

struct ManualMemory : CpuMemory {
  struct Hooks {
    std::function<void()> on_pause;
    std::uint64_t now_ns = 0;
    std::uint64_t ns_per_pause = 1000;
  };
  static Hooks& hooks() {
    static thread_local Hooks h;
    return h;
  }

  static std::uint64_t now_ns() { return hooks().now_ns; }
  static void pause(std::uint32_t, std::uint64_t = 0) {
    hooks().now_ns += hooks().ns_per_pause;
    if (hooks().on_pause) hooks().on_pause();
  }
};

}  // namespace peal::test
