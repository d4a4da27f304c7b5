// Polling: one CQE per WQE, found by the WQE's index; or one collapsed entry that tells how far the
// NIC has come.
// Any number of producers may poll one queue; `completed` only moves forward, over successes only.
#pragma once

#include <cstdint>

#include "peal/core/status.hpp"
#include "peal/device/queue_handle.hpp"
#include "peal/device/wait.hpp"
#include "peal/memory/planted.hpp"

namespace peal {

template <class M, Sharing S>
class CompletionQueue {
 public:
  PEAL_HOST_DEVICE explicit CompletionQueue(const QueueHandle& queue) : q_(queue) {}

  // Every WQE below this index has succeeded.
  PEAL_HOST_DEVICE std::uint64_t completed() const {
    if constexpr (S == Sharing::kExclusive) return q_.state->completed;
    return M::load_completed_acquire(&q_.state->completed, kScope);
  }

  // The queue's first error, if there is one.
  PEAL_HOST_DEVICE bool error(LatchedError* out) const {
    const std::uint64_t latch = M::load_latch_acquire(&q_.state->error, kScope);
    if (latch != 0) *out = decode_error(latch);
    return latch != 0;
  }

  // Whether the WQE `ticket`, and so every one before it, has succeeded.
  // kOk for ever once it has, even after a later error; kPending; otherwise the queue's error.
  // On kOk the payload has been placed at the peer and local buffers may be reused.
  PEAL_HOST_DEVICE Status try_wait(std::uint64_t ticket) {
    if (completed() > ticket) return Status::kOk;
    if (q_.completion == CompletionMode::kTail) {
      poll_collapsed();
      if (completed() > ticket) return Status::kOk;
    } else {
      switch (look_at(ticket)) {
        case Entry::kSuccess: advance_completed(ticket + 1); return Status::kOk;
        case Entry::kError:
          latch_first_error(planted<M>(LogicPlant::kFirstError) ? ticket : completed());
          break;
        case Entry::kNotWritten: break;
      }
    }
    const Status status = latched_status();
    if (status == Status::kOk) return Status::kPending;
    // Another poller may have passed this ticket, or its entry may belong to a later lap by now.
    return completed() > ticket ? Status::kOk : status;
  }

  // Blocks until try_wait(ticket) is no longer pending, the stop word is set, or `timeout_ns` pass.
  PEAL_HOST_DEVICE Status wait(std::uint64_t ticket, std::uint64_t timeout_ns = kDefaultTimeoutNs) {
    Wait<M> wait(timeout_ns);
    for (;;) {
      const Status status = try_wait(ticket);
      if (status != Status::kPending) return status;
      if (stopped()) return Status::kStopped;
      if (wait.turn_until_deadline()) return Status::kDeadline;
    }
  }

  PEAL_HOST_DEVICE bool stopped() const {
    return q_.stop != nullptr && M::load_relaxed(q_.stop) != 0;
  }

  // kOk, or what the latch says.
  PEAL_HOST_DEVICE Status latched_status() const {
    LatchedError e;
    if (!error(&e)) return Status::kOk;
    return e.abandoned ? Status::kDeadline : Status::kCompletionError;
  }

 private:
  static constexpr FenceScope kScope = scope_of(S);
  enum class Entry : std::uint8_t { kNotWritten, kSuccess, kError };

  PEAL_HOST_DEVICE const mlx5::Cqe* entry_of(std::uint64_t index) const {
    return &q_.nic_cq[(index + q_.cq_base) & (q_.cq_depth - 1)];
  }

  PEAL_HOST_DEVICE Entry look_at(std::uint64_t index) const {
    const std::uint64_t number = index + q_.cq_base;
    const std::uint8_t owner = mlx5::cqe_owner(number, q_.cq_depth);
    // MO-4
    const mlx5::CqeOwnerWord seen = mlx5::decode_cqe_owner_word(
        M::load_cqe_owner_acquire(&entry_of(index)->word[mlx5::kCqeOwnerWord], q_.fence_scope));
    if (seen.opcode == mlx5::CqeOpcode::kInvalid) return Entry::kNotWritten;
    // An entry two laps on has this lap's owner bit: the counter tells them apart.
    const bool of_this_lap =
        seen.owner == owner && seen.wqe_counter == static_cast<std::uint16_t>(index);
    if (!of_this_lap && !planted<M>(LogicPlant::kOwnerLap)) return Entry::kNotWritten;
    return seen.opcode == mlx5::CqeOpcode::kRequester ? Entry::kSuccess : Entry::kError;
  }

  PEAL_HOST_DEVICE void advance_completed(std::uint64_t end) {
    if constexpr (S == Sharing::kExclusive) {
      if (q_.state->completed < end) q_.state->completed = end;
    } else {
      M::advance_completed_release(&q_.state->completed, end, kScope);  // MO-8
    }
  }

  // After an error every later WQE is flushed, so the entry that was looked at need not be the
  // first: the cause stands at the first error above `completed`.
  PEAL_HOST_DEVICE void latch_first_error(std::uint64_t from) {
    for (std::uint64_t i = from; i != from + q_.depth; ++i) {
      const Entry entry = look_at(i);
      if (entry == Entry::kNotWritten) return;
      if (entry == Entry::kSuccess) {
        advance_completed(i + 1);
        continue;
      }
      LatchedError e = read_error(*entry_of(i));
      e.index = static_cast<std::uint32_t>(i);
      M::latch_release(&q_.state->error, encode_error(e), kScope);  // MO-10
      return;
    }
  }

  // One load tells of all that has succeeded. `completed` is read before it, so that the entry is
  // never older; what lies further ahead than the ring is deep was left from before a wrap.
  PEAL_HOST_DEVICE void poll_collapsed() {
    const std::uint64_t done = completed();
    const mlx5::CqeOwnerWord seen = mlx5::decode_cqe_owner_word(
        M::load_cqe_owner_acquire(&q_.nic_cq->word[mlx5::kCqeOwnerWord], q_.fence_scope));  // MO-4
    if (seen.opcode == mlx5::CqeOpcode::kInvalid) return;
    if (seen.opcode == mlx5::CqeOpcode::kRequester) {
      const auto ahead =
          static_cast<std::uint16_t>(seen.wqe_counter + 1u - static_cast<std::uint16_t>(done));
      if (ahead != 0 && ahead <= q_.depth) advance_completed(done + ahead);
      return;
    }
    LatchedError e = read_error(*q_.nic_cq);
    e.index_unknown = true;
    M::latch_release(&q_.state->error, encode_error(e), kScope);  // MO-10
  }

  PEAL_HOST_DEVICE static LatchedError read_error(const mlx5::Cqe& entry) {
    const std::uint32_t w13 = swap_bytes(M::load_cqe_body(&entry.word[13]));
    const std::uint32_t w14 = swap_bytes(M::load_cqe_body(&entry.word[14]));
    LatchedError e;
    e.syndrome = static_cast<std::uint8_t>(w13);
    e.vendor_syndrome = static_cast<std::uint8_t>(w13 >> 8);
    e.opcode = static_cast<std::uint8_t>(w14 >> 24);
    return e;
  }

  QueueHandle q_;
};

}  // namespace peal
