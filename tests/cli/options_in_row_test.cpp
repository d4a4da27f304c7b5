// Every option of the traffic shows in its row: none is taken and then not used.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "cli/peal.hpp"

namespace peal::test {
namespace {

nlohmann::json only_row(const std::string& arguments) {
  const RowFile file;
  const Ended e = run_peal(words("ladder " + arguments) + Arguments{"--json", file.path()});
  EXPECT_EQ(e.status, 0) << arguments << "\n" << e.err;
  const Rows rows = file.rows();
  EXPECT_EQ(rows.size(), 1u) << arguments;
  return rows.size() == 1 ? rows[0] : nlohmann::json::object();
}

// What one option changes of a row, and nothing else does.
struct Shown {
  std::string option;
  std::vector<std::pair<std::string, nlohmann::json>> as;
};

const std::vector<Shown>& shown_options() {
  static const std::vector<Shown> all = {
      {"--batch 5", {{"batch", 5}, {"batch_effective", 5}}},
      {"--completion tail", {{"completion", "tail"}, {"cqes", 16}, {"wqes", 160}}},
      {"--dbsrc dbr", {{"dbsrc", "dbr"}}},
      {"--deadline 17.5", {{"deadline_s", 17.5}}},
      {"--depth 128", {{"depth", 128}, {"window_effective", 40}}},
      {"--depth 16", {{"depth", 16}, {"window_effective", 16}, {"batch_effective", 4}}},
      {"--doorbell record_ring", {{"doorbell", "record_ring"}, {"submit", "custom"}}},
      {"--doorbell ring_only", {{"doorbell", "ring_only"}, {"submit", "custom"}}},
      {"--fault delay=1", {{"faults", {"delay=1"}}}},
      {"--handler proxy", {{"handler", "proxy"}, {"handler_requested", "proxy"}}},
      {"--iters 11", {{"puts", 44}, {"wqes", 44}, {"cqes", 44}, {"total_bytes", 44 * 64}}},
      {"--nic null", {{"engine", "null"}, {"validated", false}, {"total_bytes", 0}}},
      {"--order strict", {{"order", "strict"}}},
      {"--producers 3", {{"producers", 3}, {"puts", 120}}},
      {"--publish combine", {{"publish", "combine"}, {"submit", "custom"}}},
      {"--qps 2", {{"qps", 2}, {"depth", 512}}},
      {"--region 2K", {{"segments", 14}}},
      {"--repeat 2", {{"puts", 320}, {"segments", 2}}},
      {"--rule opcode=warn", {{"rules", {"opcode=warn"}}}},
      {"--rule wqe-index=off --rule no-answer=warn",
       {{"rules", {"wqe-index=off", "no-answer=warn"}}}},
      {"--seed 99", {{"seed", 99}}},
      {"--qps 4 --sharing exclusive", {{"sharing", "exclusive"}, {"qps", 4}}},
      {"--sharing block", {{"sharing", "block"}}},
      {"--size 72", {{"payload_bytes", 72}, {"total_bytes", 160 * 72}}},
      {"--stages independent", {{"stage", "independent"}, {"qps", 4}}},
      {"--submit peal", {{"submit", "peal"}, {"doorbell", "record_ring"}, {"publish", "combine"}}},
      {"--window 20", {{"window", 20}, {"window_effective", 20}, {"batch_effective", 5}}},
  };
  return all;
}

TEST(OptionsInRow, EachShowsAsItWasGiven) {
  // What is not given is the default, so that the option alone makes the difference.
  const auto with = [](const std::string& option) {
    std::string arguments = option;
    const auto unless = [&](const std::string& name, const std::string& value) {
      if (!contains(option, name)) arguments += " " + name + " " + value;
    };
    unless("--stages", "shared");
    unless("--size", "64");
    unless("--iters", "40");
    unless("--repeat", "1");
    unless("--window", "40");
    if (!contains(option, "--doorbell") && !contains(option, "--publish")) {
      unless("--submit", "original");
    }
    return arguments;
  };
  const nlohmann::json plain = only_row(with(""));
  for (const Shown& s : shown_options()) {
    SCOPED_TRACE(s.option);
    const nlohmann::json row = only_row(with(s.option));
    bool differs = false;
    for (const auto& [key, value] : s.as) {
      EXPECT_EQ(row.value(key, nlohmann::json()), value) << key;
      differs |= plain.value(key, nlohmann::json()) != value;
    }
    EXPECT_TRUE(differs) << "the default shows the same";
  }
}

}  // namespace
}  // namespace peal::test
