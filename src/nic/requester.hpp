// The sending half of the NIC: WQEs are fetched, checked and held back, and their CQEs written;
// what lies between is the transmitter's. Does bounded work a step and never blocks; time comes as
// an argument. Runs on one thread.
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
#include "nic/doorbells.hpp"
#include "nic/dump.hpp"
#include "nic/send_state.hpp"
#include "nic/tables.hpp"
#include "nic/transmitter.hpp"

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
        rules_(rules),
        options_(options),
        transmitter_(link, rules),
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
    transmitter_.stop(tables_.qps[qp_index], *queues_.states[qp_index]);
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
        transmitter_.fail(tables_.qps[i], s, o, Refusal::kLkeyStale,
                          mlx5::Syndrome::kLocalProtection, kVendorLocalProtection, now_ns);
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
    transmitter_.begin_step();
    for (const std::uint32_t i : queues_.active) worked |= doorbells_.look(i, now_ns);
    // A link that holds little is filled by each QP first in its turn.
    if (!transmitter_.lossless() && !queues_.active.empty()) {
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
      if (qp.state == QpState::kRts) transmitter_.check_answer(qp, s, now_ns);
      if (qp.state == QpState::kRts) worked |= fetch_and_send(qp, s, now_ns);
      if (qp.state == QpState::kError) transmitter_.stop(qp, s);
      worked |= write_completions(qp, s, now_ns);
      if (qp.state == QpState::kError) worked |= flush_posted(qp, s);
    }
    return worked;
  }

  // Takes a response. False when it is not for this queue to take.
  bool respond(QpEntry& qp, const link::Segment& in, std::uint64_t now_ns) {
    if (qp.state != QpState::kRts || !link::may_be_from(in, qp.remote_qpn)) return false;
    transmitter_.take(qp, *queues_.states[tables_.index_of(qp)], in, now_ns);
    return true;
  }

 private:
  static constexpr std::uint32_t kWorkPerStep = 128;  // WQEs a queue, so that no queue starves
  // A receiver tells old from new by a signed 24-bit difference. No WQE is started above this, and
  // one of 1 GiB at the smallest MTU takes as many again.
  static constexpr std::int32_t kMaxPacketsInFlight = 1 << 22;

  static bool window_full(const SendState& s) {
    return s.next_psn.since(s.oldest_psn) >= kMaxPacketsInFlight;
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
        if (s.cursor < s.send_end && !transmitter_.send(qp, s, now_ns)) return worked;
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
    if (r.refusal == Refusal::kNone && !options_.null_payload && !transmitter_.can_tell(r.move)) {
      r.refusal = Refusal::kNotOnThisLink;
      r.syndrome = mlx5::Syndrome::kLocalQpOperation;
      r.vendor_syndrome = kVendorQpOperation;
    }
    const bool moves = s.faults.commit(index, &r, &M::copy_payload) &&
                       r.move.operation != Operation::kNop &&
                       r.move.operation != Operation::kDump && !options_.null_payload;
    if (r.refusal != Refusal::kNone) {
      transmitter_.fail(qp, s, o, r.refusal, r.syndrome, r.vendor_syndrome, now_ns);
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
      transmitter_.fail(qp, s, o, why, mlx5::Syndrome::kLocalQpOperation, kVendorQpOperation,
                        now_ns);
    } else {
      broken(qp, s, why, o.completion.index);
    }
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
        transmitter_.fail(qp, s, o, Refusal::kSlotOverwritten, mlx5::Syndrome::kLocalQpOperation,
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
        transmitter_.stop(qp, s);
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
  const RuleBook& rules_;
  Options options_;
  Transmitter<M> transmitter_;
  CqWriter<M> cq_writer_;
  SendQueues queues_;
  Doorbells<M> doorbells_;
  ReadMemory read_;           // set where another engine serves the queues
  std::uint64_t now_ns_ = 0;  // of the last step
};

}  // namespace peal::nic
