// The faults that a NIC can be told to commit, exact to the WQE and to the nanosecond.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "nic/raw_fabric.hpp"

namespace peal::nic {
namespace {

using mlx5::Syndrome;
using test::failed_with;
using test::RawFabric;
using test::succeeded;
using test::Wqe;

std::size_t differing_bits(RawFabric<>& fabric, std::size_t from, std::size_t bytes) {
  std::size_t bits = 0;
  for (std::size_t i = from; i < from + bytes; ++i) {
    auto x = static_cast<unsigned>(fabric.source[i] ^ fabric.destination[i]);
    for (; x != 0; x &= x - 1) ++bits;
  }
  return bits;
}

TEST(Fault, CorruptFlipsOneBitOfItsWqeAndLeavesTheSourceAlone) {
  RawFabric fabric;
  const std::vector<std::byte> before(fabric.source.data(), fabric.source.data() + 4096);
  fabric.sender.arm_faults(fabric.qp.qpn(), {{FaultKind::kCorrupt, 0, 2}});
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(fabric.sender.unreached_faults(fabric.qp.qpn()), i <= 2 ? 1u : 0u) << i;
    fabric.qp.post(fabric.write(i * 1000, i * 1000, 1000));
    fabric.settle();
  }
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(differing_bits(fabric, i * 1000, 1000), i == 2 ? 1u : 0u) << i;
    const auto cqe = fabric.qp.poll();
    ASSERT_TRUE(cqe);
    EXPECT_TRUE(succeeded(*cqe));
  }
  EXPECT_TRUE(std::equal(before.begin(), before.end(), fabric.source.data()));
}

TEST(Fault, CountsWqesFromTheMomentOfArming) {
  RawFabric fabric;
  for (std::uint32_t i = 0; i < 3; ++i) fabric.qp.post(fabric.write(i, i, 1));
  fabric.settle();
  fabric.sender.arm_faults(fabric.qp.qpn(), {{FaultKind::kCqe, 0x13, 1}});
  for (int i = 0; i < 2; ++i) fabric.qp.post(test::nop());
  fabric.settle();
  const auto cqes = fabric.qp.poll_all();
  ASSERT_EQ(cqes.size(), 5u);
  EXPECT_TRUE(succeeded(cqes[3]));
  EXPECT_TRUE(failed_with(cqes[4], Syndrome::kRemoteAccess));
}

TEST(Fault, NoopSaysSuccessAndMovesNothing) {
  RawFabric fabric;
  fabric.sender.arm_faults(fabric.qp.qpn(), {{FaultKind::kNoop, 0, 0}});
  fabric.qp.post(fabric.write(1, 1, 64));
  fabric.qp.post(fabric.write(100, 100, 64));
  fabric.settle();
  const auto cqes = fabric.qp.poll_all();
  ASSERT_EQ(cqes.size(), 2u);
  EXPECT_TRUE(succeeded(cqes[0]));
  for (std::size_t i = 1; i < 65; ++i) EXPECT_EQ(fabric.destination[i], std::byte{0});
  EXPECT_TRUE(fabric.arrived(100, 100, 64));
  EXPECT_EQ(fabric.peer_counters().received_writes, 1u);
  EXPECT_EQ(fabric.counters().bytes_moved, 64u);
  EXPECT_EQ(fabric.sender.unreached_faults(fabric.qp.qpn()), 0u);
}

TEST(Fault, CqeEndsTheQpWithTheSyndromeAskedForAndMovesNothing) {
  for (const int syndrome : {0x01, 0x04, 0x13, 0x15, 0x22}) {
    RawFabric fabric;
    fabric.sender.arm_faults(fabric.qp.qpn(),
                             {{FaultKind::kCqe, static_cast<std::uint64_t>(syndrome), 1}});
    for (std::uint32_t i = 0; i < 3; ++i) fabric.qp.post(fabric.write(i * 64, i * 64, 64));
    fabric.settle();
    const auto cqes = fabric.qp.poll_all();
    ASSERT_EQ(cqes.size(), 3u);
    EXPECT_TRUE(succeeded(cqes[0]));
    EXPECT_TRUE(failed_with(cqes[1], static_cast<Syndrome>(syndrome)));
    EXPECT_TRUE(failed_with(cqes[2], Syndrome::kFlushed));
    EXPECT_TRUE(fabric.arrived(0, 0, 64));
    EXPECT_EQ(fabric.destination[64], std::byte{0});
    EXPECT_EQ(fabric.refused(Refusal::kInjected), 1u);
    EXPECT_EQ(fabric.state(), QpState::kError);
  }
}

TEST(Fault, HoldFetchesNothingBeforeItsTimeAndEverythingAtIt) {
  RawFabric fabric;
  fabric.now_ns = 5000;
  fabric.sender.arm_faults(fabric.qp.qpn(), {{FaultKind::kHold, 1000, 0}});
  fabric.now_ns = 6000;  // it begins with the doorbell, not with arming
  for (std::uint32_t i = 0; i < 16; ++i) fabric.qp.post(fabric.write(i * 64, i * 64, 64));
  EXPECT_EQ(fabric.sender.unreached_faults(fabric.qp.qpn()), 1u);
  for (const std::uint64_t now_ns : {6000u, 6001u, 6999u}) {
    fabric.now_ns = now_ns;
    fabric.settle();
    EXPECT_EQ(fabric.counters().wqes_fetched, 0u) << now_ns;
    EXPECT_EQ(fabric.counters().producer_index, 16u);
  }
  EXPECT_EQ(fabric.sender.unreached_faults(fabric.qp.qpn()), 0u);
  EXPECT_EQ(fabric.destination[1], std::byte{0});
  fabric.now_ns = 7000;
  fabric.settle();
  EXPECT_EQ(fabric.counters().wqes_fetched, 16u);
  EXPECT_EQ(fabric.qp.poll_all().size(), 16u);
  EXPECT_TRUE(fabric.arrived(0, 0, 1024));
  // It happens once.
  fabric.qp.post(test::nop());
  fabric.settle();
  EXPECT_TRUE(fabric.qp.poll());
}

TEST(Fault, HoldOfOneQpDelaysNoOther) {
  RawFabric fabric;
  test::RawUar page(fabric.sender.commands());
  test::RawQp other(fabric.sender.commands(), fabric.sender_pd, page);
  test::RawQp other_peer(fabric.receiver.commands(), fabric.receiver_pd, fabric.peer_uar);
  test::RawConnection c;
  c.remote_qpn = other_peer.qpn();
  other.connect(c);
  c.remote_qpn = other.qpn();
  std::swap(c.send_psn, c.receive_psn);
  other_peer.connect(c);
  fabric.sender.arm_faults(fabric.qp.qpn(), {{FaultKind::kHold, 1000, 0}});
  fabric.qp.post(fabric.write(0, 0, 1 << 15));
  other.post(fabric.write(1 << 15, 1 << 15, 4096));
  fabric.settle();
  EXPECT_FALSE(fabric.qp.poll());
  EXPECT_TRUE(other.poll());
}

TEST(Fault, DelayHidesEachCqeUntilExactlyItsTime) {
  RawFabric fabric;
  fabric.now_ns = 100;
  fabric.sender.arm_faults(fabric.qp.qpn(), {{FaultKind::kDelay, 700, 0}});
  fabric.qp.post(fabric.write(0, 0, 64));
  fabric.settle();
  EXPECT_TRUE(fabric.arrived(0, 0, 64));  // the payload is not late
  fabric.now_ns = 300;
  fabric.qp.post(test::nop());
  fabric.settle();
  fabric.now_ns = 799;
  fabric.settle();
  EXPECT_FALSE(fabric.qp.poll());
  EXPECT_FALSE(fabric.sender.quiet(fabric.qp.qpn()));
  fabric.now_ns = 800;
  fabric.settle();
  EXPECT_EQ(fabric.qp.poll_all().size(), 1u);
  fabric.now_ns = 999;
  fabric.settle();
  EXPECT_FALSE(fabric.qp.poll());
  fabric.now_ns = 1000;
  fabric.settle();
  EXPECT_EQ(fabric.qp.poll_all().size(), 1u);
  EXPECT_TRUE(fabric.sender.quiet(fabric.qp.qpn()));
  EXPECT_EQ(fabric.sender.unreached_faults(fabric.qp.qpn()), 0u);
}

TEST(Fault, ThatNoWqeReachesIsReported) {
  RawFabric fabric;
  fabric.sender.arm_faults(
      fabric.qp.qpn(),
      {{FaultKind::kCorrupt, 0, 100}, {FaultKind::kNoop, 0, 0}, {FaultKind::kHold, 1, 0}});
  EXPECT_EQ(fabric.sender.unreached_faults(fabric.qp.qpn()), 3u);
  fabric.qp.post(fabric.write(0, 0, 8));
  fabric.settle();
  EXPECT_EQ(fabric.sender.unreached_faults(fabric.qp.qpn()), 2u);  // held: no WQE taken yet
  fabric.now_ns += 1;
  fabric.settle();
  EXPECT_EQ(fabric.sender.unreached_faults(fabric.qp.qpn()), 1u);
}

TEST(Fault, CorruptOfAWqeWithoutPayloadIsNotReached) {
  RawFabric fabric;
  fabric.sender.arm_faults(fabric.qp.qpn(), {{FaultKind::kCorrupt, 0, 0}});
  fabric.qp.post(test::nop());
  fabric.settle();
  EXPECT_TRUE(fabric.qp.poll());
  EXPECT_EQ(fabric.sender.unreached_faults(fabric.qp.qpn()), 1u);
}

TEST(Fault, IsForgottenWhenOthersAreArmed) {
  RawFabric fabric;
  fabric.sender.arm_faults(fabric.qp.qpn(), {{FaultKind::kDelay, 1'000'000, 0}});
  fabric.sender.arm_faults(fabric.qp.qpn(), {});
  fabric.qp.post(test::nop());
  fabric.settle();
  EXPECT_TRUE(fabric.qp.poll());
}

}  // namespace
}  // namespace peal::nic
