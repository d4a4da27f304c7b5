// The sending half of the NIC: doorbells, fetching, segments out, acknowledgements in, CQEs.
// Does bounded work a step and never blocks; time comes as an argument. Runs on one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "link/link.hpp"
#include "nic/check.hpp"
#include "nic/counters.hpp"
#include "nic/faults.hpp"
#include "nic/record_check.hpp"
#include "nic/tables.hpp"
#include "peal/mlx5/doorbell.hpp"

namespace peal::nic {

template <class M>
class Requester {
 public:
  struct Options {
    bool null_payload = false;
    // How long a doorbell and its record may disagree.
    std::uint64_t record_grace_ns = 0;
  };

  Requester(Tables& tables, link::Link& link, Options options)
      : tables_(tables), link_(link), options_(options), queues_(kMaxQps) {}

  // ---- Control, between steps ------------------------------------------------------------------

  // An empty ring whose first WQE has index `first_index`.
  void create(std::uint32_t qp_index, std::uint64_t first_index) {
    queues_[qp_index] = std::make_unique<Queue>();
    Queue& s = *queues_[qp_index];
    s.outstanding.resize(tables_.qps[qp_index].depth());
    s.fetched = s.posted = first_index;
    active_.push_back(qp_index);
  }

  void destroy(std::uint32_t qp_index) {
    look_at_doorbell(qp_index);  // a neighbour on its page may have rung last
    stop_sending(tables_.qps[qp_index], *queues_[qp_index]);
    queues_[qp_index].reset();
    std::erase(active_, qp_index);
  }

  // Back to an empty ring that starts at 0. Counters of what was done stay.
  void reset(std::uint32_t qp_index) {
    const QpCounters counters = queues_[qp_index]->counters;
    destroy(qp_index);
    create(qp_index, 0);
    queues_[qp_index]->counters = counters;
  }

  void start_at_psn(std::uint32_t qp_index, Psn psn) {
    queues_[qp_index]->next_psn = queues_[qp_index]->oldest_psn = psn;
  }

  void arm(std::uint32_t qp_index, const std::vector<Fault>& faults) {
    Queue& s = *queues_[qp_index];
    s.faults.arm(faults, s.posted);
  }

  // How many armed faults have not happened.
  std::uint32_t unreached(std::uint32_t qp_index) const {
    return queues_[qp_index]->faults.unreached();
  }

  QpCounters counters(std::uint32_t qp_index) const {
    const Queue& s = *queues_[qp_index];
    QpCounters c = s.counters;
    c.producer_index = s.posted;
    c.consumer_index = s.fetched;
    return c;
  }
  QpCounters& own_counters(std::uint32_t qp_index) { return queues_[qp_index]->counters; }

  // The memory [begin, end) is about to be freed: no WQE may read it any more.
  void forget_memory(const std::byte* begin, const std::byte* end, std::uint64_t now_ns) {
    for (const std::uint32_t i : active_) {
      Queue& s = *queues_[i];
      for (std::uint64_t k = s.head; k != s.tail; ++k) {
        Outstanding& o = s.outstanding[k & s.mask()];
        if (o.phase == Phase::kDone || o.source < begin || o.source >= end) continue;
        link_.discard(tables_.qps[i].qpn, o.first_psn);
        fail(s, o, Refusal::kLkeyStale, mlx5::Syndrome::kLocalProtection, kVendorLocalProtection,
             now_ns);
        break;
      }
    }
  }

  // True when nothing that was announced is unfinished.
  bool quiet(std::uint32_t qp_index) const {
    const Queue& s = *queues_[qp_index];
    return s.fetched == s.posted && s.head == s.tail;
  }

  // ---- Steps -----------------------------------------------------------------------------------

  bool step(std::uint64_t now_ns) {
    bool worked = false;
    for (const std::uint32_t i : active_) worked |= look_at_doorbell(i);
    for (const std::uint32_t i : active_) {
      QpEntry& qp = tables_.qps[i];
      Queue& s = *queues_[i];
      if (qp.state == QpState::kRts && s.record_check.due(now_ns)) check_record(qp, s, now_ns);
      if (qp.answer_timeout_ns() != 0) check_answer(qp, s, now_ns);
      if (qp.state == QpState::kRts) worked |= fetch_and_send(qp, s, now_ns);
      if (qp.state == QpState::kError) stop_sending(qp, s);
      worked |= write_completions(qp, s, now_ns);
      if (qp.state == QpState::kError) worked |= flush_posted(qp, s);
    }
    return worked;
  }

  // False when the answer is not for this queue to take.
  bool acknowledge(QpEntry& qp, const link::Segment& ack, std::uint64_t now_ns) {
    Queue& s = *queues_[tables_.index_of(qp)];
    if (qp.state != QpState::kRts || ack.source_qpn != qp.remote_qpn) return false;
    const bool positive = ack.aeth_syndrome <= link::kAethAck;
    const bool never_sent = positive && ack.psn.since(s.next_psn) >= 0;
    if (never_sent || ack.aeth_syndrome == link::kAethNakSequence) {
      // The two ends do not agree on the PSN, and a link that loses nothing will not mend that.
      fail_oldest(s, Refusal::kSequence, mlx5::Syndrome::kTransportRetryExceeded,
                  kVendorRetryExceeded, now_ns);
      return true;
    }
    if (ack.psn.since(s.oldest_psn) < 0) return true;  // told before
    // Acknowledges everything up to its PSN, or, if negative, everything before it.
    for (std::uint64_t i = s.head; i != s.tail; ++i) {
      Outstanding& o = s.outstanding[i & s.mask()];
      if (o.phase != Phase::kSent) {
        if (o.phase == Phase::kSending) break;
        continue;
      }
      const std::int32_t past = ack.psn.since(o.last_psn);
      if (past > 0 || (positive && past == 0)) {
        finish(s, o, now_ns);
        s.counters.bytes_moved += o.completion.bytes;
        s.oldest_psn = o.last_psn.plus(1);
        s.answered_ns = now_ns;
        continue;
      }
      break;
    }
    if (!positive) fail_from_nak(s, ack.aeth_syndrome, now_ns);
    return true;
  }

 private:
  static constexpr std::uint32_t kWorkPerStep = 128;  // WQEs a queue, so that no queue starves
  // A receiver tells old from new by a signed 24-bit difference. No WQE is started above this, and
  // one of 1 GiB at the smallest MTU takes as many again.
  static constexpr std::int32_t kMaxPacketsInFlight = 1 << 22;

  enum class Phase : std::uint8_t { kSending, kSent, kDone };

  struct Outstanding {
    Completion completion;
    const std::byte* source = nullptr;
    std::uint8_t fm_ce_se = 0;
    Phase phase = Phase::kSending;
    Psn first_psn;
    Psn last_psn;
    std::uint64_t sent_at_ns = 0;
    std::uint64_t done_at_ns = 0;
  };

  struct Queue {
    std::uint64_t posted = 0;   // announced by the client
    std::uint64_t fetched = 0;  // taken from the ring
    // Fetched and not yet completed, in order; free-running positions.
    std::vector<Outstanding> outstanding;
    std::uint64_t head = 0;
    std::uint64_t tail = 0;
    // The newest of them, while it is being cut into segments.
    Move current;
    std::uint32_t current_sent = 0;
    bool sending = false;
    bool failing = false;   // a WQE has failed: nothing more is fetched
    bool reported = false;  // its error CQE is written: what follows is flushed
    Psn next_psn;
    Psn oldest_psn;
    std::uint64_t answered_ns = 0;  // the last time an answer came
    ArmedFaults faults;
    RecordCheck record_check;
    QpCounters counters;

    std::uint64_t mask() const { return outstanding.size() - 1; }
    Outstanding& newest() { return outstanding[(tail - 1) & mask()]; }
  };

  void refuse(Queue& s, Refusal why) { ++s.counters.refusals[static_cast<std::size_t>(why)]; }

  // Acts only on a ring: the record alone starts nothing.
  bool look_at_doorbell(std::uint32_t qp_index) {
    const UarEntry& uar = tables_.uars[tables_.qps[qp_index].uar];
    const std::uint64_t word = M::take_doorbell_acquire(  // MO-2, MO-3
        reinterpret_cast<std::uint64_t*>(uar.page + mlx5::kUarDoorbellOffset));
    if (word == 0) return false;
    const mlx5::Doorbell doorbell = mlx5::decode_doorbell(word);
    const QpEntry* named = tables_.find_qp(doorbell.qpn);
    if (named == nullptr || named->uar != tables_.qps[qp_index].uar) {
      refuse(*queues_[qp_index], Refusal::kDoorbellQpn);
      return true;
    }
    for (const std::uint32_t i : active_) {
      QpEntry& qp = tables_.qps[i];
      if (qp.uar != named->uar) continue;
      Queue& s = *queues_[i];
      if (&qp == named) {
        ++s.counters.doorbells;
        announce(qp, s, doorbell.pi());
      } else {
        // The word keeps only the last value: a doorbell of another QP of this page may have been
        // overwritten, and its record still tells.
        announce_from_record(qp, s);
      }
    }
    return true;
  }

  // A record may lag behind a doorbell that was already seen; then it is no news.
  void announce_from_record(const QpEntry& qp, Queue& s) {
    const std::uint16_t pi = mlx5::decode_dbrec(M::load_dbrec_acquire(qp.dbrec));  // MO-1
    if (static_cast<std::int16_t>(pi - static_cast<std::uint16_t>(s.posted)) > 0) {
      announce(qp, s, pi);
    }
  }

  void announce(const QpEntry& qp, Queue& s, std::uint16_t pi) {
    const auto ahead = static_cast<std::uint16_t>(pi - static_cast<std::uint16_t>(s.posted));
    if (ahead == 0) return;
    if (s.posted + ahead - completed_index(s) > qp.depth()) {
      refuse(s, Refusal::kDoorbellJump);
      return;
    }
    s.posted += ahead;
  }

  // A request that was sent and is not answered in time ends the QP: its peer is gone.
  void check_answer(const QpEntry& qp, Queue& s, std::uint64_t now_ns) {
    if (s.head == s.tail || s.failing) return;
    const Outstanding& oldest = s.outstanding[s.head & s.mask()];
    if (oldest.phase != Phase::kSent) return;
    const std::uint64_t since = std::max(s.answered_ns, oldest.sent_at_ns);
    if (now_ns - since < qp.answer_timeout_ns()) return;
    fail_oldest(s, Refusal::kNoAnswer, mlx5::Syndrome::kTransportRetryExceeded,
                kVendorRetryExceeded, now_ns);
  }

  // A doorbell that no record follows ends the QP; a record that no doorbell follows starts no
  // work, ever.
  void check_record(QpEntry& qp, Queue& s, std::uint64_t now_ns) {
    const std::uint16_t record = mlx5::decode_dbrec(M::load_dbrec_acquire(qp.dbrec));  // MO-1
    switch (s.record_check.look(record, s.posted, now_ns, options_.record_grace_ns)) {
      case RecordCheck::Verdict::kAgree: break;
      case RecordCheck::Verdict::kRecordWithoutDoorbell:
        refuse(s, Refusal::kRecordWithoutDoorbell);
        break;
      case RecordCheck::Verdict::kDoorbellWithoutRecord:
        refuse(s, Refusal::kDoorbellWithoutRecord);
        qp.state = QpState::kError;
        break;
    }
  }

  // Index of the oldest WQE that has no CQE yet.
  static std::uint64_t completed_index(const Queue& s) {
    return s.head == s.tail ? s.fetched : s.outstanding[s.head & s.mask()].completion.index;
  }

  bool fetch_and_send(QpEntry& qp, Queue& s, std::uint64_t now_ns) {
    bool worked = false;
    for (std::uint32_t budget = kWorkPerStep; budget > 0; --budget) {
      if (s.sending) {
        if (!send_segment(qp, s, now_ns)) return worked;
        worked = true;
        continue;
      }
      if (s.failing || s.fetched == s.posted || s.faults.held(now_ns)) return worked;
      if (s.next_psn.since(s.oldest_psn) >= kMaxPacketsInFlight) return worked;
      fetch(qp, s, now_ns);
      worked = true;
    }
    return worked;
  }

  void fetch(QpEntry& qp, Queue& s, std::uint64_t now_ns) {
    const std::uint64_t index = s.fetched;
    const mlx5::Slot slot = M::fetch_slot(&qp.sq[index & (qp.depth() - 1)]);
    CheckResult r = check(slot, index, s.posted - index, qp, tables_);
    ++s.counters.wqes_fetched;
    s.fetched += r.move.slots <= s.posted - index ? r.move.slots : 1;

    Outstanding& o = s.outstanding[s.tail++ & s.mask()];
    o = Outstanding{};
    o.completion.index = index;
    o.completion.opcode = r.move.opcode;
    o.fm_ce_se = r.move.fm_ce_se;
    const bool is_noop = r.move.opcode == static_cast<std::uint8_t>(mlx5::Opcode::kNop);
    if (r.refusal == Refusal::kNone) {
      if (is_noop) {
        ++s.counters.noops;
      } else {
        ++s.counters.writes;
      }
    }
    const bool moves = s.faults.commit(index, &r) && !is_noop && !options_.null_payload;
    if (r.refusal != Refusal::kNone) {
      fail(s, o, r.refusal, r.syndrome, r.vendor_syndrome, now_ns);
    } else if (!moves) {
      finish(s, o, now_ns);
    } else {
      o.completion.bytes = r.move.bytes;
      o.source = r.move.source;
      o.first_psn = s.next_psn;
      s.current = r.move;
      s.current_sent = 0;
      s.sending = true;
    }
  }

  bool send_segment(const QpEntry& qp, Queue& s, std::uint64_t now_ns) {
    const std::uint32_t mtu = qp.mtu_bytes();
    // All but the last segment of a message end at a packet's end.
    const std::uint32_t most = link_.max_payload_bytes() / mtu * mtu;
    const std::uint32_t left = s.current.bytes - s.current_sent;
    const bool first = s.current_sent == 0;
    const bool last = left <= most;

    link::Segment segment;
    segment.kind = first ? (last ? link::SegmentKind::kWriteOnly : link::SegmentKind::kWriteFirst)
                         : (last ? link::SegmentKind::kWriteLast : link::SegmentKind::kWriteMiddle);
    segment.ack_request = last;
    segment.source_qpn = qp.qpn;
    segment.destination_qpn = qp.remote_qpn;
    segment.psn = s.next_psn;
    if (first) {
      segment.address = s.current.remote_address;
      segment.rkey = s.current.rkey;
      segment.message_bytes = s.current.bytes;
    }
    segment.payload_bytes = last ? left : most;
    // Null for a write of length 0, whose source was never resolved.
    segment.payload = s.current.source == nullptr ? nullptr : s.current.source + s.current_sent;
    if (!link_.try_send(segment)) return false;

    const std::uint32_t packets = (segment.payload_bytes + mtu - 1) / mtu;
    s.next_psn = s.next_psn.plus(packets == 0 ? 1 : packets);
    s.current_sent += segment.payload_bytes;
    if (last) {
      Outstanding& o = s.newest();
      o.last_psn = s.next_psn.plus(Psn::kMask);  // one back
      o.phase = Phase::kSent;
      o.sent_at_ns = now_ns;
      s.sending = false;
    }
    return true;
  }

  void finish(Queue& s, Outstanding& o, std::uint64_t now_ns) {
    o.phase = Phase::kDone;
    o.done_at_ns = now_ns + s.faults.delay_ns();
  }

  void fail(Queue& s, Outstanding& o, Refusal why, mlx5::Syndrome syndrome, std::uint8_t vendor,
            std::uint64_t now_ns) {
    refuse(s, why);
    o.completion.syndrome = syndrome;
    o.completion.vendor_syndrome = vendor;
    s.failing = true;
    s.sending = false;
    finish(s, o, now_ns);
  }

  void fail_from_nak(Queue& s, std::uint8_t aeth_syndrome, std::uint64_t now_ns) {
    switch (aeth_syndrome) {
      case link::kAethNakInvalidRequest:
        return fail_oldest(s, Refusal::kRemoteWriteDisabled, mlx5::Syndrome::kRemoteInvalidRequest,
                           kVendorRemoteAccess, now_ns);
      case link::kAethNakRemoteAccess:
        return fail_oldest(s, Refusal::kRemoteAccess, mlx5::Syndrome::kRemoteAccess,
                           kVendorRemoteAccess, now_ns);
      default:
        return fail_oldest(s, Refusal::kRemoteAccess, mlx5::Syndrome::kRemoteOperation,
                           kVendorRemoteAccess, now_ns);
    }
  }

  // Fails the oldest WQE that is not done. What comes after it will be flushed.
  void fail_oldest(Queue& s, Refusal why, mlx5::Syndrome syndrome, std::uint8_t vendor,
                   std::uint64_t now_ns) {
    for (std::uint64_t i = s.head; i != s.tail; ++i) {
      Outstanding& o = s.outstanding[i & s.mask()];
      if (o.phase != Phase::kDone) return fail(s, o, why, syndrome, vendor, now_ns);
    }
  }

  // CQEs strictly in order of the WQEs. In the error state what is not done is flushed, and so is
  // everything behind the WQE that failed.
  bool write_completions(QpEntry& qp, Queue& s, std::uint64_t now_ns) {
    bool worked = false;
    for (; s.head != s.tail; ++s.head) {
      Outstanding& o = s.outstanding[s.head & s.mask()];
      if (qp.state == QpState::kError) {
        if (o.phase != Phase::kDone || s.reported) flush(o.completion);
      } else if (o.phase != Phase::kDone || now_ns < o.done_at_ns) {
        return worked;
      }
      write_cqe(qp, s, o.completion, o.fm_ce_se);
      worked = true;
      if (o.completion.syndrome != mlx5::Syndrome::kNone && !s.reported) {
        qp.state = QpState::kError;
        s.reported = true;
        stop_sending(qp, s);
      }
    }
    return worked;
  }

  // Nothing of this QP may stay on its way: its memory may be freed once its CQEs are written.
  void stop_sending(const QpEntry& qp, Queue& s) {
    link_.discard(qp.qpn, s.oldest_psn);
    s.sending = false;
  }

  // Every WQE posted to a QP in the error state completes too: without this, waits on it hang.
  bool flush_posted(QpEntry& qp, Queue& s) {
    bool worked = false;
    for (std::uint32_t budget = kWorkPerStep; budget > 0 && s.fetched != s.posted; --budget) {
      const mlx5::Slot slot = M::fetch_slot(&qp.sq[s.fetched & (qp.depth() - 1)]);
      const CheckResult r = check(slot, s.fetched, s.posted - s.fetched, qp, tables_);
      Completion c;
      c.index = s.fetched;
      c.opcode = r.move.opcode;
      flush(c);
      ++s.counters.wqes_fetched;
      s.fetched += r.move.slots <= s.posted - s.fetched ? r.move.slots : 1;
      write_cqe(qp, s, c, mlx5::kCompletionAlways);
      worked = true;
    }
    return worked;
  }

  static void flush(Completion& c) {
    c.syndrome = mlx5::Syndrome::kFlushed;
    c.vendor_syndrome = kVendorFlushed;
    c.bytes = 0;
  }

  void write_cqe(const QpEntry& qp, Queue& s, const Completion& c, std::uint8_t fm_ce_se) {
    const bool error = c.syndrome != mlx5::Syndrome::kNone;
    // 2 asks for a CQE, 3 for one with an event.
    if (!error && (fm_ce_se & mlx5::kCompletionAlways) == 0) return;
    CqEntry& cq = tables_.cqs[qp.cq];
    const std::uint64_t number = cq.produced++;
    M::store_cqe(&cq.ring[number & ((1u << cq.log_size) - 1)],  // MO-4
                 complete(c, qp.qpn, number, cq.log_size));
    ++s.counters.cqes;
    if (error) ++s.counters.error_cqes;
  }

  Tables& tables_;
  link::Link& link_;
  Options options_;
  std::vector<std::unique_ptr<Queue>> queues_;  // by QP index
  std::vector<std::uint32_t> active_;
};

}  // namespace peal::nic
