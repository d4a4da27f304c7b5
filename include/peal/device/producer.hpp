// A producer: one thread, or a group of threads that act as one, that keeps a window of its
// operations in flight on a queue, oldest awaited first, and posts PUTs in batches, each behind one
// doorbell.
#pragma once

#include <cstdint>

#include "peal/core/status.hpp"
#include "peal/device/group.hpp"
#include "peal/device/put.hpp"

namespace peal {

// Every default is the original: one PUT, ring, wait. A 0 is taken as 1.
struct ProducerOptions {
  SubmitOptions submit;
  std::uint32_t window = 1;                      // PUTs of this producer in flight at most
  std::uint32_t batch = 1;                       // PUTs behind one doorbell at most
  std::uint32_t producers_on_queue = 1;          // this one included; only the batch depends on it
  std::uint64_t timeout_ns = kDefaultTimeoutNs;  // of each wait
};

// How many PUTs really go behind one doorbell: no more than the window holds, nor than this
// producer's part of the ring, so that producers on one queue cannot wait for each other's room.
PEAL_HOST_DEVICE constexpr std::uint32_t effective_batch(const ProducerOptions& options,
                                                         std::uint32_t depth) {
  const std::uint32_t producers = options.producers_on_queue;
  const std::uint32_t part = producers == 0 ? depth : depth / producers;
  std::uint32_t batch = options.batch;
  if (batch > options.window) batch = options.window;
  if (batch > part) batch = part;
  return batch == 0 ? 1 : batch;
}

// A ticket that has not been awaited yet.
struct InFlight {
  std::uint64_t ticket = 0;
  std::uint64_t posted_ns = 0;  // when its posting began; only where latencies are wanted
  std::uint32_t puts = 0;       // that it stands for
};

// Hears no latencies, so that no clock is read for them.
struct NoLatencies {
  static constexpr bool kWanted = false;
  PEAL_HOST_DEVICE void add(std::uint64_t) {}
};

// One thread uses a producer, or all threads of a `Group` use one each with the same arguments, and
// call it together; then `S` counts the group as one. Any number of producers may share a queue, as
// `S` allows. Whatever a call posted has been rung when it returns, and nothing reserved is held
// over a wait. `Latencies` hears of each ticket how many nanoseconds passed from the start of its
// posting until it was seen to be complete, which is in the order of posting.
template <class M, Sharing S, class Latencies = NoLatencies, class Group = OneThread>
class Producer {
 public:
  // `fifo` has room for `options.window` entries, of the whole group. It, `latencies` if given, and
  // what `queue` names must outlive the producer.
  PEAL_HOST_DEVICE Producer(const QueueHandle& queue, const ProducerOptions& options,
                            InFlight* fifo, Latencies* latencies = nullptr, Group group = {})
      : queue_(queue, options.submit),
        group_(group),
        fifo_(fifo),
        latencies_(latencies),
        timeout_ns_(options.timeout_ns),
        window_(options.window == 0 ? 1 : options.window),
        batch_(effective_batch(options, queue_.handle().depth)) {}

  // Each posts one operation and rings: peal::put and so on. Blocks while the window is full, else
  // as put_many. Each counts as one PUT in the window and in the counts below.
  PEAL_HOST_DEVICE Status put(const Put& put, Fence fence = Fence::kNone) {
    return post_one(
        [&](Posted* posted) { return peal::put(queue_, put, posted, timeout_ns_, fence); });
  }
  PEAL_HOST_DEVICE Status put_inline(const PutInline& put, Fence fence = Fence::kNone) {
    return post_one(
        [&](Posted* posted) { return peal::put_inline(queue_, put, posted, timeout_ns_, fence); });
  }
  PEAL_HOST_DEVICE Status put_signal(const Put& put, const FetchAdd& signal,
                                     Fence fence = Fence::kNone) {
    return post_one([&](Posted* posted) {
      return peal::put_signal(queue_, put, signal, posted, timeout_ns_, fence);
    });
  }
  PEAL_HOST_DEVICE Status get(const Get& get, Fence fence = Fence::kNone) {
    return post_one(
        [&](Posted* posted) { return peal::get(queue_, get, posted, timeout_ns_, fence); });
  }
  PEAL_HOST_DEVICE Status fetch_add(const FetchAdd& a, Fence fence = Fence::kNone) {
    return post_one(
        [&](Posted* posted) { return peal::fetch_add(queue_, a, posted, timeout_ns_, fence); });
  }
  PEAL_HOST_DEVICE Status compare_swap(const CompareSwap& a, Fence fence = Fence::kNone) {
    return post_one(
        [&](Posted* posted) { return peal::compare_swap(queue_, a, posted, timeout_ns_, fence); });
  }

  // Posts the PUTs make(0) to make(n - 1), in this order: as many as the effective batch behind
  // each doorbell, the last ones behind one of their own. `make` may be called several times for a
  // PUT. A PUT above the NIC's largest message goes alone, as peal::put does it. Blocks while the
  // window is full or the ring has no room, and for other publishers, at most the timeout each
  // time. Local buffers must stay unchanged until their PUTs are completed. On an error
  // posted_puts() says how many surely were posted.
  template <class Make>
  PEAL_HOST_DEVICE Status put_many(std::uint64_t n, Make make) {
    const std::uint64_t largest = queue_.handle().max_message_bytes;
    for (std::uint64_t i = 0; i != n;) {
      const std::uint32_t most = n - i < batch_ ? static_cast<std::uint32_t>(n - i) : batch_;
      const std::uint32_t run =
          group_.leading(most, [&](std::uint32_t k) { return make(i + k).bytes <= largest; });
      const Status status =
          run == 0 ? put(make(i))
                   : post(run, [&](Posted* posted) { return post_run(run, i, make, posted); });
      if (status != Status::kOk) return status;
      i += run == 0 ? 1 : run;
    }
    return Status::kOk;
  }

  // Waits for all that was put, at most the timeout for each ticket. On an error the PUTs of the
  // tickets before the one that failed count as completed.
  PEAL_HOST_DEVICE Status flush() {
    while (tickets_ != 0) {
      const Status status = wait_oldest();
      if (status != Status::kOk) return status;
    }
    return Status::kOk;
  }

  // Takes note of what has succeeded by now; waits for nothing. For after an error.
  PEAL_HOST_DEVICE void settle() {
    while (tickets_ != 0 && by_leader([&] {
                              return queue_.completions().try_wait(fifo_[oldest_].ticket);
                            }) == Status::kOk) {
      pop();
    }
    if (tickets_ == 0) return;
    settled_ = group_.from_leader(leads() ? settled_of_oldest() : 0u);
  }

  PEAL_HOST_DEVICE SendQueue<M, S>& queue() { return queue_; }
  PEAL_HOST_DEVICE std::uint32_t batch() const { return batch_; }  // the effective one
  // PUTs that succeeded, as far as has been looked: the first ones.
  PEAL_HOST_DEVICE std::uint64_t completed_puts() const {
    return posted_puts_ - in_flight_ + settled_;
  }
  PEAL_HOST_DEVICE std::uint64_t posted_puts() const { return posted_puts_; }
  PEAL_HOST_DEVICE std::uint64_t posted_wqes() const { return posted_wqes_; }
  // Each asked for one CQE where the queue completes tails.
  PEAL_HOST_DEVICE std::uint64_t posted_reservations() const { return posted_reservations_; }

 private:
  PEAL_HOST_DEVICE bool leads() const { return group_.rank() == 0; }
  // What the leader's call ends with, for all.
  template <class Call>
  PEAL_HOST_DEVICE Status by_leader(Call call) {
    const Status status = leads() ? call() : Status::kOk;
    return static_cast<Status>(group_.from_leader(static_cast<std::uint32_t>(status)));
  }

  // Of a part of a batch, whose PUTs are a WQE each.
  PEAL_HOST_DEVICE std::uint32_t settled_of_oldest() {
    const InFlight& oldest = fifo_[oldest_];
    if (oldest.puts == 1) return 0;
    const std::uint64_t first = oldest.ticket + 1 - oldest.puts;
    const std::uint64_t done = queue_.completions().completed();
    return done > first ? static_cast<std::uint32_t>(done - first) : 0;
  }

  PEAL_HOST_DEVICE static std::uint64_t clock() {
    if constexpr (Latencies::kWanted) return M::now_ns();
    return 0;
  }

  PEAL_HOST_DEVICE Status make_room(std::uint32_t puts) {
    while (puts > window_ - in_flight_) {
      const Status status = wait_oldest();
      if (status != Status::kOk) return status;
    }
    return Status::kOk;
  }

  // Makes room for `puts`, posts them, and takes note.
  template <class Post>
  PEAL_HOST_DEVICE Status post(std::uint32_t puts, Post post_them) {
    Status status = make_room(puts);
    if (status != Status::kOk) return status;
    const std::uint64_t start_ns = clock();
    Posted posted;
    status = post_them(&posted);
    if (status != Status::kOk) return status;
    posted_wqes_ += posted.wqes;
    posted_reservations_ += posted.reservations;
    push({posted.ticket, start_ns, puts});
    return Status::kOk;
  }
  template <class Post>
  PEAL_HOST_DEVICE Status post_one(Post post_it) {
    return post(1, [&](Posted* posted) {
      const Status status = by_leader([&] { return post_it(posted); });
      posted->wqes = group_.from_leader(posted->wqes);
      posted->reservations = group_.from_leader(posted->reservations);
      return status;
    });
  }

  // PUTs of one WQE each, behind one doorbell, written by the whole group.
  template <class Make>
  PEAL_HOST_DEVICE Status post_run(std::uint32_t n, std::uint64_t from, Make& make,
                                   Posted* posted) {
    Reservation r;
    Status status = by_leader([&] { return queue_.reserve(n, &r, timeout_ns_); });
    if (status != Status::kOk) return status;
    r = {group_.from_leader(r.first), n};
    for (std::uint32_t k = group_.rank(); k < n; k += group_.size()) {
      const std::uint64_t index = r.first + k;
      write_wqe(queue_, index, make(from + k), {queue_.signals(r, index), Fence::kNone});
    }
    group_.sync();  // MO-13
    status = by_leader([&] { return queue_.publish(r, timeout_ns_); });
    *posted = {r.end() - 1, n, 1};
    return status;
  }

  PEAL_HOST_DEVICE Status wait_oldest() {
    const Status status =
        by_leader([&] { return wait(queue_, fifo_[oldest_].ticket, timeout_ns_); });
    if (status == Status::kOk) pop();
    return status;
  }

  PEAL_HOST_DEVICE void push(const InFlight& posted) {
    const std::uint32_t to_end = window_ - oldest_;
    if (leads()) fifo_[tickets_ < to_end ? oldest_ + tickets_ : tickets_ - to_end] = posted;
    ++tickets_;
    in_flight_ += posted.puts;
    posted_puts_ += posted.puts;
  }

  PEAL_HOST_DEVICE void pop() {
    if constexpr (Latencies::kWanted) {
      if (leads()) latencies_->add(M::now_ns() - fifo_[oldest_].posted_ns);
    }
    in_flight_ -= group_.from_leader(leads() ? fifo_[oldest_].puts : 0u);
    settled_ = 0;
    --tickets_;
    oldest_ = oldest_ + 1 == window_ ? 0 : oldest_ + 1;
  }

  SendQueue<M, S> queue_;
  Group group_;
  InFlight* fifo_;
  Latencies* latencies_;
  std::uint64_t timeout_ns_;
  std::uint64_t posted_puts_ = 0;
  std::uint64_t posted_wqes_ = 0;
  std::uint64_t posted_reservations_ = 0;
  std::uint32_t window_;
  std::uint32_t batch_;
  std::uint32_t oldest_ = 0;     // index into fifo_
  std::uint32_t tickets_ = 0;    // entries of fifo_ from there on
  std::uint32_t in_flight_ = 0;  // PUTs that these stand for
  std::uint32_t settled_ = 0;    // of the oldest entry's PUTs, those that succeeded
};

}  // namespace peal
