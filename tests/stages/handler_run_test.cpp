// Who rings, through the command: asked for, resolved, and why.
#include <gtest/gtest.h>

#include <string>

#include "cli/peal.hpp"

namespace peal::test {
namespace {

void expect_handler(const Rows& rows, const std::string& requested, const std::string& resolved,
                    const std::string& why) {
  EXPECT_FALSE(rows.empty());
  for (const auto& row : rows) {
    EXPECT_EQ(row.at("handler_requested"), requested);
    EXPECT_EQ(row.at("handler"), resolved);
    EXPECT_EQ(row.at("handler_why"), why);
    EXPECT_EQ(row.at("validated"), true);
  }
}

TEST(HandlerStageRun, SaysInEveryRowWhoRingsAndWhy) {
  const std::string traffic = "--stages serial,batch --size 64 --iters 40 --repeat 1 --handler ";
  expect_handler(run_pair(traffic + "automatic").rows, "automatic", "direct",
                 "the UAR page can be mapped");
  expect_handler(run_pair(traffic + "direct").rows, "direct", "direct", "requested");
  expect_handler(run_pair(traffic + "proxy").rows, "proxy", "proxy", "requested");
}

TEST(HandlerStageRun, PassesAllStagesUnderProxy) {
  const Pair pair = run_pair("--size 0,8,4096 --iters 200 --repeat 2 --handler proxy");
  expect_both(pair, 0);
  EXPECT_EQ(pair.client.err, "");
  for (const auto& row : pair.rows) {
    EXPECT_EQ(row.at("handler"), "proxy");
    EXPECT_EQ(row.at("doorbell"), "record_ring");
    EXPECT_GT(row.at("doorbells"), 0);
    EXPECT_LE(row.at("doorbells"), row.at("puts"));
  }
}

// With one PUT in flight on each queue the proxy rings once for each.
TEST(HandlerStageRun, CountsTheDoorbellsOfTheProxyOnEveryQueue) {
  const Pair pair = run_pair(
      "--stages serial,independent --size 64 --iters 30 --repeat 1 --producers 4 --qps 4 "
      "--window 4 --batch 1 --handler proxy");
  expect_both(pair, 0);
  ASSERT_EQ(pair.rows.size(), 4u);
  for (const auto& row : pair.rows) EXPECT_EQ(row.at("doorbells"), 4 * 30) << row.dump();
}

TEST(HandlerStageRun, FallsToTheProxyWithOneWarningWhenThePageCannotBeMapped) {
  const std::string traffic = "--size 64 --iters 20 --repeat 1 --fault uarfail";
  const Pair pair = run_pair(traffic);
  expect_both(pair, 0);
  expect_handler(pair.rows, "automatic", "proxy", "the UAR page cannot be mapped");
  EXPECT_EQ(lines(pair.client.err), 1u) << pair.client.err;
  EXPECT_TRUE(contains(pair.client.err, "peal client: warning: mapping a UAR page")) << shown(pair);
  EXPECT_TRUE(contains(pair.client.err, "Operation not permitted")) << shown(pair);
  EXPECT_EQ(pair.server.err, "");
  const Ended e = run_peal("ladder " + traffic);
  EXPECT_EQ(e.status, 0);
  EXPECT_EQ(lines(e.err), 1u) << e.err;
}

TEST(HandlerStageRun, EndsWithTheMachinesStatusWhenDirectCannotBeHad) {
  const Pair pair = run_pair("--size 64 --iters 5 --handler direct --fault uarfail");
  expect_both(pair, 5);
  expect_no_row(pair);
  EXPECT_TRUE(contains(pair.client.err, "which the direct handler needs")) << shown(pair);
}

TEST(HandlerStageRun, CommitsItsFaultsUnderProxyToo) {
  const std::string traffic = "--stages batch --size 64 --iters 100 --repeat 1 --handler proxy ";
  expect_both(run_pair(traffic + "--fault corrupt@33"), 1);
  const Pair failed = run_pair(traffic + "--fault cqe=0x13@50");
  expect_both(failed, 3);
  EXPECT_TRUE(contains(failed.client.err, "error CQE: remote access error")) << shown(failed);
  expect_both(run_pair(traffic + "--fault hold=2000 --deadline 0.3"), 4);
  for (const std::string preset : {"65530", "4294967290", "9223372036854775800"}) {
    expect_both(run_pair(traffic + "--fault preset=" + preset), 0);
  }
}

TEST(HandlerStageRun, RefusesWhatCannotBe) {
  for (const std::string arguments :
       {"ladder --handler both", "ladder --handler proxy --fault uarfail", "devices --handler x",
        "devices --size 4"}) {
    expect_refusal(words(arguments));
  }
}

TEST(HandlerStageDevices, SaysRequestedResolvedAndWhy) {
  const auto said = [](const std::string& arguments, const std::string& sentence) {
    const Ended e = run_peal("devices " + arguments);
    EXPECT_EQ(e.status, 0) << e.err;
    EXPECT_TRUE(contains(e.out, sentence)) << e.out;
    EXPECT_TRUE(contains(e.out, "not a hardware device")) << e.out;
    return e.err;
  };
  EXPECT_EQ(said("", "automatic requested, direct resolved: the UAR page can be mapped"), "");
  EXPECT_EQ(said("--handler direct", "direct requested, direct resolved: requested"), "");
  EXPECT_EQ(said("--handler proxy", "proxy requested, proxy resolved: requested"), "");
  const std::string warning =
      said("--fault uarfail", "automatic requested, proxy resolved: the UAR page cannot be mapped");
  EXPECT_EQ(lines(warning), 1u) << warning;
  const Ended direct = run_peal("devices --handler direct --fault uarfail");
  EXPECT_EQ(direct.status, 5);
  EXPECT_EQ(lines(direct.err), 1u) << direct.err;
}

}  // namespace
}  // namespace peal::test
