// Seeds without a plant find nothing, each plant is found, and a finding can be replayed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <ostream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "explore/exploration.hpp"
#include "support/scale.hpp"

namespace peal::sim {
void PrintTo(const PlantName& plant, std::ostream* to) {
  *to << plant.name;
}
}  // namespace peal::sim

namespace peal::explore {
namespace {

// What to_options wrote, as given by a user.
std::vector<Given> parse(const std::string& options) {
  std::vector<Given> given;
  std::istringstream in(options);
  std::string name;
  std::string value;
  while (in >> name >> value) given.push_back({name.substr(2), value});
  return given;
}

std::string said(const SweepResult& r) {
  if (!r.found) return "";
  return "seed " + std::to_string(r.found->seed) + ": " + r.found->finding.sentence + "\n" +
         to_options(r.found->configuration);
}

// ---- Clean --------------------------------------------------------------------------------------

constexpr std::uint64_t kParts = 8;

class CleanSeeds : public testing::TestWithParam<std::uint64_t> {};

TEST_P(CleanSeeds, FindNothing) {
  const std::uint64_t seeds = test::scaled(10'000 / kParts);
  const SweepResult r =
      sweep({.first_seed = GetParam() * seeds + 1, .last_seed = (GetParam() + 1) * seeds});
  EXPECT_FALSE(r.found) << said(r);
  EXPECT_EQ(r.seeds, seeds);
  EXPECT_GT(r.operations, 10 * seeds);
}
INSTANTIATE_TEST_SUITE_P(Part, CleanSeeds, testing::Range<std::uint64_t>(0, kParts));

// Found bugs once; docs/SIMULATION.md says which. As they were drawn then.
TEST(KeptSeeds, FindNothingAnyMore) {
  const std::map<std::uint64_t, std::string> kept = {
      // A ring that another QP of its page had overwritten, whose record the NIC saw too late.
      {231,
       "--producers 2 --qps 2 --window 4 --batch 4 --depth 8 --puts 8 --size 16 --work tickets "
       "--mixed 0 --doorbell ring_record_ring --publish in_order --sharing device --completion "
       "every --handler direct --dbsrc dbr --order strict --first 0 --one-page yes "
       "--one-nic-agent no --latency 0 --fault none --switches 20 --stale 1000"},
      {284,
       "--producers 3 --qps 2 --window 1 --batch 1 --depth 32 --puts 16 --size 4 --work window "
       "--mixed 100 --doorbell ring_record_ring --publish combine --sharing device --completion "
       "tail --handler direct --dbsrc dbr --order relaxed --first 2147483617 --one-page yes "
       "--one-nic-agent yes --latency 100 --fault none --switches 20 --stale 1000"},
  };
  for (const auto& [seed, options] : kept) {
    for (std::uint64_t i = 0; i < test::scaled(200); ++i) {
      const RunResult r = run(configuration_of(seed, parse(options)), {.seed = seed + i});
      ASSERT_FALSE(r.finding) << seed + i << ": " << r.finding.sentence;
    }
  }
}

// ---- Plants -------------------------------------------------------------------------------------

class Plants : public testing::TestWithParam<sim::PlantName> {};

TEST_P(Plants, AreFound) {
  const SweepResult r = sweep({.last_seed = 2000, .plant = GetParam().plant});
  ASSERT_TRUE(r.found) << GetParam().name << " was not found by " << r.seeds << " seeds";
  EXPECT_FALSE(r.found->finding.sentence.empty());
  // And not by a seed that would find something anyway.
  const RunResult without = run(r.found->configuration, {.seed = r.found->seed});
  EXPECT_FALSE(without.finding) << without.finding.sentence;
}
std::string plant_test_name(const testing::TestParamInfo<sim::PlantName>& plant) {
  std::string name(plant.param.name);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Each, Plants,
                         testing::ValuesIn(sim::all_plants().begin(), sim::all_plants().end()),
                         plant_test_name);

// With no record to order anything, the ring alone has to.
TEST(PlantsOfRingOnly, AreFound) {
  for (const sim::Plant plant :
       {sim::Plant::kWqesBeforeDoorbell, sim::Plant::kDoorbellAcquire, sim::Plant::kFenceScope}) {
    const SweepResult r =
        sweep({.last_seed = 2000, .given = {{"doorbell", "ring_only"}}, .plant = plant});
    ASSERT_TRUE(r.found) << sim::plant_name(plant);
    EXPECT_EQ(r.found->configuration.doorbell, DoorbellOrder::kRingOnly);
  }
}

TEST(PlantNames, AreOneToOne) {
  std::set<std::string_view> names;
  for (const sim::PlantName& p : sim::all_plants()) {
    EXPECT_TRUE(names.insert(p.name).second) << p.name;
    EXPECT_EQ(sim::plant_of(p.name), p.plant);
    EXPECT_EQ(sim::plant_name(p.plant), p.name);
  }
  EXPECT_GE(names.size(), 10u);
  EXPECT_EQ(sim::plant_of("none"), std::nullopt);
}

// ---- Replay -------------------------------------------------------------------------------------

TEST(Replay, ASeedDoesTheSameEachTime) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    const Configuration c = configuration_of(seed, {});
    const RunOptions options{.seed = seed, .trace_events = 2'000'000};
    const RunResult first = run(c, options);
    const RunResult second = run(c, options);
    ASSERT_FALSE(first.trace.empty());
    ASSERT_EQ(first.trace, second.trace) << seed;
    ASSERT_EQ(first.simulated_ns, second.simulated_ns);
    ASSERT_EQ(first.operations, second.operations);
  }
}

TEST(Replay, AFindingIsTheSameFromItsOptions) {
  const SweepResult r = sweep({.last_seed = 2000, .plant = sim::Plant::kRecordBeforeDoorbell});
  ASSERT_TRUE(r.found);
  const Configuration again =
      configuration_of(r.found->seed, parse(to_options(r.found->configuration)));
  const RunResult replayed =
      run(again, {.seed = r.found->seed, .plant = sim::Plant::kRecordBeforeDoorbell});
  EXPECT_EQ(replayed.finding.checker, r.found->finding.checker);
  EXPECT_EQ(replayed.finding.sentence, r.found->finding.sentence);
}

TEST(Replay, ATraceNamesWhatItTouches) {
  const RunResult r = run(configuration_of(1, {{"handler", "direct"}, {"doorbell", "record_ring"}}),
                          {.seed = 1, .trace_events = 1'000'000});
  std::string all;
  for (const std::string& line : r.trace) all += line + "\n";
  for (const char* name :
       {"producer 0", "nic", "qp0.sq[", "qp0.cq[", "qp0.dbrec", "qp0.doorbell", "target0[",
        "source0[", "take_doorbell_acquire", "fetch_slot ", ", 8 words"}) {
    EXPECT_NE(all.find(name), std::string::npos) << name;
  }
  EXPECT_EQ(all.find(" ? "), std::string::npos) << "a word without a name";
}

TEST(Reduce, KeepsTheFindingAndMakesItSmaller) {
  for (const sim::Plant plant : {sim::Plant::kCreditCheck, sim::Plant::kMarkAcquire}) {
    const SweepResult r = sweep({.last_seed = 2000, .plant = plant});
    ASSERT_TRUE(r.found);
    const Found small = reduce(*r.found, plant);
    EXPECT_EQ(small.finding.checker, r.found->finding.checker);
    const Configuration& a = r.found->configuration;
    const Configuration& b = small.configuration;
    EXPECT_LE(b.producers * b.puts, a.producers * a.puts);
    EXPECT_EQ(b.fault.kind, FaultKind::kNone);
    EXPECT_EQ(b.mixed, 0u);
    const RunResult again = run(b, {.seed = small.seed, .plant = plant});
    EXPECT_EQ(again.finding.sentence, small.finding.sentence);
  }
}

// ---- Configurations -----------------------------------------------------------------------------

TEST(Configurations, GoThroughOptionsAndBack) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    const std::string options = to_options(configuration_of(seed, {}));
    ASSERT_EQ(to_options(configuration_of(seed + 1'000'000, parse(options))), options);
  }
}

TEST(Configurations, DrawMoreThanOneValueOfEachOption) {
  std::map<std::string, std::set<std::string>> values;
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    for (const Given& g : parse(to_options(configuration_of(seed, {})))) {
      values[g.name].insert(g.value);
    }
  }
  for (const Option& o : all_options()) {
    if (std::string(o.name) == "timeout") continue;
    EXPECT_GE(values[o.name].size(), 2u) << o.name;
  }
}

TEST(Configurations, AGivenOptionLeavesTheOthersAsTheSeedHasThem) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Configuration c = configuration_of(seed, {{"latency", "77"}});
    EXPECT_EQ(c.latency_ns_max, 77u);
    c.latency_ns_max = configuration_of(seed, {}).latency_ns_max;
    EXPECT_EQ(to_options(c), to_options(configuration_of(seed, {})));
  }
}

TEST(Configurations, OfRingOnlyBelieveARegisterOfEachQpsOwn) {
  const auto fits = [](const Configuration& c) {
    return c.doorbell != DoorbellOrder::kRingOnly ||
           (!c.one_page && c.doorbell_source == nic::DoorbellSource::kRegister);
  };
  std::uint64_t drawn = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const Configuration c = configuration_of(seed, {});
    EXPECT_TRUE(fits(c)) << seed;
    drawn += c.doorbell == DoorbellOrder::kRingOnly ? 1 : 0;
    EXPECT_EQ(configuration_of(seed, {{"doorbell", "ring_only"}}).doorbell,
              DoorbellOrder::kRingOnly);
    EXPECT_TRUE(fits(configuration_of(seed, {{"doorbell", "ring_only"}}))) << seed;
    // What was given goes before what was drawn.
    const Configuration record = configuration_of(seed, {{"dbsrc", "dbr"}});
    EXPECT_EQ(record.doorbell_source, nic::DoorbellSource::kRecord) << seed;
    EXPECT_TRUE(fits(record)) << seed;
    const Configuration page = configuration_of(seed, {{"one-page", "yes"}});
    EXPECT_TRUE(page.one_page) << seed;
    EXPECT_TRUE(fits(page)) << seed;
  }
  EXPECT_GT(drawn, 50u);
}

TEST(Configurations, RefuseWhatIsNoValue) {
  const std::map<std::string, std::vector<std::string>> wrong = {
      {"producers", {"0", "7", "x", "", "-1", "1 "}},
      {"depth", {"0", "3", "65536"}},
      {"size", {"0", "6", "65540"}},
      {"completion", {"Every", "none"}},
      {"fault", {"cqe", "cqe=0@1", "cqe=0x13", "cqe=0x13@", "rkey", "hold=", "hold=x", "lost"}},
      {"one-page", {"maybe"}},
  };
  for (const Option& o : all_options()) {
    const auto texts = wrong.find(o.name);
    if (texts == wrong.end()) continue;
    for (const std::string& text : texts->second) {
      Configuration c;
      const std::string before = to_options(c);
      EXPECT_FALSE(o.set(c, text)) << o.name << " " << text;
      EXPECT_EQ(to_options(c), before) << o.name << " " << text;
    }
  }
}

}  // namespace
}  // namespace peal::explore
