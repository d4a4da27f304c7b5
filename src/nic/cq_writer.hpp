// Writes CQEs, in the order of its calls, and holds the CQ against its rules.
#pragma once

#include <cstdint>

#include "nic/check.hpp"
#include "nic/counters.hpp"
#include "nic/refusal.hpp"
#include "nic/tables.hpp"

namespace peal::nic {

template <class M>
class CqWriter {
 public:
  CqWriter(Tables& tables, const RuleBook& rules) : tables_(tables), rules_(rules) {}

  // The next CQE of qp's CQ. Not kNone when a rule of the CQ was broken and the QP must go to
  // error.
  Refusal write(const QpEntry& qp, const Completion& c, QpCounters& counters) {
    CqEntry& cq = tables_.cqs[qp.cq];
    const Refusal full = check_room(cq);
    if (full != Refusal::kNone && rules_.broken(full, counters.reasons, qp.qpn, c.index)) {
      return full;
    }
    const std::uint64_t number = cq.produced;
    mlx5::Cqe* entry = cq.entry(number);
    const bool intact = cq.collapsed || is_free(*entry, number, cq.entries()) ||
                        !rules_.broken(Refusal::kCqeScribbled, counters.reasons, qp.qpn, c.index);
    ++cq.produced;
    M::store_cqe(entry, complete(c, qp.qpn, number, cq.log_size));  // MO-4
    ++counters.cqes;
    if (c.syndrome != mlx5::Syndrome::kNone) ++counters.error_cqes;
    return intact ? Refusal::kNone : Refusal::kCqeScribbled;
  }

 private:
  static constexpr std::uint32_t kRecordMask = 0xffffff;

  // A client that wants to be kept from overrunning its CQ says how far it has consumed.
  static Refusal check_room(const CqEntry& cq) {
    if (cq.ignores_overrun || cq.collapsed || cq.consumer_record == nullptr) return Refusal::kNone;
    const std::uint32_t consumed = swap_bytes(M::load_dbrec_acquire(cq.consumer_record));
    const std::uint32_t unconsumed =
        (static_cast<std::uint32_t>(cq.produced) - consumed) & kRecordMask;
    if (unconsumed > kRecordMask / 2) return Refusal::kCqRecord;
    return unconsumed < cq.entries() ? Refusal::kNone : Refusal::kCqOverrun;
  }

  // Whether the entry is as this NIC or its client's set-up left it: not yet written, or written in
  // the lap before.
  static bool is_free(const mlx5::Cqe& entry, std::uint64_t number, std::uint64_t entries) {
    const mlx5::CqeOwnerWord seen =
        mlx5::decode_cqe_owner_word(M::load_relaxed(&entry.word[mlx5::kCqeOwnerWord]));
    return seen.opcode == mlx5::CqeOpcode::kInvalid ||
           (number >= entries && seen.owner == mlx5::cqe_owner(number - entries, entries));
  }

  Tables& tables_;
  const RuleBook& rules_;
};

}  // namespace peal::nic
