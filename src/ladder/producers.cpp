#include "ladder/producers.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <latch>
#include <mutex>
#include <thread>

#include "peal/device/producer.hpp"
#include "peal/memory/cpu_memory.hpp"

namespace peal::ladder {
namespace {

constexpr std::chrono::milliseconds kWatchInterval{100};

// The memory of one producer, taken where a failure to get it can still be told.
struct Seat {
  ProducerOptions options;
  std::vector<InFlight> fifo;
  ProducerResult result;
};

Seat make_seat(const SegmentWork& work, std::uint32_t p) {
  Seat seat;
  seat.options = producer_options(work, p);
  seat.fifo.resize(seat.options.window);
  return seat;
}

template <Sharing S, class L>
void run_producer(const SegmentWork& work, std::uint32_t p, Seat& seat, L* latencies) {
  const SegmentPlan& plan = work.plan;
  const SlotLayout layout = plan.layout();
  ProducerResult& result = seat.result;
  Producer<CpuMemory, S, L> producer(work.queues[work.queue_of(p)], seat.options, seat.fifo.data(),
                                     latencies);
  result.start_ns = CpuMemory::now_ns();
  result.status = producer.put_many(plan.puts_per_producer, [&](std::uint64_t i) {
    const std::uint64_t offset = layout.offset_of(p * plan.puts_per_producer + i);
    return Put{work.source + offset, work.lkey, work.destination + offset, work.rkey,
               plan.payload_bytes};
  });
  if (result.status == Status::kOk) result.status = producer.flush();
  result.end_ns = CpuMemory::now_ns();
  producer.settle();
  result.acknowledged = producer.completed_puts();
  result.wqes = producer.posted_wqes();
  result.reservations = producer.posted_reservations();
  result.chunks = producer.posted_wqes() - producer.posted_puts();
  result.noops = plan.payload_bytes == 0 ? producer.posted_puts() : 0;
}

// A ticket's latency is a PUT's only where it stands for one.
template <Sharing S>
void run_producer(const SegmentWork& work, std::uint32_t p, Seat& seat) {
  if (work.batch == 1) {
    run_producer<S>(work, p, seat, &seat.result.latencies);
  } else {
    run_producer<S>(work, p, seat, static_cast<NoLatencies*>(nullptr));
  }
}

}  // namespace

ProducerOptions producer_options(const SegmentWork& work, std::uint32_t p) {
  ProducerOptions options;
  options.submit = work.submit;
  options.window = share_of_window(work.window, work.plan.producers, p);
  options.batch = work.batch;
  options.producers_on_queue = producers_on_qp(
      work.queue_of(p), static_cast<std::uint32_t>(work.queues.size()), work.plan.producers);
  options.timeout_ns = work.timeout_ns;
  return options;
}

void CpuProducers::stop() {
  CpuMemory::store_relaxed(&stop_, 1u);
}

std::vector<ProducerResult> CpuProducers::run(const SegmentWork& work,
                                              const std::function<void()>& watch) {
  const std::uint32_t producers = work.plan.producers;
  std::vector<Seat> seats;
  for (std::uint32_t p = 0; p < producers; ++p) seats.push_back(make_seat(work, p));
  std::latch start(producers);
  std::mutex mutex;
  std::condition_variable all_ended;
  std::uint32_t ended = 0;

  std::vector<std::jthread> threads;
  threads.reserve(producers);
  try {
    for (std::uint32_t p = 0; p < producers; ++p) {
      threads.emplace_back([&, p] {
        // On this thread's stack, so that no two producers write one cache line.
        Seat seat = std::move(seats[p]);
        start.arrive_and_wait();
        switch (work.sharing) {
          case Sharing::kExclusive: run_producer<Sharing::kExclusive>(work, p, seat); break;
          case Sharing::kBlock: run_producer<Sharing::kBlock>(work, p, seat); break;
          case Sharing::kDevice: run_producer<Sharing::kDevice>(work, p, seat); break;
        }
        if (seat.result.status != Status::kOk) stop();
        const std::lock_guard lock(mutex);
        seats[p] = std::move(seat);
        ++ended;
        all_ended.notify_one();
      });
    }
  } catch (...) {
    // Those that were started wait for the ones that could not be.
    stop();
    start.count_down(static_cast<std::ptrdiff_t>(producers - threads.size()));
    throw;
  }

  std::unique_lock lock(mutex);
  while (!all_ended.wait_for(lock, kWatchInterval, [&] { return ended == producers; })) {
    lock.unlock();
    watch();
    lock.lock();
  }
  std::vector<ProducerResult> results;
  for (Seat& seat : seats) results.push_back(std::move(seat.result));
  return results;
}

}  // namespace peal::ladder
