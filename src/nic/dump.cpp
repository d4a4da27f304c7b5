#include "nic/dump.hpp"

#include <cstdio>

namespace peal::nic {
namespace {

const char* state_name(QpState state) {
  switch (state) {
    case QpState::kReset: return "RESET";
    case QpState::kInit: return "INIT";
    case QpState::kRtr: return "RTR";
    case QpState::kRts: return "RTS";
    case QpState::kError: return "ERROR";
  }
  return "unknown state";
}

std::string text(std::uint64_t number) {
  return std::to_string(number);
}

std::string hex_byte(std::uint8_t number) {
  char digits[sizeof "0xff"];
  std::snprintf(digits, sizeof digits, "0x%02x", number);
  return digits;
}

std::string milliseconds(std::uint64_t ns) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.3f ms", static_cast<double>(ns) * 1e-6);
  return digits;
}

std::string standing_text(const WqeDump& w) {
  const std::string held = w.ns == 0 ? "held by " : "held for " + milliseconds(w.ns) + " by ";
  switch (w.standing) {
    case Standing::kNotFetched: return "not fetched yet";
    case Standing::kHeldByFault: return "not fetched, " + held + "an injected fault";
    case Standing::kHeldByState: return "not fetched, as the QP is not in RTS";
    case Standing::kHeldByWindow: return "not fetched, as no more packets may be in flight";
    case Standing::kHeldByFence: return held + "its fence";
    case Standing::kHeldByWait: return held + "the CQ that it waits for";
    case Standing::kHeldByReads: return held + "the reads and atomics before it (log_sra_max)";
    case Standing::kSending: return held + "the link";
    case Standing::kSent: return "sent, unanswered for " + milliseconds(w.ns);
    case Standing::kDone: return "done, its CQE is due in " + milliseconds(w.ns);
    case Standing::kElsewhere: return "fetched, and without a CQE yet";
  }
  return "in an unknown phase";
}

void add_counts(const char* what, const std::array<std::uint64_t, kRefusals>& counts,
                std::string* all) {
  bool first = true;
  for (std::size_t i = 0; i < kRefusals; ++i) {
    if (counts[i] == 0) continue;
    if (!all->empty()) *all += ", ";
    if (first) *all += std::string(what) + " ";
    *all += std::string(refusal_name(static_cast<Refusal>(i))) + " " + text(counts[i]);
    first = false;
  }
}

std::string first_error_text(const FirstError& e) {
  if (e.syndrome == 0) return "no error";
  std::string all = "first error: WQE index " + text(e.index) + ", " + mlx5::opcode_name(e.opcode) +
                    ": " + mlx5::syndrome_name(e.syndrome) + " (syndrome " + hex_byte(e.syndrome) +
                    ", vendor syndrome " + hex_byte(e.vendor_syndrome) + ")";
  if (e.reason != Refusal::kNone) all += std::string(", ") + refusal_name(e.reason);
  return all;
}

std::string ring_text(const QpDump& d) {
  std::string all = state_name(d.state);
  if (d.rung != d.posted) all += ", " + text(d.rung) + " rung and not recorded";
  all += ", " + text(d.posted) + " posted, " + text(d.fetched) + " fetched, " + text(d.completed) +
         " completed; " + (d.record ? "doorbell record " + text(*d.record) : "no doorbell record") +
         "; " + text(d.outstanding) + (d.outstanding == 1 ? " WQE" : " WQEs") + " outstanding; ";
  if (!d.elsewhere) {
    all += "PSN " + text(d.oldest_psn.value) + " oldest, " + text(d.next_psn.value) + " next; ";
  }
  return all + text(d.cq_produced) + " CQEs produced";
}

std::string oldest_text(const std::optional<WqeDump>& w) {
  if (!w) return "oldest WQE: none, all that was announced has completed";
  return "oldest WQE: index " + text(w->index) + ", " + mlx5::opcode_name(w->opcode) + ", " +
         standing_text(*w);
}

}  // namespace

QpDump dump_of_elsewhere(const QpEntry& qp, const Tables& tables, const SendState& s,
                         const ReadMemory& read) {
  QpDump d;
  d.qpn = qp.qpn;
  d.state = qp.state;
  d.posted = d.rung = s.posted;
  d.fetched = s.fetched;
  d.completed = s.completed_elsewhere;
  if (qp.has_record()) {
    std::uint32_t record = 0;
    read(&record, qp.dbrec, sizeof record);
    d.record = mlx5::decode_dbrec(record);
  }
  d.outstanding = d.fetched - d.completed;
  if (d.completed != d.posted) {
    d.oldest.emplace();
    d.oldest->index = d.completed;
    mlx5::Words16 ctrl;
    read(&ctrl, &qp.sq[d.completed & (qp.depth() - 1)], sizeof ctrl);
    d.oldest->opcode = mlx5::decode_ctrl(ctrl).opcode;
    if (d.outstanding != 0) {
      d.oldest->standing = Standing::kElsewhere;
    } else if (qp.state != QpState::kRts) {
      d.oldest->standing = Standing::kHeldByState;
    } else if (s.held_elsewhere) {
      d.oldest->standing = Standing::kHeldByFault;
    }
  }
  d.elsewhere = true;
  d.cq_produced = tables.cqs[qp.cq].produced;
  d.reasons = s.counters.reasons;
  d.first_error = s.counters.first_error;
  return d;
}

std::string broken_rules(const ReasonCounts& reasons) {
  std::string all;
  add_counts("refused", reasons.refused, &all);
  add_counts("warned", reasons.warned, &all);
  return all;
}

std::vector<std::string> lines(const QpDump& d) {
  const std::string broken = broken_rules(d.reasons);
  return {ring_text(d), oldest_text(d.oldest),
          "rules: " + (broken.empty() ? "none broken" : broken) + "; " +
              first_error_text(d.first_error)};
}

}  // namespace peal::nic
