// Laps: the 16-bit counter of a CQE, the owner bit, and entries that are not this lap's.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "support/manual_fabric.hpp"
#include "support/scale.hpp"

namespace peal {
namespace {

using test::FabricOptions;
using test::ManualFabric;
using test::ManualMemory;
using test::of_depth;
using test::scaled;

// Stamps each PUT with its index, holds the NIC at random, and checks each at its completion.
template <Sharing S>
void run_laps(std::uint64_t puts, std::uint64_t first, SubmitOptions submit) {
  constexpr std::uint32_t kDepth = 64;
  FabricOptions options = of_depth(kDepth, first);
  options.doorbell_record = submit.doorbell != DoorbellOrder::kRingOnly;
  ManualFabric fabric(options);
  auto queue = fabric.queue<S>(0, submit);
  std::mt19937_64 random(puts ^ first);
  std::uint64_t posted_end = first;
  std::uint64_t checked = first;
  const auto check_to = [&](std::uint64_t end) {
    for (; checked != end; ++checked) {
      std::uint64_t stamp = 0;
      std::memcpy(&stamp, &fabric.destination[checked % kDepth * 8], 8);
      ASSERT_EQ(stamp, ~checked) << "WQE " << checked;
    }
  };
  while (posted_end != first + puts) {
    const auto batch = 1 + random() % kDepth;
    // Most often held outright; else the NIC itself holds, or steps at random.
    const auto mode = random() % 8;
    if (mode == 0) fabric.arm({{nic::FaultKind::kHold, 1 + random() % 40'000, 0}});
    fabric.hold();
    for (std::uint64_t i = 0; i < batch && posted_end != first + puts; ++i) {
      if (posted_end - checked == kDepth) {
        fabric.release();
        ASSERT_EQ(wait(queue, checked), Status::kOk);
        fabric.hold();
        check_to(checked + 1);
        if (testing::Test::HasFatalFailure()) return;
      }
      const std::uint64_t stamp = ~posted_end;
      std::memcpy(&fabric.source[posted_end % kDepth * 8], &stamp, 8);
      Posted posted;
      ASSERT_EQ(
          put(queue, fabric.put(posted_end % kDepth * 8, posted_end % kDepth * 8, 8), &posted),
          Status::kOk);
      ASSERT_EQ(posted.ticket, posted_end);
      ++posted_end;
      if (mode == 1 && random() % 4 == 0) fabric.step();
    }
    const std::uint64_t ticket = checked + random() % (posted_end - checked);
    // The NIC counts its CQEs: it knows what is done.
    ASSERT_EQ(queue.completions().try_wait(ticket),
              ticket < first + fabric.counters().cqes ? Status::kOk : Status::kPending)
        << ticket;
    fabric.release();
    ASSERT_EQ(wait(queue, ticket), Status::kOk);
    check_to(ticket + 1);
    if (testing::Test::HasFatalFailure()) return;
  }
  ASSERT_EQ(wait(queue, posted_end - 1), Status::kOk);
  check_to(posted_end);
  EXPECT_EQ(queue.completions().completed(), posted_end);
  EXPECT_EQ(fabric.counters().cqes, puts);
}

TEST(Laps, DeliverEveryPutAcrossThreeWrapsOfTheCounter) {
  run_laps<Sharing::kExclusive>(scaled(3 * 65536 + 7), 0, {});
  run_laps<Sharing::kDevice>(scaled(3 * 65536 + 7), (std::uint64_t{1} << 32) - 65536 - 5,
                             {DoorbellOrder::kRecordRing, PublishOrder::kCombine});
}

TEST(Laps, DeliverEveryPutWithoutARecord) {
  for (const std::uint64_t first :
       {std::uint64_t{0}, (std::uint64_t{1} << 16) - 1000, (std::uint64_t{1} << 32) - 1000}) {
    run_laps<Sharing::kExclusive>(scaled(65536 + 7), first, {DoorbellOrder::kRingOnly});
    run_laps<Sharing::kDevice>(scaled(65536 + 7), first,
                               {DoorbellOrder::kRingOnly, PublishOrder::kCombine});
  }
}

// Entries that another lap, or another place of this lap, has left must not complete a WQE.
TEST(StaleCqe, IsNeverAccepted) {
  constexpr std::uint32_t kDepth = 8;
  for (const std::uint64_t start :
       {std::uint64_t{0}, std::uint64_t{65536 - 20}, (std::uint64_t{1} << 32) - 20}) {
    ManualFabric fabric(of_depth(kDepth, start));
    auto queue = fabric.queue<Sharing::kDevice>();
    auto* cq = const_cast<mlx5::Cqe*>(queue.handle().nic_cq);
    std::vector<mlx5::Cqe> history;  // the CQE of each WQE from `start` on
    for (std::uint64_t n = 0; n < 60; ++n) {
      fabric.hold();
      Posted posted;
      ASSERT_EQ(put(queue, fabric.put(0, 0, 8), &posted), Status::kOk);
      ASSERT_EQ(posted.ticket, start + n);
      mlx5::Cqe& entry = cq[n % kDepth];
      const mlx5::Cqe before = entry;
      ASSERT_EQ(queue.completions().try_wait(posted.ticket), Status::kPending);
      // Each of the last three laps' CQEs, that of the WQE just before among them.
      for (std::uint64_t back = 1; back <= 3 * kDepth && back <= n; ++back) {
        entry = history[n - back];
        for (int poll = 0; poll < 3; ++poll) {
          ASSERT_EQ(queue.completions().try_wait(posted.ticket), Status::kPending)
              << "took the CQE of " << back << " WQEs before for that of " << n;
        }
        ASSERT_EQ(wait(queue, posted.ticket, 5000), Status::kDeadline);
      }
      // Right counter, wrong lap; right lap, wrong counter; errors of either kind.
      const std::uint8_t owner = mlx5::cqe_owner(n, kDepth);
      const auto counter = static_cast<std::uint16_t>(posted.ticket);
      for (const mlx5::CqeOpcode opcode :
           {mlx5::CqeOpcode::kRequester, mlx5::CqeOpcode::kRequesterError}) {
        for (const int off : {0, 1, -1, static_cast<int>(kDepth), -static_cast<int>(kDepth),
                              2 * static_cast<int>(kDepth), -2 * static_cast<int>(kDepth)}) {
          const bool other_lap = off == 0;
          entry = mlx5::encode(
              mlx5::CqeFields{.opcode = opcode,
                              .owner = static_cast<std::uint8_t>(other_lap ? owner ^ 1 : owner),
                              .wqe_counter = static_cast<std::uint16_t>(counter + off),
                              .qpn = queue.handle().qpn,
                              .wqe_opcode = 8,
                              .byte_count = 8,
                              .syndrome = 0x13,
                              .vendor_syndrome = 0x88});
          ASSERT_EQ(queue.completions().try_wait(posted.ticket), Status::kPending) << off;
        }
      }
      ASSERT_EQ(queue.completions().completed(), posted.ticket);
      entry = before;
      fabric.settle();
      ASSERT_EQ(queue.completions().try_wait(posted.ticket), Status::kOk);
      history.push_back(entry);
    }
  }
}

// A poller that slept for two laps finds an entry of its owner bit: the counter tells.
TEST(StaleCqe, IsToldFromAnEntryTwoLapsOn) {
  constexpr std::uint32_t kDepth = 4;
  ManualFabric fabric(of_depth(kDepth, 65530));
  auto queue = fabric.queue<Sharing::kDevice>();
  Posted posted;
  ASSERT_EQ(put(queue, fabric.put(0, 0, 8), &posted), Status::kOk);
  ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
  // What the sleeper knew.
  QueueState old_state = *queue.handle().state;
  old_state.completed = 65530;
  QueueHandle old_handle = queue.handle();
  old_handle.state = &old_state;
  SendQueue<ManualMemory, Sharing::kDevice> sleeper(old_handle);
  for (std::uint32_t i = 0; i < 3 * kDepth; ++i) {
    ASSERT_EQ(sleeper.completions().try_wait(65530), i < kDepth ? Status::kOk : Status::kPending)
        << i;
    old_state.completed = 65530;
    ASSERT_EQ(put(queue, fabric.put(0, 0, 8), &posted), Status::kOk);
    ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
    // With the true `completed` it is done, whatever lies in the entry.
    ASSERT_EQ(wait(queue, 65530), Status::kOk);
  }
}

TEST(OwnerBit, IsTheLapsParity) {
  constexpr std::uint32_t kDepth = 8;
  ManualFabric fabric(of_depth(kDepth));
  auto queue = fabric.queue();
  for (std::uint32_t n = 0; n < 23; ++n) {
    Posted posted;
    ASSERT_EQ(put(queue, fabric.put(0, 0, 8), &posted), Status::kOk);
    ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
    const std::uint8_t expected = n >= 8 && n < 16 ? 1 : 0;
    EXPECT_EQ(mlx5::cqe_owner(n, kDepth), expected) << n;
    EXPECT_EQ(mlx5::decode(queue.handle().nic_cq[n % kDepth]).owner, expected) << n;
    EXPECT_EQ(mlx5::decode(queue.handle().nic_cq[n % kDepth]).wqe_counter, n);
  }
}

// Two laps of the largest ring alias the counter, owner bit and all.
TEST(Laps, AreToldApartWhenTwoOfThemAliasTheCounter) {
  constexpr std::uint32_t kDepth = 32768;
  for (const std::uint64_t start : {std::uint64_t{0}, std::uint64_t{65536 - 3}}) {
    ManualFabric fabric(of_depth(kDepth, start));
    auto queue = fabric.queue<Sharing::kDevice>();
    std::uint64_t end = start;
    for (int lap = 0; lap < 5; ++lap) {
      fabric.hold();
      Reservation r;
      ASSERT_EQ(queue.reserve(kDepth, &r), Status::kOk);
      ASSERT_EQ(r.first, end);
      for (std::uint64_t i = r.first; i != r.end(); ++i) {
        write_wqe(queue, i, fabric.put(i % 100, i % 100, i % 64 == 0 ? 8 : 0));
      }
      ASSERT_EQ(queue.publish(r), Status::kOk);
      for (std::uint64_t i = r.first; i != r.end(); ++i) {
        ASSERT_EQ(queue.completions().try_wait(i), Status::kPending) << i;
      }
      // Older tickets that share counter, slot and owner bit are done.
      if (lap >= 2) {
        for (std::uint64_t i = r.first; i < r.end(); i += 97) {
          ASSERT_EQ(queue.completions().try_wait(i - 65536), Status::kOk) << i;
        }
      }
      fabric.settle();
      for (std::uint64_t i = r.first; i != r.end(); ++i) {
        ASSERT_EQ(queue.completions().try_wait(i), Status::kOk) << i;
        ASSERT_EQ(queue.completions().completed(), i + 1);
      }
      end = r.end();
    }
  }
}

}  // namespace
}  // namespace peal
