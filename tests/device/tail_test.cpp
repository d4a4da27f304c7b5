// Tail signalling on a collapsed CQ: what one entry, overwritten again and again, may be believed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "peal/device/producer.hpp"
#include "peal/device/put.hpp"
#include "support/manual_fabric.hpp"
#include "support/scale.hpp"

namespace peal {
namespace {

using test::FabricOptions;
using test::ManualFabric;
using test::ManualMemory;

FabricOptions tail(std::uint32_t depth, std::uint64_t first_index = 0) {
  FabricOptions o;
  o.depth = depth;
  o.completion = CompletionMode::kTail;
  o.sender.first_wqe_index = first_index;
  return o;
}

mlx5::Cqe& entry_of(const QueueHandle& handle) {
  return *const_cast<mlx5::Cqe*>(handle.nic_cq);
}

TEST(Tail, AnEntryThatWasNeverWrittenCompletesNothing) {
  ManualFabric fabric(tail(4));
  auto queue = fabric.queue();
  fabric.hold();
  Posted posted[4];
  for (Posted& p : posted) ASSERT_EQ(put(queue, fabric.put(0, 0, 8), &p), Status::kOk);
  // As rings start, and as clients reset them: an invalid opcode whose counter reads as 0 or 65535.
  for (const std::uint32_t word : {swap_bytes(std::uint32_t{mlx5::kInitialOpOwn}), 0xffffffffu}) {
    entry_of(queue.handle()).word[mlx5::kCqeOwnerWord] = word;
    for (int i = 0; i < 100; ++i) {
      for (const Posted& p : posted) {
        ASSERT_EQ(queue.completions().try_wait(p.ticket), Status::kPending);
      }
    }
  }
  fabric.release();
  for (const Posted& p : posted) EXPECT_EQ(wait(queue, p.ticket), Status::kOk);
}

TEST(Tail, OnlyTheLastWqeOfAReservationIsSignalled) {
  ManualFabric fabric(tail(64));
  InFlight fifo[64];
  Producer<ManualMemory, Sharing::kExclusive> producer(
      fabric.sender_qps[0].handle(), {.submit = {}, .window = 64, .batch = 32}, fifo);
  // Three batches: 32, 32 and a partial one of 6.
  ASSERT_EQ(producer.put_many(70, [&](std::uint64_t i) { return fabric.put(i, i, 1); }),
            Status::kOk);
  ASSERT_EQ(producer.flush(), Status::kOk);
  EXPECT_EQ(producer.completed_puts(), 70u);
  EXPECT_EQ(fabric.counters().wqes_fetched, 70u);
  EXPECT_EQ(fabric.counters().cqes, 3u);
}

// Depth, laps and the 16-bit counter's wrap, the 32-bit one's, and signed ones'.
TEST(Tail, GoesThroughEveryWrap) {
  for (const std::uint64_t first :
       {0ull, 65'536ull - 10, 32'768ull - 10, (1ull << 32) - 16, (1ull << 31) - 16}) {
    for (const std::uint32_t depth : {1u, 2u, 64u, 32'768u}) {
      ManualFabric fabric(tail(depth, first));
      auto queue = fabric.queue();
      const std::uint64_t puts = test::scaled(std::max(1000u, depth == 32'768 ? 70'000u : 0u));
      for (std::uint64_t i = 0; i < puts; ++i) {
        Posted posted;
        ASSERT_EQ(put(queue, fabric.put(i % 100, i % 100, 1), &posted), Status::kOk);
        if (i % 37 == 0) {
          ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
        }
        const std::uint64_t completed = queue.completions().completed();
        ASSERT_LE(completed, queue.reserved());
        ASSERT_LE(queue.reserved() - completed, depth);
      }
      ASSERT_EQ(flush(queue), Status::kOk);
      EXPECT_EQ(queue.completions().completed(), first + puts);
      EXPECT_EQ(fabric.counters().writes, puts);
    }
  }
}

// A stale 16-bit counter must not be taken for one of the next lap.
TEST(Tail, AReplayedCqeOfThePastMovesNothing) {
  ManualFabric fabric(tail(64));
  auto queue = fabric.queue();
  Posted posted;
  mlx5::Cqe earlier[2];
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(put(queue, fabric.put(0, 0, 8), &posted), Status::kOk);
    ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
    earlier[0] = earlier[1];
    earlier[1] = entry_of(queue.handle());
  }
  fabric.hold();
  ASSERT_EQ(put(queue, fabric.put(0, 0, 8), &posted), Status::kOk);
  for (const mlx5::Cqe& stale : earlier) {
    entry_of(queue.handle()) = stale;
    EXPECT_EQ(wait(queue, posted.ticket, 1'000'000), Status::kDeadline);
    EXPECT_EQ(queue.completions().completed(), 1000u);
  }
  fabric.release();
  EXPECT_EQ(wait(queue, posted.ticket), Status::kOk);
}

// The entry shows the flushes, not the cause: that is said, and what had been seen stays true.
TEST(Tail, AnErrorIsLatchedWithoutAnIndex) {
  ManualFabric fabric(tail(64));
  auto queue = fabric.queue();
  fabric.arm({{nic::FaultKind::kCqe, 0x13, 20}});
  Posted first;
  ASSERT_EQ(put(queue, fabric.put(0, 0, 8), &first), Status::kOk);
  ASSERT_EQ(wait(queue, first.ticket), Status::kOk);
  Posted posted;
  for (int i = 1; i < 40; ++i) {
    ASSERT_EQ(put(queue, fabric.put(0, 0, 8), &posted), Status::kOk);
  }
  fabric.settle();
  EXPECT_EQ(wait(queue, posted.ticket), Status::kCompletionError);
  LatchedError e;
  ASSERT_TRUE(queue.completions().error(&e));
  EXPECT_TRUE(e.index_unknown);
  EXPECT_FALSE(e.abandoned);
  EXPECT_EQ(e.syndrome, 0x05);
  EXPECT_EQ(wait(queue, first.ticket), Status::kOk) << "a success was taken back";
  // The NIC's own record has what the entry cannot show.
  const nic::FirstError cause = fabric.counters().first_error;
  EXPECT_EQ(cause.index, 20u);
  EXPECT_EQ(cause.syndrome, 0x13);
  EXPECT_EQ(cause.reason, nic::Refusal::kInjected);
  EXPECT_EQ(put(queue, fabric.put(0, 0, 8), &posted), Status::kCompletionError);
}

// Seen before it is overwritten, the cause is what is latched.
TEST(Tail, AnErrorThatIsSeenAtOnceIsLatchedAsItIs) {
  ManualFabric fabric(tail(64));
  auto queue = fabric.queue();
  fabric.arm({{nic::FaultKind::kCqe, 0x04, 3}});
  Posted posted;
  Status status = Status::kOk;
  for (int i = 0; status == Status::kOk && i < 10; ++i) {
    ASSERT_EQ(put(queue, fabric.put(0, 0, 8), &posted), Status::kOk);
    status = wait(queue, posted.ticket);
    ASSERT_EQ(status, i == 3 ? Status::kCompletionError : Status::kOk);
  }
  LatchedError e;
  ASSERT_TRUE(queue.completions().error(&e));
  EXPECT_EQ(e.syndrome, 0x04);
  EXPECT_EQ(e.opcode, 0x08);
}

// Every ticket ends, wherever in a batch the error falls.
TEST(Tail, EveryTicketEndsAfterAnErrorInAnyPlaceOfABatch) {
  for (std::uint64_t at = 0; at < 24; ++at) {
    ManualFabric fabric(tail(16));
    fabric.arm({{nic::FaultKind::kCqe, 0x13, at}});
    InFlight fifo[16];
    Producer<ManualMemory, Sharing::kExclusive> producer(
        fabric.sender_qps[0].handle(), {.submit = {}, .window = 16, .batch = 8}, fifo);
    Status status = producer.put_many(24, [&](std::uint64_t i) { return fabric.put(i, i, 1); });
    if (status == Status::kOk) status = producer.flush();
    EXPECT_EQ(status, Status::kCompletionError) << at;
    producer.settle();
    EXPECT_LE(producer.completed_puts(), at);
    EXPECT_EQ(producer.completed_puts() % 8, 0u) << "a part of a batch has no CQE of its own";
  }
}

// The two ways of completing are not mixed: a poller of the other kind finds nothing, and says so
// at its deadline.
TEST(Tail, APollerOfTheOtherModeEndsAtItsDeadline) {
  for (const auto made : {CompletionMode::kEvery, CompletionMode::kTail}) {
    FabricOptions o = tail(8);
    o.completion = made;
    ManualFabric fabric(o);
    QueueHandle handle = fabric.sender_qps[0].handle();
    EXPECT_EQ(handle.completion, made);
    handle.completion =
        made == CompletionMode::kEvery ? CompletionMode::kTail : CompletionMode::kEvery;
    SendQueue<ManualMemory, Sharing::kExclusive> queue(handle);
    Posted posted;
    Status status = Status::kOk;
    for (int i = 0; i < 40 && status == Status::kOk; ++i) {
      status = put(queue, fabric.put(0, 0, 8), &posted, 10'000'000);
      if (status == Status::kOk) status = wait(queue, posted.ticket, 10'000'000);
    }
    EXPECT_EQ(status, Status::kDeadline);
  }
}

}  // namespace
}  // namespace peal
