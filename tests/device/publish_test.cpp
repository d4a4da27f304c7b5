// Publishing on a shared queue when a predecessor is late, or never comes.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <utility>

#include "support/manual_fabric.hpp"

namespace peal {
namespace {

using test::FabricOptions;
using test::ManualFabric;
using test::ManualMemory;
using test::of_depth;

using Queue = SendQueue<ManualMemory, Sharing::kDevice>;

constexpr SubmitOptions kInOrder{DoorbellOrder::kRecordRing, PublishOrder::kInOrder};
constexpr SubmitOptions kCombine{DoorbellOrder::kRecordRing, PublishOrder::kCombine};

Reservation reserve_and_write(Queue& queue, const ManualFabric& fabric, std::uint32_t n) {
  Reservation r;
  EXPECT_EQ(queue.reserve(n, &r), Status::kOk);
  for (std::uint64_t i = r.first; i != r.end(); ++i) {
    write_wqe(queue, i, fabric.put(i % 1000 * 8, i % 1000 * 8, 8));
  }
  return r;
}

void expect_landed(const ManualFabric& fabric, std::uint64_t first, std::uint64_t end) {
  for (std::uint64_t i = first; i != end; ++i) {
    EXPECT_EQ(std::memcmp(&fabric.destination[i % 1000 * 8], &fabric.source[i % 1000 * 8], 8), 0)
        << i;
  }
}

TEST(InOrderPublish, IsAbandonedAtItsDeadlineWhenThePredecessorNeverPublishes) {
  ManualFabric fabric(of_depth(16));
  fabric.fill_source(1);
  Queue first = fabric.queue<Sharing::kDevice>(0, kInOrder);
  Queue second = fabric.queue<Sharing::kDevice>(0, kInOrder);
  const Reservation done = reserve_and_write(first, fabric, 2);
  ASSERT_EQ(first.publish(done), Status::kOk);
  ASSERT_EQ(wait(first, done.first), Status::kOk);

  const Reservation missing = reserve_and_write(first, fabric, 3);
  const Reservation late = reserve_and_write(second, fabric, 2);
  const std::uint64_t start_ns = ManualMemory::hooks().now_ns;
  ASSERT_EQ(second.publish(late, 100'000), Status::kDeadline);
  const std::uint64_t elapsed = ManualMemory::hooks().now_ns - start_ns;
  EXPECT_GE(elapsed, 100'000u);
  EXPECT_LE(elapsed, 100'000u + 16 * ManualMemory::hooks().ns_per_pause);

  LatchedError e;
  ASSERT_TRUE(first.completions().error(&e));
  EXPECT_TRUE(e.abandoned);
  EXPECT_EQ(e.index, late.first);
  EXPECT_EQ(e.syndrome, 0);

  // Every later call ends, at once.
  const std::uint64_t clock_ns = ManualMemory::hooks().now_ns;
  Reservation r;
  for (Queue* queue : {&first, &second}) {
    EXPECT_EQ(queue->reserve(1, &r), Status::kDeadline);
    EXPECT_EQ(wait(*queue, late.end() - 1), Status::kDeadline);
    EXPECT_EQ(wait(*queue, missing.first), Status::kDeadline);
    EXPECT_EQ(queue->publish(late), Status::kDeadline);
    Posted posted;
    EXPECT_EQ(put(*queue, fabric.put(0, 0, 8), &posted), Status::kDeadline);
    // But what succeeded stays so, polled before or not.
    EXPECT_EQ(wait(*queue, done.first), Status::kOk);
    EXPECT_EQ(wait(*queue, done.end() - 1), Status::kOk);
  }
  EXPECT_EQ(ManualMemory::hooks().now_ns, clock_ns);
  EXPECT_EQ(first.handle().state->reserved, late.end());
  fabric.settle();
  EXPECT_EQ(fabric.counters().producer_index, done.end()) << "rang across the hole";
}

TEST(InOrderPublish, WaitsForItsPredecessorThenRings) {
  ManualFabric fabric(of_depth(16, (std::uint64_t{1} << 32) - 2));
  fabric.fill_source(2);
  Queue queue = fabric.queue<Sharing::kDevice>(0, kInOrder);
  const Reservation early = reserve_and_write(queue, fabric, 1);
  const Reservation late = reserve_and_write(queue, fabric, 4);
  int pauses = 0;
  ManualMemory::hooks().on_pause = [&] {
    if (++pauses == 20) {
      EXPECT_EQ(queue.publish(early), Status::kOk);
    }
  };
  ASSERT_EQ(queue.publish(late), Status::kOk);
  EXPECT_EQ(pauses, 20);
  EXPECT_EQ(queue.handle().state->doorbells, 2u);
  fabric.release();
  ASSERT_EQ(wait(queue, late.end() - 1), Status::kOk);
  expect_landed(fabric, early.first, late.end());
}

TEST(InOrderPublish, IsAbandonedWhenTheRingLockIsNeverFreed) {
  ManualFabric fabric(of_depth(16));
  Queue queue = fabric.queue<Sharing::kDevice>(0, kInOrder);
  const Reservation r = reserve_and_write(queue, fabric, 1);
  queue.handle().state->ring_lock = 1;
  const std::uint64_t start_ns = ManualMemory::hooks().now_ns;
  EXPECT_EQ(queue.publish(r, 50'000), Status::kDeadline);
  EXPECT_GE(ManualMemory::hooks().now_ns - start_ns, 50'000u);
  EXPECT_LE(ManualMemory::hooks().now_ns - start_ns, 66'000u);
  Reservation next;
  EXPECT_EQ(queue.reserve(1, &next), Status::kDeadline);
}

TEST(InOrderPublish, EndsWithTheStopWordWhileItWaits) {
  ManualFabric fabric(of_depth(16));
  std::uint32_t stop = 0;
  QueueHandle handle = fabric.sender_qps[0].handle();
  handle.stop = &stop;
  Queue queue(handle, kInOrder);
  reserve_and_write(queue, fabric, 1);
  const Reservation late = reserve_and_write(queue, fabric, 1);
  int pauses = 0;
  ManualMemory::hooks().on_pause = [&] {
    if (++pauses == 7) stop = 1;
  };
  EXPECT_EQ(queue.publish(late), Status::kStopped);
  EXPECT_EQ(pauses, 7);
}

TEST(InOrderPublish, ReturnsTheErrorOfTheQueueWhileItWaits) {
  ManualFabric fabric(of_depth(16));
  Queue queue = fabric.queue<Sharing::kDevice>(0, kInOrder);
  fabric.arm({{nic::FaultKind::kCqe, 0x13, 0}});
  const Reservation failing = reserve_and_write(queue, fabric, 1);
  ASSERT_EQ(queue.publish(failing), Status::kOk);
  reserve_and_write(queue, fabric, 1);
  const Reservation late = reserve_and_write(queue, fabric, 1);
  int pauses = 0;
  ManualMemory::hooks().on_pause = [&] {
    if (++pauses == 4) {
      fabric.settle();
      EXPECT_EQ(queue.completions().try_wait(failing.first), Status::kCompletionError);
    }
  };
  EXPECT_EQ(queue.publish(late), Status::kCompletionError);
  EXPECT_EQ(pauses, 4);
  LatchedError e;
  ASSERT_TRUE(queue.completions().error(&e));
  EXPECT_FALSE(e.abandoned);
  EXPECT_EQ(e.syndrome, 0x13);
}

// A waits for the ring lock; meanwhile B rings for A's WQE too, it completes, and B's fails. A's
// WQE has been posted, so A's publish may not say that it was not.
TEST(InOrderPublish, SucceedsWhenAnotherPublisherRangForIt) {
  ManualFabric fabric(of_depth(16));
  Queue a = fabric.queue<Sharing::kDevice>(0, kInOrder);
  Queue b = fabric.queue<Sharing::kDevice>(0, kInOrder);
  QueueState& state = *a.handle().state;
  fabric.arm({{nic::FaultKind::kCqe, 0x13, 1}});
  const Reservation of_a = reserve_and_write(a, fabric, 1);
  const Reservation of_b = reserve_and_write(b, fabric, 1);
  state.ring_lock = 1;  // a third publisher is ringing
  bool done = false;
  ManualMemory::hooks().on_pause = [&] {
    if (done) return;
    done = true;
    state.ring_lock = 0;
    EXPECT_EQ(b.publish(of_b), Status::kOk);
    state.ring_lock = 1;  // and so is a fourth
    fabric.settle();
    EXPECT_EQ(wait(b, of_b.first), Status::kCompletionError);
    EXPECT_EQ(wait(b, of_a.first), Status::kOk);
  };
  EXPECT_EQ(a.publish(of_a, 100'000), Status::kOk);
  EXPECT_TRUE(done);
}

TEST(CombinePublish, NeverWaitsAndRingsNothingBeyondAHole) {
  ManualFabric fabric(of_depth(16, (std::uint64_t{1} << 24) - 3));
  fabric.fill_source(3);
  Queue queue = fabric.queue<Sharing::kDevice>(0, kCombine);
  const std::uint64_t start = queue.handle().state->reserved;
  const Reservation missing = reserve_and_write(queue, fabric, 3);
  const std::uint64_t clock_ns = ManualMemory::hooks().now_ns;
  const Reservation later[] = {reserve_and_write(queue, fabric, 2),
                               reserve_and_write(queue, fabric, 1),
                               reserve_and_write(queue, fabric, 4)};
  for (const int i : {1, 2, 0}) ASSERT_EQ(queue.publish(later[i], 0), Status::kOk);
  EXPECT_EQ(ManualMemory::hooks().now_ns, clock_ns) << "combine waited";
  fabric.settle();
  EXPECT_EQ(*queue.handle().doorbell, 0u);
  EXPECT_EQ(fabric.counters().producer_index, start);
  EXPECT_EQ(queue.handle().state->rung, start);
  EXPECT_EQ(queue.handle().state->pending, 0u);
  EXPECT_EQ(wait(queue, later[2].first, 20'000), Status::kDeadline);
  LatchedError e;
  EXPECT_FALSE(queue.completions().error(&e));

  ASSERT_EQ(queue.publish(missing), Status::kOk);
  EXPECT_EQ(queue.handle().state->doorbells, 1u) << "one ring covers all";
  EXPECT_EQ(queue.handle().state->rung, later[2].end());
  ASSERT_EQ(wait(queue, later[2].end() - 1), Status::kOk);
  expect_landed(fabric, start, later[2].end());
}

TEST(CombinePublish, RingsUpToEachHoleInTurn) {
  ManualFabric fabric(of_depth(8));
  fabric.hold();
  Queue queue = fabric.queue<Sharing::kDevice>(0, kCombine);
  Reservation r[5];
  for (Reservation& x : r) x = reserve_and_write(queue, fabric, 1);
  const auto rung_after = [&](int i) {
    EXPECT_EQ(queue.publish(r[i]), Status::kOk);
    fabric.settle();
    EXPECT_EQ(fabric.counters().producer_index, queue.handle().state->rung);
    return queue.handle().state->rung;
  };
  EXPECT_EQ(rung_after(3), 0u);
  EXPECT_EQ(rung_after(0), 1u);
  EXPECT_EQ(rung_after(2), 1u);
  EXPECT_EQ(rung_after(1), 4u);
  EXPECT_EQ(rung_after(4), 5u);
  EXPECT_EQ(queue.handle().state->doorbells, 3u);
}

// A publisher that arrives while another combines is rung for by that one.
struct InterruptedMemory : ManualMemory {
  static std::function<void()>& before_subtract() {
    static std::function<void()> f;
    return f;
  }
  static std::uint64_t subtract_pending_acq_rel(std::uint64_t* pending, std::uint64_t n,
                                                FenceScope scope) {
    if (const auto f = std::exchange(before_subtract(), nullptr)) f();
    return ManualMemory::subtract_pending_acq_rel(pending, n, scope);
  }
};

TEST(CombinePublish, LeavesNoPublisherUnrungWhenItArrivesDuringACombine) {
  ManualFabric fabric(of_depth(8));
  Queue other = fabric.queue<Sharing::kDevice>(0, kCombine);
  SendQueue<InterruptedMemory, Sharing::kDevice> queue(other.handle(), kCombine);
  Reservation mine;
  ASSERT_EQ(queue.reserve(1, &mine), Status::kOk);
  write_wqe(queue, mine.first, fabric.put(0, 0, 8));
  const Reservation theirs = reserve_and_write(other, fabric, 2);
  InterruptedMemory::before_subtract() = [&] {
    EXPECT_EQ(other.handle().state->rung, 1u);
    EXPECT_EQ(other.publish(theirs), Status::kOk);
    EXPECT_EQ(other.handle().state->rung, 1u) << "two combiners at once";
  };
  ASSERT_EQ(queue.publish(mine), Status::kOk);
  EXPECT_EQ(other.handle().state->rung, 3u);
  EXPECT_EQ(other.handle().state->pending, 0u);
  EXPECT_EQ(wait(other, theirs.end() - 1), Status::kOk);
}

// One queue may be driven in each way in turn, with nothing unpublished in between.
TEST(Publish, WorksWhenOrdersAndSharingsFollowEachOther) {
  ManualFabric fabric(of_depth(8, 65530));
  fabric.fill_source(5);
  auto exclusive = fabric.queue<Sharing::kExclusive>();
  Queue in_order = fabric.queue<Sharing::kDevice>(0, kInOrder);
  Queue combine = fabric.queue<Sharing::kDevice>(0, kCombine);
  std::uint64_t index = 65530;
  const auto put_by = [&](auto& queue) {
    const std::uint64_t at = index % 1000 * 8;
    Posted posted;
    ASSERT_EQ(put(queue, fabric.put(at, at, 8), &posted, 100'000), Status::kOk) << index;
    ASSERT_EQ(posted.ticket, index);
    if (index % 3 == 0) {
      ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
    }
    ++index;
  };
  std::mt19937_64 random(5);
  for (int i = 0; i < 300; ++i) {
    switch (random() % 3) {
      case 0: put_by(exclusive); break;
      case 1: put_by(in_order); break;
      default: put_by(combine); break;
    }
    if (HasFatalFailure()) return;
  }
  ASSERT_EQ(wait(combine, index - 1), Status::kOk);
  expect_landed(fabric, 65530, index);
  EXPECT_EQ(fabric.counters().producer_index, index);
}

}  // namespace
}  // namespace peal
