// The NIC's rules as users write them: `slot-overwritten=warn`.
#pragma once

#include <string>
#include <vector>

#include "nic/refusal.hpp"

namespace peal::ladder {

// The default rules with these in their place. Throws UsageError: one sentence.
nic::Rules parse_rules(const std::vector<std::string>& texts);

// Those that are not at their default, in the order of the enumeration.
std::vector<std::string> changed_rules(const nic::Rules& rules);

// Every rule, a line each, by tabs: name, level, whether breaking it can be waived ("waivable") or
// fails at every level ("kept"), sentence.
std::string table_of_rules(const nic::Rules& rules);

}  // namespace peal::ladder
