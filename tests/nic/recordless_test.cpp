// QPs without a doorbell record: the register alone is believed, and it is theirs alone.
#include <gtest/gtest.h>

#include <cstdint>

#include "nic/raw_fabric.hpp"

namespace peal::nic {
namespace {

using test::RawFabric;
using test::RawFabricOptions;
using test::RawQp;
using test::succeeded;

constexpr std::uint64_t kRecordlessGraceNs = 1'000'000;

RawFabricOptions recordless(std::uint64_t first = 0) {
  RawFabricOptions o;
  o.sender.record_grace_ns = kRecordlessGraceNs;
  o.sender.first_wqe_index = first;
  o.qp.has_record = false;
  return o;
}

void expect_no_rule_broken(RawFabric<>& fabric) {
  EXPECT_EQ(broken_rules(fabric.counters().reasons), "");
}

TEST(Recordless, EachRingStartsWhatItAnnouncesAndNoOthers) {
  RawFabric fabric(recordless());
  for (std::uint64_t i = 0; i < 100; ++i) {
    fabric.qp.write(fabric.write(i * 64, i * 64, 64));
    fabric.settle();
    EXPECT_EQ(fabric.counters().producer_index, i) << "nobody rang";
    fabric.qp.ring();
    fabric.settle();
    const auto cqe = fabric.qp.poll();
    ASSERT_TRUE(cqe && succeeded(*cqe)) << i;
  }
  EXPECT_TRUE(fabric.arrived(0, 0, 6400));
  EXPECT_EQ(fabric.counters().doorbells, 100u);
  expect_no_rule_broken(fabric);
}

TEST(Recordless, RingsOverBothWraps) {
  for (const std::uint64_t wrap : {std::uint64_t{1} << 16, std::uint64_t{1} << 32}) {
    RawFabric fabric(recordless(wrap - 20));
    for (std::uint64_t i = 0; i < 40; ++i) {
      fabric.qp.post(fabric.write(i * 64, i * 64, 64));
      fabric.settle();
      const auto cqe = fabric.qp.poll();
      ASSERT_TRUE(cqe && succeeded(*cqe)) << i;
    }
    EXPECT_EQ(fabric.counters().producer_index, wrap + 20);
    EXPECT_TRUE(fabric.arrived(0, 0, 2560));
  }
}

// What lies where a record would be is nobody's: not read, and not held against the rings.
TEST(Recordless, ReadsNoRecord) {
  for (const DoorbellSource source : {DoorbellSource::kRegister, DoorbellSource::kRecord}) {
    RawFabricOptions o = recordless();
    o.sender.doorbell_source = source;
    RawFabric fabric(o);
    fabric.qp.write(fabric.write(0, 0, 64));
    fabric.qp.write(fabric.write(64, 64, 64));
    fabric.qp.record_at(2);
    fabric.qp.ring_at(1);
    for (int i = 0; i < 5; ++i) {
      fabric.settle();
      fabric.now_ns += kRecordlessGraceNs;
    }
    EXPECT_EQ(fabric.qp.poll_all().size(), 1u);
    EXPECT_EQ(fabric.counters().producer_index, 1u);
    expect_no_rule_broken(fabric);
  }
}

// No record tells of it again, so a lost ring is lost: nothing else starts the work.
TEST(Recordless, ARingThatTheNicDoesNotSeeIsLostUntilTheNext) {
  RawFabric fabric(recordless());
  fabric.qp.write(fabric.write(0, 0, 64));
  fabric.qp.ring();
  fabric.uar.ring(0, false);  // as if it had been lost on its way
  for (int i = 0; i < 5; ++i) {
    fabric.settle();
    fabric.now_ns += kRecordlessGraceNs;
  }
  EXPECT_FALSE(fabric.qp.poll());
  EXPECT_EQ(fabric.counters().doorbells, 0u);
  fabric.qp.post(fabric.write(64, 64, 64));
  fabric.settle();
  EXPECT_EQ(fabric.qp.poll_all().size(), 2u);
  EXPECT_TRUE(fabric.arrived(0, 0, 128));
}

TEST(Recordless, SharesItsPageWithQpsThatHaveARecord) {
  RawFabric fabric(recordless());
  RawQp other(fabric.sender.commands(), fabric.sender_pd, fabric.uar);
  other.connect(fabric.connection);
  fabric.qp.write(fabric.write(0, 0, 64));
  other.write(test::nop());
  other.record();
  fabric.qp.ring();
  other.ring();  // neither overwrites the other
  fabric.settle();
  EXPECT_EQ(fabric.qp.poll_all().size(), 1u);
  EXPECT_EQ(other.poll_all().size(), 1u);
  EXPECT_EQ(fabric.counters().doorbells, 1u);
  EXPECT_EQ(fabric.sender.counters(other.qpn()).doorbells, 1u);
  expect_no_rule_broken(fabric);
}

TEST(Recordless, RungInTheRegisterOfAnotherKindOfQpIsRefusedAndStartsNothing) {
  RawFabric fabric(recordless());
  RawQp other(fabric.sender.commands(), fabric.sender_pd, fabric.uar);
  other.connect(fabric.connection);
  fabric.qp.write(fabric.write(0, 0, 64));
  fabric.uar.ring(mlx5::encode_doorbell(1, fabric.qp.qpn()), true);
  other.write(test::nop());
  other.record();
  fabric.uar.ring(mlx5::encode_doorbell(1, other.qpn()), false);
  fabric.settle();
  // Each is counted by the QP whose register it was.
  EXPECT_EQ(fabric.refused(Refusal::kDoorbellRegister), 1u);
  EXPECT_EQ(fabric.sender.counters(other.qpn()).reasons.refusals(Refusal::kDoorbellRegister), 1u);
  EXPECT_FALSE(fabric.qp.poll());
  EXPECT_FALSE(other.poll());
}

// A register that is no QP's is looked at now and then, so that the ring is told of.
TEST(Recordless, RungInTheRegisterOfNoQpIsTold) {
  for (const bool has_record : {true, false}) {
    RawFabricOptions o = recordless();
    o.qp.has_record = has_record;
    RawFabric fabric(o);
    fabric.settle();
    fabric.qp.write(fabric.write(0, 0, 64));
    fabric.uar.ring(mlx5::encode_doorbell(1, fabric.qp.qpn()), !has_record);
    fabric.settle();
    EXPECT_EQ(fabric.refused(Refusal::kDoorbellRegister), 0u);
    fabric.now_ns += kRecordlessGraceNs;
    fabric.settle();
    EXPECT_EQ(fabric.refused(Refusal::kDoorbellRegister), 1u);
    EXPECT_FALSE(fabric.qp.poll());
    EXPECT_EQ(fabric.counters().producer_index, 0u);
  }
}

TEST(Recordless, AJumpOrAnUnknownQpInItsRegisterIsRefused) {
  RawFabric fabric(recordless());
  fabric.qp.ring_at(17);
  fabric.settle();
  EXPECT_EQ(fabric.refused(Refusal::kDoorbellJump), 1u);
  fabric.uar.ring(mlx5::encode_doorbell(1, Qpn(fabric.qp.qpn().value + 1)), false);
  fabric.settle();
  EXPECT_EQ(fabric.refused(Refusal::kDoorbellQpn), 1u);
  EXPECT_EQ(fabric.counters().wqes_fetched, 0u);
}

TEST(Recordless, WorksAgainAfterAReset) {
  RawFabric fabric(recordless());
  for (int i = 0; i < 3; ++i) fabric.qp.post(test::nop());
  fabric.settle();
  ASSERT_EQ(fabric.qp.poll_all().size(), 3u);
  fabric.qp.to_error();
  fabric.qp.to_reset();
  fabric.peer.to_reset();
  fabric.qp.start_over();
  fabric.qp.connect(fabric.connection);
  fabric.peer.connect(fabric.peer_connection);
  for (std::uint32_t i = 0; i < 3; ++i) {
    fabric.qp.post(fabric.write(i, i, 1));
    fabric.settle();
    const auto cqe = fabric.qp.poll();
    ASSERT_TRUE(cqe && succeeded(*cqe)) << i;
    EXPECT_EQ(cqe->wqe_counter, i);
  }
  expect_no_rule_broken(fabric);
}

TEST(Recordless, ARingForAQpThatIsGoneStartsNothingInTheNext) {
  RawFabric fabric(recordless());
  const Qpn qpn = fabric.qp.qpn();
  fabric.qp.destroy();
  fabric.uar.ring(mlx5::encode_doorbell(3, qpn), false);
  RawQp next(fabric.sender.commands(), fabric.sender_pd, fabric.uar, {.has_record = false});
  ASSERT_EQ(next.qpn(), qpn);
  next.connect(fabric.connection);
  fabric.settle();
  EXPECT_EQ(fabric.sender.counters(next.qpn()).producer_index, 0u);
  EXPECT_EQ(fabric.sender.reasons().warnings(Refusal::kDoorbellLeftBehind), 1u);
}

TEST(Recordless, DumpSaysThatThereIsNoRecord) {
  RawFabric fabric(recordless());
  fabric.qp.post(fabric.write(0, 0, 64));
  fabric.settle();
  const auto d = fabric.sender.dump(fabric.qp.qpn());
  ASSERT_TRUE(d);
  EXPECT_FALSE(d->record);
  EXPECT_NE(lines(*d)[0].find("1 completed; no doorbell record; 0 WQEs"), std::string::npos)
      << lines(*d)[0];
}

}  // namespace
}  // namespace peal::nic
