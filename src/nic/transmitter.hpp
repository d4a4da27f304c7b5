// How a requester talks to its peer: WQEs that nothing holds back leave as segments, answers finish
// them, and what a link has lost is sent again. Knows nothing of rings and CQEs; time comes as an
// argument. Runs on one thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "link/link.hpp"
#include "nic/check.hpp"
#include "nic/counters.hpp"
#include "nic/cut.hpp"
#include "nic/send_state.hpp"
#include "nic/tables.hpp"
#include "wire/aeth.hpp"

namespace peal::nic {

template <class M>
class Transmitter {
 public:
  Transmitter(link::Link& link, const RuleBook& rules)
      : link_(link), lossless_(link.lossless()), rules_(rules) {}

  bool lossless() const { return lossless_; }
  // Before the QPs of a step send.
  void begin_step() { room_ = link_.most_in_flight(); }

  // Whether the peer can be told of it.
  bool can_tell(const Move& move) const {
    return move.operation != Operation::kAtomic || link_.carries_masked_atomics() ||
           !link::is_masked(atomic_kind(move.opcode));
  }

  // What the cursor points at; false when the link has no room.
  bool send(const QpEntry& qp, SendState& s, std::uint64_t now_ns) {
    Outstanding& o = s.at(s.cursor);
    if (o.phase != Phase::kDone) {
      switch (o.operation) {
        case Operation::kWrite: return send_write(qp, s, o, now_ns);
        case Operation::kRead:
        case Operation::kAtomic: return send_request(qp, s, o, now_ns);
        case Operation::kNop:
        case Operation::kWait:
        case Operation::kDump: finish(s, o, now_ns); break;
      }
    }
    s.next_wqe();
    return true;
  }

  // Takes a response of the QP's peer.
  void take(const QpEntry& qp, SendState& s, const link::Segment& in, std::uint64_t now_ns) {
    if (!lossless_ && (in.psn.since(s.oldest_psn) < 0 || in.psn.since(s.end_psn) > 0)) {
      ++s.counters.stray_responses;  // told before, or by nobody who knows
      return;
    }
    if (in.kind == link::SegmentKind::kAcknowledge) {
      acknowledge(qp, s, in, now_ns);
    } else {
      take_answer(qp, s, in, now_ns);
    }
  }

  // A request that was sent and is not answered in time is sent again, or ends the QP: its peer is
  // gone.
  void check_answer(const QpEntry& qp, SendState& s, std::uint64_t now_ns) {
    if (qp.answer_timeout_ns() == 0) return;
    if (lossless_) {
      if (s.head == s.tail || s.failing) return;
      const Outstanding* oldest = oldest_unfinished(s);
      if (oldest == nullptr || oldest->phase != Phase::kSent) return;
      const std::uint64_t since = std::max(s.answered_ns, oldest->sent_at_ns);
      if (now_ns - since < qp.answer_timeout_ns()) return;
    } else {
      if (!s.in_flight() || now_ns < s.rnr_until_ns) return;
      if (now_ns - s.waiting_since_ns < qp.attempt_timeout_ns()) return;
      if (try_again(qp, s, now_ns)) {
        s.went_back = false;  // and a NAK of it is no duplicate
        return;
      }
    }
    fail_oldest(qp, s, Refusal::kNoAnswer, mlx5::Syndrome::kTransportRetryExceeded,
                kVendorRetryExceeded, now_ns);
  }

  void finish(SendState& s, Outstanding& o, std::uint64_t now_ns) {
    o.phase = Phase::kDone;
    o.done_at_ns = now_ns + s.faults.delay_ns();
  }

  void fail(const QpEntry& qp, SendState& s, Outstanding& o, Refusal why, mlx5::Syndrome syndrome,
            std::uint8_t vendor, std::uint64_t now_ns) {
    rules_.broken(why, s.counters.reasons, qp.qpn, o.completion.index);
    o.reason = why;
    o.completion.syndrome = syndrome;
    o.completion.vendor_syndrome = vendor;
    s.failing = true;
    finish(s, o, now_ns);
    // What came before it may have to be sent again, what comes after it will be flushed.
    s.send_end = s.head;
    while (&s.at(s.send_end) != &o) ++s.send_end;
  }

  // Nothing of this QP may stay on its way: its memory may be freed once its CQEs are written.
  void stop(const QpEntry& qp, SendState& s) {
    link_.discard(qp.qpn, link::SegmentRole::kRequest, s.oldest_psn, link::kAllLaterPsns);
    s.cursor = s.send_end = s.tail;
    s.unanswered = 0;
    s.oldest_psn = s.next_psn = s.end_psn;
    s.oldest_byte = s.end_byte;
    count_flight(s);
  }

 private:
  static constexpr std::uint8_t kRnrRetryForEver = 7;  // IBTA 9.7.5.2.8

  // ---- Requests out ----------------------------------------------------------------------------

  // Whether the link holds so much more. Each QP may have one packet there, or none would go on.
  bool has_room(const SendState& s, std::uint32_t packets, std::uint32_t bytes) const {
    if (lossless_ || s.flight_packets == 0) return true;
    return flight_packets_ + packets <= room_.packets &&
           flight_bytes_ + bytes <= room_.payload_bytes;
  }

  // After any of its PSNs has moved.
  void count_flight(SendState& s) {
    if (lossless_) return;
    const auto packets = static_cast<std::uint64_t>(s.next_psn.since(s.oldest_psn));
    const std::uint64_t next_byte =
        s.cursor == s.tail ? s.end_byte : s.at(s.cursor).first_byte + s.cursor_bytes;
    const std::uint64_t bytes = next_byte - s.oldest_byte;
    flight_packets_ += packets - s.flight_packets;
    flight_bytes_ += bytes - s.flight_bytes;
    s.flight_packets = packets;
    s.flight_bytes = bytes;
  }

  bool send_write(const QpEntry& qp, SendState& s, Outstanding& o, std::uint64_t now_ns) {
    using link::SegmentKind;
    const std::uint32_t most = lossless_ ? link_.max_payload_bytes() : qp.mtu_bytes();
    const auto [first, last, bytes] = next_cut(qp, o.completion.bytes, s.cursor_bytes, most);
    const bool immediate = last && o.has_immediate;
    const std::uint32_t packets = qp.packets_of(bytes);
    if (!has_room(s, packets, bytes)) return false;

    link::Segment segment;
    if (last) {
      segment.kind = first
                         ? (immediate ? SegmentKind::kWriteOnlyImmediate : SegmentKind::kWriteOnly)
                         : (immediate ? SegmentKind::kWriteLastImmediate : SegmentKind::kWriteLast);
    } else {
      segment.kind = first ? SegmentKind::kWriteFirst : SegmentKind::kWriteMiddle;
    }
    segment.ack_request = last || asks_between(s, packets, bytes);
    address(segment, qp, s);
    if (first) name_memory(segment, o, 0, o.completion.bytes);
    segment.immediate = o.immediate;
    segment.payload_bytes = bytes;
    // Null for a write of length 0, whose source was never resolved.
    segment.payload = o.source == nullptr ? nullptr : o.source + s.cursor_bytes;
    if (!link_.try_send(segment)) return false;
    sent(s, o, segment, packets, bytes, last, now_ns);
    return true;
  }

  // A read or an atomic: one segment, and an answer. A read on a link that holds little is asked
  // for in parts, so that its answers find room.
  bool send_request(const QpEntry& qp, SendState& s, Outstanding& o, std::uint64_t now_ns) {
    using link::SegmentKind;
    const bool reads = o.operation == Operation::kRead;
    const std::uint32_t bytes = reads ? next_part(qp, s, o) : 0;
    const std::uint32_t packets = reads ? qp.packets_of(bytes) : 1;
    if (!has_room(s, packets, bytes)) return false;
    link::Segment segment;
    segment.kind = reads ? SegmentKind::kReadRequest : atomic_kind(o.completion.opcode);
    segment.ack_request = true;
    address(segment, qp, s);
    name_memory(segment, o, s.cursor_bytes, reads ? bytes : o.completion.bytes);
    if (!reads) {
      segment.payload = o.source;
      segment.payload_bytes = link::kAtomicPayloadBytes;
    }
    if (!link_.try_send(segment)) return false;
    if (s.next_psn == o.first_psn && s.next_psn == s.end_psn) ++s.unanswered;
    sent(s, o, segment, packets, bytes, !reads || s.cursor_bytes + bytes == o.completion.bytes,
         now_ns);
    return true;
  }

  // Parts end at the same places however often they are asked for.
  std::uint32_t next_part(const QpEntry& qp, const SendState& s, const Outstanding& o) const {
    const std::uint32_t left = o.completion.bytes - s.cursor_bytes;
    if (lossless_) return left;
    const std::uint64_t most = std::min<std::uint64_t>(
        room_.payload_bytes / 2, std::uint64_t{room_.packets / 2} * qp.mtu_bytes());
    const std::uint64_t packets = std::max<std::uint64_t>(1, most / qp.mtu_bytes());
    const std::uint64_t part = packets * qp.mtu_bytes();
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(left, part - s.cursor_bytes % part));
  }

  // Whether a packet that ends no message asks for an acknowledgement: often enough that the link
  // never stands still for want of one.
  bool asks_between(const SendState& s, std::uint32_t packets, std::uint32_t bytes) const {
    if (lossless_) return false;
    return s.unasked_packets + packets >= room_.packets / 4 ||
           s.unasked_bytes + bytes >= room_.payload_bytes / 4 ||
           flight_packets_ + 2 * packets > room_.packets ||
           flight_bytes_ + 2 * std::uint64_t{bytes} > room_.payload_bytes;
  }

  static void address(link::Segment& segment, const QpEntry& qp, const SendState& s) {
    segment.source_qpn = qp.qpn;
    segment.destination_qpn = qp.remote_qpn;
    segment.psn = s.next_psn;
  }
  static void name_memory(link::Segment& segment, const Outstanding& o, std::uint32_t from,
                          std::uint32_t bytes) {
    segment.address = o.remote_address + from;
    segment.rkey = o.rkey;
    segment.message_bytes = bytes;
  }

  void sent(SendState& s, Outstanding& o, const link::Segment& segment, std::uint32_t packets,
            std::uint32_t bytes, bool last, std::uint64_t now_ns) {
    if (!s.in_flight()) s.waiting_since_ns = now_ns;
    const bool again = s.next_psn.since(s.end_psn) < 0;
    s.next_psn = s.next_psn.plus(packets);
    if (again) {
      s.counters.retransmitted += packets;
    } else {
      s.end_psn = s.next_psn;
    }
    s.unasked_packets = segment.ack_request ? 0 : s.unasked_packets + packets;
    s.unasked_bytes = segment.ack_request ? 0 : s.unasked_bytes + bytes;
    s.cursor_bytes += bytes;
    if (last) {
      if (o.phase == Phase::kStarting) {
        o.last_psn = s.next_psn.plus(Psn::kMask);  // one back
        o.phase = Phase::kSent;
        o.sent_at_ns = now_ns;
      }
      s.next_wqe();
    }
    count_flight(s);
  }

  static link::SegmentKind atomic_kind(std::uint8_t opcode) {
    switch (static_cast<mlx5::Opcode>(opcode)) {
      case mlx5::Opcode::kCompareSwap: return link::SegmentKind::kCompareSwap;
      case mlx5::Opcode::kFetchAdd: return link::SegmentKind::kFetchAdd;
      case mlx5::Opcode::kMaskedCompareSwap: return link::SegmentKind::kMaskedCompareSwap;
      default: return link::SegmentKind::kMaskedFetchAdd;
    }
  }

  // ---- Answers in ------------------------------------------------------------------------------

  void acknowledge(const QpEntry& qp, SendState& s, const link::Segment& ack,
                   std::uint64_t now_ns) {
    const bool positive = ack.aeth_syndrome <= link::kAethAck;
    const bool out_of_sequence = ack.aeth_syndrome == link::kAethNakSequence;
    const bool never_sent = positive && ack.psn.since(s.end_psn) >= 0;
    if (lossless_ && (never_sent || out_of_sequence)) {
      // The two ends do not agree on the PSN, and a link that loses nothing will not mend that.
      fail_oldest(qp, s, Refusal::kSequence, mlx5::Syndrome::kTransportRetryExceeded,
                  kVendorRetryExceeded, now_ns);
      return;
    }
    if (never_sent) {
      ++s.counters.stray_responses;
      return;
    }
    if (ack.psn.since(s.oldest_psn) < 0) return;  // told before
    const Psn done = positive ? ack.psn.plus(1) : ack.psn;
    const bool all = finish_before(qp, s, done, now_ns) == done;
    if (lossless_) {
      if (!positive) fail_from_nak(qp, s, ack.aeth_syndrome, now_ns);
    } else if (!all) {
      go_back_once(qp, s, s.oldest_psn, now_ns);  // the answer to a read or an atomic was lost
    } else if (out_of_sequence) {
      go_back_once(qp, s, done, now_ns);
    } else if (!positive && (ack.aeth_syndrome & link::kAethKindMask) == link::kAethNakNoReceive) {
      wait_for_receive(qp, s, ack.aeth_syndrome, now_ns);
    } else if (!positive) {
      fail_from_nak(qp, s, ack.aeth_syndrome, now_ns);
    }
  }

  // What lies before `psn` has been done by the peer, up to the first that wants an answer; returns
  // where that is.
  Psn finish_before(const QpEntry& qp, SendState& s, Psn psn, std::uint64_t now_ns) {
    for (std::uint64_t i = s.head; i != s.tail; ++i) {
      Outstanding& o = s.at(i);
      if (o.phase == Phase::kDone) continue;
      if (o.wants_answer()) {
        if (psn.since(o.answer_psn(qp)) > 0) psn = o.answer_psn(qp);
        break;
      }
      if (o.phase == Phase::kStarting || psn.since(o.last_psn) <= 0) break;
      answered(s, o, now_ns);
    }
    heard(qp, s, psn, now_ns);
    return psn;
  }

  // Everything before `psn` is done with.
  void heard(const QpEntry& qp, SendState& s, Psn psn, std::uint64_t now_ns) {
    if (psn.since(s.oldest_psn) <= 0 || psn.since(s.end_psn) > 0) return;
    s.oldest_psn = psn;
    s.answered_ns = s.waiting_since_ns = now_ns;
    s.retries = s.rnr_retries = 0;
    s.went_back = false;
    if (lossless_) return;
    s.oldest_byte = s.end_byte;
    if (const Outstanding* o = first_undone(s)) {
      const std::int32_t packets = psn.since(o->first_psn);
      s.oldest_byte = o->first_byte;
      if (packets > 0) s.oldest_byte += static_cast<std::uint64_t>(packets) * qp.mtu_bytes();
    }
    // What was about to be sent again has been heard after all.
    if (s.next_psn.since(psn) < 0) s.move_cursor(qp, psn);
    count_flight(s);
  }

  void answered(SendState& s, Outstanding& o, std::uint64_t now_ns) {
    finish(s, o, now_ns);
    if (o.operation != Operation::kAtomic) s.counters.bytes_moved += o.completion.bytes;
    if (o.wants_answer()) --s.unanswered;
  }

  // The answer to a read, or a part of it, or to an atomic. It stands for all before it too.
  void take_answer(const QpEntry& qp, SendState& s, const link::Segment& in, std::uint64_t now_ns) {
    if (in.psn.since(s.oldest_psn) < 0) return;  // told before
    finish_before(qp, s, in.psn, now_ns);
    Outstanding* o = oldest_unfinished(s);
    const auto bad = [&] {
      if (!lossless_) {
        ++s.counters.stray_responses;
      } else if (!s.failing) {  // it may belong to the WQE that failed
        fail_oldest(qp, s, Refusal::kBadResponse, mlx5::Syndrome::kBadResponse, kVendorBadResponse,
                    now_ns);
      }
    };
    const bool asked = o != nullptr && o->wants_answer() &&
                       (o->phase == Phase::kSent || o->answer_psn(qp).since(s.end_psn) < 0);
    if (!asked) return bad();
    if (!lossless_ && in.psn.since(o->answer_psn(qp)) > 0) {
      go_back_once(qp, s, o->answer_psn(qp), now_ns);  // one before it was lost
      return;
    }
    const bool atomic = in.kind == link::SegmentKind::kAtomicAcknowledge;
    if (atomic != (o->operation == Operation::kAtomic) || in.psn != o->answer_psn(qp)) return bad();
    if (atomic) {
      M::copy_payload(o->local, reinterpret_cast<const std::byte*>(&in.original),
                      o->completion.bytes);
      answered(s, *o, now_ns);
      return heard(qp, s, in.psn.plus(1), now_ns);
    }
    const std::uint32_t left = o->completion.bytes - o->received;
    bool last = in.kind == link::SegmentKind::kReadResponseLast ||
                in.kind == link::SegmentKind::kReadResponseOnly;
    if (lossless_) {
      if (!is_cut(qp, left, last, in.payload_bytes)) return bad();
    } else {
      // Of a part that was asked for, it may be the last; of the message it is so at its end.
      if (in.payload_bytes != std::min(left, qp.mtu_bytes())) return bad();
      last = in.payload_bytes == left;
    }
    if (in.payload_bytes > 0) {
      M::copy_payload(o->local + o->received, in.payload, in.payload_bytes);
      o->received += in.payload_bytes;
    }
    s.answered_ns = now_ns;
    if (last) answered(s, *o, now_ns);
    // A refusal of the rest of a read bears its first PSN, where nothing is lost.
    if (last || !lossless_) heard(qp, s, in.psn.plus(qp.packets_of(in.payload_bytes)), now_ns);
  }

  // ---- Again -----------------------------------------------------------------------------------

  // Goes back to the oldest packet without an answer; false where that was done as often as it may.
  bool try_again(const QpEntry& qp, SendState& s, std::uint64_t now_ns) {
    if (s.retries == qp.retry_count) return false;
    ++s.retries;
    go_back(qp, s, s.oldest_psn, now_ns);
    return true;
  }

  // A responder says once that a packet is missing. It may be heard twice.
  void go_back_once(const QpEntry& qp, SendState& s, Psn psn, std::uint64_t now_ns) {
    if (s.went_back && s.went_back_to == psn) return;
    s.went_back = true;
    s.went_back_to = psn;
    go_back(qp, s, psn, now_ns);
  }

  void go_back(const QpEntry& qp, SendState& s, Psn psn, std::uint64_t now_ns) {
    s.move_cursor(qp, psn);
    s.unasked_packets = 0;
    s.unasked_bytes = 0;
    s.waiting_since_ns = now_ns;
    count_flight(s);
  }

  void wait_for_receive(const QpEntry& qp, SendState& s, std::uint8_t aeth_syndrome,
                        std::uint64_t now_ns) {
    if (now_ns < s.rnr_until_ns) return;
    if (s.rnr_retries == qp.rnr_retry && qp.rnr_retry != kRnrRetryForEver) {
      return fail_from_nak(qp, s, aeth_syndrome, now_ns);
    }
    if (qp.rnr_retry != kRnrRetryForEver) ++s.rnr_retries;
    go_back(qp, s, s.oldest_psn, now_ns);
    s.went_back = false;
    const std::uint8_t timer = aeth_syndrome & ~link::kAethKindMask;
    s.rnr_until_ns = now_ns + std::uint64_t{wire::rnr_timer_us(timer)} * 1000;
    s.waiting_since_ns = s.rnr_until_ns;
  }

  static const Outstanding* first_undone(const SendState& s) {
    for (std::uint64_t i = s.head; i != s.tail; ++i) {
      if (s.at(i).phase != Phase::kDone) return &s.at(i);
    }
    return nullptr;
  }

  // None behind one that failed: those will be flushed, and their memory may be gone.
  Outstanding* oldest_unfinished(SendState& s) {
    for (std::uint64_t i = s.head; i != s.tail; ++i) {
      if (s.at(i).phase != Phase::kDone) return &s.at(i);
      if (s.at(i).completion.syndrome != mlx5::Syndrome::kNone) return nullptr;
    }
    return nullptr;
  }

  // ---- Refusals --------------------------------------------------------------------------------

  void fail_from_nak(const QpEntry& qp, SendState& s, std::uint8_t aeth_syndrome,
                     std::uint64_t now_ns) {
    if ((aeth_syndrome & link::kAethKindMask) == link::kAethNakNoReceive) {
      // Without receive queues, waiting and trying again would end the same way.
      return fail_oldest(qp, s, Refusal::kNoReceive, mlx5::Syndrome::kRnrRetryExceeded,
                         kVendorRetryExceeded, now_ns);
    }
    mlx5::Syndrome syndrome = mlx5::Syndrome::kRemoteOperation;
    if (aeth_syndrome == link::kAethNakInvalidRequest) {
      syndrome = mlx5::Syndrome::kRemoteInvalidRequest;
    } else if (aeth_syndrome == link::kAethNakRemoteAccess) {
      syndrome = mlx5::Syndrome::kRemoteAccess;
    }
    fail_oldest(qp, s, Refusal::kRemoteRefused, syndrome, kVendorRemoteAccess, now_ns);
  }

  // Fails the oldest WQE that is not done. What comes after it will be flushed.
  void fail_oldest(const QpEntry& qp, SendState& s, Refusal why, mlx5::Syndrome syndrome,
                   std::uint8_t vendor, std::uint64_t now_ns) {
    if (Outstanding* o = oldest_unfinished(s)) fail(qp, s, *o, why, syndrome, vendor, now_ns);
  }

  link::Link& link_;
  const bool lossless_;
  const RuleBook& rules_;
  link::InFlight room_;  // as the link said at the last step
  std::uint64_t flight_packets_ = 0;
  std::uint64_t flight_bytes_ = 0;
};

}  // namespace peal::nic
