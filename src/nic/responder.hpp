// The receiving half of the NIC: places written payload, acknowledges, refuses.
// What arrives is input: it is checked, counted and refused, never trusted. Runs on one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "link/link.hpp"
#include "nic/check.hpp"
#include "nic/counters.hpp"
#include "nic/tables.hpp"

namespace peal::nic {

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
  Responder(Tables& tables, link::Link& link) : tables_(tables), link_(link), queues_(kMaxQps) {}

  void reset(std::uint32_t qp_index) {
    queues_[qp_index] = Queue{};
    std::erase(due_, qp_index);
  }
  void start_at_psn(std::uint32_t qp_index, Psn psn) { queues_[qp_index].expected = psn; }

  const DropCounters& drops() const { return drops_; }
  void count_unknown_qp() { ++drops_.unknown_qp; }
  void count_wrong_source() { ++drops_.wrong_source; }

  // Takes one written segment; `counters` are those of the QP that it names.
  void receive(QpEntry& qp, const link::Segment& in, QpCounters& counters) {
    const auto index = tables_.index_of(qp);
    Queue& q = queues_[index];
    if (qp.state != QpState::kRtr && qp.state != QpState::kRts) {
      ++drops_.wrong_state;
      return;
    }
    if (in.source_qpn != qp.remote_qpn) {
      ++drops_.wrong_source;
      return;
    }
    const std::int32_t ahead = in.psn.since(q.expected);
    if (ahead < 0) {
      answer(index, q, q.expected.plus(Psn::kMask), link::kAethAck);  // seen before: say so again
      return;
    }
    if (ahead > 0) {
      ++drops_.out_of_sequence;
      answer(index, q, q.expected, link::kAethNakSequence);
      return;
    }
    place(qp, index, q, in, counters);
  }

  // Sends what is owed. One acknowledgement stands for all before it.
  bool send_acknowledgements() {
    bool worked = false;
    while (!due_.empty()) {
      const std::uint32_t index = due_.back();
      Queue& q = queues_[index];
      link::Segment ack;
      ack.kind = link::SegmentKind::kAcknowledge;
      ack.source_qpn = tables_.qps[index].qpn;
      ack.destination_qpn = tables_.qps[index].remote_qpn;
      ack.psn = q.answer_psn;
      ack.msn = q.msn;
      ack.aeth_syndrome = q.answer_syndrome;
      if (!link_.try_send(ack)) return worked;
      q.answer_due = false;
      due_.pop_back();
      worked = true;
    }
    return worked;
  }

 private:
  struct Queue {
    Psn expected;
    std::uint32_t msn = 0;
    // The message being received.
    std::uint64_t address = 0;
    Rkey rkey;
    std::uint32_t remaining = 0;
    bool in_message = false;
    // What the requester is owed.
    bool answer_due = false;
    Psn answer_psn;
    std::uint8_t answer_syndrome = 0;
  };

  void place(QpEntry& qp, std::uint32_t index, Queue& q, const link::Segment& in,
             QpCounters& counters) {
    using link::SegmentKind;
    const bool first = in.kind == SegmentKind::kWriteFirst || in.kind == SegmentKind::kWriteOnly;
    const bool last = in.kind == SegmentKind::kWriteLast || in.kind == SegmentKind::kWriteOnly;
    if (first == q.in_message) return refuse(qp, index, q, link::kAethNakInvalidRequest);
    if (first) {
      q.address = in.address;
      q.rkey = in.rkey;
      q.remaining = in.message_bytes;
      q.in_message = true;
    }
    // Anew for each segment: the region may be deregistered in the middle of a message.
    std::byte* target = nullptr;
    const Refusal why = check_remote_write(q.address, q.rkey, q.remaining, qp, tables_, &target);
    if (why != Refusal::kNone) {
      ++counters.refusals[static_cast<std::size_t>(why)];
      return refuse(qp, index, q,
                    why == Refusal::kRemoteWriteDisabled ? link::kAethNakInvalidRequest
                                                         : link::kAethNakRemoteAccess);
    }
    const bool fits = last ? in.payload_bytes == q.remaining
                           : in.payload_bytes < q.remaining &&
                                 in.payload_bytes % qp.mtu_bytes() == 0 && in.payload_bytes > 0;
    if (!fits) return refuse(qp, index, q, link::kAethNakInvalidRequest);

    if (in.payload_bytes > 0) {
      M::copy_payload(target, in.payload, in.payload_bytes);
      q.address += in.payload_bytes;
      q.remaining -= in.payload_bytes;
    }
    const std::uint32_t packets = (in.payload_bytes + qp.mtu_bytes() - 1) / qp.mtu_bytes();
    q.expected = q.expected.plus(packets == 0 ? 1 : packets);
    counters.received_bytes += in.payload_bytes;
    if (last) {
      q.in_message = false;
      q.msn = (q.msn + 1) & Psn::kMask;
      ++counters.received_writes;
    }
    if (in.ack_request) answer(index, q, q.expected.plus(Psn::kMask), link::kAethAck);
  }

  // A request that may never be served ends the connection (IBTA 9.9.3.1): both QPs go to error.
  void refuse(QpEntry& qp, std::uint32_t index, Queue& q, std::uint8_t syndrome) {
    answer(index, q, q.expected, syndrome);
    qp.state = QpState::kError;
  }

  void answer(std::uint32_t index, Queue& q, Psn psn, std::uint8_t syndrome) {
    if (!q.answer_due) due_.push_back(index);
    q.answer_due = true;
    q.answer_psn = psn;
    q.answer_syndrome = syndrome;
  }

  Tables& tables_;
  link::Link& link_;
  std::vector<Queue> queues_;  // by QP index
  std::vector<std::uint32_t> due_;
  DropCounters drops_;
};

}  // namespace peal::nic
