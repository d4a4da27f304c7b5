// What one simulated run does: drawn from a seed, changed by options, and written as options again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nic/doorbells.hpp"
#include "nic/responder.hpp"
#include "peal/device/queue_handle.hpp"
#include "peal/memory/scope.hpp"
#include "sim/link.hpp"

namespace peal::explore {

// How producers post and wait.
enum class Work : std::uint8_t {
  kWindow,   // as Producer does: a window, the oldest awaited first
  kTickets,  // single tickets, awaited in any order or not at all
};

// What goes wrong, on the first QP.
enum class FaultKind : std::uint8_t {
  kNone,
  kCqe,    // WQE `at` completes in error, as the NIC is told
  kRkey,   // the first producer's operation `at` names a key that does not exist
  kHold,   // the NIC stops for `value` microseconds
  kDelay,  // CQEs come `value` microseconds late
};
struct Fault {
  FaultKind kind = FaultKind::kNone;
  std::uint64_t value = 0;
  std::uint64_t at = 0;
  bool ends_in_error() const { return kind == FaultKind::kCqe || kind == FaultKind::kRkey; }
};

struct Configuration {
  std::uint32_t producers = 1;
  std::uint32_t qps = 1;
  std::uint32_t window = 1;  // of each producer
  std::uint32_t batch = 1;
  std::uint32_t depth = 64;
  std::uint32_t puts = 20;  // operations of each producer
  std::uint32_t payload_bytes = 8;
  Work work = Work::kWindow;
  std::uint32_t mixed = 0;  // of 1000 operations, those that are no PUT
  DoorbellOrder doorbell = DoorbellOrder::kRingRecordRing;
  PublishOrder publish = PublishOrder::kInOrder;
  Sharing sharing = Sharing::kDevice;
  CompletionMode completion = CompletionMode::kEvery;
  NicHandler handler = NicHandler::kDirect;
  nic::DoorbellSource doorbell_source = nic::DoorbellSource::kRegister;
  nic::WriteOrder order = nic::WriteOrder::kRelaxed;
  std::uint64_t first_index = 0;
  std::uint64_t max_message_bytes = std::uint64_t{1} << 30;
  bool one_page = false;       // all QPs ring on one UAR page
  bool one_nic_agent = false;  // steps both NICs
  std::uint64_t latency_ns_max = 0;
  sim::LinkTrouble trouble;
  std::uint64_t timeout_us = 20'000;
  Fault fault;
  // The machine.
  std::uint32_t switches = 100;  // of 1000 operations on memory
  std::uint32_t stale = 500;     // of 1000 loads that have a choice

  // Whether waits will reach their deadline.
  bool ends_at_deadline() const {
    return fault.kind == FaultKind::kHold && fault.value > timeout_us / 2;
  }
};

// One option of a configuration.
struct Option {
  const char* name;  // without its dashes
  const char* what;
  std::string (*get)(const Configuration&);
  // False where `text` is not one of its values.
  bool (*set)(Configuration&, std::string_view text);
};
const std::vector<Option>& all_options();

// What the user gave, by option.
struct Given {
  std::string name;
  std::string value;
};

// That of a seed, with what was given in its place, and mended. The given values are those that
// set() takes.
Configuration configuration_of(std::uint64_t seed, const std::vector<Given>& given);

// Changes what does not go together: no more QPs than producers, a batch within its window, and for
// ring_only the register believed and a page for each QP.
void mend(Configuration& c);

// All of it, as the options that make it again.
std::string to_options(const Configuration& c);

}  // namespace peal::explore
