// Both ends at work with every kind of operation, closed in either order at any moment, many times
// over: every ticket ends, what was given back is not touched, and nothing is left.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "engine/manual.hpp"
#include "engine/threads.hpp"
#include "host/context_impl.hpp"
#include "link/loopback.hpp"
#include "nic/test_wire.hpp"
#include "peal/device/put.hpp"
#include "peal/host/context.hpp"
#include "peal/host/memory_region.hpp"
#include "peal/host/queue_pair.hpp"
#include "support/guarded_memory.hpp"
#include "support/manual_memory.hpp"
#include "support/scale.hpp"
#include "support/threads_fabric.hpp"
#include "support/variants.hpp"
#include "verbs/software_nic.hpp"

namespace peal {
namespace {

using test::GuardedMemory;
using test::GuardedPages;
using test::ManualMemory;
using test::scaled;

std::size_t entries_of(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

constexpr std::uint32_t kMtuBytes = 4096;

// One end: a queue pair, and memory for everything. Its pages may not be touched once it is closed.
struct End {
  End(verbs::SoftwareNic& nic, engine::Engine& engine, NicHandler handler,
      CompletionMode completion, bool by_hand)
      : memory(std::make_shared<GuardedMemory>()),
        context(open(nic, engine, handler, memory, by_hand)),
        region(MemoryRegion::create(context, pages.data(), pages.size(), Access::kRemoteAll)),
        qp(QueuePair::create(
            context,
            {.depth = 16, .ack_timeout = 10, .retry_count = 0, .completion = completion})) {}
  static Context open(verbs::SoftwareNic& nic, engine::Engine& engine, NicHandler handler,
                      std::shared_ptr<GuardedMemory> memory, bool by_hand) {
    Provider provider = nic.provider(engine);
    provider.memory = std::move(memory);
    Context context = Context::open(provider, {.handler = handler});
    if (by_hand && context.impl().proxy != nullptr) context.impl().proxy->drive_by_hand();
    return context;
  }
  bool step_proxy() { return context.impl().proxy != nullptr && context.impl().proxy->progress(); }
  // The queue pair must go before the region where WQEs may name it still.
  void close(bool region_first) {
    if (region_first) region.reset();
    qp.reset();
    region.reset();
    pages.forbid();
    EXPECT_EQ(memory->live, 0);
  }

  GuardedPages pages{16 * kMtuBytes};
  std::shared_ptr<GuardedMemory> memory;
  Context context;
  std::optional<MemoryRegion> region;
  std::optional<QueuePair> qp;
};

// What a peer names; a copy, which stays when the end is gone.
struct Names {
  explicit Names(const End& end)
      : address(end.region->address()), lkey(end.region->lkey()), rkey(end.region->rkey()) {}
  std::uint64_t address;
  Lkey lkey;
  Rkey rkey;
};

// The k-th operation, of every kind in turn. Reads, old values and writes have places of their own.
template <class M, Sharing S>
Status post(SendQueue<M, S>& queue, std::uint64_t k, const Names& near, const Names& far,
            Posted* posted, std::uint64_t timeout_ns) {
  const std::uint64_t bytes = k % 3 * kMtuBytes + 100;  // one to three packets
  const AtomicTarget target{far.address, far.rkey, {near.address + 8, near.lkey}};
  switch (k % 5) {
    case 0:
      return get(
          queue,
          {near.address + 4 * kMtuBytes, near.lkey, far.address + kMtuBytes, far.rkey, bytes},
          posted, timeout_ns);
    case 1: return fetch_add(queue, {target, 1}, posted, timeout_ns);
    case 2: return put_inline(queue, {"inline", 7, far.address + 64, far.rkey}, posted, timeout_ns);
    case 3:
      return put_signal(
          queue,
          {near.address + kMtuBytes, near.lkey, far.address + 8 * kMtuBytes, far.rkey, bytes},
          {target, 1}, posted, timeout_ns);
    default:
      return put(
          queue,
          {near.address + kMtuBytes, near.lkey, far.address + 12 * kMtuBytes, far.rkey, bytes},
          posted, timeout_ns);
  }
}

class WorkInFlight : public testing::TestWithParam<test::Variant> {
 protected:
  CompletionMode completion() const { return std::get<0>(GetParam()); }
  NicHandler handler() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Variants, WorkInFlight, test::all_variants(), test::variant_name);

// Stepped by hand, so that a message stands still between any two of its packets.
struct ManualCycle {
  ManualCycle(CompletionMode completion, NicHandler handler, std::mt19937& r)
      : random(r),
        ends{std::make_unique<End>(nics[0], engine, handler, completion, true),
             std::make_unique<End>(nics[1], engine, handler, completion, true)},
        names{Names(*ends[0]), Names(*ends[1])} {
    for (unsigned i : {0u, 1u}) ends[i]->qp->connect(ends[1 - i]->qp->address());
    ManualMemory::hooks() = {};
    ManualMemory::hooks().ns_per_pause = 100'000;
    ManualMemory::hooks().on_pause = [this] { step(); };
    for (unsigned i : {0u, 1u}) {
      queues.emplace_back(ends[i]->qp->handle());
      if (random() % 4 == 0) hold(i);
    }
  }
  ~ManualCycle() { ManualMemory::hooks() = {}; }

  void hold(unsigned i) {
    held[i] = true;
    nics[i].core().arm_faults(ends[i]->qp->address().qpn,
                              {{nic::FaultKind::kHold, std::uint64_t{1} << 60, 0}});
  }
  void step(unsigned i) {
    if (ends[i] != nullptr && ends[i]->qp) ends[i]->step_proxy();
    nics[i].core().step(ManualMemory::hooks().now_ns);
  }
  void step() {
    for (unsigned i : {0u, 1u}) step(i);
  }
  void work() {
    for (std::uint64_t k = 0; k < 10; ++k) {
      for (unsigned i : {0u, 1u}) {
        Posted posted;
        ASSERT_EQ(post(queues[i], k + random() % 5, names[i], names[1 - i], &posted, 1'000'000),
                  Status::kOk);
        tickets[i].push_back(posted.ticket);
        room = static_cast<std::uint32_t>(random() % 5);
        if (random() % 2 == 0) step(static_cast<unsigned>(random() % 2));
        if (tickets[i].size() == 7 && random() % 2 == 0) return;  // at most 14 of 16 slots
      }
    }
  }
  // Every ticket ends, and no success follows an error.
  void expect_ends(unsigned i) {
    room = 1'000'000;
    bool failed = false;
    for (const std::uint64_t ticket : tickets[i]) {
      const Status status = wait(queues[i], ticket, 1'000'000'000);
      ASSERT_TRUE(status == Status::kOk || status == Status::kCompletionError)
          << status_name(status);
      ASSERT_FALSE(failed && status == Status::kOk) << "a success behind an error";
      failed = status != Status::kOk;
    }
  }
  void close(unsigned i, bool ended) {
    ends[i]->close(ended && random() % 2 == 0);
    ends[i].reset();
    for (int k = 0; k < 8; ++k) step();
  }

  std::mt19937& random;
  std::uint32_t room = 0;
  test::TestWire wire{{.max_payload_bytes = kMtuBytes, .full = [this] {
                         if (room == 0) return true;
                         --room;
                         return false;
                       }}};
  engine::ManualEngine engine;
  verbs::SoftwareNic nics[2] = {{{.nic_number = 1}, wire.a()}, {{.nic_number = 2}, wire.b()}};
  std::unique_ptr<End> ends[2];
  Names names[2];
  std::vector<SendQueue<ManualMemory, Sharing::kExclusive>> queues;
  std::vector<std::uint64_t> tickets[2];
  bool held[2] = {};
};

TEST_P(WorkInFlight, ClosedByEitherEndFirstEndsEveryTicketAndLeavesNothing) {
  std::mt19937 random(7);
  const std::size_t descriptors = entries_of("/proc/self/fd");
  const std::size_t threads = entries_of("/proc/self/task");
  for (std::uint64_t cycle = 0; cycle < scaled(100); ++cycle) {
    SCOPED_TRACE(cycle);
    ManualCycle c(completion(), handler(), random);
    c.work();
    const unsigned first = static_cast<unsigned>(random() % 2);
    // Properly, and then every ticket ends at once; or with all that is under way.
    const bool properly = random() % 2 == 0;
    if (properly) {
      c.ends[first]->qp->to_error();
      c.expect_ends(first);
    }
    c.close(first, properly);
    // The other one learns of it by its time-out, unless it has not even begun.
    const unsigned second = 1 - first;
    if (c.held[second] || random() % 2 == 0) c.ends[second]->qp->to_error();
    c.expect_ends(second);
    c.close(second, true);
    if (HasFatalFailure()) return;
    for (const unsigned i : {0u, 1u}) {
      ASSERT_EQ(c.nics[i].core().commands().objects(), nic::Commands::Objects{});
    }
    c.room = 1'000'000;
    for (int k = 0; k < 20; ++k) {
      ManualMemory::hooks().now_ns += 1'000'000'000;
      c.step();
    }
  }
  EXPECT_EQ(entries_of("/proc/self/fd"), descriptors);
  EXPECT_EQ(entries_of("/proc/self/task"), threads);
}

// Producers are threads that wait for their tickets. What ends them is the error state; only when
// they are gone may the queue pair be.
TEST_P(WorkInFlight, OfWaitingThreadsEndsWhenTheQueuePairIsSentToError) {
  link::Loopback loopback;
  verbs::SoftwareNic nic({.nic_number = 1}, loopback.a());
  verbs::SoftwareNic far_nic({.nic_number = 2}, loopback.b());
  engine::ThreadsEngine engine({nic.step(), far_nic.step()});
  std::mt19937 random(9);
  const std::size_t descriptors = entries_of("/proc/self/fd");
  const std::size_t threads_before = entries_of("/proc/self/task");
  for (std::uint64_t cycle = 0; cycle < scaled(40); ++cycle) {
    SCOPED_TRACE(cycle);
    End end(nic, engine, handler(), completion(), false);
    End far(far_nic, engine, NicHandler::kDirect, completion(), false);
    end.qp->connect(far.qp->address());
    far.qp->connect(end.qp->address());
    if (random() % 3 == 0) {
      engine.call([&] {
        nic.core().arm_faults(end.qp->address().qpn,
                              {{nic::FaultKind::kHold, std::uint64_t{1} << 60, 0}});
      });
    }
    const Names near_names(end), far_names(far);
    const QueueHandle handle = end.qp->handle();
    const PublishOrder publish = cycle % 2 == 0 ? PublishOrder::kCombine : PublishOrder::kInOrder;
    constexpr std::uint32_t kThreads = 4;
    std::atomic<std::uint32_t> posted_some{0};
    std::atomic<std::uint32_t> ended_with_the_error{0};
    std::vector<std::thread> threads;
    for (std::uint32_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        // Both orders of the doorbell on one queue.
        SendQueue<CpuMemory, Sharing::kDevice> queue(
            handle,
            {t % 2 == 0 ? DoorbellOrder::kRecordRing : DoorbellOrder::kRingRecordRing, publish});
        Status status = Status::kOk;
        for (std::uint64_t k = t; status == Status::kOk; ++k) {
          Posted posted;
          status = post(queue, k, near_names, far_names, &posted, test::kHangGuardNs);
          if (k == t) ++posted_some;
          // Some wait for each, some fill the ring.
          if (status == Status::kOk && t % 2 == 0) {
            status = wait(queue, posted.ticket, test::kHangGuardNs);
          }
        }
        if (status == Status::kCompletionError) ++ended_with_the_error;
      });
    }
    while (posted_some.load() == 0) std::this_thread::yield();
    const bool far_first = random() % 2 == 0;
    if (far_first) far.close(false);
    end.qp->to_error();
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(ended_with_the_error.load(), kThreads);
    end.close(random() % 2 == 0);
    if (!far_first) far.close(random() % 2 == 0);
  }
  nic::Commands::Objects left{}, far_left{};
  engine.call([&] {
    left = nic.core().commands().objects();
    far_left = far_nic.core().commands().objects();
  });
  EXPECT_EQ(left, nic::Commands::Objects{});
  EXPECT_EQ(far_left, nic::Commands::Objects{});
  EXPECT_EQ(entries_of("/proc/self/fd"), descriptors);
  EXPECT_EQ(entries_of("/proc/self/task"), threads_before);
}

}  // namespace
}  // namespace peal
