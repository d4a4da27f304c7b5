#include "engine/manual.hpp"

#include <gtest/gtest.h>

namespace peal::engine {
namespace {

TEST(ManualEngine, DoesNothingByItself) {
  ManualEngine engine;
  int steps = 0;
  engine.add([&](std::uint64_t) { return ++steps, true; });
  engine.advance(1000);
  EXPECT_EQ(steps, 0);
}

TEST(ManualEngine, StepsEveryCoreOnceAtItsTime) {
  ManualEngine engine;
  std::vector<std::uint64_t> seen;
  engine.add([&](std::uint64_t now_ns) { return seen.push_back(now_ns), false; });
  engine.add([&](std::uint64_t now_ns) { return seen.push_back(now_ns), true; });
  const std::uint64_t start_ns = engine.now_ns();
  EXPECT_TRUE(engine.step());
  engine.advance(42);
  EXPECT_TRUE(engine.step());
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{start_ns, start_ns, start_ns + 42, start_ns + 42}));
}

TEST(ManualEngine, SettlesWhenNoCoreHasWorkLeft) {
  ManualEngine engine;
  int left = 5;
  engine.add([&](std::uint64_t) { return left > 0 && left-- > 0; });
  EXPECT_TRUE(engine.settle());
  EXPECT_EQ(left, 0);
  EXPECT_FALSE(engine.step());
}

TEST(ManualEngine, SaysSoWhenItDoesNotSettle) {
  ManualEngine engine;
  int steps = 0;
  engine.add([&](std::uint64_t) { return ++steps, true; });
  EXPECT_FALSE(engine.settle(10));
  EXPECT_EQ(steps, 10);
}

TEST(ManualEngine, RunsACallAtOnce) {
  ManualEngine engine;
  bool ran = false;
  engine.call([&] { ran = true; });
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace peal::engine
