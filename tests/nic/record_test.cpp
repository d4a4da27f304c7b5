// A doorbell and its record belong together: a client that leaves one out is told so, late enough
// for one that is only slow.
#include <gtest/gtest.h>

#include "nic/raw_fabric.hpp"

namespace peal::nic {
namespace {

using test::RawFabric;
using test::RawFabricOptions;

constexpr std::uint64_t kRecordGraceNs = 1'000'000;

RawFabricOptions with_grace() {
  RawFabricOptions o;
  o.sender.record_grace_ns = kRecordGraceNs;
  return o;
}

// Steps through `graces` grace periods.
void let_pass(RawFabric<>& fabric, int graces) {
  for (int i = 0; i < graces; ++i) {
    fabric.now_ns += kRecordGraceNs;
    fabric.settle();
  }
}

TEST(Record, LeftOutEndsTheQpAfterTheGracePeriod) {
  RawFabric<> fabric(with_grace());
  fabric.settle();
  fabric.qp.write(fabric.write(0, 0, 8));
  fabric.qp.ring();
  fabric.settle();
  fabric.now_ns += kRecordGraceNs - 1;
  fabric.settle();
  EXPECT_EQ(fabric.refused(Refusal::kDoorbellWithoutRecord), 0u);
  let_pass(fabric, 3);
  EXPECT_EQ(fabric.refused(Refusal::kDoorbellWithoutRecord), 1u);
  fabric.qp.poll_all();
  fabric.qp.post(fabric.write(0, 0, 8));
  fabric.settle();
  const auto cqe = fabric.qp.poll();
  ASSERT_TRUE(cqe);
  EXPECT_EQ(cqe->syndrome, static_cast<std::uint8_t>(mlx5::Syndrome::kFlushed));
}

TEST(Record, WrittenLateButWithinTheGracePeriodIsNoFault) {
  RawFabric<> fabric(with_grace());
  fabric.settle();
  for (int i = 0; i < 10; ++i) {
    fabric.qp.write(fabric.write(0, 0, 8));
    fabric.qp.ring();
    fabric.settle();
    fabric.now_ns += kRecordGraceNs - 1;
    fabric.settle();
    fabric.qp.record();
    let_pass(fabric, 3);
    const auto cqe = fabric.qp.poll();
    ASSERT_TRUE(cqe);
    EXPECT_EQ(cqe->opcode, mlx5::CqeOpcode::kRequester);
  }
  EXPECT_EQ(fabric.refused(Refusal::kDoorbellWithoutRecord), 0u);
  EXPECT_EQ(fabric.warned(Refusal::kRecordWithoutDoorbell), 0u);
}

TEST(Record, WithoutADoorbellIsCountedAndNeverWork) {
  RawFabric<> fabric(with_grace());
  fabric.settle();
  fabric.qp.write(fabric.write(0, 0, 8));
  fabric.qp.record();
  let_pass(fabric, 5);
  EXPECT_GE(fabric.warned(Refusal::kRecordWithoutDoorbell), 1u);
  EXPECT_EQ(fabric.counters().wqes_fetched, 0u);
  EXPECT_FALSE(fabric.qp.poll());
  fabric.qp.ring();  // the client remembers
  fabric.settle();
  const auto cqe = fabric.qp.poll();
  ASSERT_TRUE(cqe);
  EXPECT_EQ(cqe->opcode, mlx5::CqeOpcode::kRequester);
}

}  // namespace
}  // namespace peal::nic
