// What clients announce: the doorbell registers of UAR pages, and the doorbell records beside them.
// Moves SendState::posted, and nothing else of a queue.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "nic/record_check.hpp"
#include "nic/refusal.hpp"
#include "nic/send_state.hpp"
#include "nic/tables.hpp"
#include "peal/mlx5/doorbell.hpp"

namespace peal::nic {

// Which of a doorbell's two words says how far the client has posted, where a QP has both.
enum class DoorbellSource : std::uint8_t {
  kRegister,  // the doorbell itself
  kRecord,    // the doorbell record, read until it has caught up with what was rung
};

// The queues of a NIC that ring, by QP index; only those in `active` are there.
struct SendQueues {
  std::vector<std::unique_ptr<SendState>> states{kMaxQps};
  std::vector<std::uint32_t> active;
};

template <class M>
class Doorbells {
 public:
  // `grace_ns`: how long a doorbell and its record may disagree.
  Doorbells(const Tables& tables, SendQueues& queues, const RuleBook& rules, DoorbellSource source,
            std::uint64_t grace_ns)
      : tables_(tables), queues_(queues), rules_(rules), source_(source), grace_ns_(grace_ns) {}

  // Takes the last ring of the register that this QP rings. Acts only on a ring: the record alone
  // starts nothing.
  bool look(std::uint32_t qp_index, std::uint64_t now_ns) {
    const QpEntry& any = tables_.qps[qp_index];
    const std::uint64_t word = take(tables_.uars[any.uar], any.has_record());
    if (word == 0) return false;
    const mlx5::Doorbell doorbell = mlx5::decode_doorbell(word);
    const QpEntry* named = tables_.find_qp(doorbell.qpn);
    Refusal why = Refusal::kNone;
    if (named == nullptr || named->uar != any.uar) {
      why = Refusal::kDoorbellQpn;
    } else if (named->has_record() != any.has_record()) {
      why = Refusal::kDoorbellRegister;
    }
    if (why != Refusal::kNone) {
      broken(any, *queues_.states[qp_index], why, doorbell.pi());
      return true;
    }
    for (const std::uint32_t i : queues_.active) {
      const QpEntry& qp = tables_.qps[i];
      if (!rings_on(qp, tables_.uars[named->uar], named->has_record())) continue;
      SendState& s = *queues_.states[i];
      if (&qp == named) {
        ++s.counters.doorbells;
        rung(qp, s, doorbell.pi());
      } else {
        // The word keeps only the last value: a doorbell of another QP of this page may have been
        // overwritten, and its record still tells. No ring that was taken orders that record, so
        // that it may be seen later.
        announce_from_record(qp, s);
        s.neighbour_rang_ns = now_ns;
        s.neighbour_rang = true;
      }
    }
    return true;
  }

  // Reads the record again where it lags behind a ring and is what is believed, and for a grace
  // period where a ring may have been overwritten.
  void catch_up(const QpEntry& qp, SendState& s, std::uint64_t now_ns) {
    if (s.neighbour_rang && now_ns - s.neighbour_rang_ns >= grace_ns_) s.neighbour_rang = false;
    if (s.catching_up || s.neighbour_rang) announce_from_record(qp, s);
  }

  // Once a grace period holds the record against the rings, and looks at the register that is not
  // this QP's: the rule for which the QP must end, or kNone. A record that no doorbell follows
  // starts no work, ever, nor does a ring of the wrong register.
  Refusal check_record(const QpEntry& qp, SendState& s, std::uint64_t now_ns) {
    if (!s.record_check.due(now_ns)) return Refusal::kNone;
    s.record_check.again_at(now_ns + grace_ns_);
    if (left_behind(tables_.uars[qp.uar])) broken(qp, s, Refusal::kDoorbellRegister, s.posted);
    if (!qp.has_record()) return Refusal::kNone;
    const std::uint16_t record = mlx5::decode_dbrec(M::load_dbrec_acquire(qp.dbrec));  // MO-1
    const std::uint64_t rung = s.catching_up ? s.rung : s.posted;
    Refusal why = Refusal::kNone;
    switch (s.record_check.look(record, rung)) {
      case RecordCheck::Verdict::kAgree: return Refusal::kNone;
      case RecordCheck::Verdict::kRecordWithoutDoorbell:
        why = Refusal::kRecordWithoutDoorbell;
        break;
      case RecordCheck::Verdict::kDoorbellWithoutRecord:
        why = Refusal::kDoorbellWithoutRecord;
        break;
    }
    return broken(qp, s, why, s.posted) ? why : Refusal::kNone;
  }

  // True if a register of the page on which no QP rings was rung and never looked at.
  bool left_behind(const UarEntry& uar) {
    bool rung = false;
    for (const bool has_record : {true, false}) {
      const bool in_use =
          std::any_of(queues_.active.begin(), queues_.active.end(),
                      [&](std::uint32_t i) { return rings_on(tables_.qps[i], uar, has_record); });
      if (!in_use && take(uar, has_record) != 0) rung = true;
    }
    return rung;
  }

 private:
  bool rings_on(const QpEntry& qp, const UarEntry& uar, bool has_record) const {
    return &tables_.uars[qp.uar] == &uar && qp.has_record() == has_record;
  }

  bool broken(const QpEntry& qp, SendState& s, Refusal why, std::uint64_t index) {
    return rules_.broken(why, s.counters.reasons, qp.qpn, index);
  }

  static std::uint64_t take(const UarEntry& uar, bool has_record) {
    return M::take_doorbell_acquire(uar.doorbell(has_record));  // MO-2, MO-3
  }

  void rung(const QpEntry& qp, SendState& s, std::uint16_t pi) {
    const bool early = qp.state != QpState::kRts && qp.state != QpState::kError;
    if (early && broken(qp, s, Refusal::kDoorbellBeforeRts, s.posted)) return;
    const std::uint64_t end = s.posted + ahead_of(s, pi);
    if (!fits(qp, s, end)) return;
    if (source_ == DoorbellSource::kRegister || !qp.has_record()) {
      s.posted = end;
      return;
    }
    s.rung = end;
    s.catching_up = true;
    announce_from_record(qp, s);
  }

  // A record may lag behind a doorbell that was already seen; then it is no news.
  void announce_from_record(const QpEntry& qp, SendState& s) {
    const std::uint16_t pi = mlx5::decode_dbrec(M::load_dbrec_acquire(qp.dbrec));  // MO-1
    const std::uint16_t ahead = ahead_of(s, pi);
    if (static_cast<std::int16_t>(ahead) > 0 && fits(qp, s, s.posted + ahead)) s.posted += ahead;
    if (s.posted >= s.rung) s.catching_up = false;
  }

  static std::uint16_t ahead_of(const SendState& s, std::uint16_t pi) {
    return static_cast<std::uint16_t>(pi - static_cast<std::uint16_t>(s.posted));
  }

  bool fits(const QpEntry& qp, SendState& s, std::uint64_t end) {
    if (end - s.completed_index() <= qp.depth()) return true;
    broken(qp, s, Refusal::kDoorbellJump, s.posted);
    return false;
  }

  const Tables& tables_;
  SendQueues& queues_;
  const RuleBook& rules_;
  DoorbellSource source_;
  std::uint64_t grace_ns_;
};

}  // namespace peal::nic
