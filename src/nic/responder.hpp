// The receiving half of the NIC: places written payload, serves reads and atomics, acknowledges,
// refuses. What arrives is input: it is checked, counted and refused, never trusted. Runs on one
// thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "link/link.hpp"
#include "nic/atomic.hpp"
#include "nic/check.hpp"
#include "nic/counters.hpp"
#include "nic/cut.hpp"
#include "nic/tables.hpp"
#include "peal/memory/planted.hpp"

namespace peal::nic {

// Whether plain writes of one QP become visible in the order in which they were posted.
enum class WriteOrder : std::uint8_t {
  kStrict,   // they do, and each from its first byte to its last
  kRelaxed,  // not before they are acknowledged, or an atomic, a read or a fence asks for it
};

// Segments that no QP could be found for, or that a QP would not take.
struct DropCounters {
  std::uint64_t unknown_qp = 0;
  std::uint64_t wrong_state = 0;
  std::uint64_t wrong_source = 0;
  std::uint64_t out_of_sequence = 0;
};

template <class M>
class Responder {
 public:
  Responder(Tables& tables, link::Link& link, const RuleBook& rules, WriteOrder order)
      : tables_(tables),
        link_(link),
        lossless_(link.lossless()),
        rules_(rules),
        order_(order),
        queues_(kMaxQps) {}

  void reset(std::uint32_t qp_index) {
    Queue& q = queues_[qp_index];
    // An answer that is on its way refers to memory that may be freed.
    if (!q.answers.empty()) {
      discard_answers(qp_index, q.expected.plus(Psn::kMask - link::kAllLaterPsns + 1),
                      link::kAllLaterPsns);
    }
    q = Queue{};
    std::erase(due_, qp_index);
    std::erase(late_, qp_index);
  }
  void start_at_psn(std::uint32_t qp_index, Psn psn) { queues_[qp_index].expected = psn; }

  const DropCounters& drops() const { return drops_; }
  void count_unknown_qp() { ++drops_.unknown_qp; }
  void count_wrong_state() { ++drops_.wrong_state; }
  void count_wrong_source() { ++drops_.wrong_source; }

  // The region of `key` is about to be freed: a read of it that is not answered whole never will
  // be. counters_of(i) are those of the QP with index i.
  template <class CountersOf>
  void forget_region(std::uint32_t key, const CountersOf& counters_of) {
    for (std::uint32_t i = 1; i < kMaxQps; ++i) {
      Queue& q = queues_[i];
      for (std::size_t k = 0; k < q.answers.size(); ++k) {
        if (q.answers[k].rkey != key) continue;
        const Psn psn = q.answers[k].psn;
        const auto packets =
            static_cast<std::int32_t>(tables_.qps[i].packets_of(q.answers[k].bytes));
        const bool unsent = k >= q.next_answer;
        if (!discard_answers(i, psn, packets) && !unsent) continue;  // it has arrived
        discard_answers(i, psn, link::kAllLaterPsns);
        const std::uint32_t sent = lossless_ ? 0 : q.answers[k].sent / tables_.qps[i].mtu_bytes();
        q.answers.resize(k);
        q.next_answer = std::min(q.next_answer, k);
        rules_.broken(Refusal::kRkeyStale, counters_of(i).reasons, tables_.qps[i].qpn);
        refuse(tables_.qps[i], i, q, psn.plus(sent), link::kAethNakRemoteAccess);
      }
    }
  }

  // Takes one request segment; `counters` are those of the QP that it names.
  void receive(QpEntry& qp, const link::Segment& in, QpCounters& counters) {
    const auto index = tables_.index_of(qp);
    Queue& q = queues_[index];
    if (qp.state != QpState::kRtr && qp.state != QpState::kRts) {
      ++drops_.wrong_state;
      rules_.broken(Refusal::kResponderState, counters.reasons, qp.qpn);
      return;
    }
    if (!link::may_be_from(in, qp.remote_qpn)) {
      ++drops_.wrong_source;
      rules_.broken(Refusal::kWrongSource, counters.reasons, qp.qpn);
      return;
    }
    const std::int32_t ahead = in.psn.since(q.expected);
    if (ahead < 0) {
      ++counters.duplicate_requests;
      answer_again(qp, index, q, in);
      return;
    }
    if (ahead > 0) {
      ++drops_.out_of_sequence;
      // Once, as the requester sends all of it again (IBTA 9.7.5.1.1).
      if (!lossless_ && q.gap_told) return;
      q.gap_told = true;
      acknowledge(index, q, q.expected, link::kAethNakSequence);
      return;
    }
    q.gap_told = false;
    std::uint8_t syndrome = 0;
    if (in.kind == link::SegmentKind::kReadRequest) {
      syndrome = serve_read(qp, index, q, in, counters);
    } else if (link::is_atomic(in.kind)) {
      syndrome = serve_atomic(qp, index, q, in, counters);
    } else {
      syndrome = place(qp, index, q, in, counters);
    }
    if (syndrome == 0) return;
    if (syndrome == link::kAethNakNoReceive) {
      // What follows will come again with it.
      q.gap_told = true;
      acknowledge(index, q, q.expected, static_cast<std::uint8_t>(syndrome | qp.min_rnr_timer));
    } else {
      refuse(qp, index, q, q.expected, syndrome);
    }
  }

  // Makes visible what was kept back. Before anything is acknowledged.
  void place_late() {
    for (const std::uint32_t i : late_) place_late(queues_[i]);
    late_.clear();
  }

  // Sends what is owed: answers in their order, and one acknowledgement for all before it.
  bool send_answers() {
    bool worked = false;
    while (!due_.empty()) {
      const std::uint32_t index = due_.back();
      Queue& q = queues_[index];
      while (q.next_answer < q.answers.size()) {
        if (!send_answer(index, q, q.answers[q.next_answer])) return worked;
        worked = true;
      }
      if (q.answer_due) {
        link::Segment ack = response(index, q, q.answer_psn);
        ack.kind = link::SegmentKind::kAcknowledge;
        ack.aeth_syndrome = q.answer_syndrome;
        if (!link_.try_send(ack)) return worked;
        q.answer_due = false;
      }
      due_.pop_back();
      q.due = false;
      worked = true;
    }
    return worked;
  }

 private:
  // IBTA 9.4.4 wants a responder to remember as many reads and atomics as it grants.
  static constexpr std::size_t kAnswersKept = 128;  // log_rra_max has three bits

  // Owed to a read or an atomic.
  struct Answer {
    Psn psn;  // of its first packet
    bool atomic = false;
    bool again = false;  // its request was executed before
    std::uint64_t original = 0;
    const std::byte* memory = nullptr;  // that a read reads
    std::uint32_t rkey = 0;             // of that memory's region
    std::uint32_t bytes = 0;
    std::uint32_t sent = 0;
  };

  // A write that was accepted and is not visible yet.
  struct Late {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::uint32_t bytes = 0;
  };

  struct Queue {
    Psn expected;
    bool gap_told = false;  // that it has not come, while later ones have
    std::uint32_t msn = 0;
    // The message being received.
    std::uint64_t address = 0;
    Rkey rkey;
    std::uint32_t remaining = 0;
    bool in_message = false;
    // What the requester is owed, and the answers it was given last: those below next_answer.
    std::vector<Answer> answers;
    std::size_t next_answer = 0;
    bool due = false;  // its index is in due_
    bool answer_due = false;
    Psn answer_psn;
    std::uint8_t answer_syndrome = 0;
    Late late;
  };

  static std::uint8_t nak_of(Refusal why) {
    switch (why) {
      case Refusal::kNone: return 0;
      case Refusal::kNoReceive: return link::kAethNakNoReceive;
      case Refusal::kRkeyUnknown:
      case Refusal::kRkeySwapped:
      case Refusal::kRkeyStale:
      case Refusal::kRkeyOtherPd:
      case Refusal::kRemoteRange:
      case Refusal::kRemoteAccess: return link::kAethNakRemoteAccess;
      default: return link::kAethNakInvalidRequest;
    }
  }

  // 0, or the NAK with which `why` is refused.
  std::uint8_t judge(Refusal why, const QpEntry& qp, QpCounters& counters) {
    if (why == Refusal::kNone || !rules_.broken(why, counters.reasons, qp.qpn)) return 0;
    return nak_of(why);
  }

  std::uint8_t judge_length(const QpEntry& qp, const link::Segment& in, QpCounters& counters) {
    const bool fits = in.message_bytes <= std::uint64_t{1} << qp.log_msg_max;
    return fits ? 0 : judge(Refusal::kMessageTooLong, qp, counters);
  }

  // ---- Writes ----------------------------------------------------------------------------------

  std::uint8_t place(QpEntry& qp, std::uint32_t index, Queue& q, const link::Segment& in,
                     QpCounters& counters) {
    using link::SegmentKind;
    const bool only =
        in.kind == SegmentKind::kWriteOnly || in.kind == SegmentKind::kWriteOnlyImmediate;
    const bool first = only || in.kind == SegmentKind::kWriteFirst;
    const bool last =
        only || in.kind == SegmentKind::kWriteLast || in.kind == SegmentKind::kWriteLastImmediate;
    const bool immediate =
        in.kind == SegmentKind::kWriteLastImmediate || in.kind == SegmentKind::kWriteOnlyImmediate;
    if (first == q.in_message) return judge(Refusal::kMalformedRequest, qp, counters);
    if (first) {
      if (const auto n = judge_length(qp, in, counters)) return n;
    }
    const std::uint64_t address = first ? in.address : q.address;
    const Rkey rkey = first ? in.rkey : q.rkey;
    const std::uint32_t remaining = first ? in.message_bytes : q.remaining;
    if (!qp.remote_write_enabled) {
      if (const auto n = judge(Refusal::kRemoteWriteDisabled, qp, counters)) return n;
    }
    // Anew for each segment: the region may be deregistered in the middle of a message.
    std::byte* target = nullptr;
    const Refusal why = check_remote(address, rkey, remaining, kRemoteWrite, qp, tables_, &target);
    if (const auto n = judge(why, qp, counters)) return n;
    if (!is_cut(qp, remaining, last, in.payload_bytes)) {
      return judge(Refusal::kMalformedRequest, qp, counters);
    }
    // No QP here has a receive queue. Nothing has changed, as it may come again.
    if (immediate) return judge(Refusal::kNoReceive, qp, counters);

    if (in.payload_bytes > 0) place_payload(index, q, {target, in.payload, in.payload_bytes});
    q.address = address + in.payload_bytes;
    q.rkey = rkey;
    q.remaining = remaining - in.payload_bytes;
    q.in_message = !last;
    q.expected = q.expected.plus(qp.packets_of(in.payload_bytes));
    counters.received_bytes += in.payload_bytes;
    if (last) {
      count_message(q);
      ++counters.received_writes;
    }
    if (in.ack_request) acknowledge(index, q, q.expected.plus(Psn::kMask));
    return 0;
  }

  // Relaxed, each write is overtaken by the next one, and its end overtakes its beginning: what a
  // client may not rely on does not hold.
  void place_payload(std::uint32_t index, Queue& q, const Late& now) {
    if (order_ == WriteOrder::kStrict) {
      M::copy_payload(now.to, now.from, now.bytes);
      return;
    }
    if (!link_.payload_stays()) {
      place_end_first(now);
      return;
    }
    const Late before = q.late;
    q.late = Late{};
    if (before.from == nullptr) {
      q.late = now;
      late_.push_back(index);
      return;
    }
    place_end_first(now);
    place_end_first(before);
  }

  // The end before the rest, so that whoever polls the last byte is wrong.
  static void place_end_first(const Late& p) {
    const std::uint32_t end = p.bytes > kLineBytes ? kLineBytes : 0;
    const std::uint32_t rest = p.bytes - end;
    if (end > 0) M::copy_payload(p.to + rest, p.from + rest, end);
    M::copy_payload(p.to, p.from, rest);
  }
  static constexpr std::uint32_t kLineBytes = 64;

  static void place_late(Queue& q) {
    if (q.late.from != nullptr) place_end_first(q.late);
    q.late = Late{};
  }

  // ---- Reads and atomics -----------------------------------------------------------------------

  std::uint8_t serve_read(QpEntry& qp, std::uint32_t index, Queue& q, const link::Segment& in,
                          QpCounters& counters) {
    if (q.in_message) return judge(Refusal::kMalformedRequest, qp, counters);
    if (const auto n = judge_length(qp, in, counters)) return n;
    if (!qp.remote_read_enabled) {
      if (const auto n = judge(Refusal::kRemoteReadDisabled, qp, counters)) return n;
    }
    if (const auto n = judge_resources(qp, q, counters)) return n;
    std::byte* memory = nullptr;
    const Refusal why =
        check_remote(in.address, in.rkey, in.message_bytes, kRemoteRead, qp, tables_, &memory);
    if (const auto n = judge(why, qp, counters)) return n;
    place_late(q);
    owe(index, q, answer_of_read(in, memory));
    q.expected = q.expected.plus(qp.packets_of(in.message_bytes));
    count_message(q);
    ++counters.served_reads;
    counters.served_bytes += in.message_bytes;
    return 0;
  }

  static Answer answer_of_read(const link::Segment& in, const std::byte* memory) {
    Answer a;
    a.psn = in.psn;
    a.memory = memory;
    a.rkey = memory == nullptr ? 0 : in.rkey.value;
    a.bytes = in.message_bytes;
    return a;
  }

  std::uint8_t serve_atomic(QpEntry& qp, std::uint32_t index, Queue& q, const link::Segment& in,
                            QpCounters& counters) {
    const std::uint32_t bytes = in.message_bytes;
    if (q.in_message || (bytes != 8 && bytes != 4) ||
        in.payload_bytes != link::kAtomicPayloadBytes) {
      return judge(Refusal::kMalformedRequest, qp, counters);
    }
    if (!qp.remote_atomic_enabled) {
      if (const auto n = judge(Refusal::kRemoteAtomicDisabled, qp, counters)) return n;
    }
    if (qp.atomic_mode == 0) {
      if (const auto n = judge(Refusal::kAtomicModeOff, qp, counters)) return n;
    }
    if (in.address % bytes != 0) return judge(Refusal::kAtomicMisaligned, qp, counters);
    if (const auto n = judge_resources(qp, q, counters)) return n;
    std::byte* memory = nullptr;
    const Refusal why =
        check_remote(in.address, in.rkey, bytes, kRemoteAtomic, qp, tables_, &memory);
    if (const auto n = judge(why, qp, counters)) return n;
    // The iova may be aligned where the memory is not.
    if (reinterpret_cast<std::uintptr_t>(memory) % bytes != 0) {
      return judge(Refusal::kAtomicMisaligned, qp, counters);
    }
    place_late(q);
    Answer a;
    a.psn = in.psn;
    a.atomic = true;
    a.original = execute(in.kind, memory, bytes, decode_operands(in.payload));
    owe(index, q, a);
    q.expected = q.expected.plus(1);
    count_message(q);
    ++counters.served_atomics;
    return 0;
  }

  // MO-12: what was placed before is visible to whoever reads the new value.
  static std::uint64_t execute(link::SegmentKind kind, std::byte* memory, std::uint32_t bytes,
                               const AtomicOperands& o) {
    const bool swaps =
        kind == link::SegmentKind::kCompareSwap || kind == link::SegmentKind::kMaskedCompareSwap;
    const auto next = [&](std::uint64_t old) {
      return swaps ? compare_swapped(old, o) : fetch_added(old, o);
    };
    if (bytes == 8) {
      return M::update_signal_acq_rel(reinterpret_cast<std::uint64_t*>(memory), next);
    }
    return M::update_signal_acq_rel(
        reinterpret_cast<std::uint32_t*>(memory),
        [&next](std::uint32_t old) { return static_cast<std::uint32_t>(next(old)); });
  }

  // A request that was executed before (IBTA 9.7.5.1.2): a write is acknowledged, a read read
  // again, an atomic answered with what it was answered, and none of them executed. What cannot be
  // answered is not: the requester will ask again, or give up.
  void answer_again(const QpEntry& qp, std::uint32_t index, Queue& q, const link::Segment& in) {
    const bool reads = in.kind == link::SegmentKind::kReadRequest;
    if (reads || link::is_atomic(in.kind)) {
      if (q.answers.size() - q.next_answer >= kAnswersKept) return;
      if (reads) {
        std::byte* memory = nullptr;
        const Refusal why =
            check_remote(in.address, in.rkey, in.message_bytes, kRemoteRead, qp, tables_, &memory);
        const auto packets = static_cast<std::int32_t>(qp.packets_of(in.message_bytes));
        const bool executed = in.psn.since(q.expected) + packets <= 0;
        if (why != Refusal::kNone || !qp.remote_read_enabled || !executed) return;
        place_late(q);
        Answer a = answer_of_read(in, memory);
        a.again = true;
        owe(index, q, a);
        return;
      }
      const auto same = [&in](const Answer& a) { return a.atomic && a.psn == in.psn; };
      const auto found = std::find_if(q.answers.rbegin(), q.answers.rend(), same);
      if (found == q.answers.rend()) return;
      Answer a = *found;
      a.again = true;
      owe(index, q, a);
      return;
    }
    // A NAK that is owed says as much, and more.
    if (!q.answer_due && !planted<M>(LogicPlant::kDuplicateAck))
      acknowledge(index, q, q.expected.plus(Psn::kMask));
  }

  std::uint8_t judge_resources(const QpEntry& qp, const Queue& q, QpCounters& counters) {
    const auto unanswered =
        std::count_if(q.answers.begin() + static_cast<std::ptrdiff_t>(q.next_answer),
                      q.answers.end(), [](const Answer& a) { return !a.again; });
    const bool fits = unanswered < std::ptrdiff_t{1} << qp.log_rra_max;
    return fits ? 0 : judge(Refusal::kReadResources, qp, counters);
  }

  void owe(std::uint32_t index, Queue& q, const Answer& a) {
    if (q.answers.size() >= 2 * kAnswersKept && q.next_answer >= kAnswersKept) {
      q.answers.erase(q.answers.begin(), q.answers.begin() + kAnswersKept);
      q.next_answer -= kAnswersKept;
    }
    q.answers.push_back(a);
    if (!a.again) q.answer_due = false;  // the answer acknowledges all before it
    make_due(index, q);
  }

  bool send_answer(std::uint32_t index, Queue& q, Answer& a) {
    using link::SegmentKind;
    const QpEntry& qp = tables_.qps[index];
    link::Segment out = response(index, q, a.psn.plus(a.sent / qp.mtu_bytes()));
    if (a.atomic) {
      out.kind = SegmentKind::kAtomicAcknowledge;
      out.original = a.original;
      if (!link_.try_send(out)) return false;
      ++q.next_answer;
      return true;
    }
    const std::uint32_t most = lossless_ ? link_.max_payload_bytes() : qp.mtu_bytes();
    const auto [first, last, bytes] = next_cut(qp, a.bytes, a.sent, most);
    out.kind = first ? (last ? SegmentKind::kReadResponseOnly : SegmentKind::kReadResponseFirst)
                     : (last ? SegmentKind::kReadResponseLast : SegmentKind::kReadResponseMiddle);
    out.payload_bytes = bytes;
    out.payload = a.memory == nullptr ? nullptr : a.memory + a.sent;
    if (!link_.try_send(out)) return false;
    a.sent += out.payload_bytes;
    if (last) ++q.next_answer;
    return true;
  }

  // ---- Answers ---------------------------------------------------------------------------------

  link::Segment response(std::uint32_t index, const Queue& q, Psn psn) const {
    link::Segment s;
    s.source_qpn = tables_.qps[index].qpn;
    s.destination_qpn = tables_.qps[index].remote_qpn;
    s.psn = psn;
    s.msn = q.msn;
    s.aeth_syndrome = link::kAethAck;
    return s;
  }

  static void count_message(Queue& q) { q.msn = (q.msn + 1) & Psn::kMask; }

  bool discard_answers(std::uint32_t index, Psn from, std::int32_t psns) {
    return link_.discard(tables_.qps[index].qpn, link::SegmentRole::kResponse, from, psns);
  }

  // A request that may never be served ends the connection (IBTA 9.9.3.1): both QPs go to error.
  void refuse(QpEntry& qp, std::uint32_t index, Queue& q, Psn psn, std::uint8_t syndrome) {
    acknowledge(index, q, psn, syndrome);
    qp.state = QpState::kError;
  }

  void acknowledge(std::uint32_t index, Queue& q, Psn psn, std::uint8_t syndrome = link::kAethAck) {
    q.answer_due = true;
    q.answer_psn = psn;
    q.answer_syndrome = syndrome;
    make_due(index, q);
  }

  void make_due(std::uint32_t index, Queue& q) {
    if (!q.due) due_.push_back(index);
    q.due = true;
  }

  Tables& tables_;
  link::Link& link_;
  const bool lossless_;
  const RuleBook& rules_;
  WriteOrder order_;
  std::vector<Queue> queues_;  // by QP index
  std::vector<std::uint32_t> due_;
  std::vector<std::uint32_t> late_;  // QPs that keep a write back; an index may be there in vain
  DropCounters drops_;
};

}  // namespace peal::nic
