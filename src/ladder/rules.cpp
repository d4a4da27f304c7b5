#include "ladder/rules.hpp"

#include <fmt/format.h>

#include <bitset>
#include <optional>

#include "ladder/usage_error.hpp"

namespace peal::ladder {
namespace {

using nic::Refusal;
using nic::Strictness;

std::string text_of(std::size_t rule, Strictness level) {
  return fmt::format("{}={}", nic::refusal_name(static_cast<Refusal>(rule)),
                     nic::strictness_name(level));
}

std::optional<Strictness> level_named(std::string_view name) {
  for (const Strictness level : {Strictness::kOff, Strictness::kWarn, Strictness::kRefuse}) {
    if (name == nic::strictness_name(level)) return level;
  }
  return std::nullopt;
}

}  // namespace

nic::Rules parse_rules(const std::vector<std::string>& texts) {
  nic::Rules rules = nic::default_rules();
  std::bitset<nic::kRefusals> given;
  for (const std::string& text : texts) {
    const std::size_t sign = text.find('=');
    if (sign == std::string::npos) {
      throw UsageError("--rule takes NAME=off, NAME=warn or NAME=refuse, not '" + text + "'");
    }
    const std::string name = text.substr(0, sign);
    const auto rule = nic::refusal_named(name);
    if (!rule) {
      throw UsageError("--rule " + text + ": there is no rule '" + name +
                       "'; `peal devices --rules` lists them");
    }
    const auto level = level_named(std::string_view(text).substr(sign + 1));
    if (!level) {
      throw UsageError("--rule " + text + ": the level must be one of off, warn, refuse");
    }
    const auto i = static_cast<std::size_t>(*rule);
    if (given[i]) throw UsageError("--rule " + text + ": this rule is given twice");
    given[i] = true;
    rules[i] = *level;
  }
  return rules;
}

std::vector<std::string> changed_rules(const nic::Rules& rules) {
  constexpr nic::Rules kDefault = nic::default_rules();
  std::vector<std::string> changed;
  for (std::size_t i = 1; i < nic::kRefusals; ++i) {
    if (rules[i] != kDefault[i]) changed.push_back(text_of(i, rules[i]));
  }
  return changed;
}

std::string table_of_rules(const nic::Rules& rules) {
  std::string table;
  for (std::size_t i = 1; i < nic::kRefusals; ++i) {
    const auto rule = static_cast<Refusal>(i);
    table +=
        fmt::format("{}\t{}\t{}\t{}\n", nic::refusal_name(rule), nic::strictness_name(rules[i]),
                    nic::can_be_waived(rule) ? "waivable" : "kept", nic::refusal_text(rule));
  }
  return table;
}

}  // namespace peal::ladder
