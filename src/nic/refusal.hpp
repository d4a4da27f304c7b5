// What the NIC holds against its clients: each rule by name, how strictly it is kept, and how often
// it was broken. Each has a sentence in refusal_text(); docs/FIDELITY.md says where it comes from.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "peal/core/types.hpp"

namespace peal::nic {

enum class Refusal : std::uint8_t {
  kNone,
  // A WQE, when it is fetched.
  kWqeIndex,
  kWqeQpn,
  kWqeSize,
  kWqeCrossesProducerIndex,
  kOpcode,
  kWqeSegments,
  kInlineLength,
  kInlineFlag,
  kLkeyUnknown,
  kLkeySwapped,
  kLkeyStale,
  kLkeyOtherPd,
  kLocalRange,
  kLocalAccess,
  kMessageTooLong,
  kAtomicSize,
  kAtomicOpmod,
  kNotOnThisLink,
  kWaitCq,
  kWaitForever,
  kReadsInFlight,
  kUnsignalledChain,
  // A WQE, when its CQE is due.
  kSlotOverwritten,
  kCqOverrun,
  kCqRecord,
  kCqTooSmall,
  kCqeScribbled,
  // A request, where it arrives.
  kRkeyUnknown,
  kRkeySwapped,
  kRkeyStale,
  kRkeyOtherPd,
  kRemoteRange,
  kRemoteAccess,
  kRemoteWriteDisabled,
  kRemoteReadDisabled,
  kRemoteAtomicDisabled,
  kAtomicModeOff,
  kAtomicMisaligned,
  kReadResources,
  kNoReceive,
  kMalformedRequest,
  kResponderState,
  kWrongSource,
  // Doorbells and their records.
  kDoorbellQpn,
  kDoorbellRegister,
  kDoorbellJump,
  kDoorbellWithoutRecord,
  kRecordWithoutDoorbell,
  kDoorbellBeforeRts,
  kDoorbellLeftBehind,
  // Commands. What is wrong with one otherwise is told by its status and syndrome.
  kReservedField,
  kOptParamMask,
  // Between the two ends.
  kRemoteRefused,
  kSequence,
  kBadResponse,
  kNoAnswer,
  kInjected,
  kCount,
};

inline constexpr std::size_t kRefusals = static_cast<std::size_t>(Refusal::kCount);
static_assert(kRefusals <= 64, "CheckResult::warned has a bit for each");

const char* refusal_text(Refusal reason);
// As options and reports name it: "wqe-index".
const char* refusal_name(Refusal reason);
std::optional<Refusal> refusal_named(std::string_view name);

// What happens when a rule is broken. A rule that cannot be waived (see can_be_waived) is kept at
// every level, as the NIC could not go on without touching memory that it was not given; its level
// then only says whether it is told of.
enum class Strictness : std::uint8_t {
  kOff,     // nothing is said, and the work is done
  kWarn,    // counted and told, and the work is done
  kRefuse,  // counted and told, and the work fails
};

const char* strictness_name(Strictness level);

constexpr bool can_be_waived(Refusal reason) {
  switch (reason) {
    case Refusal::kWqeIndex:
    case Refusal::kWqeQpn:
    case Refusal::kWqeSegments:
    case Refusal::kMessageTooLong:
    case Refusal::kWaitForever:
    case Refusal::kReadsInFlight:
    case Refusal::kUnsignalledChain:
    case Refusal::kSlotOverwritten:
    case Refusal::kCqOverrun:
    case Refusal::kCqRecord:
    case Refusal::kCqTooSmall:
    case Refusal::kCqeScribbled:
    case Refusal::kRemoteWriteDisabled:
    case Refusal::kRemoteReadDisabled:
    case Refusal::kRemoteAtomicDisabled:
    case Refusal::kAtomicModeOff:
    case Refusal::kReadResources:
    case Refusal::kDoorbellWithoutRecord:
    case Refusal::kRecordWithoutDoorbell:
    case Refusal::kDoorbellBeforeRts:
    case Refusal::kDoorbellLeftBehind:
    case Refusal::kReservedField:
    case Refusal::kOptParamMask: return true;
    default: return false;
  }
}

using Rules = std::array<Strictness, kRefusals>;

// Refuse, but for what hardware is known to bear, which is warned of.
constexpr Rules default_rules() {
  Rules rules{};
  for (Strictness& level : rules) level = Strictness::kRefuse;
  for (const Refusal warned :
       {Refusal::kWaitForever, Refusal::kReadsInFlight, Refusal::kUnsignalledChain,
        Refusal::kCqTooSmall, Refusal::kRecordWithoutDoorbell, Refusal::kDoorbellBeforeRts,
        Refusal::kDoorbellLeftBehind, Refusal::kReservedField, Refusal::kOptParamMask}) {
    rules[static_cast<std::size_t>(warned)] = Strictness::kWarn;
  }
  return rules;
}

// How often each rule was broken: with the work refused, or done.
struct ReasonCounts {
  std::array<std::uint64_t, kRefusals> refused{};
  std::array<std::uint64_t, kRefusals> warned{};

  std::uint64_t refusals(Refusal r) const { return refused[static_cast<std::size_t>(r)]; }
  std::uint64_t warnings(Refusal r) const { return warned[static_cast<std::size_t>(r)]; }
};

// One rule broken once. `index` is the WQE's, where there is one.
struct Notice {
  Refusal reason = Refusal::kNone;
  Strictness level = Strictness::kRefuse;
  Qpn qpn;  // 0 where no QP is concerned
  std::uint64_t index = 0;
};

// Called on the engine's thread, between two instructions of a step: it must not call the NIC.
using Notify = std::function<void(const Notice&)>;

// Tells of broken rules and counts them.
class RuleBook {
 public:
  // `rules` must outlive it.
  RuleBook(const Rules& rules, Notify notify) : rules_(rules), notify_(std::move(notify)) {}

  Strictness level(Refusal reason) const { return rules_[static_cast<std::size_t>(reason)]; }

  // `reason` has been broken: true if the work must fail.
  bool broken(Refusal reason, ReasonCounts& counts, Qpn qpn, std::uint64_t index = 0) const {
    const Strictness l = level(reason);
    const bool refused = l == Strictness::kRefuse || !can_be_waived(reason);
    if (l == Strictness::kOff) return refused;
    ++(refused ? counts.refused : counts.warned)[static_cast<std::size_t>(reason)];
    if (notify_) notify_({reason, refused ? Strictness::kRefuse : Strictness::kWarn, qpn, index});
    return refused;
  }

 private:
  const Rules& rules_;
  Notify notify_;
};

}  // namespace peal::nic
