// The shared stage through the command.
#include <gtest/gtest.h>

#include <string>

#include "cli/peal.hpp"

namespace peal::test {
namespace {

TEST(SharedStageRun, IsValidatedWithBothSubmits) {
  const Pair pair = run_pair("--stages shared --size 0,8,4096 --iters 700 --repeat 2");
  expect_both(pair, 0);
  ASSERT_EQ(pair.rows.size(), 6u);
  for (const auto& row : pair.rows) {
    EXPECT_EQ(row.at("stage"), "shared");
    EXPECT_EQ(row.at("producers"), 4);
    EXPECT_EQ(row.at("qps"), 1);
    EXPECT_EQ(row.at("window"), 256);
    EXPECT_EQ(row.at("batch_effective"), 32);
    EXPECT_EQ(row.at("puts"), 4 * 1400);
    EXPECT_EQ(row.at("wqes"), 4 * 1400);
    EXPECT_EQ(row.at("cqes"), 4 * 1400);
    // A batch each, or fewer where one producer rings for several.
    EXPECT_GT(row.at("doorbells"), 0);
    EXPECT_LE(row.at("doorbells"), row.at("submit") == "peal" ? 4 * 44 : 4 * 88);
  }
}

TEST(SharedStageRun, TakesAnyNumberOfProducersWindowAndBatch) {
  for (const std::string more : {"--producers 3", "--producers 7 --window 7",
                                 "--producers 2 --window 3 --batch 5", "--producers 5 --depth 2",
                                 "--producers 16 --depth 4 --batch 9", "--producers 4 --depth 1"}) {
    const Pair pair = run_pair("--stages shared --size 64 --iters 37 --repeat 1 " + more);
    expect_both(pair, 0);
    ASSERT_EQ(pair.rows.size(), 2u) << more;
  }
}

TEST(SharedStageRun, SaysTheLeastBatchAndTheWindowOfAllProducers) {
  const auto row_of = [](const std::string& more) {
    const Ended e =
        run_peal("ladder --stages shared --size 8 --repeat 1 --submit peal --json - " + more);
    EXPECT_EQ(e.status, 0) << e.err;
    return nlohmann::json::parse(e.out, nullptr, false);
  };
  // Parts of 4 and of 3.
  const nlohmann::json parts = row_of("--producers 2 --window 7 --iters 50");
  EXPECT_EQ(parts.at("batch_effective"), 3);
  EXPECT_EQ(parts.at("window_effective"), 7);
  // Four times ten PUTs are all there are.
  EXPECT_EQ(row_of("--iters 10").at("window_effective"), 40);
  // Nobody fills the queues that nobody uses.
  EXPECT_EQ(row_of("--producers 2 --qps 5 --depth 2 --iters 50").at("window_effective"), 4);
}

TEST(SharedStageRun, TellsEveryProducersFirstErrorAndNoFlush) {
  const Pair pair =
      run_pair("--stages shared --size 64 --iters 1000 --repeat 1 --fault cqe=0x13@50");
  expect_both(pair, 3);
  for (const std::string p : {"0", "1", "2", "3"}) {
    EXPECT_TRUE(contains(pair.client.err, "producer " + p + ", PUT ")) << shown(pair);
  }
  EXPECT_TRUE(contains(pair.client.err, "error CQE: remote access error")) << shown(pair);
  EXPECT_FALSE(contains(pair.client.err, "flushed")) << shown(pair);
}

TEST(SharedStageRun, FindsAWrongPayloadOfAnyProducer) {
  for (const std::string k : {"0", "333", "1999"}) {
    const Pair pair =
        run_pair("--stages shared --size 64 --iters 500 --repeat 1 --fault corrupt@" + k);
    expect_both(pair, 1);
    EXPECT_TRUE(contains(pair.client.err, "(corrupt, 1 byte wrong)")) << shown(pair);
  }
}

// The example that the published ladder measured starts 512 threads that each post, ring and wait.
TEST(SharedStageRun, RunsTheSerialStageWith512Producers) {
  const std::uint64_t iters = scaled(10);
  const Pair pair =
      run_pair("--stages serial --producers 512 --size 64 --repeat 1 --deadline 60 --iters " +
               std::to_string(iters));
  expect_both(pair, 0);
  ASSERT_EQ(pair.rows.size(), 2u);
  for (const auto& row : pair.rows) {
    EXPECT_EQ(row.at("producers"), 512);
    EXPECT_EQ(row.at("window"), 512);
    EXPECT_EQ(row.at("puts"), 512 * iters);
  }
}

}  // namespace
}  // namespace peal::test
