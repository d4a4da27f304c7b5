// The independent stage through the command.
#include <gtest/gtest.h>

#include <string>

#include "cli/peal.hpp"

namespace peal::test {
namespace {

TEST(IndependentStageRun, IsValidatedWithTheSlotsOfTheSharedStage) {
  const Pair pair = run_pair("--stages shared,independent --size 0,8,4096 --iters 700 --repeat 2");
  expect_both(pair, 0);
  ASSERT_EQ(pair.rows.size(), 12u);
  for (const auto& row : pair.rows) {
    const bool independent = row.at("stage") == "independent";
    EXPECT_EQ(row.at("producers"), 4);
    EXPECT_EQ(row.at("qps"), independent ? 4 : 1);
    EXPECT_EQ(row.at("depth"), independent ? 256 : 1024);
    EXPECT_EQ(row.at("window"), 256);
    EXPECT_EQ(row.at("batch_effective"), 32);
    EXPECT_EQ(row.at("puts"), 4 * 1400);
    EXPECT_EQ(row.at("cqes"), 4 * 1400);
    // Nobody rings for another here.
    if (independent) {
      EXPECT_EQ(row.at("doorbells"), row.at("submit") == "peal" ? 4 * 44 : 4 * 88);
    }
  }
}

TEST(IndependentStageRun, TakesAnyNumberOfProducersAndQps) {
  for (const std::string more :
       {"--producers 3 --qps 2", "--producers 1 --qps 1", "--producers 7 --qps 3 --window 7",
        "--producers 5 --qps 5 --depth 2", "--producers 9 --qps 4 --depth 4 --batch 64",
        "--producers 2 --qps 5"}) {
    const Pair pair = run_pair("--stages independent --size 64 --iters 101 --repeat 1 " + more);
    expect_both(pair, 0);
    ASSERT_EQ(pair.rows.size(), 2u) << more;
    for (const auto& row : pair.rows) EXPECT_EQ(row.at("validated"), true);
  }
}

TEST(IndependentStageRun, ValidatesWithAQueueThatNobodyShares) {
  const Pair pair =
      run_pair("--stages independent --size 64 --iters 300 --repeat 1 --sharing exclusive");
  expect_both(pair, 0);
  ASSERT_EQ(pair.rows.size(), 2u);
  EXPECT_EQ(pair.rows[0].at("sharing"), "exclusive");
}

TEST(IndependentStageRun, ServesMoreThanAThousandQps) {
  const std::string producers = std::to_string(scaled(1024));
  const std::string qps = std::to_string(scaled(1026));
  const Ended e =
      run_peal("ladder --stages independent --producers " + producers + " --qps " + qps +
               " --size 8 --iters 10 --repeat 1 --depth 16 --submit peal --deadline 60");
  EXPECT_EQ(e.status, 0) << e.err;
}

TEST(IndependentStageRun, CommitsAFaultOnTheQpThatIsNamed) {
  const Pair pair =
      run_pair("--stages independent --size 64 --iters 100 --repeat 1 --fault corrupt@17/qp=2");
  expect_both(pair, 1);
  EXPECT_TRUE(contains(pair.client.err, "producer 2, PUT 17, ")) << shown(pair);
}

TEST(IndependentStageRun, EndsAllProducersWhenOneQpFails) {
  const Pair pair =
      run_pair("--stages independent --size 64 --iters 2000 --repeat 1 --fault cqe=0x13@5/qp=1");
  expect_both(pair, 3);
  EXPECT_TRUE(contains(pair.client.err, "producer 1, PUT 5: error CQE")) << shown(pair);
}

// A producer whose queue is held does not wait for its own deadline when another has failed.
TEST(IndependentStageRun, EndsAProducerWhoseQueueIsHeldWhenAnotherFails) {
  const Pair pair = run_pair(
      "--stages independent --size 64 --iters 100 --repeat 1 --deadline 30 "
      "--fault cqe=0x13@5/qp=1 --fault hold=600000");
  expect_both(pair, 3);
  EXPECT_TRUE(contains(pair.client.err, "producer 1, PUT 5: error CQE")) << shown(pair);
  EXPECT_FALSE(contains(pair.client.err, "no completion within")) << shown(pair);
}

TEST(IndependentStageRun, RatesAreThoseOfAllProducersOverTheWholeTime) {
  // One queue is held: the time lasts until its producer is done, and its latencies count.
  const Pair pair =
      run_pair("--stages independent --size 4096 --iters 50 --repeat 1 --batch 1 --fault hold=100");
  expect_both(pair, 0);
  ASSERT_EQ(pair.rows.size(), 2u);
  for (const auto& row : pair.rows) {
    const double seconds = row.at("seconds").get<double>();
    EXPECT_GE(seconds, 0.1);
    EXPECT_GE(row.at("latency_ns_max").get<double>(), 100e6);
    EXPECT_NEAR(row.at("mpps").get<double>() * seconds * 1e6, 200, 0.01);
    EXPECT_NEAR(row.at("gbps").get<double>() * seconds * 1e9, 200 * 4096 * 8, 100);
  }
}

TEST(IndependentStageRun, RefusesTwoEndsWithDifferentNumbersOfQps) {
  const Pair pair =
      run_pair("--stages independent --size 64 --iters 5 --qps 2", "--stages independent --qps 4");
  expect_both(pair, 2);
  for (const std::string& err : {pair.client.err, pair.server.err}) {
    EXPECT_TRUE(contains(err, "qps")) << shown(pair);
    EXPECT_TRUE(contains(err, "2") && contains(err, "4")) << shown(pair);
  }
}

}  // namespace
}  // namespace peal::test
