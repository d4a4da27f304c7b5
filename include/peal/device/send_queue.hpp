// Submitting: reserve slots, write WQEs, publish them, ring the NIC.
// A reservation is written and published by the thread that made it, without waiting in between.
// Producers that share a queue use one publish order; it and the sharing may change only while
// nothing is reserved and unpublished.
#pragma once

#include <cstdint>

#include "peal/core/status.hpp"
#include "peal/device/completion_queue.hpp"
#include "peal/device/queue_handle.hpp"
#include "peal/device/wait.hpp"
#include "peal/memory/planted.hpp"
#include "peal/mlx5/doorbell.hpp"

namespace peal {

// `count` contiguous WQE indices from `first`.
struct Reservation {
  std::uint64_t first = 0;
  std::uint32_t count = 0;
  PEAL_HOST_DEVICE std::uint64_t end() const { return first + count; }
};

template <class M, Sharing S>
class SendQueue {
 public:
  // Of a handle that is not compatible, every reserve() and flush() is kInvalid, and nothing else
  // may be called.
  PEAL_HOST_DEVICE explicit SendQueue(const QueueHandle& queue, SubmitOptions options = {})
      : q_(usable(queue)), completions_(q_), options_(options) {}

  PEAL_HOST_DEVICE const QueueHandle& handle() const { return q_; }
  PEAL_HOST_DEVICE CompletionQueue<M, S>& completions() { return completions_; }

  // Takes `n` contiguous slots, 1 to depth. Blocks while the ring is full, polling completions, for
  // at most `timeout_ns`. On any status but kOk nothing was taken: no hole is left. kInvalid: `n`,
  // a doorbell order that does not fit the queue, or a handle that is not compatible.
  // The caller must have published all that it reserved before.
  PEAL_HOST_DEVICE Status reserve(std::uint32_t n, Reservation* out,
                                  std::uint64_t timeout_ns = kDefaultTimeoutNs) {
    if (n == 0 || n > q_.depth || rings_only() == q_.has_record) return Status::kInvalid;
    Wait<M> wait(timeout_ns);
    for (;;) {
      const Status latched = completions_.latched_status();
      if (latched != Status::kOk) return latched;
      if (completions_.stopped()) return Status::kStopped;
      const std::uint64_t first = load_reserved();
      const std::uint64_t done = completions_.completed();
      if (first < done) continue;  // read before others went on
      if (first + n - done <= q_.depth || planted<M>(LogicPlant::kCreditCheck)) {
        if (take(first, n)) {
          *out = Reservation{first, n};
          return Status::kOk;
        }
        continue;
      }
      const Status status = completions_.try_wait(first + n - q_.depth - 1);
      if (status == Status::kPending && wait.turn_until_deadline()) return Status::kDeadline;
    }
  }

  // One 16-byte segment of the WQE at `index`, which the caller has reserved and not published.
  PEAL_HOST_DEVICE void write_segment(std::uint64_t index, std::uint32_t segment,
                                      mlx5::Words16 words) {
    M::store_wqe_segment(&q_.sq[index & (q_.depth - 1)].segment[segment], words, S);
  }

  // Whether the WQE at `index` of the reservation must ask for a CQE.
  PEAL_HOST_DEVICE bool signals(const Reservation& r, std::uint64_t index) const {
    return q_.completion == CompletionMode::kEvery || index + 1 == r.end();
  }

  // Every index below it has been reserved.
  PEAL_HOST_DEVICE std::uint64_t reserved() const { return load_reserved(); }

  // Makes the reservation's WQEs known to the NIC, itself or through another publisher of this
  // queue, so that nothing written is ever left unannounced.
  // combine never waits. in_order waits for its predecessors and for the ring lock, at most
  // `timeout_ns`; if that passes, the ring has a hole, the queue is latched as abandoned and every
  // later call on it ends with kDeadline.
  PEAL_HOST_DEVICE Status publish(const Reservation& r,
                                  std::uint64_t timeout_ns = kDefaultTimeoutNs) {
    if constexpr (S == Sharing::kExclusive) {
      announce(r.end());
      return Status::kOk;
    } else {
      if (options_.publish == PublishOrder::kInOrder) return publish_in_order(r, timeout_ns);
      publish_combining(r);
      return Status::kOk;
    }
  }

 private:
  static constexpr FenceScope kScope = scope_of(S);

  // Looked at once, here: a ring without slots refuses all that is posted, at no cost to a PUT.
  PEAL_HOST_DEVICE static QueueHandle usable(QueueHandle queue) {
    if (!is_compatible(queue)) {
      queue.depth = 0;
      queue.max_message_bytes = 1;  // it is divided by
    }
    return queue;
  }

  PEAL_HOST_DEVICE bool rings_only() const { return options_.doorbell == DoorbellOrder::kRingOnly; }

  PEAL_HOST_DEVICE std::uint64_t load_reserved() const {
    if constexpr (S == Sharing::kExclusive) return q_.state->reserved;
    return M::load_relaxed(&q_.state->reserved);
  }

  PEAL_HOST_DEVICE bool take(std::uint64_t first, std::uint32_t n) {
    if constexpr (S == Sharing::kExclusive) {
      q_.state->reserved = first + n;
      return true;
    }
    return M::compare_swap_relaxed(&q_.state->reserved, first, first + n, kScope);
  }

  // Rings, and keeps `ready` true for an in-order publisher that comes later.
  PEAL_HOST_DEVICE void announce(std::uint64_t pi) {
    M::store_relaxed(&q_.state->ready, pi);
    ring(pi);
  }

  // Tells the NIC, or the proxy that rings it, of the prefix that ends at `pi`. One thread at a
  // time; `pi` only grows.
  PEAL_HOST_DEVICE void ring(std::uint64_t pi) {
    // Before the doorbell, so that nobody who learns of these WQEs from the NIC finds them unrung.
    M::store_relaxed(&q_.state->rung, pi);
    if (q_.proxy != nullptr) {
      M::store_proxy_pi_release(&q_.proxy->pi, pi, q_.fence_scope);  // MO-11
      return;
    }
    const std::uint64_t value = mlx5::encode_doorbell(pi, q_.qpn);
    if (options_.doorbell != DoorbellOrder::kRecordRing) {
      M::ring_doorbell_after_wqes(q_.doorbell, value, q_.fence_scope);  // MO-3
    }
    if (!rings_only()) {
      M::store_dbrec_after_wqes(q_.dbrec, mlx5::encode_dbrec(pi), q_.fence_scope);  // MO-1
      M::ring_doorbell_after_dbrec(q_.doorbell, value, q_.fence_scope);             // MO-2
    }
    q_.state->doorbells += options_.doorbell == DoorbellOrder::kRingRecordRing ? 2 : 1;
  }

  PEAL_HOST_DEVICE Status publish_in_order(const Reservation& r, std::uint64_t timeout_ns) {
    Wait<M> wait(timeout_ns);
    while (M::load_ready_acquire(&q_.state->ready, kScope) != r.first) {  // MO-7
      const Status status = turn_or_abandon(&wait, r);
      if (status != Status::kOk) return status;
    }
    M::store_ready_release(&q_.state->ready, r.end(), kScope);              // MO-7
    while (!M::try_lock_acquire(&q_.state->ring_lock, kScope)) {            // MO-9
      if (M::load_relaxed(&q_.state->rung) >= r.end()) return Status::kOk;  // rung for by another
      const Status status = turn_or_abandon(&wait, r);
      if (status != Status::kOk) return status;
    }
    // A later reservation may have rung for this one too.
    if (M::load_relaxed(&q_.state->rung) < r.end()) ring(r.end());
    M::unlock_release(&q_.state->ring_lock, kScope);  // MO-9
    return Status::kOk;
  }

  // One turn of waiting for another publisher.
  PEAL_HOST_DEVICE Status turn_or_abandon(Wait<M>* wait, const Reservation& r) {
    const Status latched = completions_.latched_status();
    if (latched != Status::kOk) return latched;
    const bool stopped = completions_.stopped();
    if (!stopped && !wait->turn_until_deadline()) return Status::kOk;
    LatchedError e;
    e.abandoned = true;
    e.index = static_cast<std::uint32_t>(r.first);
    M::latch_release(&q_.state->error, encode_error(e), kScope);  // MO-10
    return stopped ? Status::kStopped : Status::kDeadline;
  }

  PEAL_HOST_DEVICE void publish_combining(const Reservation& r) {
    M::mark_ready_release(&q_.marks[r.first & (q_.depth - 1)], r.end(), kScope);  // MO-5
    if (planted<M>(LogicPlant::kTryLockCombiner)) return combine_under_tried_lock();
    // Whoever finds the count at zero combines; the others leave, and are rung for.
    if (M::add_pending_acq_rel(&q_.state->pending, 1, kScope) != 0) return;  // MO-6
    for (;;) {
      const std::uint64_t n = M::load_pending_acquire(&q_.state->pending, kScope);  // MO-6
      const std::uint64_t rung = M::load_relaxed(&q_.state->rung);
      const std::uint64_t ready = end_of_marks(rung);
      if (ready != rung) announce(ready);
      if (M::subtract_pending_acq_rel(&q_.state->pending, n, kScope) == n) return;  // MO-6
    }
  }

  // The end of the prefix of written WQEs, from `ready` on.
  PEAL_HOST_DEVICE std::uint64_t end_of_marks(std::uint64_t ready) const {
    for (;;) {
      // A mark of an earlier lap ends at or below this slot's index.
      const std::uint64_t mark =
          M::load_mark_acquire(&q_.marks[ready & (q_.depth - 1)], kScope);  // MO-5
      if (mark <= ready) return ready;
      ready = mark;
    }
  }

  // Planted: without a count, the look at who came in the meantime may come too early.
  PEAL_HOST_DEVICE void combine_under_tried_lock() {
    std::uint64_t ready = 0;
    do {
      if (!M::try_lock_acquire(&q_.state->ring_lock, kScope)) return;
      const std::uint64_t rung = M::load_relaxed(&q_.state->rung);
      ready = end_of_marks(rung);
      if (ready != rung) announce(ready);
      M::unlock_release(&q_.state->ring_lock, kScope);
    } while (end_of_marks(ready) != ready);
  }

  QueueHandle q_;
  CompletionQueue<M, S> completions_;
  SubmitOptions options_;
};

}  // namespace peal
