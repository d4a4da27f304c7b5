// The window stage through the command.
#include <gtest/gtest.h>

#include <string>

#include "cli/peal.hpp"

namespace peal::test {
namespace {

TEST(WindowStageRun, IsValidatedAndSaysItsWindowAndLatencies) {
  const Pair pair = run_pair("--stages window --size 0,8,4096 --iters 700 --repeat 2");
  expect_both(pair, 0);
  ASSERT_EQ(pair.rows.size(), 6u);
  for (const auto& row : pair.rows) {
    EXPECT_EQ(row.at("stage"), "window");
    EXPECT_EQ(row.at("window"), 256);
    EXPECT_EQ(row.at("window_effective"), 256);
    EXPECT_EQ(row.at("batch"), 1);
    EXPECT_EQ(row.at("puts"), 1400);
    EXPECT_EQ(row.at("doorbells"), row.at("submit") == "peal" ? 1400 : 2800);
    EXPECT_GT(row.at("latency_ns_p50").get<double>(), 0);
    EXPECT_LE(row.at("latency_ns_p50"), row.at("latency_ns_p99"));
    EXPECT_LE(row.at("latency_ns_p99"), row.at("latency_ns_max"));
  }
}

TEST(WindowStageRun, FollowsTheSerialOneWhichKeepsItsWindow) {
  const Pair pair =
      run_pair("--stages serial,window --size 8 --iters 30 --repeat 1 --window 9 --submit peal");
  expect_both(pair, 0);
  ASSERT_EQ(pair.rows.size(), 2u);
  EXPECT_EQ(pair.rows[0].at("window"), 1);
  EXPECT_GT(pair.rows[0].at("latency_ns_p50").get<double>(), 0);
  EXPECT_EQ(pair.rows[1].at("window"), 9);
}

TEST(WindowStageRun, SaysWhatOfTheWindowTheRingOrTheRegionHolds) {
  const auto effective = [](const std::string& more) {
    const Pair pair =
        run_pair("--stages window --size 64 --iters 300 --repeat 1 --submit peal " + more);
    expect_both(pair, 0);
    return pair.rows.size() == 1 ? pair.rows[0].at("window_effective").get<int>() : -1;
  };
  EXPECT_EQ(effective("--depth 8"), 8);
  EXPECT_EQ(effective("--window 1000000 --depth 64"), 64);
  const int held = effective("--region 4K");
  EXPECT_GT(held, 1);
  EXPECT_LT(held, 64);
}

// What the NIC makes wait is in the numbers: no time is taken before the last completion.
TEST(WindowStageRun, CountsTheWaitForTheLastCompletionInItsTimeAndLatencies) {
  const std::string traffic = "--stages window --size 64 --iters 20 --submit peal ";
  const Pair held = run_pair(traffic + "--repeat 2 --fault hold=100");
  expect_both(held, 0);
  ASSERT_EQ(held.rows.size(), 1u);
  EXPECT_GE(held.rows[0].at("seconds").get<double>(), 0.1);
  EXPECT_GE(held.rows[0].at("latency_ns_max").get<double>(), 100e6);
  const Pair delayed = run_pair(traffic + "--repeat 1 --fault delay=50000");
  expect_both(delayed, 0);
  ASSERT_EQ(delayed.rows.size(), 1u);
  EXPECT_GE(delayed.rows[0].at("latency_ns_p50").get<double>(), 50e6);
}

TEST(WindowStageRun, ReportsAnErrorInsideTheWindowAndTheCountBeforeIt) {
  const Pair pair =
      run_pair("--stages window --size 64 --iters 100 --repeat 1 --fault cqe=0x13@50");
  expect_both(pair, 3);
  EXPECT_TRUE(contains(pair.client.err, "PUT 50: error CQE: remote access error")) << shown(pair);
  // After as many PUTs of warm-up.
  EXPECT_TRUE(contains(pair.client.err, "WQE index 150 (50 of the timed traffic)")) << shown(pair);
}

TEST(WindowStageRun, FindsAWrongPayloadInsideTheWindow) {
  const Pair pair = run_pair("--stages window --size 64 --iters 100 --repeat 1 --fault corrupt@77");
  expect_both(pair, 1);
  EXPECT_TRUE(contains(pair.client.err, "PUT 77")) << shown(pair);
}

TEST(WindowStageRun, RefusesAWindowThatCannotBe) {
  expect_refusal(words("ladder --window 0"), "--window");
  expect_refusal(words("ladder --window x"), "--window");
  expect_refusal(words("ladder --window 1048577"), "--window");
  expect_refusal(words("ladder --stages serial --window 8"), "the one whose window is 1");
  expect_refusal(words("ladder --stages window --producers 4 --window 3"), "each needs one");
}

TEST(WindowStageRun, ServerThatWantsAnotherWindowRefuses) {
  const Pair pair =
      run_pair("--stages window --size 64 --iters 5 --window 8", "--window 9 --stages window");
  EXPECT_EQ(pair.client.status, 2) << shown(pair);
  EXPECT_TRUE(contains(pair.client.err, "window")) << shown(pair);
}

}  // namespace
}  // namespace peal::test
