#include "ladder/producers.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <latch>
#include <mutex>
#include <thread>

#include "peal/device/put.hpp"
#include "peal/memory/cpu_memory.hpp"

namespace peal::ladder {
namespace {

constexpr std::chrono::milliseconds kWatchInterval{100};

// The original: one PUT, ring, wait, next.
template <Sharing S>
ProducerResult run_serial(const SegmentWork& work, std::uint32_t producer) {
  const SegmentPlan& plan = work.plan;
  const SlotLayout layout = plan.layout();
  SendQueue<CpuMemory, S> queue(work.queues[producer % work.queues.size()], work.submit);
  ProducerResult result;
  result.start_ns = CpuMemory::now_ns();
  for (std::uint64_t i = 0; i < plan.puts_per_producer; ++i) {
    const std::uint64_t offset = layout.offset_of(producer * plan.puts_per_producer + i);
    const Put put{work.source + offset, work.lkey, work.destination + offset, work.rkey,
                  plan.payload_bytes};
    Posted posted;
    result.status = peal::put(queue, put, &posted, work.timeout_ns);
    if (result.status != Status::kOk) break;
    result.wqes += posted.wqes;
    result.chunks += posted.wqes - 1;
    if (put.bytes == 0) ++result.noops;
    result.status = wait(queue, posted.ticket, work.timeout_ns);
    if (result.status != Status::kOk) break;
    ++result.acknowledged;
  }
  result.end_ns = CpuMemory::now_ns();
  return result;
}

}  // namespace

std::vector<ProducerResult> run_producers(const SegmentWork& work, std::uint32_t* stop,
                                          const std::function<void()>& watch) {
  const std::uint32_t producers = work.plan.producers;
  std::vector<ProducerResult> results(producers);
  std::latch start(producers);
  std::mutex mutex;
  std::condition_variable all_ended;
  std::uint32_t ended = 0;

  std::vector<std::jthread> threads;
  threads.reserve(producers);
  try {
    for (std::uint32_t p = 0; p < producers; ++p) {
      threads.emplace_back([&, p] {
        start.arrive_and_wait();
        const ProducerResult result = work.sharing == Sharing::kExclusive
                                          ? run_serial<Sharing::kExclusive>(work, p)
                                          : run_serial<Sharing::kDevice>(work, p);
        if (result.status != Status::kOk) CpuMemory::store_relaxed(stop, 1u);
        const std::lock_guard lock(mutex);
        results[p] = result;
        ++ended;
        all_ended.notify_one();
      });
    }
  } catch (...) {
    // Those that were started wait for the ones that could not be.
    CpuMemory::store_relaxed(stop, 1u);
    start.count_down(static_cast<std::ptrdiff_t>(producers - threads.size()));
    throw;
  }

  std::unique_lock lock(mutex);
  while (!all_ended.wait_for(lock, kWatchInterval, [&] { return ended == producers; })) {
    lock.unlock();
    watch();
    lock.lock();
  }
  return results;
}

}  // namespace peal::ladder
