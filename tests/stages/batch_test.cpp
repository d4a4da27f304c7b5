// The batch stage: contiguous WQEs, published at once, behind one doorbell.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "peal/device/producer.hpp"
#include "support/loop_queue.hpp"
#include "support/manual_fabric.hpp"
#include "support/scale.hpp"
#include "support/stage_puts.hpp"

namespace peal {
namespace {

using test::FabricOptions;
using test::LoopQueue;
using test::ManualFabric;
using test::ManualMemory;
using test::nth_put;
using test::RecordedStore;
using test::RecordingMemory;

constexpr SubmitOptions kSubmits[] = {
    {DoorbellOrder::kRingRecordRing, PublishOrder::kInOrder},
    {DoorbellOrder::kRecordRing, PublishOrder::kInOrder},
    {DoorbellOrder::kRingRecordRing, PublishOrder::kCombine},
    {DoorbellOrder::kRecordRing, PublishOrder::kCombine},
};

ProducerOptions with(std::uint32_t window, std::uint32_t batch, SubmitOptions submit = {}) {
  ProducerOptions options;
  options.submit = submit;
  options.window = window;
  options.batch = batch;
  return options;
}

using Recording = Producer<RecordingMemory, Sharing::kDevice>;
using Manual = Producer<ManualMemory, Sharing::kDevice>;

// ---- With the batch at its default --------------------------------------------------------------

TEST(BatchStageStores, AreThoseOfTheWindowStageWhenTheBatchIsOne) {
  for (const SubmitOptions& submit : kSubmits) {
    LoopQueue loop(16, 0xfff0);
    std::vector<InFlight> fifo(5);
    {
      Recording one_by_one(loop.handle(), with(5, 1, submit), fifo.data());
      for (std::uint64_t i = 0; i < 60; ++i) ASSERT_EQ(one_by_one.put(nth_put(i)), Status::kOk);
      ASSERT_EQ(one_by_one.flush(), Status::kOk);
    }
    const std::vector<RecordedStore> window_stage = RecordingMemory::log();
    loop.reset();
    ProducerOptions options = with(5, 1, submit);
    options.batch = ProducerOptions{}.batch;
    Recording many(loop.handle(), options, fifo.data());
    ASSERT_EQ(many.put_many(60, nth_put), Status::kOk);
    ASSERT_EQ(many.flush(), Status::kOk);
    EXPECT_TRUE(RecordingMemory::log() == window_stage);
    EXPECT_EQ(many.batch(), 1u);
  }
}

// ---- One doorbell -------------------------------------------------------------------------------

TEST(BatchStageStores, AreAllWqesThenOneSubmission) {
  for (const SubmitOptions& submit : kSubmits) {
    const std::uint64_t first = 0x1fff8;
    LoopQueue loop(16, first);
    std::vector<InFlight> fifo(16);
    std::vector<RecordedStore> expected;
    SendQueue<RecordingMemory, Sharing::kDevice> queue(loop.handle(), submit);
    for (std::uint64_t i = 0; i < 11; ++i) write_wqe(queue, first + i, nth_put(i));
    expected = RecordingMemory::log();
    const auto announce = [&](std::uint64_t pi) {
      const QueueHandle q = loop.handle();
      const RecordedStore ring{
          RecordedStore::kDoorbell, q.doorbell, {mlx5::encode_doorbell(pi, q.qpn), 0}};
      if (submit.doorbell == DoorbellOrder::kRingRecordRing) expected.push_back(ring);
      expected.push_back({RecordedStore::kDbrec, q.dbrec, {mlx5::encode_dbrec(pi), 0}});
      expected.push_back(ring);
    };
    announce(first + 11);
    loop.reset();
    Recording producer(loop.handle(), with(16, 11, submit), fifo.data());
    ASSERT_EQ(producer.put_many(11, nth_put), Status::kOk);
    EXPECT_TRUE(RecordingMemory::log() == expected);
  }
}

struct Counted {
  std::uint64_t wqes = 0;
  std::uint64_t doorbells = 0;
};
Counted counted() {
  Counted c;
  const mlx5::Slot* last = nullptr;
  for (const RecordedStore& s : RecordingMemory::log()) {
    if (s.kind == RecordedStore::kDoorbell) ++c.doorbells;
    if (s.kind != RecordedStore::kWqeSegment) continue;
    const auto* slot = reinterpret_cast<const mlx5::Slot*>(
        reinterpret_cast<std::uintptr_t>(s.address) & ~std::uintptr_t{63});
    if (slot != last) ++c.wqes;
    last = slot;
  }
  return c;
}

TEST(BatchStage, RingsOncePerBatchAndForTheLastPartialOne) {
  for (const std::uint64_t puts : {1u, 31u, 32u, 33u, 70u, 320u, 321u}) {
    LoopQueue loop(64);
    std::vector<InFlight> fifo(64);
    Recording producer(loop.handle(), with(64, 32, kSubmits[3]), fifo.data());
    ASSERT_EQ(producer.put_many(puts, nth_put), Status::kOk);
    EXPECT_EQ(counted().doorbells, (puts + 31) / 32) << puts;
    EXPECT_EQ(counted().wqes, puts);
    EXPECT_EQ(loop.state().rung, puts);
    EXPECT_EQ(loop.done() + loop.outstanding(), puts);
    ASSERT_EQ(producer.flush(), Status::kOk);
    EXPECT_EQ(producer.completed_puts(), puts);
  }
}

TEST(BatchStage, HasRungForEverythingBeforeItWaits) {
  LoopQueue loop(64);
  std::vector<InFlight> fifo(20);
  Recording producer(loop.handle(), with(20, 8), fifo.data());
  std::uint64_t waits = 0;
  ManualMemory::hooks().on_pause = [&] {
    ++waits;
    EXPECT_EQ(loop.state().reserved, loop.state().rung);
    loop.complete(1);
  };
  ASSERT_EQ(producer.put_many(500, nth_put), Status::kOk);
  EXPECT_GT(waits, 100u);
}

TEST(BatchStage, WithinAWindowNeverHoldsMoreThanThat) {
  for (const std::uint32_t window : {1u, 5u, 32u, 100u}) {
    for (const std::uint32_t batch : {1u, 2u, 7u, 32u}) {
      LoopQueue loop(128);
      std::vector<InFlight> fifo(window);
      Manual producer(loop.handle(), with(window, batch), fifo.data());
      std::uint64_t most = 0;
      ManualMemory::hooks().on_pause = [&] {
        most = std::max(most, loop.outstanding());
        loop.complete(1);
      };
      ASSERT_EQ(producer.put_many(1000, nth_put), Status::kOk);
      EXPECT_LE(most, window);
      EXPECT_GT(most, window - producer.batch());
      ASSERT_EQ(producer.flush(), Status::kOk);
      EXPECT_EQ(producer.completed_puts(), 1000u);
    }
  }
}

TEST(BatchStage, IsNoLargerThanWindowOrPartOfTheRing) {
  const auto effective = [](std::uint32_t window, std::uint32_t batch, std::uint32_t producers,
                            std::uint32_t depth) {
    ProducerOptions options = with(window, batch);
    options.producers_on_queue = producers;
    return effective_batch(options, depth);
  };
  EXPECT_EQ(effective(256, 32, 1, 1024), 32u);
  EXPECT_EQ(effective(20, 32, 1, 1024), 20u);
  EXPECT_EQ(effective(256, 32, 1, 16), 16u);
  EXPECT_EQ(effective(256, 32, 4, 64), 16u);
  EXPECT_EQ(effective(256, 32, 3, 64), 21u);
  EXPECT_EQ(effective(256, 32, 512, 64), 1u);
  EXPECT_EQ(effective(0, 0, 0, 64), 1u);
  EXPECT_EQ(effective(1, 32768, 1, 32768), 1u);
  EXPECT_EQ(effective(UINT32_MAX, UINT32_MAX, 1, 32768), 32768u);
}

TEST(BatchStage, LargerThanWindowOrRingGoesOn) {
  for (const std::uint32_t depth : {1u, 2u, 8u}) {
    for (const std::uint32_t window : {1u, 3u, 100u}) {
      LoopQueue loop(depth, (std::uint64_t{1} << 32) - 7);
      loop.per_pause = 1;
      std::vector<InFlight> fifo(window);
      Manual producer(loop.handle(), with(window, 64), fifo.data());
      ASSERT_EQ(producer.put_many(301, nth_put), Status::kOk);
      ASSERT_EQ(producer.flush(), Status::kOk);
      EXPECT_EQ(loop.done(), 301u);
    }
  }
}

TEST(BatchStage, PostsAPutOfManyChunksAloneAndInOrder) {
  LoopQueue loop(32);
  loop.max_message_bytes = 100;
  std::vector<InFlight> fifo(32);
  Recording producer(loop.handle(), with(32, 8, kSubmits[3]), fifo.data());
  // 3 small, 1 of three chunks, 5 small, 1 of three chunks
  const auto make = [](std::uint64_t i) {
    Put p = nth_put(i);
    p.bytes = i == 3 || i == 9 ? 250 : 50;
    return p;
  };
  ASSERT_EQ(producer.put_many(10, make), Status::kOk);
  EXPECT_EQ(counted().doorbells, 4u);
  EXPECT_EQ(producer.posted_puts(), 10u);
  EXPECT_EQ(producer.posted_wqes(), 8u + 2 * 3);
  ASSERT_EQ(producer.flush(), Status::kOk);
  EXPECT_EQ(producer.completed_puts(), 10u);
}

TEST(BatchStage, PutsPutsOfTheLargestMessageInABatch) {
  LoopQueue loop(32);
  loop.max_message_bytes = 100;
  std::vector<InFlight> fifo(32);
  Recording producer(loop.handle(), with(32, 8, kSubmits[3]), fifo.data());
  const auto make = [](std::uint64_t i) {
    Put p = nth_put(i);
    p.bytes = 100;
    return p;
  };
  ASSERT_EQ(producer.put_many(16, make), Status::kOk);
  EXPECT_EQ(counted().doorbells, 2u);
  EXPECT_EQ(producer.posted_wqes(), 16u);
}

// ---- Ends ---------------------------------------------------------------------------------------

TEST(BatchStageDeadline, InsideReserveLeavesNoHole) {
  LoopQueue loop(16);
  loop.per_pause = 0;
  ProducerOptions options = with(100, 8);
  options.timeout_ns = 50'000;
  std::vector<InFlight> fifo(100);
  Recording producer(loop.handle(), options, fifo.data());
  const std::uint64_t start_ns = ManualMemory::now_ns();
  EXPECT_EQ(producer.put_many(40, nth_put), Status::kDeadline);
  EXPECT_LE(ManualMemory::now_ns() - start_ns, 70'000u);
  EXPECT_EQ(producer.posted_puts(), 16u);
  EXPECT_EQ(loop.state().reserved, 16u);
  EXPECT_EQ(loop.state().rung, 16u);
  EXPECT_EQ(loop.outstanding(), 16u);
  // The next one continues where the ring stands.
  loop.per_pause = 3;
  EXPECT_EQ(producer.put_many(24, [](std::uint64_t i) { return nth_put(16 + i); }), Status::kOk);
  EXPECT_EQ(producer.flush(), Status::kOk);
  EXPECT_EQ(producer.completed_puts(), 40u);
  EXPECT_EQ(loop.done(), 40u);
}

// Every wait inside a call is the producer's own, not the default one.
TEST(BatchStageDeadline, IsThatOfTheProducerWhereverItWaits) {
  ProducerOptions options = with(8, 4);
  options.timeout_ns = 50'000;
  const auto ends_in_time = [](auto&& post) {
    const std::uint64_t start_ns = ManualMemory::now_ns();
    EXPECT_EQ(post(), Status::kDeadline);
    EXPECT_GE(ManualMemory::now_ns() - start_ns, 50'000u);
    EXPECT_LE(ManualMemory::now_ns() - start_ns, 70'000u);
  };
  {
    // For a publisher before it.
    LoopQueue loop(16);
    loop.per_pause = 0;
    SendQueue<ManualMemory, Sharing::kDevice> silent(loop.handle());
    Reservation never_published;
    ASSERT_EQ(silent.reserve(1, &never_published), Status::kOk);
    std::vector<InFlight> fifo(8);
    Manual producer(loop.handle(), options, fifo.data());
    ends_in_time([&] { return producer.put_many(4, nth_put); });
    EXPECT_EQ(producer.posted_puts(), 0u);
    EXPECT_EQ(producer.posted_wqes(), 0u);
  }
  {
    // For room for a PUT of several WQEs.
    LoopQueue loop(2);
    loop.per_pause = 0;
    loop.max_message_bytes = 100;
    std::vector<InFlight> fifo(8);
    Manual producer(loop.handle(), options, fifo.data());
    ASSERT_EQ(producer.put({0x10000, Lkey(1), 0x90000, Rkey(2), 200}), Status::kOk);
    ends_in_time([&] { return producer.put({0x10000, Lkey(1), 0x90000, Rkey(2), 200}); });
    EXPECT_EQ(producer.posted_puts(), 1u);
  }
}

TEST(BatchStageError, CountsWholeBatchesBeforeTheOneThatFailed) {
  LoopQueue loop(64);
  std::vector<InFlight> fifo(64);
  Manual producer(loop.handle(), with(64, 8), fifo.data());
  ASSERT_EQ(producer.put_many(40, nth_put), Status::kOk);
  loop.complete(19);
  loop.fail(mlx5::Syndrome::kRemoteAccess);
  EXPECT_EQ(producer.flush(), Status::kCompletionError);
  EXPECT_EQ(producer.completed_puts(), 16u);
  producer.settle();
  EXPECT_EQ(producer.completed_puts(), 19u);
  producer.settle();
  EXPECT_EQ(producer.completed_puts(), 19u);
  LatchedError e;
  ASSERT_TRUE(producer.queue().completions().error(&e));
  EXPECT_EQ(e.index, 19u);
  EXPECT_EQ(e.syndrome, static_cast<int>(mlx5::Syndrome::kRemoteAccess));
  EXPECT_EQ(producer.queue().completions().completed(), 19u);
}

TEST(BatchStageError, SettlingAPartOfABatchCountsItOnce) {
  LoopQueue loop(64);
  std::vector<InFlight> fifo(64);
  Manual producer(loop.handle(), with(64, 8), fifo.data());
  ASSERT_EQ(producer.put_many(24, nth_put), Status::kOk);
  loop.complete(11);
  ASSERT_EQ(producer.queue().completions().try_wait(10), Status::kOk);
  producer.settle();
  EXPECT_EQ(producer.completed_puts(), 11u);
  ASSERT_EQ(producer.flush(), Status::kOk);
  EXPECT_EQ(producer.completed_puts(), 24u);
  ASSERT_EQ(producer.put_many(8, nth_put), Status::kOk);
  EXPECT_EQ(producer.completed_puts(), 24u);
}

// ---- Through the NIC ----------------------------------------------------------------------------

TEST(BatchStage, PlacesEveryPayloadForAnyWindowBatchAndDepth) {
  std::mt19937_64 random(12);
  for (int round = 0; round < static_cast<int>(test::scaled(80)); ++round) {
    FabricOptions options;
    options.depth = 1u << (random() % 7);
    options.memory_bytes = 1 << 16;
    options.sender.first_wqe_index = random() % 2 == 0 ? 0 : random();
    ManualFabric fabric(options);
    fabric.fill_source(random());
    const auto window = static_cast<std::uint32_t>(1 + random() % 60);
    std::vector<InFlight> fifo(window);
    ProducerOptions how =
        with(window, static_cast<std::uint32_t>(1 + random() % 60), kSubmits[random() % 4]);
    how.producers_on_queue = static_cast<std::uint32_t>(1 + random() % 3);
    Manual producer(fabric.sender_qps[0].handle(), how, fifo.data());
    std::vector<Put> puts;
    std::vector<std::byte> expected(fabric.destination.size());
    for (std::uint64_t at = 0; at + 300 < fabric.source.size();) {
      const std::uint64_t bytes = random() % 300;
      puts.push_back(fabric.put(at, at, bytes));
      std::copy_n(fabric.source.begin() + static_cast<std::ptrdiff_t>(at), bytes,
                  expected.begin() + static_cast<std::ptrdiff_t>(at));
      at += bytes + random() % 8;
    }
    for (std::size_t from = 0; from < puts.size();) {
      const std::size_t n = std::min<std::size_t>(puts.size() - from, 1 + random() % 150);
      ASSERT_EQ(producer.put_many(n, [&](std::uint64_t i) { return puts[from + i]; }), Status::kOk);
      from += n;
    }
    ASSERT_EQ(producer.flush(), Status::kOk);
    EXPECT_EQ(producer.completed_puts(), puts.size());
    EXPECT_TRUE(fabric.destination == expected) << "round " << round;
  }
}

}  // namespace
}  // namespace peal
