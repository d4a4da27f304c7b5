// Doorbells and records, as a client writes them that the library would not write.
#include <gtest/gtest.h>

#include <algorithm>

#include "nic/raw_fabric.hpp"

namespace peal::nic {
namespace {

using test::RawConnection;
using test::RawFabric;
using test::RawFabricOptions;
using test::RawQp;
using test::succeeded;

TEST(Doorbell, StartsTheWqesItAnnouncesAndNoOthers) {
  RawFabric fabric;
  fabric.qp.write(fabric.write(0, 0, 100));
  fabric.qp.write(fabric.write(100, 100, 100));
  fabric.qp.record_at(1);
  fabric.qp.ring_at(1);
  fabric.settle();
  EXPECT_EQ(fabric.qp.poll_all().size(), 1u);
  EXPECT_TRUE(fabric.arrived(0, 0, 100));
  EXPECT_EQ(fabric.destination[100], std::byte{0});
  fabric.qp.record();
  fabric.qp.ring();
  fabric.settle();
  EXPECT_EQ(fabric.qp.poll_all().size(), 1u);
  EXPECT_TRUE(fabric.arrived(100, 100, 100));
}

TEST(Doorbell, RecordAloneStartsNothing) {
  RawFabric fabric;
  fabric.qp.write(fabric.write(0, 0, 100));
  fabric.qp.record();
  EXPECT_FALSE(fabric.step_sender());
  fabric.settle();
  EXPECT_FALSE(fabric.qp.poll());
  EXPECT_EQ(fabric.counters().doorbells, 0u);
  EXPECT_EQ(fabric.counters().producer_index, 0u);
}

TEST(Doorbell, RungAgainWithTheSameValueStartsNothing) {
  RawFabric fabric;
  fabric.qp.post(fabric.write(0, 0, 8));
  fabric.settle();
  ASSERT_TRUE(fabric.qp.poll());
  fabric.qp.ring();
  fabric.settle();
  EXPECT_EQ(fabric.counters().doorbells, 2u);
  EXPECT_EQ(fabric.counters().wqes_fetched, 1u);
  EXPECT_FALSE(fabric.qp.poll());
  EXPECT_FALSE(fabric.step_sender());
}

TEST(Doorbell, IsBelievedBeforeItsRecordIsWritten) {
  RawFabric fabric;
  fabric.qp.write(fabric.write(0, 0, 8));
  fabric.qp.ring();
  fabric.settle();
  EXPECT_TRUE(fabric.qp.poll());
}

TEST(Doorbell, OfBlueFlameFormAnnouncesTheWqeThatItCarries) {
  RawFabric fabric;
  fabric.qp.write(test::nop(1));
  fabric.qp.write(test::nop(8));  // two slots: indices 1 and 2
  // The first 8 bytes of the WQE at index 1.
  mlx5::CtrlSeg ctrl = test::nop(8).ctrl;
  ctrl.wqe_index = 1;
  ctrl.qpn = fabric.qp.qpn();
  fabric.uar.ring(mlx5::encode(ctrl).lo);
  fabric.settle();
  const auto cqes = fabric.qp.poll_all();
  ASSERT_EQ(cqes.size(), 2u);
  EXPECT_TRUE(succeeded(cqes[1]));
  EXPECT_EQ(cqes[1].wqe_counter, 1);
  EXPECT_EQ(fabric.counters().producer_index, 3u);
}

TEST(Doorbell, NamingAQpThatIsNotOnItsPageIsCountedAndStartsNothing) {
  RawFabric fabric;
  fabric.qp.write(fabric.write(0, 0, 8));
  fabric.uar.ring(mlx5::encode_doorbell(1, Qpn(fabric.qp.qpn().value + 1)));
  fabric.settle();
  EXPECT_EQ(fabric.refused(Refusal::kDoorbellQpn), 1u);
  EXPECT_FALSE(fabric.qp.poll());
  EXPECT_EQ(fabric.counters().doorbells, 0u);
}

// On hardware such a doorbell is lost, so the client that rings it must not work here.
TEST(Doorbell, NamingAQpThatIsNotOnItsPageStartsNothingThoughARecordIsWritten) {
  RawFabric fabric;
  fabric.qp.write(fabric.write(0, 0, 8));
  fabric.qp.record();
  fabric.uar.ring(mlx5::encode_doorbell(1, Qpn(fabric.qp.qpn().value + 1)));
  fabric.settle();
  EXPECT_EQ(fabric.refused(Refusal::kDoorbellQpn), 1u);
  EXPECT_FALSE(fabric.qp.poll());
}

TEST(Doorbell, FurtherAheadThanTheRingIsDeepIsRefusedAndCounted) {
  RawFabric fabric;  // depth 16
  fabric.qp.record_at(17);
  fabric.qp.ring_at(17);
  fabric.settle();
  EXPECT_EQ(fabric.refused(Refusal::kDoorbellJump), 1u);
  EXPECT_EQ(fabric.counters().producer_index, 0u);
  EXPECT_EQ(fabric.counters().wqes_fetched, 0u);
  // The QP is not spoiled by it.
  fabric.qp.post(fabric.write(0, 0, 8));
  fabric.settle();
  EXPECT_TRUE(fabric.qp.poll());
}

TEST(Doorbell, ThatMovesBackIsRefusedAndCounted) {
  RawFabric fabric;
  for (int i = 0; i < 3; ++i) fabric.qp.post(test::nop());
  fabric.settle();
  ASSERT_EQ(fabric.qp.poll_all().size(), 3u);
  fabric.qp.ring_at(2);
  fabric.settle();
  EXPECT_EQ(fabric.refused(Refusal::kDoorbellJump), 1u);
  EXPECT_EQ(fabric.counters().producer_index, 3u);
  EXPECT_FALSE(fabric.qp.poll());
}

TEST(Doorbell, CountsDepthFromTheOldestWqeWithoutCqe) {
  RawFabric fabric;
  const Fault hold{FaultKind::kHold, 1000, 0};
  fabric.sender.arm_faults(fabric.qp.qpn(), {hold});
  for (int i = 0; i < 16; ++i) fabric.qp.write(test::nop());
  fabric.qp.ring();  // a whole ring: the last that is accepted
  fabric.settle();
  EXPECT_EQ(fabric.counters().producer_index, 16u);
  fabric.qp.ring_at(17);  // one more: its slot is still taken
  fabric.settle();
  EXPECT_EQ(fabric.refused(Refusal::kDoorbellJump), 1u);
  fabric.now_ns += 1000;
  fabric.settle();
  EXPECT_EQ(fabric.qp.poll_all().size(), 16u);
}

TEST(Doorbell, HeldUntilRtsIsServedThen) {
  RawFabric fabric({.connected = false});
  fabric.qp.post(fabric.write(0, 0, 8));
  fabric.settle();
  EXPECT_EQ(fabric.counters().wqes_fetched, 0u);
  fabric.qp.to_init(fabric.connection);
  fabric.settle();
  fabric.qp.to_rtr(fabric.connection);
  fabric.peer.connect(fabric.peer_connection);
  fabric.qp.write(fabric.write(8, 8, 8));
  fabric.qp.ring();
  fabric.settle();
  EXPECT_EQ(fabric.counters().wqes_fetched, 0u);
  EXPECT_FALSE(fabric.qp.poll());
  fabric.qp.to_rts(fabric.connection);
  fabric.settle();
  EXPECT_EQ(fabric.qp.poll_all().size(), 2u);
  EXPECT_TRUE(fabric.arrived(0, 0, 16));
}

// Two QPs on one UAR page, as a main QP and its companion are.
struct SharedPage : RawFabric<> {
  SharedPage()
      : RawFabric(),
        second(sender.commands(), sender_pd, uar),
        second_peer(receiver.commands(), receiver_pd, peer_uar, {.log_depth = 0}) {
    RawConnection c;
    c.remote_qpn = second_peer.qpn();
    second.connect(c);
    c.remote_qpn = second.qpn();
    std::swap(c.send_psn, c.receive_psn);
    second_peer.connect(c);
  }
  QpCounters second_counters() const { return sender.counters(second.qpn()); }
  RawQp second;
  RawQp second_peer;
};

TEST(SharedUar, RecordRecoversADoorbellThatAnotherOverwrote) {
  SharedPage fabric;
  fabric.qp.write(fabric.write(0, 0, 64));
  fabric.qp.record();
  fabric.qp.ring();
  fabric.second.write(fabric.write(64, 64, 64));
  fabric.second.record();
  fabric.second.ring();  // before the NIC looks: the page holds this value alone
  fabric.settle();
  EXPECT_EQ(fabric.qp.poll_all().size(), 1u);
  EXPECT_EQ(fabric.second.poll_all().size(), 1u);
  EXPECT_TRUE(fabric.arrived(0, 0, 128));
  EXPECT_EQ(fabric.counters().doorbells, 0u);
  EXPECT_EQ(fabric.second_counters().doorbells, 1u);
}

// The ring that overwrites orders nothing of the one that it overwrites, whose record may be seen
// late: it is looked for until the grace period is over.
TEST(SharedUar, RecordOfAnOverwrittenDoorbellMayBeSeenLater) {
  SharedPage fabric;
  fabric.qp.write(fabric.write(0, 0, 64));
  fabric.qp.ring();
  fabric.second.post(fabric.write(64, 64, 64));
  fabric.settle();
  EXPECT_EQ(fabric.second.poll_all().size(), 1u);
  EXPECT_FALSE(fabric.qp.poll());
  fabric.now_ns += fabric.sender.options().record_grace_ns - 1;
  fabric.qp.record();
  fabric.settle();
  EXPECT_EQ(fabric.qp.poll_all().size(), 1u);
  EXPECT_TRUE(fabric.arrived(0, 0, 128));
}

TEST(SharedUar, RecordAfterTheGracePeriodOfANeighboursRingStartsNothing) {
  SharedPage fabric;
  fabric.second.post(fabric.write(64, 64, 64));
  fabric.settle();
  fabric.now_ns += fabric.sender.options().record_grace_ns;
  fabric.qp.write(fabric.write(0, 0, 64));
  fabric.qp.record();
  fabric.settle();
  EXPECT_FALSE(fabric.qp.poll());
}

// The original's order of stores: its second ring has the value of its first, which the NIC has
// taken by then, and so it seems to be no news. But it has overwritten another QP's ring.
TEST(SharedUar, SecondRingOfAValueAlreadyTakenLosesNoNeighboursRing) {
  SharedPage fabric;
  fabric.qp.write(fabric.write(0, 0, 64));
  fabric.qp.ring();
  fabric.settle();
  fabric.second.post(fabric.write(64, 64, 64));
  fabric.qp.record();
  fabric.qp.ring();
  fabric.settle();
  EXPECT_EQ(fabric.qp.poll_all().size(), 1u);
  EXPECT_EQ(fabric.second.poll_all().size(), 1u);
  EXPECT_TRUE(fabric.arrived(0, 0, 128));
}

TEST(SharedUar, ReadsNoRecordOfAQpOnAnotherPage) {
  RawFabric fabric;
  test::RawUar other_page(fabric.sender.commands());
  RawQp other(fabric.sender.commands(), fabric.sender_pd, other_page);
  other.connect(fabric.connection);
  other.write(test::nop());
  other.record();
  fabric.qp.post(test::nop());
  fabric.settle();
  EXPECT_TRUE(fabric.qp.poll());
  EXPECT_FALSE(other.poll());
}

// The client that rings, records and rings again has for a moment a record that lags.
TEST(SharedUar, RecordThatLagsBehindItsDoorbellIsNoJump) {
  SharedPage fabric;
  fabric.qp.write(test::nop());
  fabric.qp.ring();
  fabric.settle();
  fabric.second.post(test::nop());
  fabric.settle();
  EXPECT_EQ(fabric.refused(Refusal::kDoorbellJump), 0u);
  EXPECT_EQ(fabric.qp.poll_all().size(), 1u);
  EXPECT_EQ(fabric.second.poll_all().size(), 1u);
}

TEST(SharedUar, ResetOfOneQpLosesNoDoorbellOfTheOther) {
  SharedPage fabric;
  fabric.qp.post(fabric.write(0, 0, 64));  // the NIC has not looked yet
  fabric.second.to_reset();
  fabric.settle();
  EXPECT_EQ(fabric.qp.poll_all().size(), 1u);
  EXPECT_TRUE(fabric.arrived(0, 0, 64));
}

TEST(SharedUar, SecondQpGoesOnWhenTheFirstIsDestroyed) {
  SharedPage fabric;
  fabric.qp.post(test::nop());
  fabric.settle();
  fabric.qp.destroy();
  for (std::uint32_t i = 0; i < 100; ++i) {
    fabric.second.post(fabric.write(i * 64, i * 64, 64));
    fabric.settle();
    const auto cqe = fabric.second.poll();
    ASSERT_TRUE(cqe && succeeded(*cqe)) << i;
  }
  EXPECT_TRUE(fabric.arrived(0, 0, 6400));
}

TEST(Reset, IsFollowedByAnEmptyRingAtIndexZeroAndAnUnbrokenCq) {
  RawFabric fabric;
  for (int i = 0; i < 3; ++i) fabric.qp.post(test::nop());
  fabric.settle();
  ASSERT_EQ(fabric.qp.poll_all().size(), 3u);
  fabric.qp.to_error();
  fabric.qp.to_reset();
  fabric.peer.to_reset();
  fabric.qp.start_over();
  fabric.qp.connect(fabric.connection);
  fabric.peer.connect(fabric.peer_connection);
  EXPECT_FALSE(fabric.step_sender());
  // Three of them, so that the doorbell takes every value that it had before.
  for (std::uint32_t i = 0; i < 3; ++i) {
    fabric.qp.post(fabric.write(i, i, 1));
    fabric.settle();
    const auto cqe = fabric.qp.poll();  // at entry 3 + i: the CQ counts on
    ASSERT_TRUE(cqe && succeeded(*cqe)) << i;
    EXPECT_EQ(cqe->wqe_counter, i);
  }
}

// A QPN is given out again, and so the first doorbell may have the value that the page still holds.
TEST(Doorbell, OfANewQpWithTheOldOnesNumberIsSeen) {
  RawFabric fabric;
  fabric.qp.post(test::nop());
  fabric.settle();
  ASSERT_TRUE(fabric.qp.poll());
  const Qpn old = fabric.qp.qpn();
  fabric.qp.destroy();
  RawQp again(fabric.sender.commands(), fabric.sender_pd, fabric.uar);
  ASSERT_EQ(again.qpn(), old);
  again.connect(fabric.connection);
  again.post(test::nop());
  fabric.settle();
  EXPECT_TRUE(again.poll());
}

}  // namespace
}  // namespace peal::nic
