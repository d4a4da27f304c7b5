// The threads that PUT: one segment's traffic, from the start barrier to the last completion.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ladder/latency.hpp"
#include "ladder/payload.hpp"
#include "ladder/shares.hpp"
#include "ladder/stage.hpp"
#include "peal/core/status.hpp"
#include "peal/device/producer.hpp"
#include "peal/memory/scope.hpp"

namespace peal::ladder {

// One segment's work.
struct SegmentWork {
  SegmentPlan plan;
  std::vector<QueueHandle> queues;
  const QueueHandle* device_queues = nullptr;  // the same, in device memory
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

// Who PUTs.
class Producers {
 public:
  virtual ~Producers() = default;

  // Runs all producers of `work` and returns when all have ended, which each does by its own
  // deadlines or, soon, when told to stop. The first that fails stops all. Calls `watch`, which
  // must not throw, about ten times a second meanwhile, on the calling thread.
  virtual std::vector<ProducerResult> run(const SegmentWork& work,
                                          const std::function<void()>& watch) = 0;
  // Ends every wait of the run that goes on. Any thread.
  virtual void stop() = 0;
  // For the queue handles: non-zero when told to stop.
  virtual const std::uint32_t* stop_word() const = 0;
  virtual const char* clock() const = 0;
};

// Each on a thread of its own.
class CpuProducers final : public Producers {
 public:
  std::vector<ProducerResult> run(const SegmentWork& work,
                                  const std::function<void()>& watch) override;
  void stop() override;
  const std::uint32_t* stop_word() const override { return &stop_; }
  const char* clock() const override { return "CLOCK_MONOTONIC"; }

 private:
  std::uint32_t stop_ = 0;
};

}  // namespace peal::ladder
