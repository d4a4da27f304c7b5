// `peal explore` as its users run it.
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "cli/peal.hpp"

namespace peal::test {
namespace {

std::string last_line(const std::string& text) {
  const std::string trimmed = text.substr(0, text.find_last_not_of('\n') + 1);
  return trimmed.substr(trimmed.rfind('\n') + 1);
}

TEST(Explore, SaysItsSeedsFirstAndThatNothingWasFound) {
  const Ended e = run_peal("explore --seeds 5..24");
  EXPECT_EQ(e.status, 0) << e.out;
  EXPECT_EQ(e.out.substr(0, e.out.find('\n')), "explore: seeds 5..24");
  EXPECT_TRUE(contains(e.out, "20 seeds, nothing found")) << e.out;
  EXPECT_EQ(e.err, "");
}

TEST(Explore, OneSeedSaysItsOptions) {
  const Ended e = run_peal("explore --seeds 3 --producers 2");
  EXPECT_EQ(e.status, 0) << e.out;
  EXPECT_TRUE(contains(e.out, "--producers 2 --qps ")) << e.out;
}

TEST(Explore, PrintsAFindingThatItsLastLineReplays) {
  const Ended e = run_peal("explore --seeds 1..200 --plant record-before-doorbell --depth 16");
  EXPECT_EQ(e.status, 1) << e.out;
  EXPECT_EQ(e.err, "");
  EXPECT_TRUE(contains(e.out, "explore: seeds 1..200 --plant record-before-doorbell --depth 16\n"));
  EXPECT_TRUE(contains(e.out, "\nreduced to seed ")) << e.out;
  EXPECT_TRUE(contains(e.out, "operations on memory:\n")) << e.out;
  const std::string replay = last_line(e.out);
  ASSERT_TRUE(replay.starts_with("replay: peal explore --seeds ")) << replay;
  const auto finding = [](const std::string& out) {
    const std::size_t at = out.find("\nseed ");
    return out.substr(at, out.find('\n', at + 1) - at);
  };
  const Ended again = run_peal(replay.substr(std::string("replay: peal ").size()));
  EXPECT_EQ(again.status, 1);
  EXPECT_EQ(finding(again.out), finding(e.out));

  // The reduced one likewise: found at once, and by itself.
  const std::string reduced = "\nreplay the reduced one: peal ";
  const std::size_t at = e.out.find(reduced) + reduced.size();
  const Ended small = run_peal(e.out.substr(at, e.out.find('\n', at) - at));
  EXPECT_EQ(small.status, 1);
  EXPECT_TRUE(contains(small.out, "\nseed ")) << small.out;
}

TEST(Explore, AStageStandsForItsOptions) {
  const Ended e = run_peal("explore --seeds 2 --stage shared --batch 4");
  EXPECT_EQ(e.status, 0) << e.out;
  EXPECT_TRUE(contains(e.out, "\n  --producers 4 --qps 1 --window 64 --batch 4 ")) << e.out;
}

TEST(Explore, TraceIsAsLongAsAskedFor) {
  const Ended e = run_peal("explore --seeds 1..200 --plant credit-check --trace 7");
  EXPECT_EQ(e.status, 1);
  EXPECT_TRUE(contains(e.out, "its last 7 operations on memory:\n")) << e.out;
}

TEST(Explore, ListsItsPlants) {
  const Ended e = run_peal("explore --list-plants");
  EXPECT_EQ(e.status, 0);
  EXPECT_GE(lines(e.out), 10u);
  for (const char* name :
       {"wqes-before-record\n", "record-before-doorbell\n", "mark-acquire\n", "cqe-acquire\n",
        "payload-before-cqe\n", "try-lock-combiner\n", "credit-check\n", "owner-lap\n",
        "error-latch\n", "forward-only\n", "duplicate-ack\n"}) {
    EXPECT_TRUE(contains("\n" + e.out, std::string("\n") + name)) << name;
  }
}

TEST(Explore, RefusesWhatItCannotUse) {
  for (const char* arguments :
       {"--seeds x", "--seeds 5..2", "--seeds 1..", "--seeds ..3", "--plant none", "--plant x",
        "--producers 9", "--depth 3", "--fault cqe", "--stage x", "--trace 0", "--size 5",
        "--nonsense"}) {
    const Ended e = run_peal(std::string("explore ") + arguments);
    EXPECT_EQ(e.status, 2) << arguments;
    EXPECT_EQ(e.out, "") << arguments;
    EXPECT_EQ(lines(e.err), 1u) << e.err;
    EXPECT_TRUE(e.err.starts_with("peal explore: ")) << e.err;
  }
}

TEST(Explore, StopsAtAnInterrupt) {
  Process explore(peal_command(words("explore --seeds 1..1000000000")), {});
  ASSERT_TRUE(explore.wait_for_out("explore: seeds"));
  explore.signal(SIGINT);
  EXPECT_EQ(explore.wait(), 130);
  EXPECT_TRUE(contains(explore.out(), "nothing found")) << explore.out();
}

}  // namespace
}  // namespace peal::test
