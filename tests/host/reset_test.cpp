// A queue pair that failed is reset, connected again and used, as often as one likes.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>

#include "peal/device/put.hpp"
#include "support/manual_fabric.hpp"
#include "support/scale.hpp"
#include "support/variants.hpp"

namespace peal {
namespace {

using test::FabricOptions;
using test::ManualFabric;

class ResetTest : public testing::TestWithParam<test::Variant> {
 protected:
  FabricOptions options() const {
    FabricOptions o;
    o.depth = 16;
    o.completion = std::get<0>(GetParam());
    o.handler = std::get<1>(GetParam());
    return o;
  }
  static void reset_both(ManualFabric& fabric) {
    // What the blocking call would wait for.
    fabric.sender_qps[0].to_error();
    fabric.receiver_qps[0].to_error();
    fabric.settle();
    fabric.sender_qps[0].reset();
    fabric.receiver_qps[0].reset();
    fabric.sender_qps[0].connect(fabric.receiver_qps[0].address());
    fabric.receiver_qps[0].connect(fabric.sender_qps[0].address());
  }
};
INSTANTIATE_TEST_SUITE_P(Variants, ResetTest, test::all_variants(), test::variant_name);

TEST_P(ResetTest, WorksAgainAfterAnErrorFiftyTimes) {
  ManualFabric fabric(options());
  fabric.fill_source(1);
  const std::uint64_t puts = test::scaled(1000);
  for (int round = 0; round < 50; ++round) {
    auto queue = fabric.queue();
    std::fill(fabric.destination.begin(), fabric.destination.end(), std::byte{0});
    fabric.arm({{nic::FaultKind::kCqe, 0x13, puts + 3}});
    Posted posted;
    for (std::uint64_t i = 0; i < puts; ++i) {
      ASSERT_EQ(put(queue, fabric.put(i * 8, i * 8, 8), &posted), Status::kOk) << round;
    }
    ASSERT_EQ(flush(queue), Status::kOk) << round;
    ASSERT_EQ(std::memcmp(fabric.source.data(), fabric.destination.data(), puts * 8), 0);
    Status status = Status::kOk;
    for (int i = 0; i < 10 && status == Status::kOk; ++i) {
      status = put(queue, fabric.put(0, 0, 8), &posted);
    }
    if (status == Status::kOk) status = flush(queue);
    ASSERT_EQ(status, Status::kCompletionError) << round;
    reset_both(fabric);
    ASSERT_EQ(fabric.sender_qps[0].state(), QueuePairState::kRts);
    const nic::QpCounters c = fabric.counters();
    ASSERT_EQ(c.producer_index, 0u);
    ASSERT_EQ(c.first_error.syndrome, 0);
  }
}

TEST_P(ResetTest, StartsEverythingOver) {
  ManualFabric fabric(options());
  auto queue = fabric.queue();
  Posted posted;
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(put(queue, fabric.put(0, 0, 8), &posted), Status::kOk);
  }
  ASSERT_EQ(flush(queue), Status::kOk);
  const Psn before = fabric.sender_qps[0].address().psn;
  reset_both(fabric);
  EXPECT_FALSE(before == fabric.sender_qps[0].address().psn);
  const QueueHandle h = fabric.sender_qps[0].handle();
  EXPECT_EQ(h.state->reserved, 0u);
  EXPECT_EQ(h.state->rung, 0u);
  EXPECT_EQ(h.state->completed, 0u);
  EXPECT_EQ(h.state->error, 0u);
  EXPECT_EQ(*h.dbrec, 0u);
  EXPECT_EQ(h.cq_base, h.completion == CompletionMode::kEvery ? 100u : h.cq_base);
  // The old CQEs are not taken for new ones.
  auto again = fabric.queue();
  fabric.hold();
  for (int i = 0; i < 16; ++i) {
    ASSERT_EQ(put(again, fabric.put(0, 0, 8), &posted), Status::kOk);
    ASSERT_EQ(again.completions().try_wait(posted.ticket), Status::kPending) << i;
  }
  fabric.release();
  EXPECT_EQ(flush(again), Status::kOk);
}

TEST_P(ResetTest, WorksWithoutARecord) {
  FabricOptions o = options();
  o.doorbell_record = false;
  o.sender.first_wqe_index = 65530;
  ManualFabric fabric(o);
  fabric.fill_source(3);
  for (int round = 0; round < 3; ++round) {
    std::fill(fabric.destination.begin(), fabric.destination.end(), std::byte{0});
    auto queue = fabric.queue(0, {DoorbellOrder::kRingOnly});
    Posted posted;
    for (std::uint64_t i = 0; i < 40; ++i) {
      ASSERT_EQ(put(queue, fabric.put(i * 8, i * 8, 8), &posted), Status::kOk) << round;
    }
    ASSERT_EQ(flush(queue), Status::kOk) << round;
    ASSERT_EQ(std::memcmp(fabric.source.data(), fabric.destination.data(), 320), 0) << round;
    reset_both(fabric);
  }
}

TEST_P(ResetTest, FailsAtItsDeadlineWhileTheDeviceHasNotFlushed) {
  ManualFabric fabric(options());
  auto queue = fabric.queue();
  fabric.hold();
  Posted posted;
  ASSERT_EQ(put(queue, fabric.put(0, 0, 8), &posted), Status::kOk);
  EXPECT_THROW(fabric.sender_qps[0].reset(1'000'000), Error);
  EXPECT_EQ(fabric.sender_qps[0].state(), QueuePairState::kError);
  fabric.settle();
  EXPECT_NO_THROW(fabric.sender_qps[0].reset());
  EXPECT_EQ(fabric.sender_qps[0].state(), QueuePairState::kReset);
}

TEST_P(ResetTest, OfAnUnusedQueueIsNothingSpecial) {
  ManualFabric fabric(options());
  for (int i = 0; i < 3; ++i) {
    reset_both(fabric);
    auto queue = fabric.queue();
    if (i == 1) continue;  // twice in a row without use
    Posted posted;
    ASSERT_EQ(put(queue, fabric.put(0, 0, 8), &posted), Status::kOk);
    ASSERT_EQ(flush(queue), Status::kOk);
  }
}

// Three refused WQEs, a reset, and a hundred good ones: nothing of the refused is still counted.
TEST_P(ResetTest, NothingOfRefusedWqesStaysInFlight) {
  ManualFabric fabric(options());
  auto queue = fabric.queue();
  Posted posted;
  for (int i = 0; i < 3; ++i) {
    Put wrong = fabric.put(0, 0, 8);
    wrong.lkey = Lkey(0xdead00);
    if (put(queue, wrong, &posted) != Status::kOk) break;
  }
  EXPECT_EQ(flush(queue), Status::kCompletionError);
  fabric.settle();
  EXPECT_TRUE(fabric.sender_nic.core().quiet(fabric.sender_qps[0].address().qpn));
  reset_both(fabric);
  auto again = fabric.queue();
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(put(again, fabric.put(0, 0, 8), &posted), Status::kOk);
  }
  EXPECT_EQ(flush(again), Status::kOk);
}

}  // namespace
}  // namespace peal
