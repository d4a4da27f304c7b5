// The sending half of the NIC: fetching, requests out, answers in, CQEs.
// Does bounded work a step and never blocks; time comes as an argument. Runs on one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "link/link.hpp"
#include "nic/check.hpp"
#include "nic/counters.hpp"
#include "nic/cq_writer.hpp"
#include "nic/cut.hpp"
#include "nic/doorbells.hpp"
#include "nic/dump.hpp"
#include "nic/send_state.hpp"
#include "nic/tables.hpp"
#include "wire/aeth.hpp"

namespace peal::nic {

template <class M>
class Requester {
 public:
  struct Options {
    bool null_payload = false;
    DoorbellSource doorbell_source = DoorbellSource::kRegister;
    // How long a doorbell and its record may disagree, and a WAIT may wait.
    std::uint64_t grace_ns = 0;
  };

  Requester(Tables& tables, link::Link& link, const RuleBook& rules, Options options)
      : tables_(tables),
        link_(link),
        lossless_(link.lossless()),
        rules_(rules),
        options_(options),
        cq_writer_(tables, rules),
        doorbells_(tables, queues_, rules, options.doorbell_source, options.grace_ns) {}

  // ---- Control, between steps ------------------------------------------------------------------

  // See Core::serve_elsewhere.
  void serve_elsewhere(ReadMemory read) { read_ = std::move(read); }
  bool is_elsewhere() const { return read_ != nullptr; }

  // An empty ring whose first WQE has index `first_index`.
  void create(std::uint32_t qp_index, std::uint64_t first_index) {
    queues_.states[qp_index] = std::make_unique<SendState>();
    SendState& s = *queues_.states[qp_index];
    s.outstanding.resize(tables_.qps[qp_index].depth());
    s.fetched = s.posted = s.completed_elsewhere = first_index;
    const CqEntry& cq = tables_.cqs[tables_.qps[qp_index].cq];
    s.cq_is_small = cq.ignores_overrun && !cq.collapsed && cq.entries() < s.outstanding.size();
    queues_.active.push_back(qp_index);
  }

  void destroy(std::uint32_t qp_index) {
    // A neighbour on its page may have rung last.
    if (!is_elsewhere()) doorbells_.look(qp_index, now_ns_);
    stop_sending(tables_.qps[qp_index], *queues_.states[qp_index]);
    queues_.states[qp_index].reset();
    std::erase(queues_.active, qp_index);
  }

  // Back to an empty ring that starts at 0. Counters of what was done stay.
  void reset(std::uint32_t qp_index) {
    const QpCounters counters = queues_.states[qp_index]->counters;
    destroy(qp_index);
    create(qp_index, 0);
    queues_.states[qp_index]->counters = counters;
    queues_.states[qp_index]->counters.first_error = {};
  }

  void start_at_psn(std::uint32_t qp_index, Psn psn) {
    SendState& s = *queues_.states[qp_index];
    s.next_psn = s.end_psn = s.oldest_psn = psn;
  }

  void arm(std::uint32_t qp_index, const std::vector<Fault>& faults) {
    SendState& s = *queues_.states[qp_index];
    s.faults.arm(faults, s.posted);
  }

  // How many armed faults have not happened.
  std::uint32_t unreached(std::uint32_t qp_index) const {
    return queues_.states[qp_index]->faults.unreached();
  }

  Doorbells<M>& doorbells() { return doorbells_; }

  QpCounters counters(std::uint32_t qp_index) const {
    const SendState& s = *queues_.states[qp_index];
    QpCounters c = s.counters;
    c.producer_index = s.posted;
    c.consumer_index = s.fetched;
    return c;
  }
  SendState& own_state(std::uint32_t qp_index) { return *queues_.states[qp_index]; }
  QpCounters& own_counters(std::uint32_t qp_index) { return own_state(qp_index).counters; }
  QpDump dump(std::uint32_t qp_index, std::uint64_t now_ns) const {
    const QpEntry& qp = tables_.qps[qp_index];
    const SendState& s = *queues_.states[qp_index];
    if (is_elsewhere()) return dump_of_elsewhere(qp, tables_, s, read_);
    return dump_of<M>(qp, tables_, s, window_full(s), now_ns);
  }

  // The region of `key` is about to be freed: no WQE may use it any more.
  void forget_region(std::uint32_t key, std::uint64_t now_ns) {
    for (const std::uint32_t i : queues_.active) {
      SendState& s = *queues_.states[i];
      for (std::uint64_t k = s.head; k != s.tail; ++k) {
        Outstanding& o = s.at(k);
        if (o.phase == Phase::kDone || o.lkey != key) continue;
        link_.discard(tables_.qps[i].qpn, link::SegmentRole::kRequest, o.first_psn,
                      link::kAllLaterPsns);
        fail(tables_.qps[i], s, o, Refusal::kLkeyStale, mlx5::Syndrome::kLocalProtection,
             kVendorLocalProtection, now_ns);
        break;
      }
    }
  }

  // True when nothing that was announced is unfinished.
  bool quiet(std::uint32_t qp_index) const {
    const SendState& s = *queues_.states[qp_index];
    if (is_elsewhere()) return s.completed_elsewhere == s.posted;
    return s.fetched == s.posted && s.head == s.tail;
  }

  // ---- Steps -----------------------------------------------------------------------------------

  bool step(std::uint64_t now_ns) {
    bool worked = false;
    now_ns_ = now_ns;
    room_ = link_.most_in_flight();
    for (const std::uint32_t i : queues_.active) worked |= doorbells_.look(i, now_ns);
    // A link that holds little is filled by each QP first in its turn.
    if (!lossless_ && !queues_.active.empty()) {
      std::rotate(queues_.active.begin(), queues_.active.begin() + 1, queues_.active.end());
    }
    for (const std::uint32_t i : queues_.active) {
      QpEntry& qp = tables_.qps[i];
      SendState& s = *queues_.states[i];
      doorbells_.catch_up(qp, s, now_ns);
      if (qp.state == QpState::kRts) {
        const Refusal why = doorbells_.check_record(qp, s, now_ns);
        if (why != Refusal::kNone) end(qp, s, why);
      }
      if (qp.state == QpState::kRts) check_answer(qp, s, now_ns);
      if (qp.state == QpState::kRts) worked |= fetch_and_send(qp, s, now_ns);
      if (qp.state == QpState::kError) stop_sending(qp, s);
      worked |= write_completions(qp, s, now_ns);
      if (qp.state == QpState::kError) worked |= flush_posted(qp, s);
    }
    return worked;
  }

  // Takes a response. False when it is not for this queue to take.
  bool respond(QpEntry& qp, const link::Segment& in, std::uint64_t now_ns) {
    SendState& s = *queues_.states[tables_.index_of(qp)];
    const bool named = in.source_qpn.value != 0;
    if (qp.state != QpState::kRts || (named && in.source_qpn != qp.remote_qpn)) return false;
    if (!lossless_ && (in.psn.since(s.oldest_psn) < 0 || in.psn.since(s.end_psn) > 0)) {
      ++s.counters.stray_responses;  // told before, or by nobody who knows
      return true;
    }
    if (in.kind == link::SegmentKind::kAcknowledge) {
      acknowledge(qp, s, in, now_ns);
    } else {
      take_answer(qp, s, in, now_ns);
    }
    return true;
  }

 private:
  static constexpr std::uint32_t kWorkPerStep = 128;  // WQEs a queue, so that no queue starves
  // A receiver tells old from new by a signed 24-bit difference. No WQE is started above this, and
  // one of 1 GiB at the smallest MTU takes as many again.
  static constexpr std::int32_t kMaxPacketsInFlight = 1 << 22;
  static constexpr std::uint8_t kRnrRetryForEver = 7;  // IBTA 9.7.5.2.8

  static bool window_full(const SendState& s) {
    return s.next_psn.since(s.oldest_psn) >= kMaxPacketsInFlight;
  }

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

  bool broken(const QpEntry& qp, SendState& s, Refusal why, std::uint64_t index) {
    return rules_.broken(why, s.counters.reasons, qp.qpn, index);
  }

  // Into the error state for what is no WQE's fault.
  static void end(QpEntry& qp, SendState& s, Refusal why) {
    qp.state = QpState::kError;
    if (s.counters.first_error.reason == Refusal::kNone) s.counters.first_error.reason = why;
  }

  // ---- Requests out ----------------------------------------------------------------------------

  bool fetch_and_send(QpEntry& qp, SendState& s, std::uint64_t now_ns) {
    bool worked = false;
    if (now_ns < s.rnr_until_ns) return false;
    for (std::uint32_t budget = kWorkPerStep; budget > 0; --budget) {
      if (s.cursor < s.send_end) {
        const bool newest = s.cursor == s.tail - 1 && s.newest().phase == Phase::kStarting;
        if (newest && !s.started && !may_start(qp, s, now_ns)) return worked;
        if (s.cursor < s.send_end && !send(qp, s, now_ns)) return worked;
        worked = true;
        continue;
      }
      if (s.failing || s.fetched == s.posted || s.faults.held(now_ns)) return worked;
      if (window_full(s)) return worked;
      fetch(qp, s, now_ns);
      worked = true;
    }
    return worked;
  }

  void fetch(QpEntry& qp, SendState& s, std::uint64_t now_ns) {
    const std::uint64_t index = s.fetched;
    const std::uint64_t announced = s.posted - index;
    const mlx5::Slot first = M::fetch_slot(&qp.sq[index & (qp.depth() - 1)]);
    const mlx5::Words16* wqe = first.segment;
    const std::uint32_t ds = mlx5::decode_ctrl(first.segment[0]).ds;
    if (ds > 4 && (ds + 3) / 4 <= announced) wqe = fetch_wide(qp, s, first, (ds + 3) / 4);
    CheckResult& r = s.checked;
    check(wqe, index, announced, qp, tables_, &r);
    ++s.counters.wqes_fetched;
    s.fetched += r.move.slots <= announced ? r.move.slots : 1;

    Outstanding& o = s.at(s.tail++);
    s.send_end = s.tail;
    o = Outstanding{};
    o.first_byte = s.end_byte;
    o.completion.index = index;
    o.completion.opcode = r.move.opcode;
    o.fm_ce_se = r.move.fm_ce_se;
    o.operation = r.move.operation;
    o.segments = static_cast<std::uint8_t>(std::clamp(ds, 1u, 4u));
    o.check_sum = check_sum_of(first, o.segments);
    if (r.warned != 0) tell_warned(qp, s, r.warned, index);
    if (r.refusal == Refusal::kNone) count(s.counters, r.move.operation);
    check_signals(qp, s, o, r);
    const bool cannot_be_told = r.refusal == Refusal::kNone && !options_.null_payload &&
                                r.move.operation == Operation::kAtomic &&
                                link::is_masked(atomic_kind(r.move.opcode)) &&
                                !link_.carries_masked_atomics();
    if (cannot_be_told) {
      r.refusal = Refusal::kNotOnThisLink;
      r.syndrome = mlx5::Syndrome::kLocalQpOperation;
      r.vendor_syndrome = kVendorQpOperation;
    }
    const bool moves = s.faults.commit(index, &r, &M::copy_payload) &&
                       r.move.operation != Operation::kNop &&
                       r.move.operation != Operation::kDump && !options_.null_payload;
    if (r.refusal != Refusal::kNone) {
      fail(qp, s, o, r.refusal, r.syndrome, r.vendor_syndrome, now_ns);
      return;
    }
    s.started = s.told = false;
    s.held_since_ns = now_ns;
    o.first_psn = s.next_psn;
    if (!moves) {
      // Nothing to send, but a fence holds for it too.
      if (r.move.operation != Operation::kWait || options_.null_payload) {
        o.operation = Operation::kNop;
      }
      return;
    }
    o.completion.bytes = r.move.bytes;
    o.local = r.move.local;
    o.source = r.move.local;
    o.lkey = r.move.lkey;
    o.remote_address = r.move.remote_address;
    o.rkey = r.move.rkey;
    o.has_immediate = r.move.has_immediate;
    o.immediate = r.move.immediate;
    if (r.move.operation != Operation::kAtomic) s.end_byte += r.move.bytes;
    if (r.move.operation == Operation::kAtomic) {
      std::byte* operands = s.newest_scratch().few;
      encode(r.move.operands, operands);
      o.source = operands;
    } else if (r.move.inlined) {
      std::byte* kept = s.newest_scratch().room_for(r.move.bytes);
      std::memcpy(kept, o.local, r.move.bytes);
      o.source = kept;
    }
  }

  const mlx5::Words16* fetch_wide(const QpEntry& qp, SendState& s, const mlx5::Slot& first,
                                  std::uint32_t slots) {
    s.wide.resize(kMaxWqeSegments / 4);
    s.wide[0] = first;
    for (std::uint32_t i = 1; i < slots; ++i) {
      s.wide[i] = M::fetch_slot(&qp.sq[(s.fetched + i) & (qp.depth() - 1)]);
    }
    return s.wide[0].segment;
  }

  static void count(QpCounters& c, Operation operation) {
    switch (operation) {
      case Operation::kNop:
      case Operation::kWait:
      case Operation::kDump: ++c.noops; break;
      case Operation::kWrite: ++c.writes; break;
      case Operation::kRead: ++c.reads; break;
      case Operation::kAtomic: ++c.atomics; break;
    }
  }

  void tell_warned(const QpEntry& qp, SendState& s, std::uint64_t warned, std::uint64_t index) {
    for (std::size_t i = 0; i < kRefusals; ++i) {
      if ((warned >> i & 1) != 0) broken(qp, s, static_cast<Refusal>(i), index);
    }
  }

  // A client that never asks for a CQE can never reuse a slot; one whose CQ is smaller than its
  // ring may lose some.
  void check_signals(const QpEntry& qp, SendState& s, const Outstanding& o, CheckResult& r) {
    const auto refuse = [&](Refusal why) {
      if (r.refusal != Refusal::kNone || !broken(qp, s, why, o.completion.index)) return;
      r.refusal = why;
      r.syndrome = mlx5::Syndrome::kLocalQpOperation;
      r.vendor_syndrome = kVendorQpOperation;
    };
    const bool signalled = (o.fm_ce_se & mlx5::kCompletionAlways) != 0;
    const std::uint32_t before = s.unsignalled;
    s.unsignalled = signalled ? 0 : before + r.move.slots;
    if (before < qp.depth() && s.unsignalled >= qp.depth()) refuse(Refusal::kUnsignalledChain);
    if (s.cq_is_small && s.posted - s.completed_index() > tables_.cqs[qp.cq].entries()) {
      s.cq_is_small = false;
      refuse(Refusal::kCqTooSmall);
    }
  }

  // Whether nothing holds the newest WQE back. It may fail here.
  bool may_start(QpEntry& qp, SendState& s, std::uint64_t now_ns) {
    const Standing standing = standing_of_newest(qp, s, tables_);
    if (standing == Standing::kHeldByWait) {
      const bool forever = now_ns - s.held_since_ns >= options_.grace_ns;
      hold(qp, s, s.newest(), Refusal::kWaitForever, forever, now_ns);
    } else if (standing == Standing::kHeldByReads) {
      hold(qp, s, s.newest(), Refusal::kReadsInFlight, true, now_ns);
    }
    s.started = standing == Standing::kSending;
    return s.started;
  }

  void hold(QpEntry& qp, SendState& s, Outstanding& o, Refusal why, bool tell,
            std::uint64_t now_ns) {
    if (!tell || s.told) return;
    s.told = true;
    if (rules_.level(why) == Strictness::kRefuse) {
      fail(qp, s, o, why, mlx5::Syndrome::kLocalQpOperation, kVendorQpOperation, now_ns);
    } else {
      broken(qp, s, why, o.completion.index);
    }
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

  static link::SegmentKind atomic_kind(std::uint8_t opcode) {
    switch (static_cast<mlx5::Opcode>(opcode)) {
      case mlx5::Opcode::kCompareSwap: return link::SegmentKind::kCompareSwap;
      case mlx5::Opcode::kFetchAdd: return link::SegmentKind::kFetchAdd;
      case mlx5::Opcode::kMaskedCompareSwap: return link::SegmentKind::kMaskedCompareSwap;
      default: return link::SegmentKind::kMaskedFetchAdd;
    }
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

  // ---- Answers in ------------------------------------------------------------------------------

  void acknowledge(QpEntry& qp, SendState& s, const link::Segment& ack, std::uint64_t now_ns) {
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
  void take_answer(QpEntry& qp, SendState& s, const link::Segment& in, std::uint64_t now_ns) {
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

  // A request that was sent and is not answered in time is sent again, or ends the QP: its peer is
  // gone.
  void check_answer(QpEntry& qp, SendState& s, std::uint64_t now_ns) {
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

  // Goes back to the oldest packet without an answer; false where that was done as often as it may.
  bool try_again(const QpEntry& qp, SendState& s, std::uint64_t now_ns) {
    if (s.retries == qp.retry_count) return false;
    ++s.retries;
    go_back(qp, s, s.oldest_psn, now_ns);
    return true;
  }

  // A responder says once that a packet is missing. It may be heard twice.
  void go_back_once(QpEntry& qp, SendState& s, Psn psn, std::uint64_t now_ns) {
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

  void wait_for_receive(QpEntry& qp, SendState& s, std::uint8_t aeth_syndrome,
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

  // ---- Ends ------------------------------------------------------------------------------------

  void finish(SendState& s, Outstanding& o, std::uint64_t now_ns) {
    o.phase = Phase::kDone;
    o.done_at_ns = now_ns + s.faults.delay_ns();
  }

  void fail(const QpEntry& qp, SendState& s, Outstanding& o, Refusal why, mlx5::Syndrome syndrome,
            std::uint8_t vendor, std::uint64_t now_ns) {
    broken(qp, s, why, o.completion.index);
    o.reason = why;
    o.completion.syndrome = syndrome;
    o.completion.vendor_syndrome = vendor;
    s.failing = true;
    finish(s, o, now_ns);
    // What came before it may have to be sent again, what comes after it will be flushed.
    s.send_end = s.head;
    while (&s.at(s.send_end) != &o) ++s.send_end;
  }

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

  // CQEs strictly in order of the WQEs. In the error state what is not done is flushed, and so is
  // everything behind the WQE that failed.
  bool write_completions(QpEntry& qp, SendState& s, std::uint64_t now_ns) {
    bool worked = false;
    for (; s.head != s.tail; ++s.head) {
      Outstanding& o = s.at(s.head);
      if (qp.state == QpState::kError) {
        if (o.phase != Phase::kDone || s.reported) flush(o.completion);
      } else if (o.phase != Phase::kDone || now_ns < o.done_at_ns) {
        return worked;
      } else if (o.completion.syndrome == mlx5::Syndrome::kNone && overwritten(qp, s, o)) {
        fail(qp, s, o, Refusal::kSlotOverwritten, mlx5::Syndrome::kLocalQpOperation,
             kVendorQpOperation, now_ns);
      }
      write_cqe(qp, s, o.completion, o.fm_ce_se);
      worked = true;
      if (o.completion.syndrome != mlx5::Syndrome::kNone && !s.reported) {
        qp.state = QpState::kError;
        s.reported = true;
        s.counters.first_error = {o.completion.index, o.completion.opcode,
                                  static_cast<std::uint8_t>(o.completion.syndrome),
                                  o.completion.vendor_syndrome, o.reason};
        stop_sending(qp, s);
      }
    }
    return worked;
  }

  // A slot is the client's again when its CQE is there, not before.
  bool overwritten(const QpEntry& qp, SendState& s, const Outstanding& o) {
    const Strictness level = rules_.level(Refusal::kSlotOverwritten);
    if (level == Strictness::kOff) return false;
    const mlx5::Slot now = M::fetch_slot(&qp.sq[o.completion.index & (qp.depth() - 1)]);
    if (check_sum_of(now, o.segments) == o.check_sum) return false;
    if (level == Strictness::kRefuse) return true;
    broken(qp, s, Refusal::kSlotOverwritten, o.completion.index);
    return false;
  }

  // Nothing of this QP may stay on its way: its memory may be freed once its CQEs are written.
  void stop_sending(const QpEntry& qp, SendState& s) {
    link_.discard(qp.qpn, link::SegmentRole::kRequest, s.oldest_psn, link::kAllLaterPsns);
    s.cursor = s.send_end = s.tail;
    s.unanswered = 0;
    s.oldest_psn = s.next_psn = s.end_psn;
    s.oldest_byte = s.end_byte;
    count_flight(s);
  }

  // Every WQE posted to a QP in the error state completes too: without this, waits on it hang.
  bool flush_posted(QpEntry& qp, SendState& s) {
    bool worked = false;
    for (std::uint32_t budget = kWorkPerStep; budget > 0 && s.fetched != s.posted; --budget) {
      const mlx5::Slot slot = M::fetch_slot(&qp.sq[s.fetched & (qp.depth() - 1)]);
      const mlx5::CtrlSeg ctrl = mlx5::decode_ctrl(slot.segment[0]);
      const std::uint32_t slots = ctrl.ds == 0 ? 1 : (ctrl.ds + 3u) / 4u;
      Completion c;
      c.index = s.fetched;
      c.opcode = ctrl.opcode;
      flush(c);
      ++s.counters.wqes_fetched;
      s.fetched += slots <= s.posted - s.fetched ? slots : 1;
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

  void write_cqe(QpEntry& qp, SendState& s, const Completion& c, std::uint8_t fm_ce_se) {
    const bool error = c.syndrome != mlx5::Syndrome::kNone;
    // 2 asks for a CQE, 3 for one with an event.
    if (!error && (fm_ce_se & mlx5::kCompletionAlways) == 0) return;
    const Refusal why = cq_writer_.write(qp, c, s.counters);
    if (why != Refusal::kNone) end(qp, s, why);
  }

  Tables& tables_;
  link::Link& link_;
  const bool lossless_;
  link::InFlight room_;  // as the link said at the last step
  std::uint64_t flight_packets_ = 0;
  std::uint64_t flight_bytes_ = 0;
  const RuleBook& rules_;
  Options options_;
  CqWriter<M> cq_writer_;
  SendQueues queues_;
  Doorbells<M> doorbells_;
  ReadMemory read_;           // set where another engine serves the queues
  std::uint64_t now_ns_ = 0;  // of the last step
};

}  // namespace peal::nic
