#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "cli/peal.hpp"

namespace peal::test {
namespace {

// Every number of a row that can be checked from outside against what was asked for.
void expect_row(const nlohmann::json& row, const std::string& link, std::uint64_t size,
                std::uint64_t puts) {
  SCOPED_TRACE(row.dump());
  EXPECT_EQ(row.at("kind"), "software");
  EXPECT_EQ(row.at("link"), link);
  EXPECT_EQ(row.at("validated"), true);
  EXPECT_EQ(row.at("mismatches"), 0);
  EXPECT_EQ(row.at("payload_bytes"), size);
  EXPECT_EQ(row.at("puts"), puts);
  EXPECT_EQ(row.at("wqes"), puts);
  EXPECT_EQ(row.at("cqes"), puts);
  EXPECT_EQ(row.at("doorbells"), row.at("submit") == "peal" ? puts : 2 * puts);
  EXPECT_EQ(row.at("total_bytes"), puts * size);
  EXPECT_EQ(row.at("noops"), size == 0 ? puts : 0);
  for (const char* key : {"seconds", "gbps", "gbps_min", "gbps_max", "mpps"}) {
    ASSERT_TRUE(row.at(key).is_number()) << key;
    EXPECT_TRUE(std::isfinite(row.at(key).get<double>())) << key;
    EXPECT_GE(row.at(key).get<double>(), 0) << key;
  }
  EXPECT_GT(row.at("seconds").get<double>(), 0);
  EXPECT_LE(row.at("gbps_min").get<double>(), row.at("gbps").get<double>());
  EXPECT_LE(row.at("gbps").get<double>(), row.at("gbps_max").get<double>());
}

// Runs `peal ladder` and hands back its rows.
Rows ladder_rows(const std::string& arguments) {
  const RowFile file;
  const Ended e = run_peal(words("ladder " + arguments) + Arguments{"--json", file.path()});
  EXPECT_EQ(e.status, 0) << arguments << "\n" << e.err;
  EXPECT_EQ(e.err, "") << arguments;
  return file.rows();
}

TEST(CleanRun, ExitsValidatedAtBothEndsOfTwoProcesses) {
  const Pair pair = run_pair("--stages serial --size 64,4096,70000 --iters 50 --repeat 3");
  expect_both(pair, 0);
  EXPECT_EQ(pair.client.err, "");
  EXPECT_EQ(pair.server.err, "");
  EXPECT_TRUE(contains(pair.server.out, "client 1: all payloads validated")) << pair.server.out;
  EXPECT_TRUE(contains(pair.client.out, "all 900 payloads of the timed traffic validated"))
      << pair.client.out;
  ASSERT_EQ(pair.rows.size(), 6u);
  const std::vector<std::uint64_t> sizes = {64, 4096, 70000};
  for (std::size_t i = 0; i < pair.rows.size(); ++i) {
    expect_row(pair.rows[i], "stream", sizes[i / 2], 150);
    EXPECT_EQ(pair.rows[i].at("submit"), i % 2 == 0 ? "original" : "peal");
  }
}

TEST(CleanRun, ExitsValidatedInOneProcess) {
  const Rows rows = ladder_rows("--stages serial --size 64,4096,70000 --iters 50 --repeat 3");
  ASSERT_EQ(rows.size(), 6u);
  const std::vector<std::uint64_t> sizes = {64, 4096, 70000};
  for (std::size_t i = 0; i < rows.size(); ++i) expect_row(rows[i], "loopback", sizes[i / 2], 150);
}

TEST(CleanRun, SaysOnTheFirstLineThatItIsNoHardwareResult) {
  const Ended e = run_peal("ladder --stages serial --size 64 --iters 5 --repeat 1");
  ASSERT_EQ(e.status, 0) << e.err;
  const std::string first = e.out.substr(0, e.out.find('\n'));
  EXPECT_TRUE(contains(first, "software")) << first;
  EXPECT_TRUE(contains(first, "not a hardware result")) << first;
  EXPECT_EQ(lines(e.out), 4u) << e.out;
}

TEST(CleanRun, WritesNothingButRowsToStdoutWhenJsonIsADash) {
  const Ended e = run_peal("ladder --stages serial --size 64 --iters 5 --repeat 1 --json -");
  ASSERT_EQ(e.status, 0) << e.err;
  std::istringstream stream(e.out);
  std::size_t rows = 0;
  for (std::string line; std::getline(stream, line); ++rows) {
    EXPECT_TRUE(nlohmann::json::parse(line, nullptr, false).is_object()) << line;
  }
  EXPECT_EQ(rows, 2u);
}

TEST(CleanRun, ValidatesSizesAroundEveryBoundary) {
  const std::vector<std::uint64_t> sizes = {0,    1,    7,     8,     255,   256,   4095,
                                            4096, 4097, 65535, 65536, 65537, 131073};
  std::string list;
  for (const std::uint64_t size : sizes) list += (list.empty() ? "" : ",") + std::to_string(size);
  const Rows rows =
      ladder_rows("--stages serial --iters 7 --repeat 2 --submit peal --size " + list);
  ASSERT_EQ(rows.size(), sizes.size());
  for (std::size_t i = 0; i < rows.size(); ++i) expect_row(rows[i], "loopback", sizes[i], 14);
  const Pair pair = run_pair("--stages serial --iters 7 --repeat 2 --submit peal --size " + list);
  expect_both(pair, 0);
  ASSERT_EQ(pair.rows.size(), sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) expect_row(pair.rows[i], "stream", sizes[i], 14);
}

TEST(CleanRun, GivesFiniteNumbersForOnePutOfOneByte) {
  const Rows rows = ladder_rows("--stages serial --size 1 --iters 1 --repeat 1");
  ASSERT_EQ(rows.size(), 2u);
  for (const nlohmann::json& row : rows) expect_row(row, "loopback", 1, 1);
  const Pair pair = run_pair("--stages serial --size 1 --iters 1 --repeat 1");
  expect_both(pair, 0);
  ASSERT_EQ(pair.rows.size(), 2u);
  for (const nlohmann::json& row : pair.rows) expect_row(row, "stream", 1, 1);
}

TEST(CleanRun, ValidatesAnyDepthAndAnyIterations) {
  for (const std::string depth : {"1", "2", "64", "1024"}) {
    const Rows rows =
        ladder_rows("--stages serial --size 64 --iters 1003 --repeat 1 --depth " + depth);
    ASSERT_EQ(rows.size(), 2u);
    for (const nlohmann::json& row : rows) {
      expect_row(row, "loopback", 64, 1003);
      EXPECT_EQ(row.at("depth"), std::stoul(depth));
    }
  }
}

TEST(CleanRun, ValidatesMoreWqesThanSixteenBitsCanTellApart) {
  const std::uint64_t iters = std::max<std::uint64_t>(66'000, scaled(70'000));
  const Rows rows =
      ladder_rows("--stages serial --size 8 --repeat 1 --depth 64 --deadline 60 --iters " +
                  std::to_string(iters));
  ASSERT_EQ(rows.size(), 2u);
  for (const nlohmann::json& row : rows) expect_row(row, "loopback", 8, iters);
}

TEST(CleanRun, CutsTheTrafficIntoSegmentsThatFitTheRegion) {
  const Pair pair = run_pair("--stages serial --size 4096 --iters 100 --repeat 2 --region 64K");
  expect_both(pair, 0);
  ASSERT_EQ(pair.rows.size(), 2u);
  for (const nlohmann::json& row : pair.rows) {
    expect_row(row, "stream", 4096, 200);
    EXPECT_LE(row.at("region_bytes"), 64 * 1024);
    EXPECT_GE(row.at("segments"), 2 * 7);  // at most 15 slots in 64 KiB
  }
}

TEST(CleanRun, CountsThePutsOfAllProducers) {
  for (const std::string qps : {"1", "2", "4"}) {
    const std::string traffic =
        "--stages serial --size 512 --iters 101 --repeat 2 --depth 8 --producers 4 --qps " + qps;
    const Rows rows = ladder_rows(traffic);
    ASSERT_EQ(rows.size(), 2u);
    const Pair pair = run_pair(traffic);
    expect_both(pair, 0);
    ASSERT_EQ(pair.rows.size(), 2u);
    for (std::size_t i = 0; i < 2; ++i) {
      // Producers that share a queue may be published by one doorbell.
      for (const nlohmann::json& row : {rows[i], pair.rows[i]}) {
        SCOPED_TRACE(row.dump());
        EXPECT_EQ(row.at("producers"), 4);
        EXPECT_EQ(row.at("qps"), std::stoul(qps));
        EXPECT_EQ(row.at("sharing"), "device");
        EXPECT_EQ(row.at("puts"), 4 * 101 * 2);
        EXPECT_EQ(row.at("wqes"), row.at("puts"));
        EXPECT_EQ(row.at("cqes"), row.at("puts"));
        EXPECT_EQ(row.at("total_bytes"), 4 * 101 * 2 * 512);
        EXPECT_EQ(row.at("validated"), true);
        EXPECT_GT(row.at("doorbells"), 0);
        EXPECT_LE(row.at("doorbells"),
                  row.at("puts").get<std::uint64_t>() * (row.at("submit") == "peal" ? 1 : 2));
      }
    }
  }
}

TEST(CleanRun, CountsThePutsOfProducersWithAQueueEach) {
  const std::string traffic =
      "--stages serial --size 512 --iters 101 --repeat 2 --producers 4 --qps 4 --sharing exclusive";
  for (const nlohmann::json& row : ladder_rows(traffic)) {
    expect_row(row, "loopback", 512, 4 * 101 * 2);
    EXPECT_EQ(row.at("sharing"), "exclusive");
  }
  const Pair pair = run_pair(traffic);
  expect_both(pair, 0);
  ASSERT_EQ(pair.rows.size(), 2u);
  for (const nlohmann::json& row : pair.rows) expect_row(row, "stream", 512, 4 * 101 * 2);
}

TEST(CleanRun, CountsOddNumbersOfProducersInFull) {
  for (const std::string producers : {"1", "3", "7"}) {
    const Rows rows = ladder_rows(
        "--stages serial --size 100 --iters 100 --repeat 1 --submit original --producers " +
        producers + " --qps " + producers);
    ASSERT_EQ(rows.size(), 1u);
    expect_row(rows[0], "loopback", 100, 100 * std::stoul(producers));
  }
}

TEST(CleanRun, NamesItsOrdersWhenTheyAreChosenSingly) {
  const Rows rows = ladder_rows(
      "--stages serial --size 64 --iters 5 --repeat 1 --doorbell record_ring --publish in_order");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].at("submit"), "custom");
  EXPECT_EQ(rows[0].at("doorbell"), "record_ring");
  EXPECT_EQ(rows[0].at("publish"), "in_order");
  EXPECT_EQ(rows[0].at("doorbells"), 5);
}

TEST(CleanRun, AcceptsTheNamesOfPerftest) {
  const Pair pair = run_pair("--stages serial -s 64 -n 10 -q 1 -t 32 --repeat 1");
  expect_both(pair, 0);
  ASSERT_EQ(pair.rows.size(), 2u);
  EXPECT_EQ(pair.rows[0].at("depth"), 32);
  expect_row(pair.rows[0], "stream", 64, 10);
}

TEST(CleanRun, IsNeverValidWithANullNic) {
  const RowFile file;
  const Ended e =
      run_peal(words("ladder --stages serial --size 4096 --iters 20 --repeat 2 --nic null --json") +
               Arguments{file.path()});
  EXPECT_EQ(e.status, 0) << e.err;
  EXPECT_TRUE(contains(e.out, "NOT VALID")) << e.out;
  EXPECT_FALSE(contains(e.out, "validated")) << e.out;
  const Pair pair = run_pair("--stages serial --size 4096 --iters 20 --repeat 2 --nic null");
  EXPECT_EQ(pair.client.status, 0) << shown(pair);
  EXPECT_FALSE(contains(pair.client.out, "validated")) << pair.client.out;
  EXPECT_FALSE(contains(pair.server.out, "all payloads validated")) << pair.server.out;
  for (const Rows& rows : {file.rows(), pair.rows}) {
    ASSERT_EQ(rows.size(), 2u);
    for (const nlohmann::json& row : rows) {
      EXPECT_EQ(row.at("validated"), false);
      EXPECT_EQ(row.at("engine"), "null");
      EXPECT_TRUE(row.at("gbps").is_null());
      EXPECT_TRUE(row.at("gbps_min").is_null());
      EXPECT_TRUE(row.at("gbps_max").is_null());
      EXPECT_EQ(row.at("total_bytes"), 0);
    }
  }
}

TEST(CleanRun, KeepsEveryLineOfAFileThatManyWrite) {
  constexpr int kWriters = 8;
  const RowFile file;
  std::vector<std::unique_ptr<Process>> writers;
  for (int i = 0; i < kWriters; ++i) {
    writers.push_back(std::make_unique<Process>(peal_command(
        words("ladder --stages serial --size 8,64,512 --iters 20 --repeat 1 --deadline 60 --json") +
        Arguments{file.path(), "--seed", std::to_string(i)})));
  }
  for (const auto& writer : writers) EXPECT_EQ(writer->wait(), 0) << writer->err();
  const Rows rows = file.rows();
  EXPECT_EQ(rows.size(), kWriters * 6u);
  std::vector<int> of_seed(kWriters);
  for (const nlohmann::json& row : rows) ++of_seed.at(row.at("seed").get<std::size_t>());
  for (const int n : of_seed) EXPECT_EQ(n, 6);
}

TEST(CleanRun, SucceedsTimeAfterTime) {
  const std::uint64_t runs = std::max<std::uint64_t>(5, scaled(40));
  for (std::uint64_t i = 0; i < runs; ++i) {
    const Pair pair = run_pair("--stages serial --size 64 --iters 5 --repeat 1");
    ASSERT_EQ(pair.client.status, 0) << i << " " << shown(pair);
    ASSERT_EQ(pair.server.status, 0) << i << " " << shown(pair);
  }
}

}  // namespace
}  // namespace peal::test
