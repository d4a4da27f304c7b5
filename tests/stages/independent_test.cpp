// The independent stage: producer p uses QP p mod qps.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "ladder/options.hpp"
#include "ladder/shares.hpp"
#include "ladder/stage.hpp"
#include "peal/device/producer.hpp"
#include "support/loop_queue.hpp"
#include "support/manual_fabric.hpp"

namespace peal {
namespace {

using ladder::LadderArguments;
using ladder::LadderOptions;
using ladder::producers_on_qp;
using ladder::qp_of_producer;
using test::FabricOptions;
using test::LoopQueue;
using test::ManualFabric;
using test::ManualMemory;
using test::RecordedStore;
using test::RecordingMemory;

TEST(IndependentStageMap, SpreadsAnyNumberOfProducersOverAnyNumberOfQps) {
  for (std::uint32_t qps = 1; qps <= 9; ++qps) {
    for (std::uint32_t producers = 1; producers <= 20; ++producers) {
      std::vector<std::uint32_t> on(qps);
      for (std::uint32_t p = 0; p < producers; ++p) ++on.at(qp_of_producer(p, qps));
      for (std::uint32_t q = 0; q < qps; ++q) {
        EXPECT_EQ(producers_on_qp(q, qps, producers), on[q]) << producers << " " << qps << " " << q;
      }
    }
  }
  EXPECT_EQ(qp_of_producer(2, 2), 0u);  // three producers over two QPs: the first has two
  EXPECT_EQ(producers_on_qp(0, 2, 3), 2u);
}

// Producers take turns, so that the order is the test's.
std::vector<RecordedStore> stores_of(std::uint32_t producers, std::uint32_t qps,
                                     std::vector<std::unique_ptr<LoopQueue>>& queues,
                                     std::uint32_t (*map)(std::uint32_t, std::uint32_t)) {
  for (auto& q : queues) q->reset();
  constexpr std::uint32_t kWindow = 16;
  std::vector<std::vector<InFlight>> fifos(producers, std::vector<InFlight>(kWindow));
  std::vector<std::unique_ptr<Producer<RecordingMemory, Sharing::kDevice>>> all;
  for (std::uint32_t p = 0; p < producers; ++p) {
    ProducerOptions options;
    options.window = kWindow;
    options.batch = 4;
    options.producers_on_queue = producers_on_qp(map(p, qps), qps, producers);
    all.push_back(std::make_unique<Producer<RecordingMemory, Sharing::kDevice>>(
        queues[map(p, qps)]->handle(), options, fifos[p].data()));
  }
  for (std::uint64_t turn = 0; turn < 40; ++turn) {
    const auto status = all[turn % producers]->put_many(4, [turn](std::uint64_t i) {
      return Put{0x1000 * turn + i, Lkey(1), 0x2000 * turn + i, Rkey(2), 8 + i};
    });
    EXPECT_EQ(status, Status::kOk);
    for (auto& q : queues) q->complete();
  }
  return RecordingMemory::log();
}

TEST(IndependentStageStores, AreThoseOfTheSharedStageWithOneQp) {
  std::vector<std::unique_ptr<LoopQueue>> queues;
  queues.push_back(std::make_unique<LoopQueue>(64));
  const auto shared = stores_of(4, 1, queues, [](std::uint32_t, std::uint32_t) { return 0u; });
  const auto independent = stores_of(4, 1, queues, qp_of_producer);
  EXPECT_GT(shared.size(), 160u);
  EXPECT_TRUE(shared == independent);
}

// A producer's queue is its own: what the others do shows in none of its stores.
TEST(IndependentStageStores, AreThoseOfTheBatchStageOnEachQp) {
  std::vector<std::unique_ptr<LoopQueue>> queues;
  for (int i = 0; i < 4; ++i) queues.push_back(std::make_unique<LoopQueue>(64));
  const auto together = stores_of(4, 4, queues, qp_of_producer);
  for (std::uint32_t p = 0; p < 4; ++p) {
    const QueueHandle q = queues[p]->handle();
    std::vector<RecordedStore> own;
    for (const RecordedStore& s : together) {
      const auto* at = static_cast<const std::byte*>(s.address);
      const bool in_ring = at >= reinterpret_cast<const std::byte*>(q.sq) &&
                           at < reinterpret_cast<const std::byte*>(q.sq + q.depth);
      if (in_ring || s.address == q.dbrec || s.address == q.doorbell) own.push_back(s);
    }
    queues[p]->reset();
    std::vector<InFlight> fifo(16);
    ProducerOptions options;
    options.window = 16;
    options.batch = 4;
    Producer<RecordingMemory, Sharing::kDevice> alone(q, options, fifo.data());
    for (std::uint64_t turn = p; turn < 40; turn += 4) {
      ASSERT_EQ(alone.put_many(
                    4,
                    [turn](std::uint64_t i) {
                      return Put{0x1000 * turn + i, Lkey(1), 0x2000 * turn + i, Rkey(2), 8 + i};
                    }),
                Status::kOk);
      queues[p]->complete();
    }
    EXPECT_TRUE(RecordingMemory::log() == own) << p;
  }
}

// One queue's delay does not hold up another's PUTs.
TEST(IndependentStage, GoesOnWhileAnotherQueueIsHeld) {
  FabricOptions fabric_options;
  fabric_options.qps = 2;
  ManualFabric fabric(fabric_options);
  fabric.arm({{nic::FaultKind::kHold, 1'000'000'000, 0}}, 0);
  std::vector<InFlight> fifo(4);
  ProducerOptions options;
  options.window = 4;
  Producer<ManualMemory, Sharing::kDevice> held(fabric.sender_qps[0].handle(), options,
                                                fifo.data());
  ASSERT_EQ(held.put(fabric.put(0, 0, 4096)), Status::kOk);
  std::vector<InFlight> other_fifo(4);
  Producer<ManualMemory, Sharing::kDevice> other(fabric.sender_qps[1].handle(), options,
                                                 other_fifo.data());
  const std::uint64_t start_ns = ManualMemory::now_ns();
  for (int i = 0; i < 20; ++i) ASSERT_EQ(other.put(fabric.put(8192, 8192, 64)), Status::kOk);
  ASSERT_EQ(other.flush(), Status::kOk);
  EXPECT_LT(ManualMemory::now_ns() - start_ns, 10'000'000u);
  EXPECT_EQ(held.queue().completions().try_wait(0), Status::kPending);
  ASSERT_EQ(held.flush(), Status::kOk);
}

// More queues than a tool is known to take.
TEST(IndependentStage, PlacesEveryPayloadOnMoreThan1025Qps) {
  constexpr std::uint32_t kQps = 1026;
  constexpr std::uint64_t kPuts = 10;
  for (const NicHandler handler : {NicHandler::kDirect, NicHandler::kProxy}) {
    FabricOptions options;
    options.depth = 4;
    options.qps = kQps;
    options.memory_bytes = kQps * kPuts * 8;
    options.handler = handler;
    ManualFabric fabric(options);
    fabric.fill_source(1026);
    std::vector<std::vector<InFlight>> fifos(kQps, std::vector<InFlight>(4));
    std::vector<std::unique_ptr<Producer<ManualMemory, Sharing::kDevice>>> producers;
    ProducerOptions how;
    how.window = 4;
    how.batch = 2;
    for (std::uint32_t p = 0; p < kQps; ++p) {
      producers.push_back(std::make_unique<Producer<ManualMemory, Sharing::kDevice>>(
          fabric.sender_qps[p].handle(), how, fifos[p].data()));
    }
    for (std::uint64_t turn = 0; turn < kPuts; turn += 2) {
      for (std::uint32_t p = 0; p < kQps; ++p) {
        const std::uint64_t at = (p * kPuts + turn) * 8;
        ASSERT_EQ(producers[p]->put_many(
                      2, [&](std::uint64_t i) { return fabric.put(at + i * 8, at + i * 8, 8); }),
                  Status::kOk);
      }
    }
    for (std::uint32_t p = 0; p < kQps; ++p) {
      ASSERT_EQ(producers[p]->flush(), Status::kOk);
      EXPECT_EQ(fabric.counters(p).writes, kPuts);
    }
    EXPECT_TRUE(fabric.destination == fabric.source);
  }
}

TEST(IndependentStageOptions, HaveTheSameSlotsInTotalByDefault) {
  LadderArguments a;
  const LadderOptions all = ladder::make_options(a);
  ASSERT_EQ(all.stages.size(), std::size(ladder::kStages));
  for (const ladder::Stage& s : all.stages) EXPECT_EQ(all.depth_for(s) * s.qps, 1024u) << s.name;
  a.stages = "independent";
  a.producers = "3";
  a.qps = "3";
  const LadderOptions three = ladder::make_options(a);
  EXPECT_EQ(three.depth_for(three.stages[0]), 256u);  // a power of two
  a.depth = "32";
  EXPECT_EQ(ladder::make_options(a).depth_for(three.stages[0]), 32u);
  a.depth.clear();
  a.producers = a.qps = "1024";
  const LadderOptions many = ladder::make_options(a);
  EXPECT_EQ(many.depth_for(many.stages[0]), 1u);
}

}  // namespace
}  // namespace peal
