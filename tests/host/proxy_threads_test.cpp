// The proxy's own thread between real producers and a NIC's thread. Meant for ThreadSanitizer as
// much as for its assertions.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
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

void run_shared_under_proxy(PublishOrder publish) {
  SCOPED_TRACE(publish_order_name(publish));
  constexpr std::uint64_t kThreads = 32;
  constexpr std::uint64_t kFirst = (std::uint64_t{1} << 32) - 100;
  const std::uint64_t each = scaled(4'000) / kThreads + 1;
  const std::uint64_t total = kThreads * each;
  ThreadsFabric fabric({.depth = 4,
                        .memory_bytes = total * 8,
                        .first_wqe_index = kFirst,
                        .handler = NicHandler::kProxy});
  const QueueHandle handle = fabric.sender_qp.handle();
  ASSERT_NE(handle.proxy, nullptr);
  std::atomic<std::uint64_t> failed{0};
  std::atomic<std::uint64_t> not_landed{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      SendQueue<CpuMemory, Sharing::kDevice> queue(handle, {DoorbellOrder::kRecordRing, publish});
      for (std::uint64_t i = 0; i < each; ++i) {
        const std::uint64_t number = t * each + i;
        bool landed = false;
        if (put_and_check(fabric, queue, number, number, &landed) != Status::kOk) {
          ++failed;
          return;
        }
        if (!landed) ++not_landed;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(failed.load(), 0u);
  EXPECT_EQ(not_landed.load(), 0u);
  for (std::uint64_t i = 0; i < total; ++i) {
    std::uint64_t there = 0;
    std::memcpy(&there, &fabric.destination[i * 8], 8);
    ASSERT_EQ(there, stamp_of(i)) << i;
  }
  EXPECT_EQ(handle.proxy->pi, kFirst + total);
  EXPECT_EQ(handle.state->doorbells, 0u);
  const std::uint64_t rings = CpuMemory::load_relaxed(&handle.proxy->doorbells);
  EXPECT_GE(rings, total / 4);
  EXPECT_LE(rings, total);
  const nic::QpCounters c = fabric.counters();
  EXPECT_EQ(c.writes, total);
  EXPECT_LE(c.doorbells, rings);
  for (const std::uint64_t refused : c.reasons.refused) EXPECT_EQ(refused, 0u);
}

TEST(HandlerStageProxyThreads, CompleteEveryPutOfADeepCrowdOnAShallowQueueInOrder) {
  run_shared_under_proxy(PublishOrder::kInOrder);
}
TEST(HandlerStageProxyThreads, CompleteEveryPutOfADeepCrowdOnAShallowQueueCombining) {
  run_shared_under_proxy(PublishOrder::kCombine);
}

TEST(HandlerStageProxyThreads, AllLearnTheErrorThatComesThroughTheProxy) {
  for (const PublishOrder publish : {PublishOrder::kInOrder, PublishOrder::kCombine}) {
    SCOPED_TRACE(publish_order_name(publish));
    constexpr std::uint32_t kThreads = 8;
    constexpr std::uint64_t kFailing = 300;
    ThreadsFabric fabric({.depth = 16, .handler = NicHandler::kProxy});
    fabric.arm({{nic::FaultKind::kCqe, 0x13, kFailing}});
    const QueueHandle handle = fabric.sender_qp.handle();
    std::mutex mutex;
    std::vector<Status> ends;
    std::vector<std::uint32_t> indices;
    std::vector<std::thread> threads;
    for (std::uint32_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        SendQueue<CpuMemory, Sharing::kDevice> queue(handle, {DoorbellOrder::kRecordRing, publish});
        Status status = Status::kOk;
        // No thread can succeed more often than there are WQEs before the failing one.
        for (std::uint64_t i = 0; i <= kFailing && status == Status::kOk; ++i) {
          bool landed = false;
          status = put_and_check(fabric, queue, t, i, &landed);
        }
        LatchedError e;
        const std::lock_guard lock(mutex);
        ends.push_back(status);
        if (queue.completions().error(&e)) indices.push_back(e.index);
      });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(ends, std::vector<Status>(kThreads, Status::kCompletionError));
    EXPECT_EQ(indices, std::vector<std::uint32_t>(kThreads, kFailing));
  }
}

// Queues come and go, on the page of one that works on, with their work rung or unrung.
TEST(HandlerStageProxyThreads, GoOnWhileOtherQueuesComeAndGo) {
  ThreadsFabric fabric({.depth = 8, .handler = NicHandler::kProxy});
  const QueueHandle handle = fabric.sender_qp.handle();
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> failed{0};
  std::atomic<std::uint64_t> done{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      SendQueue<CpuMemory, Sharing::kDevice> queue(
          handle, {DoorbellOrder::kRecordRing, PublishOrder::kCombine});
      for (std::uint64_t i = 0; !stop.load(); ++i) {
        bool landed = false;
        if (put_and_check(fabric, queue, t, t + 2 * i, &landed) != Status::kOk || !landed) {
          ++failed;
          return;
        }
        ++done;
      }
    });
  }
  for (std::uint64_t i = 0; i < scaled(150) && failed.load() == 0; ++i) {
    QueuePair qp = i % 2 == 0 ? QueuePair::create_companion(fabric.sender_qp, {.depth = 4})
                              : QueuePair::create(fabric.sender, {.depth = 4});
    QueuePair peer = QueuePair::create(fabric.receiver, {.depth = 1});
    qp.connect(peer.address());
    peer.connect(qp.address());
    SendQueue<CpuMemory, Sharing::kExclusive> queue(qp.handle());
    Posted posted;
    for (std::uint64_t k = 0; k < 4; ++k) {
      ASSERT_EQ(put(queue, fabric.put(64, 64, 8), &posted, kHangGuardNs), Status::kOk);
    }
    if (i % 3 == 0) {
      ASSERT_EQ(wait(queue, posted.ticket, kHangGuardNs), Status::kOk);
    }
  }
  const std::uint64_t before = done.load();
  while (failed.load() == 0 && done.load() < before + 100) std::this_thread::yield();
  stop.store(true);
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(failed.load(), 0u);
}

TEST(HandlerStageProxyThreads, CompletePutsThatFollowALongSilence) {
  ThreadsFabric fabric({.depth = 4, .handler = NicHandler::kProxy});
  SendQueue<CpuMemory, Sharing::kExclusive> queue(fabric.sender_qp.handle());
  for (std::uint64_t i = 0; i < 4; ++i) {
    bool landed = false;
    ASSERT_EQ(put_and_check(fabric, queue, i, i, &landed), Status::kOk);
    EXPECT_TRUE(landed);
    // Long enough, most often, for the proxy to have gone to sleep; right in any case.
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  }
}

TEST(HandlerStageProxyThreads, EndWithTheContextWhetherOrNotAQueueWasMade) {
  for (int queues = 0; queues < 3; ++queues) {
    ThreadsFabric fabric;
    const Context context =
        Context::open(fabric.sender_nic.provider(fabric.engine), {.handler = NicHandler::kProxy});
    std::vector<QueuePair> qps;
    for (int i = 0; i < queues; ++i) qps.push_back(QueuePair::create(context, {.depth = 1}));
    EXPECT_EQ(context.handler().resolved, NicHandler::kProxy);
  }
}

}  // namespace
}  // namespace peal
