// The batch stage through the command.
#include <gtest/gtest.h>

#include <string>

#include "cli/peal.hpp"

namespace peal::test {
namespace {

TEST(BatchStageRun, IsValidatedWithOneDoorbellForABatch) {
  const Pair pair = run_pair("--stages batch --size 0,8,4096 --iters 700 --repeat 2");
  expect_both(pair, 0);
  ASSERT_EQ(pair.rows.size(), 6u);
  for (const auto& row : pair.rows) {
    EXPECT_EQ(row.at("stage"), "batch");
    EXPECT_EQ(row.at("window"), 256);
    EXPECT_EQ(row.at("batch"), 32);
    EXPECT_EQ(row.at("batch_effective"), 32);
    EXPECT_EQ(row.at("puts"), 1400);
    EXPECT_EQ(row.at("wqes"), 1400);
    // 21 whole batches and one of 28, twice.
    EXPECT_EQ(row.at("doorbells"), row.at("submit") == "peal" ? 44 : 88);
    EXPECT_TRUE(row.at("latency_ns_p50").is_null());
  }
}

TEST(BatchStageRun, SaysTheBatchThatWindowAndRingAllow) {
  const auto row_of = [](const std::string& more) {
    const Pair pair =
        run_pair("--stages batch --size 8 --iters 300 --repeat 1 --submit peal " + more);
    expect_both(pair, 0);
    return pair.rows.size() == 1 ? pair.rows[0] : nlohmann::json::object();
  };
  EXPECT_EQ(row_of("--batch 7").value("batch_effective", 0), 7);
  EXPECT_EQ(row_of("-l 7").value("batch", 0), 7);
  EXPECT_EQ(row_of("--batch 1000 --window 20").value("batch_effective", 0), 20);
  EXPECT_EQ(row_of("--batch 1000 --window 20").value("batch", 0), 1000);
  EXPECT_EQ(row_of("--batch 64 --depth 4").value("batch_effective", 0), 4);
  EXPECT_EQ(row_of("--batch 64 --depth 1").value("batch_effective", 0), 1);
}

TEST(BatchStageRun, ValidatesManyMoreWqesThanSixteenBitsCanTellApart) {
  const std::uint64_t iters = scaled(3 * 65536 + 7);
  const Pair pair =
      run_pair("--stages batch --size 8 --repeat 1 --depth 64 --submit peal --iters " +
               std::to_string(iters) + " --fault preset=65500 --deadline 60");
  expect_both(pair, 0);
  ASSERT_EQ(pair.rows.size(), 1u);
  EXPECT_EQ(pair.rows[0].at("puts"), iters);
}

TEST(BatchStageRun, ReportsAnErrorInsideABatch) {
  const Pair pair = run_pair("--stages batch --size 64 --iters 100 --repeat 1 --fault cqe=0x13@50");
  expect_both(pair, 3);
  EXPECT_TRUE(contains(pair.client.err, "PUT 50: error CQE: remote access error")) << shown(pair);
  EXPECT_TRUE(contains(pair.client.err, "(50 of the timed traffic)")) << shown(pair);
}

TEST(BatchStageRun, FindsAWrongPayloadInsideABatch) {
  const Pair pair = run_pair("--stages batch --size 64 --iters 100 --repeat 1 --fault noop@77");
  expect_both(pair, 1);
  EXPECT_TRUE(contains(pair.client.err, "PUT 77")) << shown(pair);
}

TEST(BatchStageRun, RefusesABatchThatCannotBe) {
  expect_refusal(words("ladder --batch 0"), "--batch");
  expect_refusal(words("ladder --batch many"), "--batch");
  expect_refusal(words("ladder --batch 32769"), "--batch");
  expect_refusal(words("ladder --stages serial,window --batch 8"), "whose batch is 1");
}

}  // namespace
}  // namespace peal::test
