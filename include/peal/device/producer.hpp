// A producer: one thread that keeps a window of its PUTs in flight on a queue, oldest awaited
// first.
#pragma once

#include <cstdint>

#include "peal/core/status.hpp"
#include "peal/device/put.hpp"

namespace peal {

// Every default is the original: one PUT, ring, wait.
struct ProducerOptions {
  SubmitOptions submit;
  std::uint32_t window = 1;  // PUTs of this producer in flight at most; 0 is taken as 1
  std::uint64_t timeout_ns = kDefaultTimeoutNs;  // of each wait
};

// A ticket that has not been awaited yet.
struct InFlight {
  std::uint64_t ticket = 0;
  std::uint64_t posted_ns = 0;  // when its posting began; only where latencies are wanted
};

// Hears no latencies, so that no clock is read for them.
struct NoLatencies {
  static constexpr bool kWanted = false;
  PEAL_HOST_DEVICE void add(std::uint64_t) {}
};

// One thread uses a producer; any number of producers may share a queue, as `S` allows.
// Whatever a call posted has been rung when it returns, and nothing reserved is held over a wait.
// `Latencies` hears of each ticket how many nanoseconds passed from the start of its posting until
// it was seen to be complete, which is in the order of posting.
template <class M, Sharing S, class Latencies = NoLatencies>
class Producer {
 public:
  // `fifo` has room for `options.window` entries. It, `latencies` if given, and what `queue` names
  // must outlive the producer.
  PEAL_HOST_DEVICE Producer(const QueueHandle& queue, const ProducerOptions& options,
                            InFlight* fifo, Latencies* latencies = nullptr)
      : queue_(queue, options.submit),
        fifo_(fifo),
        latencies_(latencies),
        timeout_ns_(options.timeout_ns),
        window_(options.window == 0 ? 1 : options.window) {}

  // Posts one PUT and rings; see peal::put. Blocks while the window is full or the ring has no
  // room, at most the timeout each time. The local buffer must stay unchanged until the PUT is
  // completed. On an error this PUT was not posted, or a first run of its chunks was.
  PEAL_HOST_DEVICE Status put(const Put& put) {
    while (in_flight_ == window_) {
      const Status status = wait_oldest();
      if (status != Status::kOk) return status;
    }
    const std::uint64_t start_ns = clock();
    Posted posted;
    const Status status = peal::put(queue_, put, &posted, timeout_ns_);
    if (status != Status::kOk) return status;
    posted_wqes_ += posted.wqes;
    ++posted_puts_;
    push({posted.ticket, start_ns});
    return Status::kOk;
  }

  // Waits for all that was put, at most the timeout for each. On an error the PUTs before the one
  // that failed count as completed.
  PEAL_HOST_DEVICE Status flush() {
    while (in_flight_ != 0) {
      const Status status = wait_oldest();
      if (status != Status::kOk) return status;
    }
    return Status::kOk;
  }

  // Takes note of what has succeeded by now; waits for nothing. For after an error.
  PEAL_HOST_DEVICE void settle() {
    while (in_flight_ != 0 && queue_.completions().try_wait(fifo_[oldest_].ticket) == Status::kOk) {
      pop();
    }
  }

  PEAL_HOST_DEVICE SendQueue<M, S>& queue() { return queue_; }
  // PUTs that succeeded, as far as has been looked: the first ones.
  PEAL_HOST_DEVICE std::uint64_t completed_puts() const { return posted_puts_ - in_flight_; }
  PEAL_HOST_DEVICE std::uint64_t posted_puts() const { return posted_puts_; }
  PEAL_HOST_DEVICE std::uint64_t posted_wqes() const { return posted_wqes_; }

 private:
  PEAL_HOST_DEVICE static std::uint64_t clock() {
    if constexpr (Latencies::kWanted) return M::now_ns();
    return 0;
  }

  PEAL_HOST_DEVICE Status wait_oldest() {
    const Status status = wait(queue_, fifo_[oldest_].ticket, timeout_ns_);
    if (status == Status::kOk) pop();
    return status;
  }

  PEAL_HOST_DEVICE void push(const InFlight& posted) {
    const std::uint32_t to_end = window_ - oldest_;
    fifo_[in_flight_ < to_end ? oldest_ + in_flight_ : in_flight_ - to_end] = posted;
    ++in_flight_;
  }

  PEAL_HOST_DEVICE void pop() {
    if constexpr (Latencies::kWanted) latencies_->add(M::now_ns() - fifo_[oldest_].posted_ns);
    oldest_ = oldest_ + 1 == window_ ? 0 : oldest_ + 1;
    --in_flight_;
  }

  SendQueue<M, S> queue_;
  InFlight* fifo_;
  Latencies* latencies_;
  std::uint64_t timeout_ns_;
  std::uint64_t posted_puts_ = 0;
  std::uint64_t posted_wqes_ = 0;
  std::uint32_t window_;
  std::uint32_t oldest_ = 0;     // index into fifo_
  std::uint32_t in_flight_ = 0;  // entries of fifo_ from there on
};

}  // namespace peal
