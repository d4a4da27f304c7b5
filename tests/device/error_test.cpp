// Errors: every wait ends, with the first error of the queue, whichever ticket is polled first.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "support/manual_fabric.hpp"
#include "support/scale.hpp"

namespace peal {
namespace {

using test::FabricOptions;
using test::ManualFabric;
using test::ManualMemory;

constexpr std::uint32_t kBatch = 8;

enum class Cause { kLocalKey, kRemoteKey, kInjected, kInjectedNoop, kCount };

struct Expected {
  std::uint8_t syndrome;
  std::uint8_t vendor_syndrome;
  std::uint8_t opcode;
};

Expected expected_of(Cause cause) {
  switch (cause) {
    case Cause::kLocalKey: return {0x04, 0x51, 0x08};
    case Cause::kRemoteKey: return {0x13, 0x88, 0x08};
    case Cause::kInjected: return {0x15, 0x00, 0x08};
    default: return {0x22, 0x00, 0x00};
  }
}

FabricOptions small_of_depth(std::uint32_t depth, std::uint64_t first = 0) {
  FabricOptions options = test::of_depth(depth, first);
  options.memory_bytes = 4096;
  return options;
}

// A batch of kBatch WQEs, of which the `failing`-th will fail.
template <Sharing S>
Reservation post_batch(ManualFabric& fabric, SendQueue<ManualMemory, S>& queue, Cause cause,
                       std::uint32_t failing) {
  if (cause == Cause::kInjected) fabric.arm({{nic::FaultKind::kCqe, 0x15, failing}});
  if (cause == Cause::kInjectedNoop) fabric.arm({{nic::FaultKind::kCqe, 0x22, failing}});
  Reservation r;
  EXPECT_EQ(queue.reserve(kBatch, &r), Status::kOk);
  for (std::uint32_t i = 0; i < kBatch; ++i) {
    Put p = fabric.put(i * 16, i * 16, 16);
    if (i == failing && cause == Cause::kLocalKey) p.lkey = Lkey(0x00abcd00);
    if (i == failing && cause == Cause::kRemoteKey) p.rkey = Rkey(0x00abcd00);
    if (i == failing && cause == Cause::kInjectedNoop) p.bytes = 0;
    write_wqe(queue, r.first + i, p);
  }
  EXPECT_EQ(queue.publish(r), Status::kOk);
  return r;
}

template <Sharing S>
void expect_first_error(SendQueue<ManualMemory, S>& queue, Cause cause, std::uint64_t index) {
  LatchedError e;
  ASSERT_TRUE(queue.completions().error(&e));
  const Expected expected = expected_of(cause);
  EXPECT_EQ(e.syndrome, expected.syndrome);
  EXPECT_EQ(e.vendor_syndrome, expected.vendor_syndrome);
  EXPECT_EQ(e.opcode, expected.opcode);
  EXPECT_EQ(e.index, static_cast<std::uint32_t>(index));
  EXPECT_FALSE(e.abandoned);
}

template <Sharing S>
void run_batch(Cause cause, std::uint32_t failing, std::uint32_t polled_first, bool all_written) {
  SCOPED_TRACE("cause " + std::to_string(static_cast<int>(cause)) + ", failing " +
               std::to_string(failing) + ", polled first " + std::to_string(polled_first));
  ManualFabric fabric(small_of_depth(kBatch, (std::uint64_t{1} << 32) - 4));
  fabric.fill_source(failing);
  auto queue = fabric.queue<S>();
  const Reservation r = post_batch(fabric, queue, cause, failing);
  if (all_written) fabric.settle();

  std::vector<std::uint32_t> order{polled_first};
  for (std::uint32_t i = 0; i < kBatch; ++i) {
    if (i != polled_first) order.push_back(i);
  }
  std::shuffle(order.begin() + 1, order.end(), std::mt19937_64(polled_first * 8 + failing));
  for (int round = 0; round < 2; ++round) {
    for (const std::uint32_t i : order) {
      ASSERT_EQ(wait(queue, r.first + i), i < failing ? Status::kOk : Status::kCompletionError)
          << i;
      if (i >= failing) expect_first_error(queue, cause, r.first + failing);
    }
  }
  EXPECT_EQ(queue.completions().completed(), r.first + failing);
  // Nothing was taken by those who come later; they learn of the error instead.
  Reservation next;
  EXPECT_EQ(queue.reserve(1, &next), Status::kCompletionError);
  Posted posted;
  EXPECT_EQ(put(queue, fabric.put(0, 0, 8), &posted), Status::kCompletionError);
  EXPECT_EQ(queue.handle().state->reserved, r.end());
  EXPECT_EQ(wait(queue, r.end() + 3), Status::kCompletionError);
  for (std::uint32_t i = 0; i < failing; ++i) {
    EXPECT_EQ(std::memcmp(&fabric.destination[i * 16], &fabric.source[i * 16], 16), 0) << i;
  }
}

TEST(CompletionError, IsTheFirstOneWhicheverTicketIsPolledFirst) {
  for (int cause = 0; cause < static_cast<int>(Cause::kCount); ++cause) {
    for (const std::uint32_t failing : {0u, 3u, kBatch - 1}) {
      const auto polls = static_cast<std::uint32_t>(test::scaled(kBatch));
      for (std::uint32_t i = 0; i < polls; ++i) {
        const std::uint32_t polled_first = (failing + i * kBatch / polls) % kBatch;
        for (const bool all_written : {false, true}) {
          run_batch<Sharing::kExclusive>(static_cast<Cause>(cause), failing, polled_first,
                                         all_written);
          run_batch<Sharing::kDevice>(static_cast<Cause>(cause), failing, polled_first,
                                      all_written);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(CompletionError, IsTheSameForSeveralPollers) {
  for (std::uint32_t failing = 0; failing < kBatch; ++failing) {
    ManualFabric fabric(small_of_depth(16));
    std::vector<SendQueue<ManualMemory, Sharing::kDevice>> pollers(
        4, fabric.queue<Sharing::kDevice>(0, {DoorbellOrder::kRecordRing, PublishOrder::kCombine}));
    const Reservation r = post_batch(fabric, pollers[0], Cause::kLocalKey, failing);
    std::mt19937_64 random(failing);
    for (int poll = 0; poll < 100; ++poll) {
      auto& poller = pollers[random() % pollers.size()];
      const std::uint32_t i = static_cast<std::uint32_t>(random() % kBatch);
      ASSERT_EQ(wait(poller, r.first + i), i < failing ? Status::kOk : Status::kCompletionError);
    }
    ASSERT_EQ(wait(pollers[0], r.end() - 1), Status::kCompletionError);
    for (auto& poller : pollers) expect_first_error(poller, Cause::kLocalKey, r.first + failing);
  }
}

TEST(CompletionError, IsFoundByReserveWhenTheRingIsFull) {
  ManualFabric fabric(small_of_depth(kBatch));
  auto queue = fabric.queue<Sharing::kDevice>();
  const Reservation r = post_batch(fabric, queue, Cause::kRemoteKey, 0);
  Reservation next;
  EXPECT_EQ(queue.reserve(1, &next), Status::kCompletionError);
  EXPECT_EQ(queue.handle().state->reserved, r.end());
  expect_first_error(queue, Cause::kRemoteKey, 0);
}

TEST(CompletionError, IsNotAFlushWhenPutsFollowBeforeAnyonePolls) {
  ManualFabric fabric(small_of_depth(32));
  auto queue = fabric.queue<Sharing::kDevice>();
  const Reservation r = post_batch(fabric, queue, Cause::kInjected, 5);
  fabric.settle();
  Posted last;
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(put(queue, fabric.put(0, 0, 8), &last), Status::kOk);
    fabric.settle();
  }
  EXPECT_EQ(wait(queue, last.ticket), Status::kCompletionError);
  expect_first_error(queue, Cause::kInjected, r.first + 5);
  EXPECT_EQ(wait(queue, r.first + 4), Status::kOk);
}

TEST(CompletionError, IsFoundAcrossTheLapWhereOldEntriesAreSuccesses) {
  for (std::uint32_t failing = 0; failing < kBatch; ++failing) {
    ManualFabric fabric(small_of_depth(kBatch));
    auto queue = fabric.queue<Sharing::kDevice>();
    Posted posted;
    for (int i = 0; i < 13; ++i) {
      ASSERT_EQ(put(queue, fabric.put(0, 0, 8), &posted), Status::kOk);
      ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
    }
    const Reservation r = post_batch(fabric, queue, Cause::kLocalKey, failing);
    EXPECT_EQ(wait(queue, r.end() - 1), Status::kCompletionError);
    expect_first_error(queue, Cause::kLocalKey, r.first + failing);
  }
}

TEST(CompletionError, IsAFlushWhenTheQueueIsSentToErrorWithWqesHeld) {
  ManualFabric fabric(small_of_depth(kBatch));
  fabric.hold();
  fabric.arm({{nic::FaultKind::kHold, 1'000'000'000, 0}});
  auto queue = fabric.queue<Sharing::kDevice>();
  Posted posted;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(put(queue, fabric.put(0, 0, 8), &posted), Status::kOk);
  }
  fabric.settle();
  EXPECT_EQ(queue.completions().try_wait(0), Status::kPending);
  fabric.sender_qps[0].to_error();
  fabric.settle();
  for (const std::uint64_t t : {2u, 0u, 1u}) {
    EXPECT_EQ(wait(queue, t), Status::kCompletionError);
  }
  LatchedError e;
  ASSERT_TRUE(queue.completions().error(&e));
  EXPECT_EQ(e.syndrome, 0x05);
  EXPECT_EQ(e.index, 0u);
  EXPECT_EQ(e.opcode, 0x08);
}

// The poller reads owner and counter, then the body; whatever they say, 0 stays "no error".
TEST(CompletionError, KeepsItsFirstValueWhenMoreErrorsFollow) {
  ManualFabric fabric(small_of_depth(kBatch));
  auto queue = fabric.queue<Sharing::kDevice>();
  const Reservation r = post_batch(fabric, queue, Cause::kInjected, 2);
  ASSERT_EQ(wait(queue, r.end() - 1), Status::kCompletionError);
  const std::uint64_t word = queue.handle().state->error;
  for (std::uint64_t t = r.end(); t-- > r.first;) queue.completions().try_wait(t);
  EXPECT_EQ(queue.handle().state->error, word);
}

}  // namespace
}  // namespace peal
