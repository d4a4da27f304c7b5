#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "cli/peal.hpp"

namespace peal::test {
namespace {

// Runs of 20 PUTs a repeat, two repeats.
Pair run_with_fault(const std::string& fault) {
  return run_pair("--stages serial --size 300 --iters 20 --repeat 2 --fault " + fault);
}

void expect_wrong_payload(const Pair& pair, const std::string& put) {
  expect_both(pair, 1);
  expect_no_row(pair);
  for (const std::string& text : {pair.client.err, pair.server.err}) {
    EXPECT_TRUE(contains(text, "stage serial, producer 0, PUT " + put + ", byte ")) << text;
    EXPECT_TRUE(contains(text, "expected 0x")) << text;
    EXPECT_EQ(lines(text), 1u) << text;
  }
  // Nobody was told by a completion.
  EXPECT_FALSE(contains(pair.client.err, "CQE")) << pair.client.err;
}

TEST(FaultRun, FindsACorruptByteWhereverItIs) {
  for (const std::string k : {"0", "17", "39"}) {
    SCOPED_TRACE(k);
    const Pair pair = run_with_fault("corrupt@" + k);
    expect_wrong_payload(pair, k);
    for (const std::string& text : {pair.client.err, pair.server.err}) {
      EXPECT_TRUE(contains(text, "corrupt, 1 byte wrong")) << text;
    }
  }
}

TEST(FaultRun, FindsAPutThatMovedNothingWhereverItIs) {
  for (const std::string k : {"0", "17", "39"}) {
    SCOPED_TRACE(k);
    const Pair pair = run_with_fault("noop@" + k);
    expect_wrong_payload(pair, k);
    for (const std::string& text : {pair.client.err, pair.server.err}) {
      EXPECT_TRUE(contains(text, "300 bytes wrong")) << text;
    }
  }
}

TEST(FaultRun, FindsTheOnlyByteThatDidNotMove) {
  for (const std::string fault : {"noop@0", "corrupt@0"}) {
    SCOPED_TRACE(fault);
    expect_wrong_payload(run_pair("--stages serial --size 1 --iters 1 --repeat 1 --fault " + fault),
                         "0");
  }
}

TEST(FaultRun, FindsWrongPayloadInOneProcess) {
  for (const std::string fault : {"noop@39", "corrupt@0"}) {
    const RowFile file;
    const Ended e =
        run_peal(words("ladder --stages serial --size 300 --iters 20 --repeat 2 --fault " + fault +
                       " --json " + file.path()));
    EXPECT_EQ(e.status, 1) << e.err;
    EXPECT_EQ(e.out, "");
    EXPECT_TRUE(file.rows().empty());
    EXPECT_TRUE(contains(e.err, "stage serial, producer 0, PUT ")) << e.err;
  }
}

TEST(FaultRun, FindsWrongPayloadInWhicheverSegmentItIs) {
  for (const std::string k : {"0", "14", "15", "16", "99"}) {
    SCOPED_TRACE(k);
    const Pair pair = run_pair(
        "--stages serial --size 4000 --iters 100 --repeat 1 --region 64K --fault corrupt@" + k);
    expect_both(pair, 1);
    EXPECT_TRUE(contains(pair.client.err, "PUT " + k + ", byte ")) << pair.client.err;
  }
}

TEST(FaultRun, FindsWrongPayloadOnTheQueuePairThatIsNamed) {
  const Pair pair = run_pair(
      "--stages serial --size 64 --iters 20 --repeat 1 --producers 3 --qps 3 --fault "
      "corrupt@7/qp=2");
  expect_both(pair, 1);
  EXPECT_TRUE(contains(pair.client.err, "producer 2, PUT 7, byte ")) << pair.client.err;
}

TEST(FaultRun, TellsWhatAnErrorCqeSays) {
  const Pair pair =
      run_pair("--stages serial --size 64 --iters 100 --repeat 1 --fault cqe=0x13@50");
  expect_both(pair, 3);
  expect_no_row(pair);
  for (const std::string& text : {pair.client.err, pair.server.err}) {
    for (const char* part : {"stage serial, producer 0, PUT 50", "remote access error",
                             "syndrome 0x13", "vendor syndrome 0x", "opcode RDMA_WRITE", "QPN 0x",
                             "WQE index ", "50 of the timed traffic"}) {
      EXPECT_TRUE(contains(text, part)) << part << " in " << text;
    }
    EXPECT_EQ(lines(text), 1u) << text;
  }
}

TEST(FaultRun, TellsOfAnErrorCqeAtTheFirstAndTheLastWqe) {
  for (const std::string k : {"0", "39"}) {
    const Pair pair = run_with_fault("cqe=0x13@" + k);
    expect_both(pair, 3);
    expect_no_row(pair);
    EXPECT_TRUE(contains(pair.client.err, "(" + k + " of the timed traffic)")) << pair.client.err;
  }
}

TEST(FaultRun, NamesTheWqeOfAnErrorCqeAcrossAWrapOfTheIndex) {
  for (const std::string preset : {"65500", "4294967290"}) {
    const Pair pair = run_pair(
        "--stages serial --size 64 --iters 100 --repeat 1 --fault cqe=0x13@50 --fault preset=" +
        preset);
    expect_both(pair, 3);
    EXPECT_TRUE(contains(pair.client.err, "(50 of the timed traffic)")) << pair.client.err;
  }
}

// Three producers on two QPs: the warm-up leaves the QPs at different indices.
TEST(FaultRun, CountsTheTimedWqesOfEachQpFromItsOwnStart) {
  const Pair pair = run_pair(
      "--stages serial --size 64 --iters 20 --repeat 1 --producers 3 --qps 2 --fault "
      "cqe=0x13@5/qp=1");
  expect_both(pair, 3);
  EXPECT_TRUE(contains(pair.client.err, "producer 1, PUT 5: ")) << pair.client.err;
  EXPECT_TRUE(contains(pair.client.err, "(5 of the timed traffic)")) << pair.client.err;
}

TEST(FaultRun, PrintsTheNameOfEverySyndrome) {
  const std::vector<std::pair<std::string, std::string>> syndromes = {
      {"0x01", "local length error"},
      {"0x02", "local QP operation error"},
      {"0x04", "local protection error"},
      {"0x05", "work request flushed error"},
      {"0x06", "memory window bind error"},
      {"0x10", "bad response error"},
      {"0x11", "local access error"},
      {"0x12", "remote invalid request error"},
      {"0x13", "remote access error"},
      {"0x14", "remote operation error"},
      {"0x15", "transport retry counter exceeded"},
      {"0x16", "RNR retry counter exceeded"},
      {"0x22", "remote aborted error"},
  };
  for (const auto& [number, name] : syndromes) {
    const Ended e = run_peal(
        "ladder --stages serial --size 64 --iters 5 --repeat 1 --fault cqe=" + number + "@2");
    EXPECT_EQ(e.status, 3) << number << " " << e.err;
    EXPECT_TRUE(contains(e.err, name + " (syndrome " + number)) << e.err;
    EXPECT_EQ(e.out, "");
  }
}

TEST(FaultRun, ReportsTheGraverOfTwoFaults) {
  const Pair pair = run_pair(
      "--stages serial --size 64 --iters 20 --repeat 1 --fault corrupt@3 --fault cqe=0x13@10");
  expect_both(pair, 1);
  expect_no_row(pair);
  EXPECT_TRUE(contains(pair.client.err, "PUT 3, byte ")) << pair.client.err;
  EXPECT_TRUE(contains(pair.client.err, "remote access error")) << pair.client.err;
}

TEST(FaultRun, IsWrongUsageWhenTheFaultIsNeverReached) {
  for (const std::string fault :
       {"corrupt@40", "noop@40", "cqe=0x13@40", "corrupt@18446744073709551615"}) {
    const Pair pair = run_with_fault(fault);
    expect_both(pair, 2);
    expect_no_row(pair);
    EXPECT_TRUE(contains(pair.client.err, "never reached")) << pair.client.err;
    EXPECT_TRUE(contains(pair.server.err, "never reached")) << pair.server.err;
  }
}

TEST(FaultRun, ValidatesWhenCompletionsAreHeldForLessThanTheDeadline) {
  const Pair pair = run_with_fault("hold=60");
  expect_both(pair, 0);
  ASSERT_EQ(pair.rows.size(), 2u);
  EXPECT_EQ(pair.rows[0].at("faults"), nlohmann::json::array({"hold=60"}));
  EXPECT_GE(pair.rows[0].at("seconds").get<double>(), 0.06);
}

TEST(FaultRun, EndsAtTheDeadlineWhenCompletionsAreHeldForLonger) {
  const Pair pair =
      run_pair("--stages serial --size 64 --iters 20 --repeat 1 --deadline 0.3 --fault hold=2000");
  expect_both(pair, 4);
  expect_no_row(pair);
  EXPECT_TRUE(contains(pair.client.err, "no completion within 0.3 s")) << pair.client.err;
  const Ended e = run_peal(
      "ladder --stages serial --size 64 --iters 20 --repeat 1 --deadline 0.3 --fault hold=2000");
  EXPECT_EQ(e.status, 4) << e.err;
  EXPECT_EQ(e.out, "");
}

TEST(FaultRun, ValidatesWhenSegmentsAreDelayed) {
  const Pair pair = run_with_fault("delay=100");
  expect_both(pair, 0);
  EXPECT_EQ(pair.rows.size(), 2u);
}

TEST(FaultRun, ValidatesFromAnyStartIndex) {
  // The wraps of 16, 32 and 63 bits, in the middle of 70 PUTs, on a ring that goes round many
  // times.
  for (const std::string preset : {"0", "65530", "65535", "0xfff0", "4294967290",
                                   "9223372036854775807", "9223372036854775808"}) {
    SCOPED_TRACE(preset);
    const Pair pair = run_pair(
        "--stages serial --size 64 --iters 70 --repeat 1 --depth 4 --fault preset=" + preset);
    expect_both(pair, 0);
    ASSERT_EQ(pair.rows.size(), 2u);
    for (const nlohmann::json& row : pair.rows) {
      EXPECT_EQ(row.at("wqes"), 70);
      EXPECT_EQ(row.at("cqes"), 70);
    }
  }
}

TEST(FaultRun, PlacesAFaultFromAnyStartIndex) {
  for (const std::string preset : {"65530", "4294967290", "9223372036854775807"}) {
    const Pair pair = run_pair(
        "--stages serial --size 64 --iters 20 --repeat 1 --fault corrupt@9 --fault preset=" +
        preset);
    expect_wrong_payload(pair, "9");
  }
}

TEST(FaultRun, EndsWithSharedQueuesToo) {
  for (const std::string sharing : {"--qps 4 --sharing exclusive", "--qps 2", "--qps 1"}) {
    const std::string traffic =
        "--size 64 --iters 50 --repeat 1 --depth 8 --producers 4 " + sharing;
    EXPECT_EQ(run_peal("ladder " + traffic + " --fault corrupt@20").status, 1);
    EXPECT_EQ(run_peal("ladder " + traffic + " --fault cqe=0x13@20").status, 3);
    EXPECT_EQ(run_peal("ladder " + traffic + " --deadline 0.3 --fault hold=2000").status, 4);
    expect_both(run_pair(traffic + " --fault cqe=0x15@0"), 3);
  }
}

}  // namespace
}  // namespace peal::test
