// Without a doorbell record, through the command: every stage, and over the wraps of the index.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "cli/peal.hpp"

namespace peal::test {
namespace {

void expect_ring_only(const nlohmann::json& row) {
  EXPECT_EQ(row.at("doorbell"), "ring_only");
  EXPECT_EQ(row.at("submit"), "custom");
  EXPECT_EQ(row.at("dbsrc"), "mmio");
  EXPECT_EQ(row.at("validated"), true);
  EXPECT_GT(row.at("doorbells"), 0);
  EXPECT_LE(row.at("doorbells"), row.at("puts"));
}

TEST(RingOnlyRun, ValidatesEveryStageInBothPublishOrdersAndCompletionModes) {
  for (const std::string publish : {"in_order", "combine"}) {
    for (const std::string completion : {"every", "tail"}) {
      const Pair pair = run_pair(
          "--doorbell ring_only --size 0,64,4096 --iters 100 --repeat 2 --deadline 60 "
          "--publish " +
          publish + " --completion " + completion);
      expect_both(pair, 0);
      EXPECT_EQ(pair.client.err, "");
      EXPECT_EQ(pair.server.err, "");
      ASSERT_EQ(pair.rows.size(), 3u * 5);
      for (const nlohmann::json& row : pair.rows) {
        SCOPED_TRACE(row.dump());
        expect_ring_only(row);
        EXPECT_EQ(row.at("publish"), publish);
        EXPECT_EQ(row.at("completion"), completion);
      }
    }
  }
}

// One WQE, one ring, one wait: no fewer rings than PUTs, and no more.
TEST(RingOnlyRun, RingsOnceForEachPutOfTheSerialStage) {
  for (const std::string handler : {"direct", "proxy"}) {
    const Pair pair =
        run_pair("--doorbell ring_only --stages serial --size 64 --iters 50 --repeat 1 --handler " +
                 handler);
    expect_both(pair, 0);
    ASSERT_EQ(pair.rows.size(), 1u);
    expect_ring_only(pair.rows[0]);
    EXPECT_EQ(pair.rows[0].at("handler"), handler);
    EXPECT_EQ(pair.rows[0].at("doorbells"), 50);
  }
}

TEST(RingOnlyRun, ValidatesUnderAProxyAndOnSmallRingsAndAcrossWraps) {
  for (const std::string more :
       {"--handler proxy", "--fault uarfail", "--depth 1", "--depth 8 --sharing block",
        "--stages independent --sharing exclusive", "--depth 16 --fault preset=65500",
        "--depth 16 --fault preset=4294967270", "--depth 4 --fault preset=9223372036854775807",
        "--depth 16 --fault preset=65500 --handler proxy"}) {
    const std::string stages =
        contains(more, "--stages") ? "" : "--stages batch,shared,independent ";
    const Ended e =
        run_peal("ladder --doorbell ring_only --publish combine --size 64 --iters 150 --repeat 1 " +
                 stages + more);
    EXPECT_EQ(e.status, 0) << more << "\n" << e.err;
  }
}

TEST(RingOnlyRun, TellsTheFirstErrorAndAWrongPayloadLikeTheOtherOrders) {
  const Pair error = run_pair(
      "--doorbell ring_only --stages shared --size 64 --iters 300 --repeat 1 --fault cqe=0x13@50");
  expect_both(error, 3);
  EXPECT_TRUE(contains(error.client.err, "error CQE: remote access error")) << shown(error);
  const Pair corrupt = run_pair(
      "--doorbell ring_only --stages batch --size 64 --iters 300 --repeat 1 --fault corrupt@77");
  expect_both(corrupt, 1);
}

TEST(RingOnlyRun, IsRefusedInOneSentenceWhereTheRecordIsToBeBelieved) {
  const Ended e = run_peal("ladder --doorbell ring_only --dbsrc dbr");
  EXPECT_EQ(e.status, 2);
  EXPECT_EQ(e.err,
            "peal ladder: --doorbell ring_only writes no doorbell record for --dbsrc dbr to "
            "believe\n");
}

}  // namespace
}  // namespace peal::test
