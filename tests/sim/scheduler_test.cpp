// The scheduler, and how agents that poll are parked.
#include "sim/scheduler.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "peal/device/wait.hpp"
#include "sim/sim_memory.hpp"
#include "sim/simulation.hpp"

namespace peal::sim {
namespace {

// Which agents went on, in order, where three count to five each.
std::string order_of(std::uint64_t seed) {
  Random random(seed);
  Scheduler scheduler(random, {.switches_per_mille = 500});
  std::string order;
  int left = 3;
  for (char name = 'a'; name != 'd'; ++name) {
    scheduler.start(std::string(1, name), 1, [&, name] {
      for (int i = 0; i < 5; ++i) {
        order += name;
        scheduler.point();
      }
      --left;
    });
  }
  while (left != 0) scheduler.yield();
  return order;
}

TEST(Scheduler, TheOrderComesFromTheSeed) {
  EXPECT_EQ(order_of(1).size(), 15u);
  EXPECT_EQ(order_of(1), order_of(1));
  int different = 0;
  for (std::uint64_t seed = 2; seed < 12; ++seed) different += order_of(seed) != order_of(1);
  EXPECT_GT(different, 5);
}

TEST(Scheduler, AHeavyAgentGoesOnMoreOften) {
  Random random(3);
  Scheduler scheduler(random, {.switches_per_mille = 1000});
  int light = 0;
  int heavy = 0;
  bool stop = false;
  int left = 2;
  const auto count = [&](int& turns) {
    return [&] {
      while (!stop) {
        ++turns;
        scheduler.point();
      }
      --left;
    };
  };
  scheduler.start("light", 1, count(light));
  scheduler.start("heavy", 9, count(heavy));
  while (light + heavy < 5000) scheduler.yield();
  stop = true;
  while (left != 0) scheduler.yield();
  EXPECT_GT(heavy, 5 * light);
  EXPECT_GT(light, 0);
}

TEST(Scheduler, AParkedAgentGoesOnExactlyAtItsTime) {
  Random random(1);
  Scheduler scheduler(random, {});
  std::uint64_t woken_ns = 0;
  scheduler.start("sleeper", 1, [&] {
    scheduler.park(123'456);
    woken_ns = scheduler.now_ns();
  });
  while (woken_ns == 0) scheduler.park(1'000'000);
  EXPECT_EQ(woken_ns, 123'456u);
}

TEST(Scheduler, AParkedAgentGoesOnWhenItIsWoken) {
  Random random(1);
  Scheduler scheduler(random, {});
  std::uint64_t woken_ns = 0;
  const Agent sleeper = scheduler.start("sleeper", 1, [&] {
    scheduler.park(Scheduler::kNever);
    woken_ns = scheduler.now_ns();
  });
  scheduler.park(500);
  scheduler.wake(sleeper);
  scheduler.park(1'000);
  EXPECT_EQ(woken_ns, 500u);
}

TEST(Scheduler, ReportsThatNobodyCanGoOn) {
  Random random(1);
  Scheduler scheduler(random, {});
  bool ended = false;
  scheduler.start("waits for ever", 1, [&] {
    scheduler.park(Scheduler::kNever);
    ended = true;
  });
  EXPECT_EQ(scheduler.trouble(), Scheduler::Trouble::kNone);
  scheduler.park(Scheduler::kNever);
  while (!ended) scheduler.yield();
  EXPECT_EQ(scheduler.trouble(), Scheduler::Trouble::kDeadlock);
}

TEST(Scheduler, ReportsARunWithoutEndAndLetsTimeFly) {
  Random random(1);
  Scheduler scheduler(random, {.points_limit = 10'000});
  // Ends by its deadline only, which is a year away.
  constexpr std::uint64_t kYearNs = 365ull * 24 * 3600 * 1'000'000'000;
  while (scheduler.now_ns() < kYearNs) scheduler.point();
  EXPECT_EQ(scheduler.trouble(), Scheduler::Trouble::kEndless);
}

TEST(Scheduler, WhileItIsHeldNobodyElseGoesOn) {
  Random random(1);
  Scheduler scheduler(random, {.switches_per_mille = 1000});
  int turns = 0;
  scheduler.start("other", 1, [&] { ++turns; });
  scheduler.hold();
  for (int i = 0; i < 100; ++i) scheduler.point();
  EXPECT_EQ(turns, 0);
  scheduler.release();
  while (turns == 0) scheduler.point();
}

// Polls until `word` is 1; true if it was by then.
bool poll(const std::uint64_t* word, std::uint64_t timeout_ns, int* polls) {
  Wait<SimMemory> wait(timeout_ns);
  for (;;) {
    ++*polls;
    if (SimMemory::load_latch_acquire(word, FenceScope::kSystem) == 1) return true;
    if (wait.turn_until_deadline()) return false;
  }
}

TEST(Polling, AnAgentThatReadsTheSameIsParkedUntilItChanges) {
  Simulation simulation({.seed = 5, .stale_per_mille = 0});
  std::uint64_t word = 0;
  int polls = 0;
  bool seen = false;
  simulation.start("poller", {}, 1, [&] { seen = poll(&word, 1'000'000'000, &polls); });
  simulation.scheduler().park(500'000'000);
  const int before = polls;
  EXPECT_LE(before, 3) << "it does not spin";
  SimMemory::store_relaxed(&word, std::uint64_t{1});
  simulation.scheduler().park(600'000'000);
  EXPECT_TRUE(seen);
  EXPECT_LE(polls, before + 2);
}

TEST(Polling, AStoreThatIsNotSeenYetIsLookedForAgain) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Simulation simulation({.seed = seed, .stale_per_mille = 1000});
    std::uint64_t word = 0;
    int polls = 0;
    bool seen = false;
    simulation.start("poller", {}, 1, [&] { seen = poll(&word, 1'000'000'000, &polls); });
    simulation.scheduler().park(1'000);
    SimMemory::store_relaxed(&word, std::uint64_t{1});
    simulation.scheduler().park(2'000'000);
    ASSERT_TRUE(seen) << seed;
  }
}

TEST(Polling, AWaitEndsAtItsDeadline) {
  Simulation simulation({.seed = 5});
  std::uint64_t word = 0;
  int polls = 0;
  const std::uint64_t start_ns = SimMemory::now_ns();
  EXPECT_FALSE(poll(&word, 3'000'000, &polls));
  EXPECT_GE(SimMemory::now_ns() - start_ns, 3'000'000u);
  EXPECT_LT(SimMemory::now_ns() - start_ns, 3'010'000u);
  EXPECT_LT(simulation.overrun_ns_max(), 10'000u);
  EXPECT_EQ(simulation.scheduler().trouble(), Scheduler::Trouble::kNone);
}

}  // namespace
}  // namespace peal::sim
