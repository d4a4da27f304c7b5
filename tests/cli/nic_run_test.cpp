// How the NICs of a run work, and what they count and hold against it, through the command.
#include <gtest/gtest.h>

#include <array>
#include <sstream>
#include <string>

#include "cli/peal.hpp"

namespace peal::test {
namespace {

const std::string kTraffic = "--size 64,70000 --iters 60 --repeat 1 --deadline 60 ";

TEST(NicRun, ValidatesEveryStageInEachOrderFromEachDoorbellSource) {
  const std::pair<const char*, const char*> all[] = {
      {"relaxed", "dbr"}, {"strict", "mmio"}, {"strict", "dbr"}, {"relaxed", "mmio"}};
  for (std::size_t i = 0; i < scaled(std::size(all)); ++i) {
    const auto& [order, source] = all[i];
    const Pair pair = run_pair(kTraffic + "--order " + order + " --dbsrc " + source);
    expect_both(pair, 0);
    EXPECT_EQ(pair.client.err, "");
    EXPECT_EQ(pair.server.err, "");
    ASSERT_EQ(pair.rows.size(), 2u * 5 * 2);
    for (const nlohmann::json& row : pair.rows) {
      EXPECT_EQ(row.at("order"), order);
      EXPECT_EQ(row.at("dbsrc"), source);
      EXPECT_EQ(row.at("validated"), true);
      EXPECT_EQ(row.at("cqes"), row.at("wqes"));
    }
  }
}

TEST(NicRun, ValidatesAProxyThatIsBelievedByItsRecord) {
  const Ended e = run_peal("ladder " + kTraffic + "--dbsrc dbr --handler proxy");
  EXPECT_EQ(e.status, 0) << e.err;
}

TEST(NicRun, NeedsBothEndsToAgree) {
  for (const auto& [client, server, name] :
       {std::array<std::string, 3>{"--order strict", "--order relaxed", "order"},
        std::array<std::string, 3>{"", "--order strict", "order"},
        std::array<std::string, 3>{"--dbsrc dbr", "--dbsrc mmio", "dbsrc"},
        std::array<std::string, 3>{"--completion tail", "--completion every", "completion"},
        std::array<std::string, 3>{"--sharing block", "--sharing device", "sharing"},
        std::array<std::string, 3>{"", "--rule wqe-index=warn", "rule"}}) {
    const Pair pair = run_pair("--stages serial --size 64 --iters 5 --repeat 1 " + client, server);
    expect_both(pair, 2);
    EXPECT_TRUE(contains(pair.client.err, name + " differs")) << shown(pair);
  }
  const Pair alike = run_pair(
      "--stages serial --size 64 --iters 5 --repeat 1 --rule wqe-index=warn --rule opcode=refuse",
      "--rule wqe-index=warn --order relaxed --dbsrc mmio --completion every");
  expect_both(alike, 0);
  for (const nlohmann::json& row : alike.rows) {
    EXPECT_EQ(row.at("rules"), nlohmann::json::array({"wqe-index=warn"}));
  }
}

TEST(NicRun, CountsForEachQp) {
  const RowFile file;
  const Ended e = run_peal(
      words("ladder --counters --stages independent --submit peal --qps 4 --size 64 --iters 40 "
            "--repeat 2 --json") +
      Arguments{file.path()});
  EXPECT_EQ(e.status, 0) << e.err;
  ASSERT_EQ(lines(e.err), 4u) << e.err;
  std::istringstream text(e.err);
  for (std::string line; std::getline(text, line);) {
    EXPECT_EQ(line.rfind("peal ladder: counters stage=independent submit=peal payload_bytes=64 "
                         "qpn=0x",
                         0),
              0u)
        << line;
    EXPECT_TRUE(contains(line,
                         " wqes=80 writes=80 reads=0 atomics=0 noops=0 cqes=80 "
                         "error_cqes=0 bytes=5120"))
        << line;
    EXPECT_FALSE(contains(line, "refused") || contains(line, "warned")) << line;
  }
}

TEST(NicRun, CountsTheRulesThatWereBroken) {
  const std::string traffic =
      "ladder --counters --stages serial --submit peal --size 64 --iters 5 --repeat 1 "
      "--fault cqe=0x13@2 ";
  const Ended counted = run_peal(traffic);
  EXPECT_EQ(counted.status, 3);
  EXPECT_TRUE(contains(counted.err, " error_cqes=1 bytes=128 refused:injected=1\n")) << counted.err;
  // It cannot be waived: off, it fails all the same, and nothing is said of it.
  const Ended off = run_peal(traffic + "--rule injected=off");
  EXPECT_EQ(off.status, 3);
  EXPECT_TRUE(contains(off.err, " error_cqes=1 bytes=128\n")) << off.err;
}

TEST(NicRun, CountsAreNotPartOfTheRows) {
  const Ended e =
      run_peal("ladder --counters --stages serial --size 64 --iters 5 --repeat 1 --json -");
  EXPECT_EQ(e.status, 0);
  EXPECT_EQ(lines(e.out), 2u) << e.out;
  EXPECT_EQ(lines(e.err), 2u) << e.err;
}

TEST(NicRun, ListsEveryRule) {
  const Ended e = run_peal("devices --rules");
  EXPECT_EQ(e.status, 0) << e.err;
  EXPECT_TRUE(contains(e.out, "slot-overwritten\trefuse\twaivable\tthe WQE's slot")) << e.out;
  EXPECT_TRUE(contains(e.out, "opcode\trefuse\tkept\t")) << e.out;
  EXPECT_FALSE(contains(e.out, "handler")) << e.out;
  const Ended changed = run_peal("devices --rules --rule slot-overwritten=warn");
  EXPECT_TRUE(contains(changed.out, "slot-overwritten\twarn\t")) << changed.out;
  expect_refusal(words("devices --rules --rule slot=warn"), "there is no rule 'slot'");
}

}  // namespace
}  // namespace peal::test
