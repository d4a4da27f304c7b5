// The one-sided operations: each posts WQEs behind one doorbell and returns; wait() and flush()
// wait.
#pragma once

#include <cstdint>

#include "peal/core/status.hpp"
#include "peal/device/operation.hpp"
#include "peal/device/send_queue.hpp"

namespace peal {

// What a call posted.
struct Posted {
  std::uint64_t ticket = 0;  // index of its last WQE: wait for this one
  std::uint32_t wqes = 0;
  std::uint32_t reservations = 0;  // that they took: each has a tail
};

// How many WQEs a transfer of `bytes` takes: one up to the NIC's largest message, a no-op for 0
// bytes.
PEAL_HOST_DEVICE inline std::uint64_t wqes_of(const QueueHandle& q, std::uint64_t bytes) {
  return bytes == 0 ? 1 : (bytes - 1) / q.max_message_bytes + 1;
}

// All calls below:
// - Block only for room in the ring or for another publisher, at most `timeout_ns` each time.
// - On kOk `posted` is set. Local buffers must stay as they are until posted->ticket has succeeded;
//   then writes have been placed at the peer, and reads and old values have landed here.
// - On an error nothing, or a first run of the WQEs, has been posted. kInvalid: nothing was done.
// - `fence` holds the first WQE back until all before it on this queue are done.

namespace detail {

// Posts `wqes` WQEs in runs of at most the ring, each run behind one doorbell.
// write(reservation, index, k) writes the k-th of them.
template <class M, Sharing S, class Write>
PEAL_HOST_DEVICE Status post_wqes(SendQueue<M, S>& queue, std::uint64_t wqes, Posted* posted,
                                  std::uint64_t timeout_ns, Write write) {
  const std::uint32_t depth = queue.handle().depth;
  std::uint32_t reservations = 0;
  for (std::uint64_t done = 0; done < wqes;) {
    const std::uint64_t left = wqes - done;
    const std::uint32_t n = left < depth ? static_cast<std::uint32_t>(left) : depth;
    Reservation r;
    Status status = queue.reserve(n, &r, timeout_ns);
    if (status != Status::kOk) return status;
    for (std::uint32_t k = 0; k != n; ++k) write(r, r.first + k, done + k);
    status = queue.publish(r, timeout_ns);
    if (status != Status::kOk) return status;
    done += n;
    ++reservations;
    posted->ticket = r.end() - 1;
  }
  posted->wqes = static_cast<std::uint32_t>(wqes);
  posted->reservations = reservations;
  return Status::kOk;
}

// The k-th part of a transfer that is longer than the NIC's largest message.
template <class Transfer>
PEAL_HOST_DEVICE Transfer chunk_of(const Transfer& whole, std::uint64_t k, std::uint64_t largest) {
  Transfer chunk = whole;
  chunk.local_address += k * largest;
  chunk.remote_address += k * largest;
  chunk.bytes -= k * largest;
  if (chunk.bytes > largest) chunk.bytes = largest;
  return chunk;
}

PEAL_HOST_DEVICE constexpr Fence fence_of(std::uint64_t k, Fence fence) {
  return k == 0 ? fence : Fence::kNone;
}

template <class M, Sharing S, class Transfer>
PEAL_HOST_DEVICE Status post_transfer(SendQueue<M, S>& queue, const Transfer& t, Posted* posted,
                                      std::uint64_t timeout_ns, Fence fence) {
  const std::uint64_t largest = queue.handle().max_message_bytes;
  return post_wqes(queue, wqes_of(queue.handle(), t.bytes), posted, timeout_ns,
                   [&](const Reservation& r, std::uint64_t index, std::uint64_t k) {
                     write_wqe(queue, index, chunk_of(t, k, largest),
                               {queue.signals(r, index), fence_of(k, fence)});
                   });
}

// An operation of one WQE and one slot.
template <class M, Sharing S, class Operation>
PEAL_HOST_DEVICE Status post_one(SendQueue<M, S>& queue, const Operation& operation, Posted* posted,
                                 std::uint64_t timeout_ns, Fence fence) {
  return post_wqes(queue, 1, posted, timeout_ns,
                   [&](const Reservation& r, std::uint64_t index, std::uint64_t) {
                     write_wqe(queue, index, operation, {queue.signals(r, index), fence});
                   });
}

PEAL_HOST_DEVICE constexpr bool aligned(const AtomicTarget& t, std::uint32_t bytes) {
  return t.remote_address % bytes == 0;
}

// An atomic on an operand of `bytes`.
template <class M, Sharing S, class Atomic>
PEAL_HOST_DEVICE Status post_atomic(SendQueue<M, S>& queue, const Atomic& a, std::uint32_t bytes,
                                    Posted* posted, std::uint64_t timeout_ns, Fence fence) {
  if (!aligned(a.target, bytes)) return Status::kInvalid;
  return post_one(queue, a, posted, timeout_ns, fence);
}

}  // namespace detail

// A PUT above the NIC's largest message is split into chunks; more chunks than the ring holds are
// posted as completions make room.
template <class M, Sharing S>
PEAL_HOST_DEVICE Status put(SendQueue<M, S>& queue, const Put& put, Posted* posted,
                            std::uint64_t timeout_ns = kDefaultTimeoutNs,
                            Fence fence = Fence::kNone) {
  return detail::post_transfer(queue, put, posted, timeout_ns, fence);
}

// A read; split likewise.
template <class M, Sharing S>
PEAL_HOST_DEVICE Status get(SendQueue<M, S>& queue, const Get& get, Posted* posted,
                            std::uint64_t timeout_ns = kDefaultTimeoutNs,
                            Fence fence = Fence::kNone) {
  return detail::post_transfer(queue, get, posted, timeout_ns, fence);
}

// Up to mlx5::kMaxInlineBytes; the data are copied before this returns. kInvalid above.
template <class M, Sharing S>
PEAL_HOST_DEVICE Status put_inline(SendQueue<M, S>& queue, const PutInline& put, Posted* posted,
                                   std::uint64_t timeout_ns = kDefaultTimeoutNs,
                                   Fence fence = Fence::kNone) {
  if (put.bytes > mlx5::kMaxInlineBytes) return Status::kInvalid;
  return detail::post_one(queue, put, posted, timeout_ns, fence);
}

// A PUT, and behind it an add that the receiver polls for: when it sees the sum it sees the whole
// payload, whatever the order in which the NIC places writes. One doorbell. Here `fence` is that of
// the signal. The receiver loads the signal with M::load_signal_acquire.
template <class M, Sharing S>
PEAL_HOST_DEVICE Status put_signal(SendQueue<M, S>& queue, const Put& put, const FetchAdd& signal,
                                   Posted* posted, std::uint64_t timeout_ns = kDefaultTimeoutNs,
                                   Fence fence = Fence::kNone) {
  if (!detail::aligned(signal.target, 8)) return Status::kInvalid;
  const std::uint64_t chunks = wqes_of(queue.handle(), put.bytes);
  const std::uint64_t largest = queue.handle().max_message_bytes;
  return detail::post_wqes(
      queue, chunks + 1, posted, timeout_ns,
      [&](const Reservation& r, std::uint64_t index, std::uint64_t k) {
        const bool signalled = queue.signals(r, index);
        if (k == chunks) return write_wqe(queue, index, signal, {signalled, fence});
        write_wqe(queue, index, detail::chunk_of(put, k, largest), {signalled, Fence::kNone});
      });
}

// Atomics. kInvalid where the target is not a multiple of the operand's size.
template <class M, Sharing S>
PEAL_HOST_DEVICE Status fetch_add(SendQueue<M, S>& queue, const FetchAdd& a, Posted* posted,
                                  std::uint64_t timeout_ns = kDefaultTimeoutNs,
                                  Fence fence = Fence::kNone) {
  return detail::post_atomic(queue, a, 8, posted, timeout_ns, fence);
}
template <class M, Sharing S>
PEAL_HOST_DEVICE Status compare_swap(SendQueue<M, S>& queue, const CompareSwap& a, Posted* posted,
                                     std::uint64_t timeout_ns = kDefaultTimeoutNs,
                                     Fence fence = Fence::kNone) {
  return detail::post_atomic(queue, a, 8, posted, timeout_ns, fence);
}
template <class M, Sharing S, class T>
PEAL_HOST_DEVICE Status masked_fetch_add(SendQueue<M, S>& queue, const MaskedFetchAdd<T>& a,
                                         Posted* posted,
                                         std::uint64_t timeout_ns = kDefaultTimeoutNs,
                                         Fence fence = Fence::kNone) {
  return detail::post_atomic(queue, a, sizeof(T), posted, timeout_ns, fence);
}
template <class M, Sharing S>
PEAL_HOST_DEVICE Status masked_compare_swap(SendQueue<M, S>& queue,
                                            const MaskedCompareSwap<std::uint32_t>& a,
                                            Posted* posted,
                                            std::uint64_t timeout_ns = kDefaultTimeoutNs,
                                            Fence fence = Fence::kNone) {
  return detail::post_atomic(queue, a, 4, posted, timeout_ns, fence);
}
// Its WQE takes two slots, so it needs a queue with CompletionMode::kTail and a depth of 4 or more:
// where each slot has its CQE (kEvery) it is kInvalid. A no-op behind it carries the signal.
template <class M, Sharing S>
PEAL_HOST_DEVICE Status masked_compare_swap(SendQueue<M, S>& queue,
                                            const MaskedCompareSwap<std::uint64_t>& a,
                                            Posted* posted,
                                            std::uint64_t timeout_ns = kDefaultTimeoutNs,
                                            Fence fence = Fence::kNone) {
  const QueueHandle& q = queue.handle();
  if (!detail::aligned(a.target, 8) || q.completion != CompletionMode::kTail || q.depth < 4) {
    return Status::kInvalid;
  }
  return detail::post_wqes(queue, 3, posted, timeout_ns,
                           [&](const Reservation&, std::uint64_t index, std::uint64_t k) {
                             if (k == 0) write_wqe(queue, index, a, {false, fence});
                             if (k == 2) write_nop_wqe(queue, index);
                           });
}

// Completes when all before it on the queue have, and does nothing else.
template <class M, Sharing S>
PEAL_HOST_DEVICE Status nop(SendQueue<M, S>& queue, Posted* posted,
                            std::uint64_t timeout_ns = kDefaultTimeoutNs,
                            Fence fence = Fence::kNone) {
  return detail::post_wqes(queue, 1, posted, timeout_ns,
                           [&](const Reservation&, std::uint64_t index, std::uint64_t) {
                             write_nop_wqe(queue, index, {true, fence});
                           });
}

// Waits until what `ticket` names, and everything before it on this queue, is done. See
// CompletionQueue::wait.
template <class M, Sharing S>
PEAL_HOST_DEVICE Status wait(SendQueue<M, S>& queue, std::uint64_t ticket,
                             std::uint64_t timeout_ns = kDefaultTimeoutNs) {
  return queue.completions().wait(ticket, timeout_ns);
}

// Waits until everything that was posted on the queue before this call, by any producer, is done.
template <class M, Sharing S>
PEAL_HOST_DEVICE Status flush(SendQueue<M, S>& queue,
                              std::uint64_t timeout_ns = kDefaultTimeoutNs) {
  if (queue.handle().depth == 0) return Status::kInvalid;  // its handle is not compatible
  const std::uint64_t end = queue.reserved();
  if (queue.completions().completed() >= end) return Status::kOk;
  return wait(queue, end - 1, timeout_ns);
}

// The same for `count` queues, within `timeout_ns` in all. Operations on different queues have no
// order among themselves: flush the ones before posting the other. Ends at the first queue that
// does not end with kOk; *failed, where given, is its place.
template <class M, Sharing S>
PEAL_HOST_DEVICE Status flush(SendQueue<M, S>* queues, std::uint32_t count,
                              std::uint64_t timeout_ns = kDefaultTimeoutNs,
                              std::uint32_t* failed = nullptr) {
  const std::uint64_t start_ns = M::now_ns();
  for (std::uint32_t i = 0; i != count; ++i) {
    const std::uint64_t passed_ns = M::now_ns() - start_ns;
    const Status status = flush(queues[i], passed_ns < timeout_ns ? timeout_ns - passed_ns : 0);
    if (status == Status::kOk) continue;
    if (failed != nullptr) *failed = i;
    return status;
  }
  return Status::kOk;
}

}  // namespace peal
