// Tests that hold whatever the completion mode and whoever rings: the combinations, and their
// names.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "peal/device/queue_handle.hpp"

namespace peal::test {

// Each of them drives a queue by itself.
inline constexpr NicHandler kHandlers[] = {NicHandler::kDirect, NicHandler::kProxy};

using Variant = std::tuple<CompletionMode, NicHandler>;

inline auto all_variants() {
  return testing::Combine(testing::Values(CompletionMode::kEvery, CompletionMode::kTail),
                          testing::Values(NicHandler::kDirect, NicHandler::kProxy));
}
inline std::string variant_name(const testing::TestParamInfo<Variant>& variant) {
  return std::string(completion_mode_name(std::get<0>(variant.param))) + "_" +
         nic_handler_name(std::get<1>(variant.param));
}

}  // namespace peal::test
