// Where the queue pairs stood when a deadline passed, through the command.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "cli/peal.hpp"

namespace peal::test {
namespace {

// The lines of `text` that have `part`.
std::vector<std::string> lines_with(const std::string& text, const std::string& part) {
  std::vector<std::string> found;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (contains(line, part)) found.push_back(line);
  }
  return found;
}

TEST(DumpRun, NamesTheWqeThatIsHeld) {
  const std::string traffic =
      "--stages serial --submit peal --size 64 --iters 20 --repeat 1 --deadline 1 "
      "--fault hold=60000";
  const Pair pair = run_pair(traffic);
  expect_both(pair, 4);
  expect_no_row(pair);
  const Ended alone = run_peal("ladder " + traffic);
  EXPECT_EQ(alone.status, 4);
  for (const std::string& text : {pair.client.err, alone.err}) {
    // After the sentence.
    EXPECT_LT(text.find("no completion within 1 s"), text.find(": client: ")) << text;
    EXPECT_EQ(lines(text), 5u) << text;
    for (const char* part :
         {": client: 21 reserved, 21 published, 21 rung, 20 completed",
          ": NIC: RTS, 21 posted, 20 fetched, 20 completed; doorbell record 21; 0 WQEs "
          "outstanding; PSN ",
          "20 CQEs produced", ": NIC: oldest WQE: index 20, RDMA_WRITE, not fetched, held for ",
          "by an injected fault", ": NIC: rules: none broken; no error"}) {
      EXPECT_TRUE(contains(text, part)) << part << " in " << text;
    }
  }
  // Only where it was seen.
  EXPECT_FALSE(contains(pair.server.err, "oldest WQE")) << pair.server.err;
}

TEST(DumpRun, NamesTheWqeWhoseCqeIsLate) {
  const Ended e = run_peal(
      "ladder --stages serial --submit peal --size 64 --iters 20 --repeat 1 --deadline 1 "
      "--fault delay=60000000");
  EXPECT_EQ(e.status, 4);
  EXPECT_TRUE(contains(e.err, "; 1 WQE outstanding; PSN ")) << e.err;
  EXPECT_TRUE(contains(e.err, "oldest WQE: index 20, RDMA_WRITE, done, its CQE is due in "))
      << e.err;
}

TEST(DumpRun, TellsEachQpConcernedOnceAndNoOther) {
  const Ended e = run_peal(
      "ladder --stages independent --submit peal --producers 4 --qps 2 --size 64 --iters 20 "
      "--repeat 1 --deadline 1 --fault hold=60000");
  EXPECT_EQ(e.status, 4);
  // The hold is the first QP's; the producers of the other one have ended well or were stopped.
  EXPECT_EQ(lines_with(e.err, ": client: ").size(), 1u) << e.err;
  EXPECT_EQ(lines_with(e.err, "oldest WQE: index 80").size(), 0u) << e.err;
  EXPECT_EQ(lines_with(e.err, "oldest WQE: index 40").size(), 1u) << e.err;
}

TEST(DumpRun, ComesWithTailsToo) {
  const Ended e = run_peal(
      "ladder --completion tail --stages batch --submit peal --size 64 --iters 40 --repeat 1 "
      "--deadline 1 --fault hold=60000");
  EXPECT_EQ(e.status, 4);
  EXPECT_TRUE(contains(e.err, "PUT 0 or later: no completion within 1 s")) << e.err;
  EXPECT_TRUE(contains(e.err, "oldest WQE: index 40, RDMA_WRITE, not fetched")) << e.err;
}

TEST(DumpRun, DoesNotComeWithoutADeadline) {
  const Ended e =
      run_peal("ladder --stages serial --size 64 --iters 20 --repeat 1 --fault cqe=0x13@5");
  EXPECT_EQ(e.status, 3);
  EXPECT_EQ(lines(e.err), 1u) << e.err;
}

}  // namespace
}  // namespace peal::test
