// Real threads on one queue: nothing is lost, nothing moves back, and an error reaches everyone.
// Meant for ThreadSanitizer as much as for its assertions.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "peal/memory/cpu_memory.hpp"
#include "support/scale.hpp"
#include "support/threads_fabric.hpp"

namespace peal {
namespace {

using test::kHangGuardNs;
using test::put_and_check;
using test::scaled;
using test::stamp_of;
using test::ThreadsFabric;

constexpr std::uint32_t kProducerThreads = 64;

// Watches `completed` while others work.
class Sampler {
 public:
  explicit Sampler(const QueueState& state) : thread_([this, &state] { run(state); }) {}
  std::uint64_t falls() {
    stop_.store(true);
    thread_.join();
    return falls_;
  }

 private:
  void run(const QueueState& state) {
    std::uint64_t last = 0;
    while (!stop_.load()) {
      const std::uint64_t now =
          CpuMemory::load_completed_acquire(&state.completed, FenceScope::kDevice);
      if (now < last) ++falls_;
      last = now;
      std::this_thread::yield();
    }
  }
  std::atomic<bool> stop_{false};
  std::uint64_t falls_ = 0;
  std::thread thread_;
};

void run_shared(SubmitOptions submit, std::uint64_t puts) {
  SCOPED_TRACE(std::string(doorbell_order_name(submit.doorbell)) + ", " +
               publish_order_name(submit.publish));
  const std::uint64_t each = (puts + kProducerThreads - 1) / kProducerThreads;
  const std::uint64_t total = each * kProducerThreads;
  ThreadsFabric fabric({.depth = 64,
                        .memory_bytes = total * 8,
                        .first_wqe_index = 65536 - 100,
                        .doorbell_record = submit.doorbell != DoorbellOrder::kRingOnly});
  const QueueHandle handle = fabric.sender_qp.handle();
  Sampler sampler(*handle.state);
  std::atomic<std::uint64_t> failed{0};
  std::atomic<std::uint64_t> not_landed{0};
  std::atomic<std::uint64_t> falls{0};
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < kProducerThreads; ++t) {
    threads.emplace_back([&, t] {
      SendQueue<CpuMemory, Sharing::kDevice> queue(handle, submit);
      std::uint64_t last = 0;
      for (std::uint64_t i = 0; i < each; ++i) {
        bool landed = false;
        if (put_and_check(fabric, queue, t * each + i, t * each + i, &landed) != Status::kOk) {
          ++failed;
          return;
        }
        if (!landed) ++not_landed;
        const std::uint64_t completed = queue.completions().completed();
        if (completed < last) ++falls;
        last = completed;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(sampler.falls() + falls.load(), 0u) << "completed fell";
  EXPECT_EQ(failed.load(), 0u) << "threads whose PUT did not complete";
  EXPECT_EQ(not_landed.load(), 0u) << "PUTs that completed before they landed";
  EXPECT_EQ(handle.state->completed, 65536 - 100 + total);
  EXPECT_EQ(handle.state->rung, 65536 - 100 + total);
  const nic::QpCounters c = fabric.counters();
  EXPECT_EQ(c.writes, total);
  EXPECT_EQ(c.cqes, total);
  EXPECT_EQ(c.bytes_moved, total * 8);
  EXPECT_EQ(c.error_cqes, 0u);
  for (const std::uint64_t refused : c.reasons.refused) EXPECT_EQ(refused, 0u);
  for (std::uint64_t i = 0; i < total; ++i) {
    std::uint64_t there = 0;
    std::memcpy(&there, &fabric.destination[i * 8], 8);
    ASSERT_EQ(there, stamp_of(i)) << i;
  }
}

TEST(Threads, CompleteEveryPutInOrderWithRingRecordRing) {
  run_shared({DoorbellOrder::kRingRecordRing, PublishOrder::kInOrder}, scaled(200'000));
}
TEST(Threads, CompleteEveryPutInOrderWithRecordRing) {
  run_shared({DoorbellOrder::kRecordRing, PublishOrder::kInOrder}, scaled(50'000));
}
TEST(Threads, CompleteEveryPutCombiningWithRingRecordRing) {
  run_shared({DoorbellOrder::kRingRecordRing, PublishOrder::kCombine}, scaled(50'000));
}
TEST(Threads, CompleteEveryPutCombiningWithRecordRing) {
  run_shared({DoorbellOrder::kRecordRing, PublishOrder::kCombine}, scaled(200'000));
}

TEST(Threads, CompleteEveryPutInOrderWithRingOnly) {
  run_shared({DoorbellOrder::kRingOnly, PublishOrder::kInOrder}, scaled(50'000));
}
TEST(Threads, CompleteEveryPutCombiningWithRingOnly) {
  run_shared({DoorbellOrder::kRingOnly, PublishOrder::kCombine}, scaled(50'000));
}

TEST(Threads, CompleteEveryPutOfAnExclusiveProducer) {
  const std::uint64_t total = scaled(50'000);
  ThreadsFabric fabric({.depth = 64, .memory_bytes = total * 8});
  const QueueHandle handle = fabric.sender_qp.handle();
  SendQueue<CpuMemory, Sharing::kExclusive> queue(handle);
  // In flight up to the whole ring: reserve makes the room.
  Posted posted;
  for (std::uint64_t i = 0; i < total; ++i) {
    const std::uint64_t stamp = stamp_of(i);
    std::memcpy(&fabric.source[i * 8], &stamp, 8);
    ASSERT_EQ(put(queue, fabric.put(i * 8, i * 8, 8), &posted, kHangGuardNs), Status::kOk);
  }
  ASSERT_EQ(wait(queue, posted.ticket, kHangGuardNs), Status::kOk);
  EXPECT_EQ(std::memcmp(fabric.destination.data(), fabric.source.data(), total * 8), 0);
}

// A batch per reservation, many in flight: marks and doorbells of unequal lengths.
TEST(Threads, CompleteBatchesOfUnequalLengths) {
  constexpr std::uint32_t kProducers = 8;
  const std::uint64_t batches = scaled(2'000);
  for (const PublishOrder publish : {PublishOrder::kInOrder, PublishOrder::kCombine}) {
    ThreadsFabric fabric({.depth = 64, .memory_bytes = kProducers * batches * 8 * 8});
    const QueueHandle handle = fabric.sender_qp.handle();
    Sampler sampler(*handle.state);
    std::atomic<std::uint64_t> failed{0};
    std::vector<std::thread> threads;
    for (std::uint32_t t = 0; t < kProducers; ++t) {
      threads.emplace_back([&, t] {
        SendQueue<CpuMemory, Sharing::kDevice> queue(handle, {DoorbellOrder::kRecordRing, publish});
        std::uint64_t last = 0;
        for (std::uint64_t b = 0; b < batches; ++b) {
          Reservation r;
          const auto n = static_cast<std::uint32_t>(1 + (b * 5 + t) % 8);
          if (queue.reserve(n, &r, kHangGuardNs) != Status::kOk) ++failed;
          for (std::uint32_t i = 0; i < n; ++i) {
            const std::uint64_t number = (t * batches + b) * 8 + i;
            const std::uint64_t stamp = stamp_of(number);
            std::memcpy(&fabric.source[number * 8], &stamp, 8);
            write_wqe(queue, r.first + i, fabric.put(number * 8, number * 8, 8));
          }
          if (queue.publish(r, kHangGuardNs) != Status::kOk) ++failed;
          last = r.end() - 1;
        }
        if (wait(queue, last, kHangGuardNs) != Status::kOk) ++failed;
      });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(sampler.falls(), 0u);
    EXPECT_EQ(failed.load(), 0u);
    EXPECT_EQ(handle.state->rung, handle.state->reserved) << "a WQE was never rung for";
    EXPECT_TRUE(fabric.destination == fabric.source);
  }
}

TEST(Threads, AllLearnTheFirstErrorWhenAWqeFailsInTheMiddle) {
  for (const PublishOrder publish : {PublishOrder::kInOrder, PublishOrder::kCombine}) {
    SCOPED_TRACE(publish_order_name(publish));
    constexpr std::uint64_t kEach = 200;  // places; a thread goes round them
    ThreadsFabric fabric({.depth = 64, .memory_bytes = kProducerThreads * kEach * 8});
    const QueueHandle handle = fabric.sender_qp.handle();
    const std::uint64_t failing = 5000 + 37;
    fabric.arm({{nic::FaultKind::kCqe, 0x13, failing}});
    Sampler sampler(*handle.state);
    std::atomic<std::uint64_t> succeeded{0};
    std::atomic<std::uint64_t> not_landed{0};
    std::mutex mutex;
    std::vector<Status> ends;
    std::vector<std::uint64_t> words;
    std::vector<std::thread> threads;
    for (std::uint32_t t = 0; t < kProducerThreads; ++t) {
      threads.emplace_back([&, t] {
        SendQueue<CpuMemory, Sharing::kDevice> queue(handle, {DoorbellOrder::kRecordRing, publish});
        Status status = Status::kOk;
        // No thread can succeed more often than there are WQEs before the failing one.
        for (std::uint64_t i = 0; i <= failing; ++i) {
          bool landed = false;
          const std::uint64_t place = t * kEach + i % kEach;
          status = put_and_check(fabric, queue, place, place, &landed);
          if (status != Status::kOk) break;
          ++succeeded;
          if (!landed) ++not_landed;
        }
        LatchedError e;
        const std::lock_guard lock(mutex);
        ends.push_back(status);
        if (queue.completions().error(&e)) words.push_back(encode_error(e));
      });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(sampler.falls(), 0u);
    EXPECT_EQ(not_landed.load(), 0u);
    const LatchedError expected{.syndrome = 0x13,
                                .vendor_syndrome = 0,
                                .opcode = 0x08,
                                .abandoned = false,
                                .index = static_cast<std::uint32_t>(failing)};
    EXPECT_EQ(ends, std::vector<Status>(kProducerThreads, Status::kCompletionError));
    EXPECT_EQ(words, std::vector<std::uint64_t>(kProducerThreads, encode_error(expected)));
    EXPECT_EQ(handle.state->completed, failing);
    // No success beyond the failing WQE. Publishing in order may end in the error although the WQE
    // was rung for by another, so fewer than `failing` may have been told.
    EXPECT_LE(succeeded.load(), failing);
    if (publish == PublishOrder::kCombine) {
      EXPECT_EQ(succeeded.load(), failing);
    }
  }
}

// The queue's counters stay right when each thread has many tickets open and polls old ones.
TEST(Threads, MayPollEachOthersTickets) {
  constexpr std::uint32_t kProducers = 8;
  const std::uint64_t each = scaled(3'000);
  ThreadsFabric fabric({.depth = 16});
  const QueueHandle handle = fabric.sender_qp.handle();
  std::atomic<std::uint64_t> newest{0};
  std::atomic<std::uint64_t> failed{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> pollers;
  for (int p = 0; p < 2; ++p) {
    pollers.emplace_back([&] {
      SendQueue<CpuMemory, Sharing::kDevice> queue(handle);
      while (!stop.load()) {
        const std::uint64_t ticket = newest.load();
        const Status status = queue.completions().try_wait(ticket);
        if (status != Status::kOk && status != Status::kPending) ++failed;
        if (status == Status::kOk && queue.completions().completed() <= ticket) ++failed;
        std::this_thread::yield();
      }
    });
  }
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < kProducers; ++t) {
    threads.emplace_back([&, t] {
      SendQueue<CpuMemory, Sharing::kDevice> queue(
          handle, {DoorbellOrder::kRecordRing, PublishOrder::kCombine});
      for (std::uint64_t i = 0; i < each; ++i) {
        Posted posted;
        if (put(queue, fabric.put(t * 8, t * 8, 8), &posted, kHangGuardNs) != Status::kOk) ++failed;
        newest.store(posted.ticket);
        if (i % 8 == 7 && wait(queue, posted.ticket, kHangGuardNs) != Status::kOk) ++failed;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  stop.store(true);
  for (std::thread& t : pollers) t.join();
  SendQueue<CpuMemory, Sharing::kDevice> queue(handle);
  EXPECT_EQ(wait(queue, handle.state->reserved - 1, kHangGuardNs), Status::kOk);
  EXPECT_EQ(failed.load(), 0u);
  EXPECT_EQ(handle.state->completed, kProducers * each);
}

}  // namespace
}  // namespace peal
