#include "nic/dump.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "nic/raw_fabric.hpp"

namespace peal::nic {
namespace {

using mlx5::Opcode;
using test::RawFabric;
using test::RawFabricOptions;

QpDump dump(const RawFabric<>& f) {
  return f.sender.dump(f.qp.qpn()).value();
}

std::string text(const QpDump& d) {
  std::string all;
  for (const std::string& line : lines(d)) all += line + "\n";
  return all;
}

void expect_oldest(const QpDump& d, std::uint64_t index, Opcode opcode, Standing standing) {
  ASSERT_TRUE(d.oldest) << text(d);
  EXPECT_EQ(d.oldest->index, index) << text(d);
  EXPECT_EQ(d.oldest->opcode, static_cast<std::uint8_t>(opcode)) << text(d);
  EXPECT_EQ(d.oldest->standing, standing) << text(d);
}

void expect_text(const QpDump& d, const std::string& part) {
  EXPECT_NE(text(d).find(part), std::string::npos) << part << " in " << text(d);
}

TEST(QpDump, SaysThatAllHasCompleted) {
  RawFabric<> f;
  for (int i = 0; i < 3; ++i) f.qp.post(f.write(0, 0, 64));
  f.settle();
  const QpDump d = dump(f);
  EXPECT_EQ(d.qpn, f.qp.qpn());
  EXPECT_EQ(d.state, QpState::kRts);
  EXPECT_EQ(d.posted, 3u);
  EXPECT_EQ(d.rung, 3u);
  EXPECT_EQ(d.fetched, 3u);
  EXPECT_EQ(d.completed, 3u);
  EXPECT_EQ(d.record, 3u);
  EXPECT_EQ(d.outstanding, 0u);
  EXPECT_FALSE(d.oldest);
  EXPECT_EQ(d.oldest_psn, f.connection.send_psn.plus(3));
  EXPECT_EQ(d.next_psn, f.connection.send_psn.plus(3));
  EXPECT_EQ(d.cq_produced, 3u);
  expect_text(d, "RTS, 3 posted, 3 fetched, 3 completed; doorbell record 3; 0 WQEs outstanding");
  expect_text(d, "oldest WQE: none");
  expect_text(d, "rules: none broken; no error");
}

TEST(QpDump, KnowsNothingOfAnUnknownQp) {
  RawFabric<> f;
  EXPECT_FALSE(f.sender.dump(Qpn(1)));
  EXPECT_FALSE(f.sender.dump(Qpn()));
}

TEST(QpDump, SeesTheRecordMoveWithoutADoorbell) {
  RawFabric<> f;
  f.qp.write(f.write(0, 0, 64));
  f.qp.record();
  f.settle();
  const QpDump d = dump(f);
  EXPECT_EQ(d.record, 1u);
  EXPECT_EQ(d.posted, 0u);
  EXPECT_FALSE(d.oldest);
}

TEST(QpDump, SeesADoorbellAheadOfTheRecordThatIsBelieved) {
  RawFabricOptions o;
  o.sender.doorbell_source = DoorbellSource::kRecord;
  RawFabric<> f(o);
  f.qp.write(f.write(0, 0, 64));
  f.qp.ring();
  f.settle();
  const QpDump d = dump(f);
  EXPECT_EQ(d.rung, 1u);
  EXPECT_EQ(d.posted, 0u);
  EXPECT_EQ(d.record, 0u);
  expect_text(d, "1 rung and not recorded, 0 posted");
}

TEST(QpDump, NamesTheWqeThatAFaultHolds) {
  RawFabric<> f;
  f.qp.post(f.write(0, 0, 64));
  f.settle();
  f.sender.arm_faults(f.qp.qpn(), {{FaultKind::kHold, 1'000'000'000, 0}});
  f.qp.post(f.write(0, 0, 64));
  f.settle();
  f.now_ns += 2'500'000;
  f.settle();
  const QpDump d = dump(f);
  EXPECT_EQ(d.posted, 2u);
  EXPECT_EQ(d.fetched, 1u);
  EXPECT_EQ(d.outstanding, 0u);
  expect_oldest(d, 1, Opcode::kRdmaWrite, Standing::kHeldByFault);
  expect_text(d,
              "oldest WQE: index 1, RDMA_WRITE, not fetched, held for 2.500 ms by an injected "
              "fault");
}

TEST(QpDump, NamesTheWqeThatIsNotAnswered) {
  RawFabric<> f;
  for (int i = 0; i < 2; ++i) f.qp.post(f.write(0, 0, 64));
  f.step_sender();
  f.now_ns += 1'000'000;
  f.step_sender();
  const QpDump d = dump(f);
  EXPECT_EQ(d.outstanding, 2u);
  EXPECT_EQ(d.completed, 0u);
  EXPECT_EQ(d.oldest_psn, f.connection.send_psn);
  EXPECT_EQ(d.next_psn, f.connection.send_psn.plus(2));
  expect_oldest(d, 0, Opcode::kRdmaWrite, Standing::kSent);
  expect_text(d, "RDMA_WRITE, sent, unanswered for 1.000 ms");
}

TEST(QpDump, NamesTheWqeWhoseCqeIsDueLater) {
  RawFabric<> f;
  f.sender.arm_faults(f.qp.qpn(), {{FaultKind::kDelay, 3'000'000, 0}});
  f.qp.post(f.write(0, 0, 64));
  f.settle();
  const QpDump d = dump(f);
  EXPECT_EQ(d.outstanding, 1u);
  expect_oldest(d, 0, Opcode::kRdmaWrite, Standing::kDone);
  expect_text(d, "done, its CQE is due in 3.000 ms");
}

TEST(QpDump, NamesTheWaitThatIsHeld) {
  RawFabric<> f;
  f.run({f.ctrl(Opcode::kWait, 2), {0, swap_bytes((std::uint64_t{5} << 32) | f.qp.cqn())}});
  const QpDump d = dump(f);
  expect_oldest(d, 0, Opcode::kWait, Standing::kHeldByWait);
  expect_text(d, "by the CQ that it waits for");
}

// Behind an unanswered WQE the newest one's fence is not what holds the ring up; once it is the
// oldest itself, nothing can hold it.
TEST(QpDump, NamesTheOldestOfAllBehindAFence) {
  RawFabric<> f;
  f.qp.write(f.write(0, 0, 64));
  f.qp.write_segments({f.ctrl(Opcode::kNop, 1, 0, mlx5::kCompletionAlways | mlx5::kFence)});
  f.qp.record();
  f.qp.ring();
  f.step_sender();
  const QpDump d = dump(f);
  EXPECT_EQ(d.outstanding, 2u);
  expect_oldest(d, 0, Opcode::kRdmaWrite, Standing::kSent);
}

TEST(QpDump, SaysThatTheQpIsNotInRts) {
  RawFabricOptions o;
  o.connected = false;
  RawFabric<> f(o);
  f.qp.post(f.write(0, 0, 64));
  f.settle();
  const QpDump d = dump(f);
  EXPECT_EQ(d.state, QpState::kReset);
  expect_oldest(d, 0, Opcode::kRdmaWrite, Standing::kHeldByState);
  EXPECT_EQ(d.reasons.warnings(Refusal::kDoorbellBeforeRts), 1u);
  expect_text(d, "RESET, 1 posted");
  expect_text(d, "rules: warned doorbell-before-rts 1; no error");
}

TEST(QpDump, TellsTheFirstErrorAndTheRulesThatWereBroken) {
  RawFabric<> f;
  f.qp.post(f.write(0, 0, 64));
  f.qp.write(f.write(f.source.size(), 0, 64));
  f.qp.write(f.write(0, 0, 64));
  f.qp.record();
  f.qp.ring();
  f.settle();
  const QpDump d = dump(f);
  EXPECT_EQ(d.state, QpState::kError);
  EXPECT_EQ(d.first_error.index, 1u);
  EXPECT_EQ(d.first_error.reason, Refusal::kLocalRange);
  expect_text(d, "rules: refused local-range 1; first error: WQE index 1, RDMA_WRITE: local");
  expect_text(d, "(syndrome 0x04, vendor syndrome 0x51), local-range");
}

TEST(QpDump, NamesRulesByLevel) {
  ReasonCounts counts;
  EXPECT_EQ(broken_rules(counts), "");
  counts.warned[static_cast<std::size_t>(Refusal::kCqTooSmall)] = 2;
  EXPECT_EQ(broken_rules(counts), "warned cq-too-small 2");
  counts.refused[static_cast<std::size_t>(Refusal::kOpcode)] = 1;
  counts.refused[static_cast<std::size_t>(Refusal::kInjected)] = 3;
  EXPECT_EQ(broken_rules(counts), "refused opcode 1, injected 3, warned cq-too-small 2");
}

}  // namespace
}  // namespace peal::nic
