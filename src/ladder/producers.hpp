// The threads that PUT: one segment's traffic, from the start barrier to the last completion.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ladder/latency.hpp"
#include "ladder/payload.hpp"
#include "ladder/stage.hpp"
#include "peal/core/status.hpp"
#include "peal/device/producer.hpp"
#include "peal/memory/scope.hpp"

namespace peal::ladder {

// Producer p's part of a window of `window` PUTs for all: parts differ by one at most, and none is
// 0.
constexpr std::uint32_t share_of_window(std::uint32_t window, std::uint32_t producers,
                                        std::uint32_t p) {
  const std::uint32_t share = window / producers + (p < window % producers ? 1 : 0);
  return share == 0 ? 1 : share;
}

// One segment's work.
struct SegmentWork {
  SegmentPlan plan;
  std::vector<QueueHandle> queues;
  SubmitOptions submit;
  Sharing sharing = Sharing::kDevice;
  std::uint32_t window = 1;  // PUTs in flight, all producers together
  std::uint32_t batch = 1;   // PUTs behind one doorbell, as far as window and ring allow
  std::uint64_t source = 0;
  Lkey lkey;
  std::uint64_t destination = 0;
  Rkey rkey;
  std::uint64_t timeout_ns = 0;

  std::uint32_t queue_of(std::uint32_t p) const {
    return qp_of_producer(p, static_cast<std::uint32_t>(queues.size()));
  }
};

// What producer p is told to do.
ProducerOptions producer_options(const SegmentWork& work, std::uint32_t p);

struct ProducerResult {
  Status status = Status::kOk;
  std::uint64_t acknowledged = 0;  // PUTs, the first ones
  std::uint64_t wqes = 0;          // posted
  std::uint64_t reservations = 0;  // posted
  std::uint64_t chunks = 0;        // of them, beyond the first of their PUT
  std::uint64_t noops = 0;         // of them
  std::uint64_t start_ns = 0;
  std::uint64_t end_ns = 0;
  Latencies latencies;  // of PUTs; none where a ticket stands for several
};

// Runs all producers of `work`, each on a thread of its own, and returns when all have ended, which
// each does by its own deadlines or, soon, when *stop is set. The first that fails sets *stop.
// Calls `watch`, which must not throw, about ten times a second meanwhile, on the calling thread.
std::vector<ProducerResult> run_producers(const SegmentWork& work, std::uint32_t* stop,
                                          const std::function<void()>& watch);

}  // namespace peal::ladder
