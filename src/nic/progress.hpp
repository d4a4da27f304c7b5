// What an engine with a data path of its own tells its core of a QP, so that the core's counters,
// notices and dumps are as true as if it had done the work itself.
#pragma once

#include <algorithm>
#include <cstdint>

#include "nic/refusal.hpp"
#include "nic/send_state.hpp"
#include "nic/tables.hpp"

namespace peal::nic {

struct Progress {
  // Ends of what the client announced, of what was fetched, and of what has its CQEs, each as far
  // as it was seen. They may have been looked at one after the other.
  std::uint64_t posted = 0;
  std::uint64_t fetched = 0;
  std::uint64_t completed = 0;
  std::uint64_t cq_produced = 0;  // CQEs of its CQ, ever
  // Since the QP was created. Of these, doorbells to bytes_moved.
  QpCounters done;
  FirstError first_error;  // syndrome 0: none since the QP was created or reset
  // Of the faults that were armed for the `arming`-th time, a bit for each that has happened; and
  // whether one holds the queue now.
  std::uint64_t arming = 0;
  std::uint32_t reached = 0;
  bool held = false;
};

// Where the responder found the fault, its QP too goes to error; a QP that was not to be asked
// stays as it is.
constexpr bool is_of_responder(Refusal why) {
  return why >= Refusal::kRkeyUnknown && why <= Refusal::kWrongSource;
}
constexpr bool ends_responder(Refusal why) {
  return is_of_responder(why) && why != Refusal::kNoReceive && why != Refusal::kResponderState &&
         why != Refusal::kWrongSource;
}
// What the requester calls it, which learns of it by a NAK, or by no answer.
constexpr Refusal as_requester_sees(Refusal why) {
  if (!is_of_responder(why) || why == Refusal::kNoReceive) return why;
  return why == Refusal::kResponderState || why == Refusal::kWrongSource ? Refusal::kNoAnswer
                                                                         : Refusal::kRemoteRefused;
}

inline void take_progress(QpEntry& qp, SendState& s, const Progress& p, const RuleBook& rules) {
  s.completed_elsewhere = p.completed;
  s.fetched = std::max(p.fetched, p.completed);
  s.posted = std::max(p.posted, s.fetched);
  s.held_elsewhere = p.held;
  s.faults.take_reached(p.arming, p.reached);
  QpCounters& c = s.counters;
  c.doorbells = p.done.doorbells;
  c.wqes_fetched = p.done.wqes_fetched;
  c.writes = p.done.writes;
  c.noops = p.done.noops;
  c.reads = p.done.reads;
  c.atomics = p.done.atomics;
  c.cqes = p.done.cqes;
  c.error_cqes = p.done.error_cqes;
  c.bytes_moved = p.done.bytes_moved;
  if (p.first_error.syndrome == 0 || c.first_error.syndrome != 0) return;
  c.first_error = p.first_error;
  rules.broken(p.first_error.reason, c.reasons, qp.qpn, p.first_error.index);
  qp.state = QpState::kError;
}

}  // namespace peal::nic
