// How the NICs of a run are made from its options: the sender's with its faults of set-up.
#pragma once

#include <cerrno>

#include "ladder/options.hpp"
#include "ladder/runner.hpp"
#include "nic/core.hpp"
#include "verbs/software_nic.hpp"

namespace peal::ladder {

inline nic::CoreOptions sender_options(const LadderOptions& options, nic::Notify notify = {}) {
  return {.nic_number = 1,
          .key_secret = nic::random_secret(),
          .null_payload = options.null_nic,
          .first_wqe_index = options.first_wqe_index(),
          .order = options.order,
          .doorbell_source = options.doorbell_source,
          .rules = options.rules,
          .notify = std::move(notify)};
}

inline nic::CoreOptions receiver_options(const LadderOptions& options, nic::Notify notify) {
  return {.nic_number = 2,
          .key_secret = nic::random_secret(),
          .order = options.order,
          .doorbell_source = options.doorbell_source,
          .rules = options.rules,
          .notify = std::move(notify)};
}

// `regfail`: registering memory fails with its errno. `uarfail`: no doorbell page can be mapped.
inline verbs::RefuseHook sender_refusals(const LadderOptions& options) {
  int registration = 0;
  int mapping = 0;
  for (const FaultSpec& f : options.faults) {
    if (f.kind == FaultSpec::Kind::kRegFail) registration = static_cast<int>(f.value);
    if (f.kind == FaultSpec::Kind::kUarFail) mapping = EPERM;
  }
  return [registration, mapping](std::string_view operation) {
    return operation == "reg_mr" ? registration : operation == "map_uar" ? mapping : 0;
  };
}

inline Context open_sender(Provider provider, const LadderOptions& options,
                           const RunEvents& events) {
  ContextOptions open = options.context_options(options.device.source);
  open.handler = options.handler;
  open.warn = events.warn;
  return Context::open(std::move(provider), open);
}
// The other end of a run in this process.
inline Context open_receiver(Provider provider, const LadderOptions& options) {
  return Context::open(std::move(provider), options.context_options(options.device.destination));
}
inline Context open_sender(verbs::SoftwareNic& nic, engine::Engine& engine,
                           const LadderOptions& options, const RunEvents& events) {
  return open_sender(nic.provider(engine, sender_refusals(options)), options, events);
}

}  // namespace peal::ladder
