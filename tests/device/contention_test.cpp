// Many producers on one queue, and uneven work on several: nobody is kept out, nothing is lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "peal/device/producer.hpp"
#include "peal/host/sinks.hpp"
#include "support/manual_fabric.hpp"
#include "support/scale.hpp"
#include "support/stage_puts.hpp"
#include "support/threads_fabric.hpp"
#include "support/variants.hpp"

namespace peal {
namespace {

using test::FabricOptions;
using test::kHangGuardNs;
using test::kLadderSubmits;
using test::ManualFabric;
using test::ManualMemory;
using test::scaled;
using test::ThreadsFabric;

using Shared = SendQueue<ManualMemory, Sharing::kDevice>;
class Contention : public testing::TestWithParam<test::Variant> {
 protected:
  FabricOptions of_depth(std::uint32_t depth, std::uint32_t qps = 1) const {
    FabricOptions options;
    options.depth = depth;
    options.qps = qps;
    options.completion = std::get<0>(GetParam());
    options.handler = std::get<1>(GetParam());
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Variants, Contention, test::all_variants(), test::variant_name);

void expect_all_arrived(const ManualFabric& fabric, std::uint64_t puts) {
  ASSERT_EQ(std::memcmp(fabric.source.data(), fabric.destination.data(), puts * 8), 0);
}

// As many as the ring has slots hold a reservation each; the next one must wait. They publish in
// the reverse order, so that nothing can be rung before the last of them. Then lap after lap.
TEST_P(Contention, AFullRingOfUnpublishedReservationsIsNeverOverwritten) {
  ManualFabric fabric(of_depth(1024));
  fabric.fill_source(3);
  const SubmitOptions submit{DoorbellOrder::kRecordRing, PublishOrder::kCombine};
  std::vector<Shared> producers;
  for (int i = 0; i < 1024; ++i) producers.push_back(fabric.queue<Sharing::kDevice>(0, submit));
  std::uint64_t puts = 0;
  for (std::uint64_t lap = 0; lap < scaled(10); ++lap) {
    std::vector<Reservation> reserved(producers.size());
    for (std::size_t i = 0; i < producers.size(); ++i) {
      ASSERT_EQ(producers[i].reserve(1, &reserved[i]), Status::kOk);
    }
    Reservation none;
    auto late = fabric.queue<Sharing::kDevice>(0, submit);
    ASSERT_EQ(late.reserve(1, &none, 50'000), Status::kDeadline);
    ASSERT_EQ(fabric.counters().producer_index, puts);
    for (std::size_t i = producers.size(); i-- != 0;) {
      const std::uint64_t at = reserved[i].first * 8;
      write_wqe(producers[i], reserved[i].first, fabric.put(at, at, 8));
      ASSERT_EQ(producers[i].publish(reserved[i]), Status::kOk);
    }
    puts += producers.size();
    ASSERT_EQ(wait(late, puts - 1), Status::kOk);
  }
  expect_all_arrived(fabric, puts);
  EXPECT_EQ(fabric.counters().writes, puts);
}

// One waits for a WQE that is held; eight others post all the while, and none of them waits.
TEST_P(Contention, PostingGoesOnWhileAnotherWaits) {
  for (const SubmitOptions& submit : kLadderSubmits) {
    ManualFabric fabric(of_depth(64));
    fabric.fill_source(4);
    fabric.arm({{nic::FaultKind::kHold, 100'000, 0}});
    std::vector<Shared> others;
    for (int i = 0; i < 8; ++i) others.push_back(fabric.queue<Sharing::kDevice>(0, submit));
    std::uint64_t puts = 1;
    Posted posted;
    ManualMemory::hooks().on_pause = [&] {
      const auto outer = std::move(ManualMemory::hooks().on_pause);
      ManualMemory::hooks().on_pause = [] { FAIL() << "it waited"; };
      for (Shared& other : others) {
        if (puts == 33) break;
        ASSERT_EQ(put(other, fabric.put(puts * 8, puts * 8, 8), &posted, 10'000), Status::kOk);
        ++puts;
      }
      ManualMemory::hooks().on_pause = outer;
      fabric.step();
    };
    auto waiting = fabric.queue<Sharing::kDevice>(0, submit);
    Posted own;
    ASSERT_EQ(put(waiting, fabric.put(0, 0, 8), &own), Status::kOk);
    ASSERT_EQ(wait(waiting, own.ticket), Status::kOk);
    EXPECT_EQ(puts, 33u);
    fabric.release();
    ASSERT_EQ(flush(waiting), Status::kOk);
    expect_all_arrived(fabric, puts);
  }
}

// Each way in which an operation ends early takes no slot and keeps no lock: the next producer's
// goes through.
TEST_P(Contention, AnEarlyReturnKeepsNothing) {
  for (const SubmitOptions& submit : kLadderSubmits) {
    ManualFabric fabric(of_depth(8));
    fabric.fill_source(5);
    auto a = fabric.queue<Sharing::kDevice>(0, submit);
    auto b = fabric.queue<Sharing::kDevice>(0, submit);
    Posted posted;
    AtomicTarget askew = fabric.target(4096);
    askew.remote_address += 2;
    const char data[40] = {};
    std::vector<std::function<Status()>> early = {
        [&] {
          return fetch_add(a, {askew, 1}, &posted);
        },
        [&] {
          return compare_swap(a, {askew, 1, 2}, &posted);
        },
        [&] {
          return masked_compare_swap(a, MaskedCompareSwap<std::uint32_t>{askew, 1, 2}, &posted);
        },
        [&] {
          return masked_compare_swap(a, MaskedCompareSwap<std::uint64_t>{askew, 1, 2}, &posted);
        },
        [&] {
          return masked_fetch_add(a, MaskedFetchAdd<std::uint64_t>{askew, 1, 2}, &posted);
        },
        [&] {
          return put_signal(a, fabric.put(0, 0, 8), {askew, 1}, &posted);
        },
        [&] {
          return put_inline(a, {data, 29, fabric.target(4096).remote_address, {}}, &posted);
        },
        [&] {
          Reservation r;
          return a.reserve(0, &r);
        },
        [&] {
          Reservation r;
          return a.reserve(9, &r);
        },
    };
    std::uint64_t puts = 0;
    for (std::size_t i = 0; i < early.size(); ++i) {
      ASSERT_EQ(early[i](), Status::kInvalid) << i;
      ASSERT_EQ(put(b, fabric.put(puts * 8, puts * 8, 8), &posted), Status::kOk) << i;
      ASSERT_EQ(posted.ticket, puts++) << i;
      ASSERT_EQ(wait(b, posted.ticket), Status::kOk) << i;
    }
    expect_all_arrived(fabric, puts);
    EXPECT_EQ(fabric.sender_qps[0].handle().state->ring_lock, 0u);
  }
}

// The first lap of a deep ring is never ended: what was posted is done, and nothing else.
TEST_P(Contention, AFewPutsOnADeepRingAreExactlyThoseDone) {
  ManualFabric fabric(of_depth(4096));
  auto queue = fabric.queue();
  Posted posted;
  for (int i = 0; i < 103; ++i) {
    ASSERT_EQ(put(queue, fabric.put(0, 0, 8), &posted), Status::kOk);
  }
  ASSERT_EQ(flush(queue), Status::kOk);
  EXPECT_EQ(queue.completions().completed(), 103u);
  EXPECT_EQ(queue.completions().try_wait(103), Status::kPending);
}

// Producers come and go; the queue stays, wherever it stands.
TEST_P(Contention, EachLaunchGoesOnWhereTheLastOneEnded) {
  ManualFabric fabric(of_depth(8));
  fabric.fill_source(6);
  std::uint64_t puts = 0;
  for (int launch = 0; launch < 7; ++launch) {
    ProducerOptions options;
    options.submit = kLadderSubmits[launch % 2];
    options.window = 3;
    std::vector<InFlight> fifo(options.window);
    Producer<ManualMemory, Sharing::kDevice> producer(fabric.sender_qps[0].handle(), options,
                                                      fifo.data());
    for (int iteration = 0; iteration < 3; ++iteration, ++puts) {
      ASSERT_EQ(producer.put(fabric.put(puts * 8, puts * 8, 8)), Status::kOk);
    }
    ASSERT_EQ(producer.flush(), Status::kOk);
    EXPECT_EQ(fabric.sender_qps[0].handle().state->completed, puts);
  }
  expect_all_arrived(fabric, puts);
}

// Window, batch and number divide nothing: 12 of 16 slots, signals at every 7th, and an odd end.
TEST_P(Contention, UnevenBatchesOnSeveralQueuesEndWithExactlyAsManyEach) {
  constexpr std::uint32_t kQueues = 5;
  const std::uint64_t puts = scaled(10'000) / 7 * 7 + 3;
  ManualFabric fabric(of_depth(16, kQueues));
  fabric.fill_source(7);
  for (std::uint32_t q = 0; q < kQueues; ++q) {
    ProducerOptions options;
    options.window = 12;
    options.batch = 7;
    std::vector<InFlight> fifo(options.window);
    Producer<ManualMemory, Sharing::kExclusive> producer(fabric.sender_qps[q].handle(), options,
                                                         fifo.data());
    const auto make = [&](std::uint64_t i) {
      const std::uint64_t at = (q * puts + i) * 8;
      return fabric.put(at, at, 8);
    };
    ASSERT_EQ(producer.put_many(puts, make), Status::kOk);
    ASSERT_EQ(producer.flush(), Status::kOk);
    EXPECT_EQ(producer.completed_puts(), puts);
    EXPECT_EQ(fabric.counters(q).writes, puts);
    EXPECT_EQ(fabric.sender_qps[q].handle().state->completed, puts);
  }
  expect_all_arrived(fabric, kQueues * puts);
}

// Each channel has a signal word of its own, and its own pace. A signal tells of all PUTs before it
// on its channel.
TEST_P(Contention, SignalsOfSeveralChannelsAreNotCrossedAndComeAfterTheirPuts) {
  constexpr std::uint32_t kChannels = 6;
  constexpr std::uint64_t kBlock = 4096;
  ManualFabric fabric(of_depth(16, kChannels));
  fabric.fill_source(8);
  std::vector<SendQueue<ManualMemory, Sharing::kExclusive>> queues;
  for (std::uint32_t c = 0; c < kChannels; ++c) queues.push_back(fabric.queue(c));
  std::uint64_t signals[kChannels] = {};
  std::uint64_t puts[kChannels] = {};
  const auto place = [&](std::uint32_t c, std::uint64_t i) {
    return (1 + c) * kBlock + i % 64 * 64;
  };
  for (std::uint64_t round = 1; round <= 60; ++round) {
    Posted posted[kChannels];
    bool posts[kChannels] = {};
    for (std::uint32_t c = 0; c < kChannels; ++c) {
      if (round % (c + 1) != 0) continue;
      posts[c] = true;
      std::memset(&fabric.destination[place(c, 0)], 0, kBlock);
      const std::uint64_t n = 1 + (round + c) % 5;
      for (std::uint64_t k = 0; k < n; ++k, ++puts[c]) {
        ASSERT_EQ(put(queues[c], fabric.put(place(c, puts[c]), place(c, puts[c]), 64), &posted[c]),
                  Status::kOk);
      }
      ASSERT_EQ(put_signal(queues[c], fabric.put(place(c, puts[c]), place(c, puts[c]), 64),
                           {fabric.target(c * 8), 1}, &posted[c]),
                Status::kOk);
      ++puts[c];
      ++signals[c];
      // Whoever sees the signal sees all of them, at whatever step that is.
      for (int i = 0; fabric.word(c * 8) != signals[c]; ++i) {
        ASSERT_LT(i, 1000);
        ASSERT_EQ(fabric.word(c * 8), signals[c] - 1);
        fabric.step();
      }
      for (std::uint64_t k = puts[c] - n - 1; k != puts[c]; ++k) {
        ASSERT_EQ(std::memcmp(&fabric.destination[place(c, k)], &fabric.source[place(c, k)], 64),
                  0);
      }
    }
    for (std::uint32_t c = 0; c < kChannels; ++c) {
      if (posts[c]) {
        ASSERT_EQ(wait(queues[c], posted[c].ticket), Status::kOk);
      }
      ASSERT_EQ(fabric.word(c * 8), signals[c]) << c;
    }
  }
}

// Eight threads on four slots. Each add is seen to have been done once: the old values are all the
// numbers below the sum.
TEST_P(Contention, AddsThroughAFullRingSumExactly) {
  constexpr std::uint64_t kThreads = 8;
  const std::uint64_t each = scaled(10'000) / kThreads + 1;
  for (const SubmitOptions& submit : kLadderSubmits) {
    ThreadsFabric fabric({.depth = 4,
                          .memory_bytes = 4096,
                          .handler = std::get<1>(GetParam()),
                          .completion = std::get<0>(GetParam())});
    const Sinks sinks = Sinks::create(fabric.sender, kThreads);
    const QueueHandle handle = fabric.sender_qp.handle();
    std::vector<std::vector<std::uint64_t>> seen(kThreads);
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        SendQueue<CpuMemory, Sharing::kDevice> queue(handle, submit);
        const AtomicTarget target{fabric.destination_region.address(),
                                  fabric.destination_region.rkey(), sinks[t]};
        for (std::uint64_t i = 0; i < each; ++i) {
          Posted posted;
          if (fetch_add(queue, {target, 1}, &posted, kHangGuardNs) != Status::kOk ||
              wait(queue, posted.ticket, kHangGuardNs) != Status::kOk) {
            return;
          }
          seen[t].push_back(*sinks.value(t));
        }
      });
    }
    for (std::thread& t : threads) t.join();
    std::vector<std::uint64_t> all;
    for (const auto& values : seen) all.insert(all.end(), values.begin(), values.end());
    std::sort(all.begin(), all.end());
    ASSERT_EQ(all.size(), kThreads * each);
    for (std::uint64_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], i);
    std::uint64_t sum = 0;
    std::memcpy(&sum, fabric.destination.data(), 8);
    EXPECT_EQ(sum, kThreads * each);
  }
}

}  // namespace
}  // namespace peal
