// The window stage: a FIFO of tickets, of which the oldest is awaited when it is full.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "ladder/latency.hpp"
#include "ladder/producers.hpp"
#include "peal/device/producer.hpp"
#include "support/loop_queue.hpp"
#include "support/manual_fabric.hpp"
#include "support/scale.hpp"
#include "support/stage_puts.hpp"

namespace peal {
namespace {

using test::FabricOptions;
using test::kLadderSubmits;
using test::LoopQueue;
using test::ManualFabric;
using test::ManualMemory;
using test::nth_put;
using test::RecordedStore;
using test::RecordingMemory;
using test::some_put;

ProducerOptions with_window(std::uint32_t window, SubmitOptions submit = {}) {
  ProducerOptions options;
  options.submit = submit;
  options.window = window;
  return options;
}

// ---- With the window at its default -------------------------------------------------------------

template <Sharing S>
void expect_stores_of_the_original(SubmitOptions submit) {
  LoopQueue loop(4, 0xfffe);
  SendQueue<RecordingMemory, S> queue(loop.handle(), submit);
  for (std::uint64_t i = 0; i < 23; ++i) {
    Posted posted;
    ASSERT_EQ(put(queue, nth_put(i), &posted), Status::kOk);
    ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
  }
  const std::vector<RecordedStore> original = RecordingMemory::log();
  ASSERT_GE(original.size(), 23u * 3);

  loop.reset();
  ProducerOptions options;
  options.submit = submit;
  InFlight fifo[1];
  Producer<RecordingMemory, S> producer(loop.handle(), options, fifo);
  for (std::uint64_t i = 0; i < 23; ++i) ASSERT_EQ(producer.put(nth_put(i)), Status::kOk);
  ASSERT_EQ(producer.flush(), Status::kOk);
  EXPECT_TRUE(RecordingMemory::log() == original);
  EXPECT_EQ(producer.completed_puts(), 23u);
}

TEST(WindowStageStores, AreThoseOfTheOriginalWhenTheWindowIsOne) {
  for (const SubmitOptions& submit : kLadderSubmits) {
    expect_stores_of_the_original<Sharing::kExclusive>(submit);
    expect_stores_of_the_original<Sharing::kDevice>(submit);
  }
  EXPECT_EQ(ProducerOptions{}.window, 1u);
}

TEST(WindowStageStores, AreThoseOfTheOriginalWhateverTheWindow) {
  LoopQueue loop(8);
  InFlight fifo[5];
  std::vector<RecordedStore> original;
  for (const std::uint32_t window : {1u, 2u, 5u}) {
    loop.reset();
    Producer<RecordingMemory, Sharing::kDevice> producer(loop.handle(), with_window(window), fifo);
    for (std::uint64_t i = 0; i < 40; ++i) ASSERT_EQ(producer.put(nth_put(i)), Status::kOk);
    ASSERT_EQ(producer.flush(), Status::kOk);
    if (window == 1) original = RecordingMemory::log();
    EXPECT_TRUE(RecordingMemory::log() == original) << window;
  }
}

// ---- The window ---------------------------------------------------------------------------------

TEST(WindowStage, PostsAsManyPutsAsItHoldsWithoutWaiting) {
  LoopQueue loop(64);
  InFlight fifo[7];
  Producer<ManualMemory, Sharing::kDevice> producer(loop.handle(), with_window(7), fifo);
  ManualMemory::hooks().on_pause = [] { FAIL() << "it waited"; };
  for (std::uint64_t i = 0; i < 7; ++i) ASSERT_EQ(producer.put(nth_put(i)), Status::kOk);
  EXPECT_EQ(loop.outstanding(), 7u);
  EXPECT_EQ(producer.completed_puts(), 0u);
}

TEST(WindowStage, NeverHoldsMoreAndKeepsItFull) {
  for (const std::uint32_t window : {1u, 2u, 3u, 7u, 64u}) {
    LoopQueue loop(64);
    loop.per_pause = 1;
    std::uint64_t most = 0;
    std::uint64_t full = 0;
    ManualMemory::hooks().on_pause = [&] {
      most = std::max(most, loop.outstanding());
      full += loop.outstanding() == window ? 1 : 0;
      loop.complete(1);
    };
    std::vector<InFlight> fifo(window);
    Producer<ManualMemory, Sharing::kDevice> producer(loop.handle(), with_window(window),
                                                      fifo.data());
    for (std::uint64_t i = 0; i < 500; ++i) ASSERT_EQ(producer.put(nth_put(i)), Status::kOk);
    EXPECT_EQ(most, window);
    // One completion, one PUT: each wait finds it full.
    EXPECT_EQ(full, 500 - window);
    ASSERT_EQ(producer.flush(), Status::kOk);
    EXPECT_EQ(producer.completed_puts(), 500u);
    EXPECT_EQ(loop.done(), 500u);
  }
}

TEST(WindowStage, WaitsForTheOldestOnly) {
  LoopQueue loop(64);
  InFlight fifo[4];
  Producer<ManualMemory, Sharing::kDevice> producer(loop.handle(), with_window(4), fifo);
  ManualMemory::hooks().on_pause = [] { FAIL() << "it waited"; };
  for (std::uint64_t i = 0; i < 4; ++i) ASSERT_EQ(producer.put(nth_put(i)), Status::kOk);
  for (std::uint64_t i = 4; i < 40; ++i) {
    ASSERT_EQ(loop.complete(1), 1u);
    ASSERT_EQ(producer.put(nth_put(i)), Status::kOk);
    ASSERT_EQ(loop.outstanding(), 4u);
    ASSERT_EQ(producer.completed_puts(), i - 3);
  }
}

TEST(WindowStage, LargerThanTheRingWaitsForRoomInstead) {
  LoopQueue loop(4, (std::uint64_t{1} << 32) - 5);
  std::vector<InFlight> fifo(100);
  Producer<ManualMemory, Sharing::kDevice> producer(loop.handle(), with_window(100), fifo.data());
  std::uint64_t most = 0;
  ManualMemory::hooks().on_pause = [&] {
    most = std::max(most, loop.outstanding());
    loop.complete(1);
  };
  for (std::uint64_t i = 0; i < 333; ++i) ASSERT_EQ(producer.put(nth_put(i)), Status::kOk);
  ASSERT_EQ(producer.flush(), Status::kOk);
  EXPECT_EQ(most, 4u);
  EXPECT_EQ(producer.completed_puts(), 333u);
}

TEST(WindowStage, OfZeroIsOne) {
  LoopQueue loop(4);
  InFlight fifo[1];
  Producer<ManualMemory, Sharing::kExclusive> producer(loop.handle(), with_window(0), fifo);
  for (std::uint64_t i = 0; i < 9; ++i) ASSERT_EQ(producer.put(nth_put(i)), Status::kOk);
  ASSERT_EQ(producer.flush(), Status::kOk);
  EXPECT_EQ(producer.completed_puts(), 9u);
}

TEST(WindowStage, CountsAPutOfManyChunksOnce) {
  LoopQueue loop(8);
  loop.max_message_bytes = 100;
  loop.per_pause = 1;
  InFlight fifo[3];
  Producer<ManualMemory, Sharing::kDevice> producer(loop.handle(), with_window(3), fifo);
  for (std::uint64_t i = 0; i < 20; ++i) {
    ASSERT_EQ(producer.put(some_put(i, 250)), Status::kOk);
  }
  ASSERT_EQ(producer.flush(), Status::kOk);
  EXPECT_EQ(producer.posted_puts(), 20u);
  EXPECT_EQ(producer.completed_puts(), 20u);
  EXPECT_EQ(producer.posted_wqes(), 60u);
}

// ---- Ends ---------------------------------------------------------------------------------------

TEST(WindowStageError, CountsThePutsBeforeTheOneThatFailed) {
  LoopQueue loop(64);
  InFlight fifo[8];
  Producer<ManualMemory, Sharing::kDevice> producer(loop.handle(), with_window(8), fifo);
  for (std::uint64_t i = 0; i < 8; ++i) ASSERT_EQ(producer.put(nth_put(i)), Status::kOk);
  loop.complete(3);
  loop.fail(mlx5::Syndrome::kRemoteAccess);
  EXPECT_EQ(producer.flush(), Status::kCompletionError);
  EXPECT_EQ(producer.completed_puts(), 3u);
  EXPECT_EQ(producer.put(nth_put(8)), Status::kCompletionError);
  LatchedError e;
  ASSERT_TRUE(producer.queue().completions().error(&e));
  EXPECT_EQ(e.syndrome, static_cast<int>(mlx5::Syndrome::kRemoteAccess));
  EXPECT_EQ(e.index, 3u);
}

TEST(WindowStageError, SettlesWhatSucceededBeforeAPutThatCouldNotBePosted) {
  LoopQueue loop(8);
  std::vector<InFlight> fifo(100);
  Producer<ManualMemory, Sharing::kDevice> producer(loop.handle(), with_window(100), fifo.data());
  for (std::uint64_t i = 0; i < 8; ++i) ASSERT_EQ(producer.put(nth_put(i)), Status::kOk);
  loop.complete(5);
  loop.fail(mlx5::Syndrome::kRemoteAccess);
  // The ring has room as soon as the first is seen, so take it until the error is.
  Status status = Status::kOk;
  for (std::uint64_t i = 8; i < 20 && status == Status::kOk; ++i) status = producer.put(nth_put(i));
  EXPECT_EQ(status, Status::kCompletionError);
  EXPECT_EQ(producer.completed_puts(), 0u);
  producer.settle();
  EXPECT_EQ(producer.completed_puts(), 5u);
  producer.settle();
  EXPECT_EQ(producer.completed_puts(), 5u);
}

TEST(WindowStageDeadline, EndsAFullWindowAndPostsNothing) {
  LoopQueue loop(64);
  loop.per_pause = 0;
  ProducerOptions options = with_window(2);
  options.timeout_ns = 50'000;
  InFlight fifo[2];
  Producer<RecordingMemory, Sharing::kDevice> producer(loop.handle(), options, fifo);
  ASSERT_EQ(producer.put(nth_put(0)), Status::kOk);
  ASSERT_EQ(producer.put(nth_put(1)), Status::kOk);
  const std::size_t stores = RecordingMemory::log().size();
  const std::uint64_t start_ns = ManualMemory::now_ns();
  EXPECT_EQ(producer.put(nth_put(2)), Status::kDeadline);
  EXPECT_GE(ManualMemory::now_ns() - start_ns, 50'000u);
  EXPECT_LE(ManualMemory::now_ns() - start_ns, 70'000u);
  EXPECT_EQ(RecordingMemory::log().size(), stores);
  EXPECT_EQ(producer.posted_puts(), 2u);
  // Nothing is lost by it: once the NIC goes on, so does the producer.
  loop.per_pause = 1;
  EXPECT_EQ(producer.put(nth_put(2)), Status::kOk);
  EXPECT_EQ(producer.flush(), Status::kOk);
  EXPECT_EQ(producer.completed_puts(), 3u);
}

TEST(WindowStageDeadline, StopEndsAWaitAndWhatSucceededStillCounts) {
  LoopQueue loop(64);
  loop.per_pause = 0;
  std::uint32_t stop = 0;
  QueueHandle handle = loop.handle();
  handle.stop = &stop;
  InFlight fifo[4];
  Producer<ManualMemory, Sharing::kDevice> producer(handle, with_window(4), fifo);
  for (std::uint64_t i = 0; i < 4; ++i) ASSERT_EQ(producer.put(nth_put(i)), Status::kOk);
  loop.complete(2);
  stop = 1;
  EXPECT_EQ(producer.flush(), Status::kStopped);
  EXPECT_EQ(producer.completed_puts(), 2u);
}

// ---- Latencies ----------------------------------------------------------------------------------

struct ListedLatencies {
  static constexpr bool kWanted = true;
  void add(std::uint64_t ns) { all.push_back(ns); }
  std::vector<std::uint64_t> all;
};

TEST(WindowStageLatency, RunsFromPostingUntilTheCompletionWasSeen) {
  LoopQueue loop(64);
  ListedLatencies latencies;
  InFlight fifo[2];
  Producer<ManualMemory, Sharing::kDevice, ListedLatencies> producer(loop.handle(), with_window(2),
                                                                     fifo, &latencies);
  ManualMemory::hooks().on_pause = {};
  ManualMemory::hooks().now_ns = 1000;
  ASSERT_EQ(producer.put(nth_put(0)), Status::kOk);
  ManualMemory::hooks().now_ns = 1400;
  ASSERT_EQ(producer.put(nth_put(1)), Status::kOk);
  loop.complete();
  ManualMemory::hooks().now_ns = 3000;
  ASSERT_EQ(producer.put(nth_put(2)), Status::kOk);
  EXPECT_EQ(latencies.all, (std::vector<std::uint64_t>{2000}));
  loop.complete();
  ManualMemory::hooks().now_ns = 3500;
  ASSERT_EQ(producer.flush(), Status::kOk);
  EXPECT_EQ(latencies.all, (std::vector<std::uint64_t>{2000, 2100, 500}));
}

// The wait for a slot belongs to the PUT that waited.
TEST(WindowStageLatency, CountsTheWaitForRoomInTheRing) {
  LoopQueue loop(1);
  loop.per_pause = 1;
  ListedLatencies latencies;
  InFlight fifo[2];
  Producer<ManualMemory, Sharing::kDevice, ListedLatencies> producer(loop.handle(), with_window(2),
                                                                     fifo, &latencies);
  ASSERT_EQ(producer.put(nth_put(0)), Status::kOk);
  ASSERT_EQ(producer.put(nth_put(1)), Status::kOk);
  ASSERT_EQ(ManualMemory::now_ns(), 1000u) << "one pause, for the slot";
  ASSERT_EQ(producer.flush(), Status::kOk);
  EXPECT_EQ(latencies.all, (std::vector<std::uint64_t>{1000, 2000}));
}

TEST(WindowStageLatency, PercentilesAreThoseOfASortedList) {
  std::mt19937_64 random(7);
  for (const unsigned bits : {5u, 12u, 33u, 63u}) {
    ladder::Latencies some;
    ladder::Latencies others;
    std::vector<std::uint64_t> all;
    for (int i = 0; i < 1001; ++i) {
      const std::uint64_t ns = random() >> (64 - bits);
      (i % 3 == 0 ? others : some).add(ns);
      all.push_back(ns);
    }
    some.add(others);
    std::sort(all.begin(), all.end());
    EXPECT_EQ(some.count(), 1001u);
    EXPECT_EQ(some.max(), static_cast<double>(all.back()));
    for (const double percent : {0.0, 50.0, 99.0, 99.9, 100.0}) {
      const auto rank = static_cast<std::size_t>(std::ceil(1001 * percent / 100));
      const auto exact = static_cast<double>(all[rank == 0 ? 0 : rank - 1]);
      EXPECT_GE(some.percentile(percent), exact) << bits << " " << percent;
      EXPECT_LE(some.percentile(percent), exact * 1.016) << bits << " " << percent;
    }
  }
  ladder::Latencies small;
  small.add(5);
  ladder::Latencies large;
  large.add(900);
  small.add(large);
  EXPECT_EQ(small.max(), 900.0);
  EXPECT_EQ(small.percentile(100), 900.0);  // no more than was ever seen
  EXPECT_EQ(ladder::Latencies().percentile(50), std::nullopt);
  EXPECT_EQ(ladder::Latencies().max(), std::nullopt);
}

// ---- Through the NIC ----------------------------------------------------------------------------

TEST(WindowStage, PlacesEveryPayloadForAnyWindowAndDepth) {
  std::mt19937_64 random(11);
  for (int round = 0; round < static_cast<int>(test::scaled(60)); ++round) {
    FabricOptions options;
    options.depth = 1u << (random() % 6);
    options.memory_bytes = 1 << 16;
    options.sender.first_wqe_index = random() % 2 == 0 ? 0 : random();
    ManualFabric fabric(options);
    fabric.fill_source(random());
    const auto window = static_cast<std::uint32_t>(1 + random() % 40);
    std::vector<InFlight> fifo(window);
    Producer<ManualMemory, Sharing::kDevice> producer(
        fabric.sender_qps[0].handle(), with_window(window, kLadderSubmits[random() % 2]),
        fifo.data());
    std::vector<std::byte> expected(fabric.destination.size());
    std::uint64_t at = 0;
    std::uint64_t puts = 0;
    while (at + 300 < fabric.source.size()) {
      const std::uint64_t bytes = random() % 300;
      ASSERT_EQ(producer.put(fabric.put(at, at, bytes)), Status::kOk);
      std::copy_n(fabric.source.begin() + static_cast<std::ptrdiff_t>(at), bytes,
                  expected.begin() + static_cast<std::ptrdiff_t>(at));
      at += bytes + random() % 8;
      ++puts;
    }
    ASSERT_EQ(producer.flush(), Status::kOk);
    EXPECT_EQ(producer.completed_puts(), puts);
    EXPECT_TRUE(fabric.destination == expected) << "round " << round;
  }
}

TEST(WindowStageShares, SumToTheWindowAndDifferByOneAtMost) {
  for (const std::uint32_t producers : {1u, 2u, 3u, 4u, 7u}) {
    for (const std::uint32_t window : {7u, 8u, 100u, 256u}) {
      std::uint32_t sum = 0;
      for (std::uint32_t p = 0; p < producers; ++p) {
        const std::uint32_t share = ladder::share_of_window(window, producers, p);
        EXPECT_GE(share, window / producers);
        EXPECT_LE(share, window / producers + 1);
        sum += share;
      }
      EXPECT_EQ(sum, window);
    }
  }
  EXPECT_EQ(ladder::share_of_window(2, 5, 4), 1u);
}

}  // namespace
}  // namespace peal
