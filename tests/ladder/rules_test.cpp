#include "ladder/rules.hpp"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "ladder/options.hpp"
#include "ladder/usage_error.hpp"

namespace peal::ladder {
namespace {

using nic::Refusal;
using nic::Strictness;

Strictness level(const nic::Rules& rules, Refusal rule) {
  return rules[static_cast<std::size_t>(rule)];
}

void expect_wrong(const std::vector<std::string>& texts, const std::string& part) {
  try {
    parse_rules(texts);
    ADD_FAILURE() << "taken: " << texts.back();
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(Rules, AreTheDefaultButForThoseGiven) {
  EXPECT_EQ(parse_rules({}), nic::default_rules());
  nic::Rules expected = nic::default_rules();
  expected[static_cast<std::size_t>(Refusal::kSlotOverwritten)] = Strictness::kWarn;
  expected[static_cast<std::size_t>(Refusal::kReservedField)] = Strictness::kOff;
  expected[static_cast<std::size_t>(Refusal::kCqTooSmall)] = Strictness::kRefuse;
  EXPECT_EQ(parse_rules({"slot-overwritten=warn", "reserved-field=off", "cq-too-small=refuse"}),
            expected);
}

TEST(Rules, TakeEveryRuleAtEveryLevel) {
  for (std::size_t i = 1; i < nic::kRefusals; ++i) {
    const auto rule = static_cast<Refusal>(i);
    for (const Strictness l : {Strictness::kOff, Strictness::kWarn, Strictness::kRefuse}) {
      const std::string text = std::string(nic::refusal_name(rule)) + "=" + nic::strictness_name(l);
      EXPECT_EQ(level(parse_rules({text}), rule), l) << text;
    }
  }
}

TEST(Rules, RefuseWhatIsNoRule) {
  expect_wrong({""}, "NAME=off");
  expect_wrong({"opcode"}, "NAME=off");
  expect_wrong({"=off"}, "no rule ''");
  expect_wrong({"none=off"}, "no rule 'none'");
  expect_wrong({"opcodes=off"}, "`peal devices --rules` lists them");
  expect_wrong({"Opcode=off"}, "no rule 'Opcode'");
  expect_wrong({"opcode=of"}, "off, warn, refuse");
  expect_wrong({"opcode="}, "off, warn, refuse");
  expect_wrong({"opcode=off=off"}, "off, warn, refuse");
  expect_wrong({"opcode=off", "opcode=warn"}, "given twice");
}

TEST(Rules, ShowThoseThatAreNotAtTheirDefault) {
  EXPECT_TRUE(changed_rules(nic::default_rules()).empty());
  // In the order of the rules, and without what changes nothing.
  EXPECT_EQ(changed_rules(parse_rules({"no-answer=off", "opcode=refuse", "wqe-index=warn"})),
            (std::vector<std::string>{"wqe-index=warn", "no-answer=off"}));
}

TEST(Rules, AreListedOneALine) {
  std::istringstream table(table_of_rules(parse_rules({"wqe-index=warn"})));
  std::size_t rule = 1;
  for (std::string line; std::getline(table, line); ++rule) {
    const auto reason = static_cast<Refusal>(rule);
    std::istringstream columns(line);
    std::string name, strictness, waivable, sentence;
    std::getline(columns, name, '\t');
    std::getline(columns, strictness, '\t');
    std::getline(columns, waivable, '\t');
    std::getline(columns, sentence, '\t');
    EXPECT_EQ(name, nic::refusal_name(reason));
    const Strictness expected =
        reason == Refusal::kWqeIndex ? Strictness::kWarn : level(nic::default_rules(), reason);
    EXPECT_EQ(strictness, nic::strictness_name(expected)) << name;
    EXPECT_EQ(waivable, nic::can_be_waived(reason) ? "waivable" : "kept") << name;
    EXPECT_EQ(sentence, nic::refusal_text(reason));
  }
  EXPECT_EQ(rule, nic::kRefusals);
}

TEST(Rules, AreParametersThatBothEndsCompare) {
  LadderArguments a;
  a.rules = {"no-answer=off", "wqe-index=warn"};
  LadderArguments b;
  b.rules = {"wqe-index=warn", "no-answer=off", "opcode=refuse"};
  EXPECT_EQ(parameters_of(a), parameters_of(b));
  EXPECT_NE(parameters_of(a), parameters_of(LadderArguments{}));
  EXPECT_EQ(arguments_from(to_json(b)).rules, b.rules);
  EXPECT_TRUE(given_parameters(a).contains("rule"));
  EXPECT_FALSE(given_parameters(LadderArguments{}).contains("rule"));
}

}  // namespace
}  // namespace peal::ladder
