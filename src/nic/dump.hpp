// Where a QP stands, as its NIC sees it: plain data, for reports and tests of any engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nic/send_state.hpp"
#include "nic/tables.hpp"
#include "peal/mlx5/doorbell.hpp"

namespace peal::nic {

struct WqeDump {
  std::uint64_t index = 0;
  std::uint8_t opcode = 0;
  Standing standing = Standing::kNotFetched;
  // For how long, where the NIC knows; with kDone, for how long yet.
  std::uint64_t ns = 0;
};

struct QpDump {
  Qpn qpn;
  QpState state = QpState::kReset;
  // Ends of what the client announced, of what was fetched, and of what has its CQEs. `rung` is
  // ahead of `posted` while the NIC waits for the doorbell record.
  std::uint64_t rung = 0;
  std::uint64_t posted = 0;
  std::uint64_t fetched = 0;
  std::uint64_t completed = 0;
  std::optional<std::uint16_t> record;  // as the client's memory says it now; absent: it has none
  std::uint64_t outstanding = 0;        // WQEs fetched without a CQE
  std::optional<WqeDump> oldest;        // WQE announced without a CQE
  bool elsewhere = false;               // served by an engine with a data path of its own: no PSNs
  Psn oldest_psn;
  Psn next_psn;
  std::uint64_t cq_produced = 0;
  ReasonCounts reasons;
  FirstError first_error;
};

inline WqeDump dump_of_outstanding(const QpEntry& qp, const SendState& s, const Outstanding& o,
                                   const Tables& tables, std::uint64_t now_ns) {
  WqeDump d;
  d.index = o.completion.index;
  d.opcode = o.completion.opcode;
  switch (o.phase) {
    case Phase::kStarting:
      d.standing = standing_of_newest(qp, s, tables);
      d.ns = now_ns - s.held_since_ns;
      break;
    case Phase::kSent:
      d.standing = Standing::kSent;
      d.ns = now_ns - o.sent_at_ns;
      break;
    case Phase::kDone:
      d.standing = Standing::kDone;
      d.ns = o.done_at_ns > now_ns ? o.done_at_ns - now_ns : 0;
      break;
  }
  return d;
}

template <class M>
WqeDump dump_of_unfetched(const QpEntry& qp, const SendState& s, bool window_full,
                          std::uint64_t now_ns) {
  WqeDump d;
  d.index = s.fetched;
  d.opcode = mlx5::decode_ctrl(M::fetch_slot(&qp.sq[d.index & (qp.depth() - 1)]).segment[0]).opcode;
  if (qp.state != QpState::kRts) {
    d.standing = Standing::kHeldByState;
  } else if (s.faults.holds(now_ns)) {
    d.standing = Standing::kHeldByFault;
    d.ns = now_ns - s.faults.held_since_ns();
  } else if (window_full) {
    d.standing = Standing::kHeldByWindow;
  }
  return d;
}

template <class M>
QpDump dump_of(const QpEntry& qp, const Tables& tables, const SendState& s, bool window_full,
               std::uint64_t now_ns) {
  QpDump d;
  d.qpn = qp.qpn;
  d.state = qp.state;
  d.posted = s.posted;
  d.rung = s.catching_up ? s.rung : s.posted;
  d.fetched = s.fetched;
  d.completed = s.completed_index();
  if (qp.has_record()) d.record = mlx5::decode_dbrec(M::load_relaxed(qp.dbrec));
  d.outstanding = s.tail - s.head;
  if (s.head != s.tail) {
    d.oldest = dump_of_outstanding(qp, s, s.at(s.head), tables, now_ns);
  } else if (s.fetched != s.posted) {
    d.oldest = dump_of_unfetched<M>(qp, s, window_full, now_ns);
  }
  d.oldest_psn = s.oldest_psn;
  d.next_psn = s.next_psn;
  d.cq_produced = tables.cqs[qp.cq].produced;
  d.reasons = s.counters.reasons;
  d.first_error = s.counters.first_error;
  return d;
}

// Copies from memory of the client, which may lie where the CPU has no addresses.
using ReadMemory = std::function<void(void* to, const void* from, std::size_t bytes)>;

// Of a queue that an engine with a data path of its own serves, as far as that has reported.
QpDump dump_of_elsewhere(const QpEntry& qp, const Tables& tables, const SendState& s,
                         const ReadMemory& read);

// For people: the ring; the oldest WQE; what was broken, and the first error.
std::vector<std::string> lines(const QpDump& dump);

// "refused injected 1, warned cq-too-small 2", by refusal_name(); empty where nothing was broken.
std::string broken_rules(const ReasonCounts& reasons);

}  // namespace peal::nic
