// Litmus tests: which outcomes the view machine shows, and which it never does. Each runs some
// thousand seeds, every one another interleaving with other choices of what is read.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "sim/random.hpp"
#include "sim/view_machine.hpp"

namespace peal::sim {
namespace {

using Values = std::vector<std::uint64_t>;

class NoWatchers final : public Watchers {
  void changed(std::uint32_t) override {}
};

// The memory of one run: a few words, all 0, and what the agents have read.
struct Machine {
  explicit Machine(std::uint64_t seed) : random(seed), machine(random, nobody) {}

  std::uint64_t load(Agent a, int i, Order order = Order::kRelaxed,
                     FenceScope scope = FenceScope::kSystem) {
    return machine.load(a, &words[i].value, 8, order, scope).value;
  }
  void store(Agent a, int i, std::uint64_t v, Order order = Order::kRelaxed,
             FenceScope scope = FenceScope::kSystem) {
    machine.store(a, &words[i].value, 8, v, order, scope);
  }
  std::uint64_t exchange(Agent a, int i, std::uint64_t v, Order order) {
    return machine
        .update(a, &words[i].value, 8, order, FenceScope::kSystem, [v](std::uint64_t) { return v; })
        .value;
  }

  struct alignas(64) Word {
    std::uint64_t value = 0;
  };
  Word words[4];
  Random random;
  NoWatchers nobody;
  ViewMachine machine;
};

using Step = std::function<void(Machine&, Values&)>;
using Program = std::vector<std::vector<Step>>;  // an agent each

// All outcomes over the seeds. `reads` is how many values a run records.
std::set<Values> outcomes(
    const Program& program, std::size_t reads,
    const std::function<void(Machine&)>& prepare = [](Machine&) {}) {
  std::set<Values> all;
  for (std::uint64_t seed = 1; seed <= 4000; ++seed) {
    Machine run(seed);
    prepare(run);
    Values values(reads);
    std::vector<std::size_t> next(program.size());
    std::size_t left = 0;
    for (const auto& steps : program) left += steps.size();
    while (left != 0) {
      const std::uint32_t a = run.random.below(static_cast<std::uint32_t>(program.size()));
      if (next[a] == program[a].size()) continue;
      program[a][next[a]++](run, values);
      --left;
    }
    all.insert(values);
  }
  return all;
}

// Agent 0 writes data (0) and flag (1); agent 1 reads the flag and the data.
Program message_passing(Order store, Order load, FenceScope scope = FenceScope::kSystem) {
  return {{[](Machine& r, Values&) { r.store(0, 0, 1); },
           [=](Machine& r, Values&) { r.store(0, 1, 1, store, scope); }},
          {[=](Machine& r, Values& v) { v[0] = r.load(1, 1, load, scope); },
           [](Machine& r, Values& v) { v[1] = r.load(1, 0); }}};
}
const Values kFlagWithoutData = {1, 0};

TEST(Litmus, MessagePassingNeedsBothEnds) {
  EXPECT_TRUE(
      outcomes(message_passing(Order::kRelaxed, Order::kAcquire), 2).contains(kFlagWithoutData));
  EXPECT_TRUE(
      outcomes(message_passing(Order::kRelease, Order::kRelaxed), 2).contains(kFlagWithoutData));
  const auto both = outcomes(message_passing(Order::kRelease, Order::kAcquire), 2);
  EXPECT_FALSE(both.contains(kFlagWithoutData));
  EXPECT_EQ(both, (std::set<Values>{{0, 0}, {0, 1}, {1, 1}}));
}

TEST(Litmus, AScopeNarrowerThanTheWayDoesNotSynchronise) {
  const auto shows = [](FenceScope scope, Place other) {
    return outcomes(message_passing(Order::kRelease, Order::kAcquire, scope), 2,
                    [other](Machine& r) { r.machine.place(1, other); })
        .contains(kFlagWithoutData);
  };
  const Place same_block{};
  const Place other_block{.block = 1};
  const Place other_device{.device = 1};
  EXPECT_FALSE(shows(FenceScope::kBlock, same_block));
  EXPECT_TRUE(shows(FenceScope::kBlock, other_block));
  EXPECT_TRUE(shows(FenceScope::kBlock, other_device));
  EXPECT_FALSE(shows(FenceScope::kDevice, other_block));
  EXPECT_TRUE(shows(FenceScope::kDevice, other_device));
  EXPECT_FALSE(shows(FenceScope::kSystem, other_device));
}

// Each writes its own word and reads the other's.
const Values kNeitherSeen = {0, 0};

TEST(Litmus, StoreBufferingIsSeenWithRelaxedStores) {
  const Program program = {{[](Machine& r, Values&) { r.store(0, 0, 1); },
                            [](Machine& r, Values& v) { v[0] = r.load(0, 1); }},
                           {[](Machine& r, Values&) { r.store(1, 1, 1); },
                            [](Machine& r, Values& v) { v[1] = r.load(1, 0); }}};
  EXPECT_TRUE(outcomes(program, 2).contains(kNeitherSeen));
}

TEST(Litmus, StoreBufferingIsSeenWithReleaseAndAcquire) {
  const Program program = {{[](Machine& r, Values&) { r.store(0, 0, 1, Order::kRelease); },
                            [](Machine& r, Values& v) { v[0] = r.load(0, 1, Order::kAcquire); }},
                           {[](Machine& r, Values&) { r.store(1, 1, 1, Order::kRelease); },
                            [](Machine& r, Values& v) { v[1] = r.load(1, 0, Order::kAcquire); }}};
  EXPECT_TRUE(outcomes(program, 2).contains(kNeitherSeen));
}

// Read-modify-writes of the words themselves do not help; of a third word that both change, they
// do.
TEST(Litmus, StoreBufferingAndReadModifyWrites) {
  const Program own = {{[](Machine& r, Values&) { r.exchange(0, 0, 1, Order::kAcqRel); },
                        [](Machine& r, Values& v) { v[0] = r.load(0, 1, Order::kAcquire); }},
                       {[](Machine& r, Values&) { r.exchange(1, 1, 1, Order::kAcqRel); },
                        [](Machine& r, Values& v) { v[1] = r.load(1, 0, Order::kAcquire); }}};
  EXPECT_TRUE(outcomes(own, 2).contains(kNeitherSeen));
  const auto third = [](Order order) -> Program {
    return {{[](Machine& r, Values&) { r.store(0, 0, 1); },
             [=](Machine& r, Values&) { r.exchange(0, 2, 1, order); },
             [](Machine& r, Values& v) { v[0] = r.load(0, 1); }},
            {[](Machine& r, Values&) { r.store(1, 1, 1); },
             [=](Machine& r, Values&) { r.exchange(1, 2, 1, order); },
             [](Machine& r, Values& v) { v[1] = r.load(1, 0); }}};
  };
  EXPECT_FALSE(outcomes(third(Order::kAcqRel), 2).contains(kNeitherSeen));
  EXPECT_TRUE(outcomes(third(Order::kRelaxed), 2).contains(kNeitherSeen));
}

TEST(Litmus, StoreBufferingIsNotSeenAcrossSequentiallyConsistentFences) {
  const auto program = [](bool second_fences) -> Program {
    return {{[](Machine& r, Values&) { r.store(0, 0, 1); },
             [](Machine& r, Values&) { r.machine.fence_seq_cst(0); },
             [](Machine& r, Values& v) { v[0] = r.load(0, 1); }},
            {[](Machine& r, Values&) { r.store(1, 1, 1); },
             [=](Machine& r, Values&) {
               if (second_fences) r.machine.fence_seq_cst(1);
             },
             [](Machine& r, Values& v) { v[1] = r.load(1, 0); }}};
  };
  EXPECT_FALSE(outcomes(program(true), 2).contains(kNeitherSeen));
  EXPECT_TRUE(outcomes(program(false), 2).contains(kNeitherSeen)) << "one fence is not enough";
}

// Two writers, two readers that read the two words in opposite orders.
Program independent_writes(bool fences, Order load) {
  const auto reader = [=](Agent a, int first, int second, std::size_t at) -> std::vector<Step> {
    return {[=](Machine& r, Values& v) { v[at] = r.load(a, first, load); },
            [=](Machine& r, Values&) {
              if (fences) r.machine.fence_seq_cst(a);
            },
            [=](Machine& r, Values& v) { v[at + 1] = r.load(a, second, load); }};
  };
  return {{[](Machine& r, Values&) { r.store(0, 0, 1, Order::kRelease); }},
          {[](Machine& r, Values&) { r.store(1, 1, 1, Order::kRelease); }},
          reader(2, 0, 1, 0),
          reader(3, 1, 0, 2)};
}
const Values kOppositeOrders = {1, 0, 1, 0};

TEST(Litmus, IndependentWritesAreSeenInOppositeOrders) {
  EXPECT_TRUE(outcomes(independent_writes(false, Order::kAcquire), 4).contains(kOppositeOrders));
}

TEST(Litmus, IndependentWritesAreSeenInOneOrderAcrossFences) {
  EXPECT_FALSE(outcomes(independent_writes(true, Order::kAcquire), 4).contains(kOppositeOrders));
}

// Agent 0 tells agent 1, who tells agent 2.
Program through_a_third(Order second_load) {
  return {{[](Machine& r, Values&) { r.store(0, 0, 1); },
           [](Machine& r, Values&) { r.store(0, 1, 1, Order::kRelease); }},
          {[](Machine& r, Values& v) { v[0] = r.load(1, 1, Order::kAcquire); },
           [](Machine& r, Values&) { r.store(1, 2, 1, Order::kRelease); }},
          {[=](Machine& r, Values& v) { v[1] = r.load(2, 2, second_load); },
           [](Machine& r, Values& v) { v[2] = r.load(2, 0); }}};
}
const Values kToldWithoutData = {1, 1, 0};

TEST(Litmus, PublishingThroughAThirdAgentHolds) {
  EXPECT_FALSE(outcomes(through_a_third(Order::kAcquire), 3).contains(kToldWithoutData));
  EXPECT_TRUE(outcomes(through_a_third(Order::kRelaxed), 3).contains(kToldWithoutData));
}

// A read-modify-write continues the release of the store it read; a plain store ends it.
TEST(Litmus, AReleaseLivesOnThroughReadModifyWritesOnly) {
  const auto program = [](bool rmw) -> Program {
    return {{[](Machine& r, Values&) { r.store(0, 0, 1); },
             [](Machine& r, Values&) { r.store(0, 1, 1, Order::kRelease); }},
            {[=](Machine& r, Values& v) {
              if (rmw) {
                v[0] = r.exchange(1, 1, 2, Order::kRelaxed);
              } else {
                v[0] = r.load(1, 1);
                r.store(1, 1, 2);
              }
            }},
            {[](Machine& r, Values& v) { v[1] = r.load(2, 1, Order::kAcquire); },
             [](Machine& r, Values& v) { v[2] = r.load(2, 0); }}};
  };
  const Values end_without_data = {1, 2, 0};
  EXPECT_FALSE(outcomes(program(true), 3).contains(end_without_data));
  EXPECT_TRUE(outcomes(program(false), 3).contains(end_without_data));
}

TEST(Litmus, OneWordIsNeverReadBackwards) {
  const Program program = {{[](Machine& r, Values&) { r.store(0, 0, 1); },
                            [](Machine& r, Values&) { r.store(0, 0, 2); }},
                           {[](Machine& r, Values& v) { v[0] = r.load(1, 0); },
                            [](Machine& r, Values& v) { v[1] = r.load(1, 0); }}};
  const auto all = outcomes(program, 2);
  for (const Values& v : all) EXPECT_LE(v[0], v[1]);
  EXPECT_TRUE(all.contains({0, 1})) << "but it may be read late";
  EXPECT_TRUE(all.contains({0, 0}));
}

TEST(Litmus, AnAgentReadsItsOwnStores) {
  const Program program = {{[](Machine& r, Values&) { r.store(0, 0, 1); },
                            [](Machine& r, Values& v) { v[0] = r.load(0, 0); }},
                           {[](Machine& r, Values&) { r.store(1, 0, 2); }}};
  for (const Values& v : outcomes(program, 1)) EXPECT_NE(v[0], 0u);
}

// What is not modelled: a load never returns what is stored after it.
TEST(Litmus, LoadBufferingIsNotShown) {
  const Program program = {{[](Machine& r, Values& v) { v[0] = r.load(0, 0); },
                            [](Machine& r, Values&) { r.store(0, 1, 1); }},
                           {[](Machine& r, Values& v) { v[1] = r.load(1, 1); },
                            [](Machine& r, Values&) { r.store(1, 0, 1); }}};
  EXPECT_FALSE(outcomes(program, 2).contains({1, 1}));
}

TEST(Litmus, ReadModifyWritesNeverMissOneAnother) {
  const auto add = [](Agent a) {
    return [a](Machine& r, Values&) {
      r.machine.update(a, &r.words[0].value, 8, Order::kRelaxed, FenceScope::kSystem,
                       [](std::uint64_t old) { return old + 1; });
    };
  };
  const Program program = {{add(0), add(0)}, {add(1), add(1)}, {add(2), add(2)}};
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Machine run(seed);
    Values none;
    for (const auto& steps : program) {
      for (const Step& step : steps) step(run, none);
    }
    ASSERT_EQ(run.words[0].value, 6u);
  }
}

// A compare-swap that fails is a load: it may fail on a store that is no longer the newest.
TEST(Litmus, AFailedCompareSwapMayHaveReadAnOldStore) {
  const Program program = {
      {[](Machine& r, Values&) { r.store(0, 0, 1); }}, {[](Machine& r, Values& v) {
        bool swapped = false;
        v[0] = r.machine
                   .compare_swap(1, &r.words[0].value, 8, 1, 2, Order::kRelaxed,
                                 FenceScope::kSystem, &swapped)
                   .value;
        v[1] = swapped ? 1 : 0;
        v[2] = r.words[0].value;
      }}};
  const auto all = outcomes(program, 3);
  EXPECT_TRUE(all.contains({1, 1, 2})) << "succeeds on the newest";
  EXPECT_TRUE(all.contains({0, 0, 1})) << "fails on an old one";
  for (const Values& v : all) EXPECT_FALSE(v[0] == 0 && v[1] == 1);
}

TEST(ViewMachine, PayloadIsOneStoreARange) {
  bool old_seen = false;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Machine run(seed);
    std::vector<std::byte> memory(256, std::byte{0});
    const std::vector<std::byte> ones(100, std::byte{1});
    run.machine.write_range(0, memory.data() + 4, ones.data(), 100);
    std::vector<std::byte> seen(256);
    run.machine.read_range(1, memory.data(), seen.data(), 256);
    for (std::size_t i = 0; i < 256; ++i) {
      const bool inside = i >= 4 && i < 104;
      ASSERT_EQ(seen[i], inside ? seen[4] : std::byte{0}) << i;
    }
    old_seen |= seen[4] == std::byte{0};
    ASSERT_EQ(memory[50], std::byte{1}) << "memory itself holds the newest";
  }
  EXPECT_TRUE(old_seen);
}

TEST(ViewMachine, TakesOverWhatIsWrittenFromOutside) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Machine run(seed);
    run.store(0, 0, 1);
    run.words[0].value = 7;
    ASSERT_EQ(run.load(1, 0), 7u);
    run.store(0, 0, 8);
    run.machine.settle();
    ASSERT_EQ(run.load(1, 0), 8u);
  }
}

}  // namespace
}  // namespace peal::sim
