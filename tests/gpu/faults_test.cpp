// Faults that a NIC was told to commit, on each kind of NIC alike.
#include "gpu/fabric.hpp"

namespace peal::test {
namespace {

class Faults : public Gpu, public testing::WithParamInterface<NicOn> {
 protected:
  static constexpr std::uint32_t kPuts = 40;  // more than a block begins at once

  test::Setup setup(std::uint32_t blocks = 1) const {
    return {.nic = GetParam(), .depth = 128, .blocks = blocks, .blocks_a_queue = blocks};
  }
  static Job job_of(const Fabric& fabric, std::uint32_t bytes) {
    Job job = fabric.job();
    job.bytes = bytes;
    job.puts = kPuts;
    job.window = kPuts;
    job.batch = kPuts;
    return job;
  }
  static std::vector<std::byte> target_of(Fabric& fabric) {
    std::vector<std::byte> there(fabric.setup.bytes);
    EXPECT_EQ(fabric.to_memory->copy_from_device(there.data(), fabric.target, there.size()), 0);
    return there;
  }
};
INSTANTIATE_TEST_SUITE_P(Nic, Faults, testing::Values(NicOn::kCpu, NicOn::kGpu, NicOn::kFused),
                         [](const auto& p) { return std::string(name_of(p.param)); });

// On its way: the source stays as it is. From one block and, where the NIC has helpers, from them.
TEST_P(Faults, CorruptFlipsOneBitInTheMiddleOfThePayload) {
  for (const std::uint32_t blocks : {1u, 2u}) {
    for (const std::uint32_t bytes : {1u, 64u, 4096u, 9000u}) {
      for (const std::uint64_t at : {0u, 38u, 39u}) {
        Fabric fabric(setup(blocks));
        fabric.arm({{nic::FaultKind::kCorrupt, 0, at}});
        EXPECT_EQ(fabric.unreached(), 1u);
        const Job job = job_of(fabric, bytes);
        EXPECT_EQ(fabric.run(job)[0].status, Status::kOk);
        EXPECT_EQ(fabric.unreached(), 0u);
        std::vector<std::byte> there = target_of(fabric);
        there[at * bytes + bytes / 2] ^= std::byte{0x01};
        EXPECT_TRUE(std::equal(there.begin(), there.begin() + kPuts * bytes, fabric.sent.begin()))
            << bytes << " bytes, WQE " << at;
        std::vector<std::byte> source(fabric.setup.bytes);
        fabric.from_memory->copy_from_device(source.data(), fabric.source, source.size());
        EXPECT_EQ(source, fabric.sent);
      }
    }
  }
}

TEST_P(Faults, NoopMovesNothingAndSucceeds) {
  Fabric fabric(setup());
  fabric.arm({{nic::FaultKind::kNoop, 0, 7}});
  const Job job = job_of(fabric, 4096);
  EXPECT_EQ(fabric.run(job)[0].status, Status::kOk);
  EXPECT_EQ(fabric.unreached(), 0u);
  const std::vector<std::byte> there = target_of(fabric);
  for (std::uint32_t i = 0; i < kPuts; ++i) {
    const auto from = there.begin() + i * 4096;
    if (i == 7) {
      EXPECT_TRUE(std::all_of(from, from + 4096, [](std::byte b) { return b == std::byte{0}; }));
    } else {
      EXPECT_TRUE(std::equal(from, from + 4096, fabric.sent.begin() + i * 4096)) << i;
    }
  }
  EXPECT_EQ(fabric.counters().bytes_moved, (kPuts - 1) * 4096u);
}

TEST_P(Faults, CqeEndsTheQueueAtItsWqe) {
  Fabric fabric(setup());
  fabric.arm({{nic::FaultKind::kCqe, 0x13, 7}});
  const Job job = job_of(fabric, 256);
  const Outcome o = fabric.run(job)[0];
  EXPECT_EQ(o.status, Status::kCompletionError);
  EXPECT_LE(o.completed, 7u);
  EXPECT_EQ(fabric.unreached(), 0u);
  const nic::QpCounters c = fabric.counters();
  EXPECT_EQ(c.first_error.index, 7u);
  EXPECT_EQ(c.first_error.syndrome, 0x13);
  EXPECT_EQ(c.first_error.reason, nic::Refusal::kInjected);
  EXPECT_EQ(c.reasons.refusals(nic::Refusal::kInjected), 1u);
  fabric.reset();
  expect_all(fabric, job, fabric.run(job));
}

TEST_P(Faults, HoldBeginsWithTheNextDoorbell) {
  constexpr std::uint64_t kHoldNs = 50'000'000;
  Fabric fabric(setup());
  fabric.arm({{nic::FaultKind::kHold, kHoldNs, 0}});
  EXPECT_EQ(fabric.unreached(), 1u);
  const Job job = job_of(fabric, 256);
  const std::vector<Outcome> outcomes = fabric.run(job);
  expect_all(fabric, job, outcomes);
  EXPECT_GE(outcomes[0].ended_ns - outcomes[0].started_ns, kHoldNs);
  EXPECT_EQ(fabric.unreached(), 0u);
}

// Armed anew, a fault happens anew; one that no WQE reaches is left.
TEST_P(Faults, AreCountedFromTheMomentOfArming) {
  Fabric fabric(setup());
  for (int round = 0; round < 3; ++round) {
    fabric.arm({{nic::FaultKind::kNoop, 0, 5}, {nic::FaultKind::kNoop, 0, kPuts}});
    EXPECT_EQ(fabric.unreached(), 2u);
    EXPECT_EQ(fabric.run(job_of(fabric, 64))[0].status, Status::kOk);
    EXPECT_EQ(fabric.unreached(), 1u);
  }
  EXPECT_EQ(fabric.counters().bytes_moved, 3 * (kPuts - 1) * 64u);
}

TEST_P(Faults, WhatIsNotServedIsRefusedAndDisarmed) {
  if (GetParam() == NicOn::kCpu) GTEST_SKIP() << "the NIC on the CPU serves all";
  Fabric fabric(setup());
  EXPECT_THROW(fabric.arm({{nic::FaultKind::kDelay, 1000, 0}}), Error);
  EXPECT_EQ(fabric.unreached(), 0u);
  EXPECT_THROW(fabric.arm(std::vector<nic::Fault>(33)), Error);
  const Job job = job_of(fabric, 64);
  expect_all(fabric, job, fabric.run(job));
}

}  // namespace
}  // namespace peal::test
