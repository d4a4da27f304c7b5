// How the sending end's NIC is made from the options of a run: its faults of set-up included.
#pragma once

#include "ladder/options.hpp"
#include "nic/core.hpp"
#include "verbs/software.hpp"

namespace peal::ladder {

inline nic::CoreOptions sender_options(const LadderOptions& options) {
  return {.nic_number = 1,
          .null_payload = options.null_nic,
          .first_wqe_index = options.first_wqe_index()};
}

// `regfail`: registering memory fails with its errno.
inline verbs::RefuseHook sender_refusals(const LadderOptions& options) {
  for (const FaultSpec& f : options.faults) {
    if (f.kind != FaultSpec::Kind::kRegFail) continue;
    return [error = static_cast<int>(f.value)](std::string_view operation) {
      return operation == "reg_mr" ? error : 0;
    };
  }
  return {};
}

}  // namespace peal::ladder
