// What a receiver may rely on when it sees a signal, and which word the NIC believes: with real
// threads, in every mode of the NIC.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "peal/device/put.hpp"
#include "support/manual_fabric.hpp"
#include "support/recording_memory.hpp"
#include "support/scale.hpp"
#include "support/stage_puts.hpp"
#include "support/threads_fabric.hpp"

namespace peal {
namespace {

using test::kHangGuardNs;
using test::scaled;
using test::ThreadsFabric;

using Mode = std::tuple<nic::WriteOrder, CompletionMode>;

class SignalTest : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(
    Modes, SignalTest,
    testing::Combine(testing::Values(nic::WriteOrder::kStrict, nic::WriteOrder::kRelaxed),
                     testing::Values(CompletionMode::kEvery, CompletionMode::kTail)),
    [](const auto& mode) {
      return std::string(std::get<0>(mode.param) == nic::WriteOrder::kStrict ? "strict"
                                                                             : "relaxed") +
             "_" + completion_mode_name(std::get<1>(mode.param));
    });

// The receiver polls nothing but the signal, and then finds every byte.
TEST_P(SignalTest, StandsForTheWholePayload) {
  constexpr std::uint64_t kBytes = 65536;
  constexpr std::uint64_t kSignalAt = 2 * kBytes;
  ThreadsFabric fabric(
      {.depth = 64, .completion = std::get<1>(GetParam()), .order = std::get<0>(GetParam())});
  const std::uint64_t rounds = scaled(1000);
  std::atomic<std::uint64_t> checked{0};
  std::uint64_t wrong = 0;
  std::thread receiver([&] {
    const auto* signal = reinterpret_cast<const std::uint64_t*>(&fabric.destination[kSignalAt]);
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      Wait<CpuMemory> wait(kHangGuardNs);
      while (CpuMemory::load_signal_acquire(signal, FenceScope::kSystem) < round) {
        if (wait.turn_until_deadline()) return;
      }
      // Two places in turn, so that the next PUT is elsewhere.
      const std::byte* place = &fabric.destination[round % 2 * kBytes];
      for (std::uint64_t i = 0; i < kBytes; ++i) {
        wrong += place[i] == std::byte(round) ? 0 : 1;
      }
      checked.store(round);
    }
  });
  SendQueue<CpuMemory, Sharing::kExclusive> queue(fabric.sender_qp.handle());
  const Sink sink{fabric.source_region.address() + kSignalAt, fabric.source_region.lkey()};
  const AtomicTarget target{fabric.destination_region.address() + kSignalAt,
                            fabric.destination_region.rkey(), sink};
  Status status = Status::kOk;
  for (std::uint64_t round = 1; round <= rounds && status == Status::kOk; ++round) {
    Wait<CpuMemory> turns(kHangGuardNs);
    while (checked.load() + 1 < round) {
      if (turns.turn_until_deadline()) break;
    }
    std::memset(&fabric.source[round % 2 * kBytes], static_cast<int>(round), kBytes);
    Posted posted;
    status = put_signal(queue, fabric.put(round % 2 * kBytes, round % 2 * kBytes, kBytes),
                        {target, 1}, &posted, kHangGuardNs);
    if (status == Status::kOk) status = peal::wait(queue, posted.ticket, kHangGuardNs);
  }
  receiver.join();
  EXPECT_EQ(status, Status::kOk);
  EXPECT_EQ(checked.load(), rounds);
  EXPECT_EQ(wrong, 0u);
}

using Source = std::tuple<nic::DoorbellSource, std::size_t>;

class DoorbellSourceTest : public testing::TestWithParam<Source> {};
INSTANTIATE_TEST_SUITE_P(
    Sources, DoorbellSourceTest,
    testing::Combine(testing::Values(nic::DoorbellSource::kRegister, nic::DoorbellSource::kRecord),
                     testing::Values(std::size_t{0}, std::size_t{1})),
    [](const auto& source) {
      return std::string(std::get<0>(source.param) == nic::DoorbellSource::kRegister ? "mmio"
                                                                                     : "dbr") +
             (std::get<1>(source.param) == 0 ? "_original" : "_peal");
    });

// Whichever of its two words is believed, by both orders of submission.
TEST_P(DoorbellSourceTest, EveryPutArrives) {
  ThreadsFabric fabric({.depth = 16, .doorbell_source = std::get<0>(GetParam())});
  SendQueue<CpuMemory, Sharing::kDevice> queue(fabric.sender_qp.handle(),
                                               test::kLadderSubmits[std::get<1>(GetParam())]);
  const std::uint64_t puts = scaled(10'000);
  for (std::uint64_t i = 0; i < puts; ++i) {
    bool landed = false;
    ASSERT_EQ(test::put_and_check(fabric, queue, i % 100, i, &landed), Status::kOk) << i;
    ASSERT_TRUE(landed) << i;
  }
  EXPECT_EQ(fabric.counters().writes, puts);
}

// The caller's fence reaches the WQE that it is for, and no other.
TEST(FenceBits, AreThoseOfTheFirstWqeOrOfTheSignal) {
  test::ManualFabric fabric;
  QueueHandle handle = fabric.sender_qps[0].handle();
  handle.max_message_bytes = 100;
  SendQueue<test::RecordingMemory, Sharing::kExclusive> queue(handle);
  const auto fences = [&] {
    std::vector<int> bits;
    for (std::uint64_t i = queue.completions().completed(); i != queue.reserved(); ++i) {
      bits.push_back(mlx5::decode_ctrl(handle.sq[i & (handle.depth - 1)].segment[0]).fm_ce_se &
                     mlx5::kFenceMask);
    }
    EXPECT_EQ(flush(queue), Status::kOk);
    return bits;
  };
  constexpr int kOn = mlx5::kFence;
  Posted posted;
  ASSERT_EQ(put(queue, fabric.put(0, 0, 250), &posted), Status::kOk);
  EXPECT_EQ(fences(), (std::vector<int>{0, 0, 0}));
  ASSERT_EQ(put(queue, fabric.put(0, 0, 250), &posted, kHangGuardNs, Fence::kBefore), Status::kOk);
  EXPECT_EQ(fences(), (std::vector<int>{kOn, 0, 0}));
  ASSERT_EQ(put_signal(queue, fabric.put(0, 0, 150), {fabric.target(512), 1}, &posted, kHangGuardNs,
                       Fence::kBefore),
            Status::kOk);
  EXPECT_EQ(fences(), (std::vector<int>{0, 0, kOn}));
  ASSERT_EQ(fetch_add(queue, {fabric.target(512), 1}, &posted, kHangGuardNs, Fence::kBefore),
            Status::kOk);
  EXPECT_EQ(fences(), (std::vector<int>{kOn}));
  ASSERT_EQ(nop(queue, &posted), Status::kOk);
  EXPECT_EQ(fences(), (std::vector<int>{0}));
}

}  // namespace
}  // namespace peal
