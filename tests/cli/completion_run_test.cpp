// One CQE for each reservation, in a collapsed CQ, through the command.
#include <gtest/gtest.h>

#include <string>

#include "cli/peal.hpp"

namespace peal::test {
namespace {

TEST(CompletionRun, ValidatesEveryStageWithTails) {
  // Both ways of submitting. 100 PUTs are not a whole number of batches.
  const Pair pair =
      run_pair("--completion tail --size 0,64,4096 --iters 100 --repeat 2 --deadline 60");
  expect_both(pair, 0);
  EXPECT_EQ(pair.client.err, "");
  EXPECT_EQ(pair.server.err, "");
  ASSERT_EQ(pair.rows.size(), 3u * 5 * 2);
  for (const nlohmann::json& row : pair.rows) {
    SCOPED_TRACE(row.dump());
    EXPECT_EQ(row.at("completion"), "tail");
    EXPECT_EQ(row.at("validated"), true);
    const std::uint64_t batch = row.at("batch_effective");
    const std::uint64_t producers = row.at("producers");
    EXPECT_EQ(row.at("wqes"), 200 * producers);
    // The last batch of a repeat is a shorter one.
    EXPECT_EQ(row.at("cqes"), 2 * producers * ((100 + batch - 1) / batch));
  }
}

TEST(CompletionRun, ValidatesTailsOnSmallRingsAndAcrossWraps) {
  for (const std::string more :
       {"--depth 1", "--depth 2 --batch 2", "--depth 8", "--depth 8 --handler proxy",
        "--depth 16 --fault preset=65530", "--depth 4 --fault preset=9223372036854775807"}) {
    const Ended e = run_peal(
        "ladder --completion tail --stages batch,shared --size 64 --iters 150 "
        "--repeat 1 " +
        more);
    EXPECT_EQ(e.status, 0) << more << "\n" << e.err;
    EXPECT_EQ(e.err, "") << more;
  }
}

TEST(CompletionRun, ValidatesTailsOfEachSharing) {
  for (const std::string sharing : {"exclusive --qps 4", "block", "device"}) {
    const Ended e = run_peal(
        "ladder --completion tail --producers 4 --size 64 --iters 50 "
        "--repeat 1 --stages serial,shared --sharing " +
        sharing);
    EXPECT_EQ(e.status, 0) << sharing << "\n" << e.err;
  }
}

// A collapsed CQ does not tell which WQE failed; the NIC does.
TEST(CompletionRun, TellsTheCauseOfAnErrorUnderTails) {
  for (const std::string stage : {"serial", "window", "batch"}) {
    for (const std::string k : {"0", "41", "99"}) {
      const Pair pair = run_pair("--completion tail --stages " + stage +
                                 " --size 64 --iters 100 --repeat 1 --fault cqe=0x13@" + k);
      expect_both(pair, 3);
      expect_no_row(pair);
      for (const std::string& text : {pair.client.err, pair.server.err}) {
        for (const std::string& part :
             {std::string("or later: error CQE: remote access error (syndrome 0x13"),
              "WQE index " + std::to_string(100 + std::stoul(k)) + " (" + k +
                  " of the timed traffic), as the NIC tells"}) {
          EXPECT_TRUE(contains(text, part)) << stage << ": " << part << " in " << text;
        }
        EXPECT_EQ(lines(text), 1u) << text;
      }
    }
  }
}

TEST(CompletionRun, TellsTheCauseAcrossAWrapOfTheIndex) {
  const Ended e = run_peal(
      "ladder --completion tail --stages batch --size 64 --iters 100 --repeat 1 --fault "
      "cqe=0x13@50 --fault preset=4294967290");
  EXPECT_EQ(e.status, 3);
  EXPECT_TRUE(contains(e.err, "WQE index 4294967440 (50 of the timed traffic), as the NIC tells"))
      << e.err;
}

TEST(CompletionRun, FindsWrongPayloadUnderTails) {
  const Pair pair =
      run_pair("--completion tail --stages batch --size 64 --iters 100 --repeat 1 --fault noop@77");
  expect_both(pair, 1);
  EXPECT_TRUE(contains(pair.client.err, "PUT 77")) << shown(pair);
}

}  // namespace
}  // namespace peal::test
