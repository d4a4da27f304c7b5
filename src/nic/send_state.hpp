// What a requester keeps of one QP: plain data, and where in its ring each WQE stands.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "link/link.hpp"
#include "nic/check.hpp"
#include "nic/counters.hpp"
#include "nic/faults.hpp"
#include "nic/record_check.hpp"

namespace peal::nic {

enum class Phase : std::uint8_t { kStarting, kSent, kDone };

// A WQE that was fetched and has no CQE yet.
struct Outstanding {
  Completion completion;
  std::byte* local = nullptr;  // where an answer lands
  // What it sends, which must be there until it is answered: payload, or an atomic's operands.
  const std::byte* source = nullptr;
  std::uint64_t remote_address = 0;
  std::uint64_t first_byte = 0;  // of it, among all payload bytes that its QP ever moves
  std::uint64_t check_sum = 0;   // of the WQE as it was fetched
  std::uint64_t sent_at_ns = 0;
  std::uint64_t done_at_ns = 0;
  Rkey rkey;
  std::uint32_t immediate = 0;
  std::uint32_t lkey = 0;      // of the region that the WQE uses; 0: none
  std::uint32_t received = 0;  // of a read, so far
  Psn first_psn;
  Psn last_psn;
  std::uint8_t fm_ce_se = 0;
  std::uint8_t segments = 0;  // 16-byte ones in the first slot
  bool has_immediate = false;
  Operation operation = Operation::kNop;
  Phase phase = Phase::kStarting;
  Refusal reason = Refusal::kNone;  // why it failed

  // A read or an atomic is done when its answer has come, not when it has been acknowledged.
  bool wants_answer() const {
    return operation == Operation::kRead || operation == Operation::kAtomic;
  }
  // Of a read's next answer, or of an atomic's.
  Psn answer_psn(const QpEntry& qp) const { return first_psn.plus(received / qp.mtu_bytes()); }
};

// What a WQE sends that is not in registered memory: inline data, or an atomic's operands.
struct Scratch {
  std::byte few[link::kAtomicPayloadBytes];
  std::unique_ptr<std::byte[]> many;

  std::byte* room_for(std::uint32_t bytes) {
    if (bytes <= sizeof few) return few;
    many = std::make_unique_for_overwrite<std::byte[]>(bytes);
    return many.get();
  }
};

struct SendState {
  std::uint64_t posted = 0;   // announced by the client
  std::uint64_t fetched = 0;  // taken from the ring
  // With the record believed: what was rung, where the record has not caught up with it.
  std::uint64_t rung = 0;
  bool catching_up = false;
  // When another QP of the page rang, in a way that may have hidden a ring of this one.
  std::uint64_t neighbour_rang_ns = 0;
  bool neighbour_rang = false;

  // Where an engine with a data path of its own serves the queue: the end of what has its CQEs.
  // Nothing is outstanding here then.
  std::uint64_t completed_elsewhere = 0;
  bool held_elsewhere = false;  // by a fault

  // Fetched and not yet completed, in order; free-running positions.
  std::vector<Outstanding> outstanding;
  std::uint64_t head = 0;
  std::uint64_t tail = 0;
  std::vector<Scratch> scratch;  // by the same positions; made when the first one needs it
  std::vector<mlx5::Slot> wide;  // the WQE being fetched, if it has several slots

  // The newest of them, until it has been sent.
  CheckResult checked;
  Move& current = checked.move;
  bool started = false;  // nothing holds it back
  bool told = false;     // that something does
  std::uint64_t held_since_ns = 0;

  // What is sent next: the WQE at position `cursor`, but for its first `cursor_bytes`; all has been
  // sent where that is `tail`. It goes back when something has to be sent again.
  std::uint64_t cursor = 0;
  std::uint32_t cursor_bytes = 0;
  std::uint64_t send_end = 0;     // `tail`, or the WQE that failed
  Psn next_psn;                   // of the next packet
  Psn end_psn;                    // beyond the last packet that was ever sent
  Psn oldest_psn;                 // of the oldest packet without an answer
  std::uint64_t end_byte = 0;     // beyond those of the newest WQE
  std::uint64_t oldest_byte = 0;  // at oldest_psn
  // Counted into what its NIC has in flight.
  std::uint64_t flight_packets = 0;
  std::uint64_t flight_bytes = 0;
  // Since a packet last asked for an acknowledgement.
  std::uint32_t unasked_packets = 0;
  std::uint64_t unasked_bytes = 0;

  // Of links that lose: the last time that something was answered, or sent with nothing in flight,
  // or sent again; and how often that was in a row, without an answer.
  std::uint64_t waiting_since_ns = 0;
  std::uint8_t retries = 0;
  std::uint8_t rnr_retries = 0;
  std::uint64_t rnr_until_ns = 0;  // the peer had no receive: nothing is sent until then
  // What was sent again from this PSN on has been asked for; to be asked twice is a duplicate.
  bool went_back = false;
  Psn went_back_to;

  std::uint32_t unanswered = 0;   // reads and atomics sent
  std::uint32_t unsignalled = 0;  // slots since the last WQE that asks for a CQE
  bool cq_is_small = false;       // smaller than the ring, and nobody has been told
  bool failing = false;           // a WQE has failed: nothing more is fetched
  bool reported = false;          // its error CQE is written: what follows is flushed
  std::uint64_t answered_ns = 0;  // the last time an answer came
  ArmedFaults faults;
  RecordCheck record_check;
  QpCounters counters;

  std::uint64_t mask() const { return outstanding.size() - 1; }
  Outstanding& at(std::uint64_t position) { return outstanding[position & mask()]; }
  const Outstanding& at(std::uint64_t position) const { return outstanding[position & mask()]; }
  Outstanding& newest() { return at(tail - 1); }
  const Outstanding& newest() const { return at(tail - 1); }
  Scratch& newest_scratch() {
    if (scratch.empty()) scratch.resize(outstanding.size());
    return scratch[(tail - 1) & mask()];
  }
  // Index of the oldest WQE that has no CQE yet.
  std::uint64_t completed_index() const {
    return head == tail ? fetched : at(head).completion.index;
  }
  bool in_flight() const { return end_psn != oldest_psn; }

  void next_wqe() {
    ++cursor;
    cursor_bytes = 0;
  }
  // To the packet of this PSN, or to the next one that is still to be sent.
  void move_cursor(const QpEntry& qp, Psn psn) {
    next_psn = psn;
    cursor_bytes = 0;
    for (cursor = head; cursor != tail; ++cursor) {
      const Outstanding& o = at(cursor);
      if (o.phase == Phase::kDone) continue;
      if (o.phase == Phase::kSent && psn.since(o.last_psn) > 0) continue;
      const std::int32_t packets = psn.since(o.first_psn);
      if (packets > 0) cursor_bytes = static_cast<std::uint32_t>(packets) * qp.mtu_bytes();
      return;
    }
  }
};

// What a WQE without a CQE waits for.
enum class Standing : std::uint8_t {
  kNotFetched,  // its turn
  kHeldByFault,
  kHeldByState,   // the QP is not in RTS
  kHeldByWindow,  // as many packets are in flight as may be
  kHeldByFence,
  kHeldByWait,   // it is a WAIT, and its CQ has not come so far
  kHeldByReads,  // log_sra_max
  kSending,      // the link
  kSent,         // the answer
  kDone,         // the time at which its CQE is written
  kElsewhere,    // an engine with a data path of its own
};

// What holds the newest WQE back, which has not been sent whole; kSending: nothing does.
inline Standing standing_of_newest(const QpEntry& qp, const SendState& s, const Tables& tables) {
  if (s.started) return Standing::kSending;
  const Outstanding& o = s.newest();
  if ((o.fm_ce_se & mlx5::kFenceMask) != 0) {
    for (std::uint64_t i = s.head; i != s.tail - 1; ++i) {
      if (s.at(i).phase != Phase::kDone) return Standing::kHeldByFence;
    }
  }
  if (o.operation == Operation::kWait) {
    const CqEntry& cq = tables.cqs[s.current.wait_cq];
    const auto number = static_cast<std::uint32_t>(cq.produced) - 1;
    if (cq.produced == 0 || Psn(number).since(Psn(s.current.wait_number)) < 0) {
      return Standing::kHeldByWait;
    }
  }
  if (o.wants_answer() && s.unanswered >= 1u << qp.log_sra_max) return Standing::kHeldByReads;
  return Standing::kSending;
}

// Over the WQE's first slot: what was fetched against what is there when its CQE is due.
inline std::uint64_t check_sum_of(const mlx5::Slot& slot, std::uint32_t segments) {
  const auto sum = [](const mlx5::Words16& w, int by) {
    return std::rotl(w.lo, by) ^ std::rotl(w.hi, by + 7);
  };
  std::uint64_t all = sum(slot.segment[0], 0);
  if (segments > 1) all ^= sum(slot.segment[1], 14);
  if (segments > 2) all ^= sum(slot.segment[2], 28);
  if (segments > 3) all ^= sum(slot.segment[3], 42);
  return all;
}

}  // namespace peal::nic
