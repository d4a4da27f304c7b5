#include "engine/threads.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "link/loopback.hpp"
#include "peal/host/error.hpp"
#include "support/scale.hpp"
#include "verbs/software_nic.hpp"

namespace peal::engine {
namespace {

TEST(ThreadsEngine, StepsEveryCoreAgainAndAgainWithTimeThatNeverGoesBack) {
  std::atomic<int> first{0};
  std::atomic<int> second{0};
  std::uint64_t last_ns = 0;  // the engine's thread alone
  std::atomic<bool> went_back{false};
  {
    ThreadsEngine engine({[&](std::uint64_t now_ns) {
                            if (now_ns < last_ns) went_back = true;
                            last_ns = now_ns;
                            ++first;
                            return true;
                          },
                          [&](std::uint64_t) { return ++second, false; }});
    while (first < 1000 || second < 1000) std::this_thread::yield();
  }
  EXPECT_FALSE(went_back);
  const int stopped_at = first;
  std::this_thread::yield();
  EXPECT_EQ(first, stopped_at) << "a step after the engine's end";
}

// Neither the steps nor the calls guard `owned`: the engine must not let two run at once.
TEST(ThreadsEngine, RunsCallsOfManyThreadsBetweenSteps) {
  const auto calls = static_cast<int>(test::scaled(500));
  constexpr int kThreads = 4;
  std::uint64_t owned = 0;
  std::uint64_t stepped = 0;
  std::thread::id engine_thread;
  ThreadsEngine engine({[&](std::uint64_t) {
    engine_thread = std::this_thread::get_id();
    owned += 1;
    ++stepped;
    return true;
  }});
  std::atomic<int> elsewhere{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < calls; ++i) {
        bool ran = false;  // of this frame: set before call() returns
        engine.call([&] {
          owned += 1'000'000;
          ran = true;
          if (stepped != 0 && engine_thread != std::this_thread::get_id()) ++elsewhere;
        });
        EXPECT_TRUE(ran);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  std::uint64_t total = 0;
  std::uint64_t steps = 0;
  engine.call([&] {
    total = owned;
    steps = stepped;
  });
  EXPECT_EQ(total, std::uint64_t{1'000'000} * static_cast<std::uint64_t>(kThreads * calls) + steps);
  EXPECT_EQ(elsewhere, 0);
}

TEST(ThreadsEngine, AnswersACallWhileItIsIdle) {
  ThreadsEngine engine({[](std::uint64_t) { return false; }});
  for (int i = 0; i < 10; ++i) {
    bool ran = false;
    engine.call([&] { ran = true; });
    EXPECT_TRUE(ran);
  }
}

TEST(ThreadsEngine, AnswersACallWithoutAnyCore) {
  ThreadsEngine engine({});
  bool ran = false;
  engine.call([&] { ran = true; });
  EXPECT_TRUE(ran);
}

TEST(ThreadsEngine, StepsNothingMoreOnceAStepHasThrownAndTellsItInEveryCall) {
  std::uint64_t steps = 0;  // the engine's thread alone
  std::uint64_t others = 0;
  bool fails = false;
  ThreadsEngine engine({[&](std::uint64_t) {
                          ++steps;
                          if (fails) throw Error(EIO, "the memory is gone");
                          return true;
                        },
                        [&](std::uint64_t) { return ++others, true; }});
  std::uint64_t then = 0;
  engine.call([&] {
    fails = true;
    then = steps;
  });
  for (int i = 0; i < 3; ++i) {
    bool ran = false;
    try {
      engine.call([&] { ran = true; });
      ADD_FAILURE() << "nobody was told";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), EIO);
      EXPECT_EQ(e.what(), std::string("the memory is gone"));
    }
    EXPECT_FALSE(ran);
  }
  std::uint64_t other_steps[2] = {};
  for (std::uint64_t& seen : other_steps) {
    engine.call_to_undo([&] {
      EXPECT_EQ(steps, then + 1);
      seen = others;
    });
  }
  EXPECT_EQ(other_steps[0], other_steps[1]);
}

TEST(ThreadsEngine, MayBeDestroyedAtOnceWithIdleNics) {
  for (std::uint64_t i = 0; i < test::scaled(20); ++i) {
    link::Loopback loopback;
    verbs::SoftwareNic a({.nic_number = 1}, loopback.a());
    verbs::SoftwareNic b({.nic_number = 2}, loopback.b());
    ThreadsEngine engine({a.step(), b.step()});
  }
}

}  // namespace
}  // namespace peal::engine
