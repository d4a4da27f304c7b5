// The shared stage: several producers, each with its window and batches, on one queue.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "peal/device/producer.hpp"
#include "support/loop_queue.hpp"
#include "support/manual_fabric.hpp"
#include "support/scale.hpp"
#include "support/stage_puts.hpp"
#include "support/threads_fabric.hpp"

namespace peal {
namespace {

using test::kHangGuardNs;
using test::kLadderSubmits;
using test::LoopQueue;
using test::ManualMemory;
using test::nth_put;
using test::RecordedStore;
using test::RecordingMemory;
using test::scaled;
using test::ThreadsFabric;

ProducerOptions sharing_with(std::uint32_t producers, SubmitOptions submit = kLadderSubmits[1],
                             std::uint32_t window = 64, std::uint32_t batch = 8) {
  ProducerOptions options;
  options.submit = submit;
  options.window = window;
  options.batch = batch;
  options.producers_on_queue = producers;
  return options;
}

using Recording = Producer<RecordingMemory, Sharing::kDevice>;
using Manual = Producer<ManualMemory, Sharing::kDevice>;

// A producer with its fifo.
template <class P>
struct Seat {
  Seat(const QueueHandle& queue, const ProducerOptions& options)
      : fifo(options.window), producer(queue, options, fifo.data()) {}
  std::vector<InFlight> fifo;
  P producer;
};

TEST(SharedStageStores, AreThoseOfTheBatchStageWithOneProducer) {
  for (const SubmitOptions& submit : kLadderSubmits) {
    LoopQueue loop(64, 0xffe0);
    ProducerOptions batch_stage;
    batch_stage.submit = submit;
    batch_stage.window = 40;
    batch_stage.batch = 8;
    Seat<Recording> alone(loop.handle(), batch_stage);
    ASSERT_EQ(alone.producer.put_many(100, nth_put), Status::kOk);
    const std::vector<RecordedStore> stores = RecordingMemory::log();
    loop.reset();
    Seat<Recording> one(loop.handle(), sharing_with(1, submit, 40));
    ASSERT_EQ(one.producer.put_many(100, nth_put), Status::kOk);
    EXPECT_TRUE(RecordingMemory::log() == stores);
  }
  EXPECT_EQ(ProducerOptions{}.producers_on_queue, 1u);
}

// Turn by turn on one thread: what several producers post is what one would have posted.
TEST(SharedStageStores, AreThoseOfOneProducerWhenTheyTakeTurns) {
  for (const SubmitOptions& submit : kLadderSubmits) {
    LoopQueue loop(64);
    Seat<Recording> alone(loop.handle(), sharing_with(1, submit));
    for (std::uint64_t i = 0; i < 40; ++i) {
      ASSERT_EQ(alone.producer.put_many(4, [i](std::uint64_t k) { return nth_put(4 * i + k); }),
                Status::kOk);
    }
    const std::vector<RecordedStore> stores = RecordingMemory::log();
    loop.reset();
    std::vector<std::unique_ptr<Seat<Recording>>> four;
    for (int p = 0; p < 4; ++p) {
      four.push_back(std::make_unique<Seat<Recording>>(loop.handle(), sharing_with(4, submit)));
    }
    for (std::uint64_t i = 0; i < 40; ++i) {
      ASSERT_EQ(
          four[i % 4]->producer.put_many(4, [i](std::uint64_t k) { return nth_put(4 * i + k); }),
          Status::kOk);
    }
    EXPECT_TRUE(RecordingMemory::log() == stores);
  }
}

// ---- Nobody waits behind a waiter ---------------------------------------------------------------

TEST(SharedStage, APutGoesOnWhileAnotherProducerWaitsForItsOwn) {
  for (const SubmitOptions& submit : kLadderSubmits) {
    LoopQueue loop(64);
    Seat<Manual> a(loop.handle(), sharing_with(2, submit));
    Seat<Manual> b(loop.handle(), sharing_with(2, submit));
    std::uint64_t waits_of_a = 0;
    std::uint64_t posted_by_b = 0;
    ManualMemory::hooks().on_pause = [&] {
      if (++waits_of_a > 20) {
        loop.complete();
        return;
      }
      const auto outer = std::move(ManualMemory::hooks().on_pause);
      ManualMemory::hooks().on_pause = [] { FAIL() << "it waited behind another's ticket"; };
      ASSERT_EQ(b.producer.put(nth_put(posted_by_b)), Status::kOk);
      ++posted_by_b;
      ManualMemory::hooks().on_pause = outer;
    };
    ASSERT_EQ(a.producer.put(nth_put(0)), Status::kOk);
    ASSERT_EQ(a.producer.flush(), Status::kOk);
    EXPECT_EQ(posted_by_b, 20u);
    ASSERT_EQ(b.producer.flush(), Status::kOk);
    EXPECT_EQ(loop.done(), 21u);
  }
}

// As above with somebody else to ring: the NIC holds what A waits for, and B's PUTs are rung.
TEST(SharedStage, APutGoesOnWhileAnotherProducerWaitsWhoeverRings) {
  for (const NicHandler handler : {NicHandler::kDirect, NicHandler::kProxy}) {
    for (const SubmitOptions& submit : kLadderSubmits) {
      test::FabricOptions options;
      options.handler = handler;
      test::ManualFabric fabric(options);
      fabric.arm({{nic::FaultKind::kHold, 100'000, 0}});
      const QueueHandle handle = fabric.sender_qps[0].handle();
      Seat<Manual> a(handle, sharing_with(2, submit));
      Seat<Manual> b(handle, sharing_with(2, submit));
      std::uint64_t posted_by_b = 0;
      ManualMemory::hooks().on_pause = [&] {
        fabric.step();
        if (posted_by_b == 20) return;
        const auto outer = std::move(ManualMemory::hooks().on_pause);
        ManualMemory::hooks().on_pause = [] { FAIL() << "it waited behind another's ticket"; };
        ++posted_by_b;
        ASSERT_EQ(b.producer.put(fabric.put(8 * posted_by_b, 8 * posted_by_b, 8)), Status::kOk);
        ManualMemory::hooks().on_pause = outer;
      };
      ASSERT_EQ(a.producer.put(fabric.put(0, 0, 8)), Status::kOk);
      ASSERT_EQ(a.producer.flush(), Status::kOk);
      EXPECT_EQ(posted_by_b, 20u);
      EXPECT_GE(ManualMemory::now_ns(), 100'000u) << "nothing was held";
      fabric.release();
      ASSERT_EQ(b.producer.flush(), Status::kOk);
      EXPECT_EQ(fabric.counters().writes, 21u);
      EXPECT_EQ(handle.proxy != nullptr, handler == NicHandler::kProxy);
    }
  }
}

// Each way out of a call leaves the queue to the others.
TEST(SharedStage, APutGoesOnAfterAnotherProducerLeftEarly) {
  for (const SubmitOptions& submit : kLadderSubmits) {
    LoopQueue loop(8);
    loop.per_pause = 0;
    ProducerOptions hurried = sharing_with(2, submit, 2);
    hurried.timeout_ns = 20'000;
    std::uint32_t stop = 0;
    QueueHandle stoppable = loop.handle();
    stoppable.stop = &stop;
    Seat<Manual> a(stoppable, hurried);
    Seat<Manual> b(loop.handle(), sharing_with(2, submit));
    const auto b_goes_on = [&] {
      loop.complete();
      const std::uint64_t before = loop.state().rung;
      ASSERT_EQ(b.producer.put(nth_put(1)), Status::kOk);
      EXPECT_EQ(loop.state().rung, before + 1);
      loop.complete();
      ASSERT_EQ(b.producer.flush(), Status::kOk);
    };
    // A full window, a full ring, a reservation that can never be, a stop.
    ASSERT_EQ(a.producer.put_many(2, nth_put), Status::kOk);
    EXPECT_EQ(a.producer.put(nth_put(2)), Status::kDeadline);
    b_goes_on();
    ASSERT_EQ(a.producer.flush(), Status::kOk);
    ASSERT_EQ(b.producer.put_many(8, nth_put), Status::kOk);
    EXPECT_EQ(a.producer.put(nth_put(3)), Status::kDeadline);
    b_goes_on();
    Reservation r;
    EXPECT_EQ(a.producer.queue().reserve(9, &r), Status::kInvalid);
    EXPECT_EQ(a.producer.queue().reserve(0, &r), Status::kInvalid);
    b_goes_on();
    stop = 1;
    EXPECT_EQ(a.producer.put(nth_put(4)), Status::kStopped);
    b_goes_on();
    EXPECT_EQ(loop.state().reserved, loop.state().rung);
    EXPECT_EQ(loop.state().ring_lock, 0u);
    EXPECT_EQ(loop.state().pending, 0u);
  }
}

// ---- Threads ------------------------------------------------------------------------------------

struct Run {
  std::uint32_t producers = 4;
  std::uint32_t depth = 64;
  std::uint32_t window = 64;  // of each
  std::uint32_t batch = 8;
  std::uint64_t puts = 1000;  // of each
  NicHandler handler = NicHandler::kDirect;
};

// Every producer's PUTs land, whatever the shape.
void expect_all_placed(const Run& run, SubmitOptions submit) {
  SCOPED_TRACE(std::string(publish_order_name(submit.publish)) + ", " +
               std::to_string(run.producers) + " producers, depth " + std::to_string(run.depth) +
               ", window " + std::to_string(run.window) + ", batch " + std::to_string(run.batch) +
               ", " + nic_handler_name(run.handler));
  const std::uint64_t total = run.producers * run.puts;
  ThreadsFabric fabric({.depth = run.depth, .memory_bytes = total * 8, .handler = run.handler});
  for (std::uint64_t i = 0; i < total; ++i) {
    const std::uint64_t stamp = ~(i * 0x9e3779b97f4a7c15u);
    std::memcpy(&fabric.source[i * 8], &stamp, 8);
  }
  const QueueHandle handle = fabric.sender_qp.handle();
  std::atomic<std::uint64_t> completed{0};
  std::vector<std::thread> threads;
  for (std::uint32_t p = 0; p < run.producers; ++p) {
    threads.emplace_back([&, p] {
      ProducerOptions options = sharing_with(run.producers, submit, run.window, run.batch);
      options.timeout_ns = kHangGuardNs;
      Seat<Producer<CpuMemory, Sharing::kDevice>> seat(handle, options);
      const Status posted = seat.producer.put_many(run.puts, [&](std::uint64_t i) {
        const std::uint64_t at = (p * run.puts + i) * 8;
        return fabric.put(at, at, 8);
      });
      if (posted == Status::kOk && seat.producer.flush() == Status::kOk) {
        completed += seat.producer.completed_puts();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(completed.load(), total);
  EXPECT_TRUE(fabric.destination == fabric.source);
  EXPECT_EQ(handle.state->reserved, total);
  EXPECT_EQ(handle.state->rung, total);
  EXPECT_EQ(handle.state->completed, total);
  EXPECT_EQ(fabric.counters().error_cqes, 0u);
}

TEST(SharedStage, PlacesEveryPayloadForAnyNumberOfProducers) {
  for (const SubmitOptions& submit : kLadderSubmits) {
    for (const std::uint32_t producers : {1u, 2u, 3u, 4u, 7u}) {
      expect_all_placed({.producers = producers, .puts = scaled(2000)}, submit);
    }
  }
}

TEST(SharedStage, GoesOnWhenWindowsAndBatchesAreLargerThanTheRing) {
  for (const SubmitOptions& submit : kLadderSubmits) {
    expect_all_placed({.depth = 4, .window = 100, .batch = 50, .puts = scaled(1000)}, submit);
    expect_all_placed({.depth = 1, .window = 100, .batch = 50, .puts = scaled(300)}, submit);
    expect_all_placed({.producers = 64, .depth = 4, .window = 9, .batch = 4, .puts = scaled(50)},
                      submit);
  }
}

TEST(SharedStage, EveryOneOfManyThreadsOnASmallRingFinishes) {
  for (const SubmitOptions& submit : kLadderSubmits) {
    expect_all_placed({.producers = 256, .depth = 64, .window = 1, .batch = 1, .puts = scaled(40)},
                      submit);
  }
}

// Very many producers, hardly any room, and a thread between them and the NIC.
TEST(SharedStage, EveryOneOfManyThreadsFinishesUnderAProxy) {
  for (const SubmitOptions& submit : kLadderSubmits) {
    expect_all_placed({.producers = 256,
                       .depth = 4,
                       .window = 9,
                       .batch = 4,
                       .puts = scaled(12),
                       .handler = NicHandler::kProxy},
                      submit);
    expect_all_placed({.producers = 8,
                       .depth = 8,
                       .window = 64,
                       .batch = 64,
                       .puts = scaled(300),
                       .handler = NicHandler::kProxy},
                      submit);
  }
}

// ---- Seen by others -----------------------------------------------------------------------------

// Somebody who only looks: what counts as completed has been rung for, and its payload is there.
TEST(SharedStage, CountsNothingAsCompletedThatHasNotBeenRungForAndPlaced) {
  for (const NicHandler handler : {NicHandler::kDirect, NicHandler::kProxy}) {
    SCOPED_TRACE(nic_handler_name(handler));
    const std::uint64_t puts = scaled(20'000);
    ThreadsFabric fabric({.depth = 8, .memory_bytes = puts * 8, .handler = handler});
    std::fill(fabric.source.begin(), fabric.source.end(), std::byte{0x5a});
    const QueueHandle handle = fabric.sender_qp.handle();
    std::atomic<bool> ended{false};
    std::uint64_t looked_at = 0;
    std::uint64_t ahead = 0;
    std::uint64_t absent = 0;
    std::thread looker([&] {
      std::uint64_t seen = 0;
      for (bool last = false; !last; std::this_thread::yield()) {
        last = ended.load();
        const std::uint64_t completed =
            CpuMemory::load_completed_acquire(&handle.state->completed, FenceScope::kSystem);
        if (CpuMemory::load_relaxed(&handle.state->rung) < completed) ++ahead;
        if (handle.proxy != nullptr &&
            CpuMemory::load_proxy_pi_acquire(&handle.proxy->pi) < completed) {
          ++ahead;
        }
        for (; seen < completed; ++seen) {
          if (fabric.destination[seen * 8 + 7] != std::byte{0x5a}) ++absent;
        }
      }
      looked_at = seen;
    });
    ProducerOptions options = sharing_with(1, kLadderSubmits[1], 8, 3);
    options.timeout_ns = kHangGuardNs;
    Seat<Producer<CpuMemory, Sharing::kDevice>> seat(handle, options);
    EXPECT_EQ(
        seat.producer.put_many(puts, [&](std::uint64_t i) { return fabric.put(i * 8, i * 8, 8); }),
        Status::kOk);
    EXPECT_EQ(seat.producer.flush(), Status::kOk);
    ended.store(true);
    looker.join();
    EXPECT_EQ(looked_at, puts);
    EXPECT_EQ(ahead, 0u);
    EXPECT_EQ(absent, 0u);
  }
}

// Two launches on one queue, the second with the other publish order: nothing of the first is left.
TEST(SharedStage, TakesTheOtherPublishOrderOnceItIsAtRest) {
  ThreadsFabric fabric({.depth = 16, .memory_bytes = 4 * 64 * 8});
  const QueueHandle handle = fabric.sender_qp.handle();
  for (int launch = 0; launch < 6; ++launch) {
    std::vector<std::thread> threads;
    std::atomic<std::uint64_t> completed{0};
    for (std::uint32_t p = 0; p < 4; ++p) {
      threads.emplace_back([&, p] {
        ProducerOptions options = sharing_with(4, kLadderSubmits[launch % 2], 8, 4);
        options.timeout_ns = kHangGuardNs;
        Seat<Producer<CpuMemory, Sharing::kDevice>> seat(handle, options);
        const Status posted = seat.producer.put_many(
            64, [&](std::uint64_t i) { return fabric.put((p * 64 + i) * 8, (p * 64 + i) * 8, 8); });
        if (posted == Status::kOk && seat.producer.flush() == Status::kOk) {
          completed += seat.producer.completed_puts();
        }
      });
    }
    for (std::thread& t : threads) t.join();
    ASSERT_EQ(completed.load(), 256u) << launch;
  }
  EXPECT_EQ(handle.state->completed, 6u * 256);
}

// ---- Errors -------------------------------------------------------------------------------------

TEST(SharedStageError, ReachesEveryProducerAsTheFirstOneAndNotAsAFlush) {
  for (const SubmitOptions& submit : kLadderSubmits) {
    constexpr std::uint64_t kFailing = 777;
    ThreadsFabric fabric({.depth = 64, .memory_bytes = 1 << 16});
    fabric.arm({{nic::FaultKind::kCqe, 0x13, kFailing}});
    const QueueHandle handle = fabric.sender_qp.handle();
    std::vector<Status> ends(8);
    std::vector<std::uint64_t> words(8);
    std::vector<std::uint64_t> acknowledged(8);
    std::vector<std::thread> threads;
    for (std::uint32_t p = 0; p < 8; ++p) {
      threads.emplace_back([&, p] {
        ProducerOptions options = sharing_with(8, submit, 16, 4);
        options.timeout_ns = kHangGuardNs;
        Seat<Producer<CpuMemory, Sharing::kDevice>> seat(handle, options);
        Status status = Status::kOk;
        while (status == Status::kOk) {
          status = seat.producer.put_many(
              8, [&](std::uint64_t i) { return fabric.put(p * 64 + i * 8, p * 64 + i * 8, 8); });
        }
        seat.producer.settle();
        ends[p] = status;
        acknowledged[p] = seat.producer.completed_puts();
        LatchedError e;
        if (seat.producer.queue().completions().error(&e)) words[p] = encode_error(e);
      });
    }
    for (std::thread& t : threads) t.join();
    LatchedError first;
    first.syndrome = 0x13;
    first.opcode = 0x08;
    first.index = kFailing;
    EXPECT_EQ(ends, std::vector<Status>(8, Status::kCompletionError));
    EXPECT_EQ(words, std::vector<std::uint64_t>(8, encode_error(first)));
    std::uint64_t sum = 0;
    for (const std::uint64_t n : acknowledged) sum += n;
    // Publishing in order may end in the error although the WQE was rung for by another.
    EXPECT_LE(sum, kFailing);
    if (submit.publish == PublishOrder::kCombine) {
      EXPECT_EQ(sum, kFailing);
    }
  }
}

}  // namespace
}  // namespace peal
