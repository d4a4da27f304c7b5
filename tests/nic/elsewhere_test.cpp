// A core whose queues an engine with a data path of its own serves: it looks at none of them, and
// what that engine reports is what the core says.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "nic/raw_fabric.hpp"

namespace peal::nic {
namespace {

using test::RawFabric;
using test::RawFabricOptions;

struct Elsewhere {
  std::vector<Notice> notices;
  std::uint32_t reads = 0;
  RawFabric<> f;

  static RawFabricOptions options(std::vector<Notice>* notices) {
    RawFabricOptions o;
    o.sender.first_wqe_index = 100;
    o.sender.notify = [notices](const Notice& n) { notices->push_back(n); };
    o.receiver.notify = o.sender.notify;
    return o;
  }
  Elsewhere() : f(options(&notices)) {
    const auto read = [this](void* to, const void* from, std::size_t n) {
      ++reads;
      std::memcpy(to, from, n);
    };
    f.sender.serve_elsewhere(read);
    f.receiver.serve_elsewhere(read);
  }
  Qpn qpn() const { return f.qp.qpn(); }

  static Progress progress(std::uint64_t posted, std::uint64_t fetched, std::uint64_t completed) {
    Progress p;
    p.posted = posted;
    p.fetched = fetched;
    p.completed = completed;
    p.cq_produced = completed - 100;
    p.done.wqes_fetched = p.done.writes = p.done.cqes = completed - 100;
    p.done.bytes_moved = 64 * p.done.cqes;
    return p;
  }
};

TEST(Elsewhere, CountersAreWhatTheEngineReports) {
  Elsewhere e;
  e.f.sender.report(e.qpn(), Elsewhere::progress(108, 107, 105));
  const QpCounters c = e.f.sender.counters(e.qpn());
  EXPECT_EQ(c.wqes_fetched, 5u);
  EXPECT_EQ(c.writes, 5u);
  EXPECT_EQ(c.cqes, 5u);
  EXPECT_EQ(c.bytes_moved, 320u);
  EXPECT_EQ(c.producer_index, 108u);
  EXPECT_EQ(c.consumer_index, 107u);
  EXPECT_TRUE(e.notices.empty());
}

TEST(Elsewhere, IsQuietWhenAllThatWasRungIsCompleted) {
  Elsewhere e;
  EXPECT_TRUE(e.f.sender.quiet(e.qpn()));
  e.f.sender.report(e.qpn(), Elsewhere::progress(108, 108, 107));
  EXPECT_FALSE(e.f.sender.quiet(e.qpn()));
  e.f.sender.report(e.qpn(), Elsewhere::progress(108, 107, 108));  // as it may be seen, torn
  EXPECT_TRUE(e.f.sender.quiet(e.qpn()));
  EXPECT_EQ(e.f.sender.counters(e.qpn()).consumer_index, 108u);
}

TEST(Elsewhere, AFirstErrorIsCountedAndToldOnce) {
  Elsewhere e;
  Progress p = Elsewhere::progress(108, 108, 108);
  p.first_error = {103, 0x08, 0x04, 0x51, Refusal::kLkeyUnknown};
  for (int i = 0; i < 2; ++i) e.f.sender.report(e.qpn(), p);
  const QpCounters c = e.f.sender.counters(e.qpn());
  EXPECT_EQ(c.first_error.index, 103u);
  EXPECT_EQ(c.first_error.syndrome, 0x04);
  EXPECT_EQ(c.first_error.vendor_syndrome, 0x51);
  EXPECT_EQ(c.reasons.refusals(Refusal::kLkeyUnknown), 1u);
  ASSERT_EQ(e.notices.size(), 1u);
  EXPECT_EQ(e.notices[0].reason, Refusal::kLkeyUnknown);
  EXPECT_EQ(e.notices[0].qpn, e.qpn());
  EXPECT_EQ(e.notices[0].index, 103u);
  EXPECT_EQ(e.f.sender.tables().find_qp(e.qpn())->state, QpState::kError);
}

TEST(Elsewhere, BothEndsCountWhatTheResponderRefused) {
  EXPECT_EQ(as_requester_sees(Refusal::kRemoteRange), Refusal::kRemoteRefused);
  EXPECT_EQ(as_requester_sees(Refusal::kNoReceive), Refusal::kNoReceive);
  EXPECT_EQ(as_requester_sees(Refusal::kWrongSource), Refusal::kNoAnswer);
  EXPECT_EQ(as_requester_sees(Refusal::kLocalRange), Refusal::kLocalRange);
  const auto state = [](Elsewhere& e) {
    return e.f.receiver.tables().find_qp(e.f.peer.qpn())->state;
  };
  for (const auto& [why, ends] : {std::pair{Refusal::kRkeyUnknown, true},
                                  {Refusal::kNoReceive, false},
                                  {Refusal::kResponderState, false}}) {
    Elsewhere e;
    e.f.receiver.refuse(e.f.peer.qpn(), why);
    EXPECT_EQ(e.f.receiver.counters(e.f.peer.qpn()).reasons.refusals(why), 1u);
    EXPECT_EQ(state(e), ends ? QpState::kError : QpState::kRts);
    EXPECT_EQ(e.notices.size(), 1u);
  }
}

TEST(Elsewhere, ADumpReadsThroughTheEngine) {
  Elsewhere e;
  for (int i = 0; i < 3; ++i) e.f.qp.write(e.f.write(0, 0, 64));
  e.f.qp.record();
  e.f.sender.report(e.qpn(), Elsewhere::progress(103, 102, 101));
  const QpDump d = e.f.sender.dump(e.qpn()).value();
  EXPECT_EQ(d.posted, 103u);
  EXPECT_EQ(d.fetched, 102u);
  EXPECT_EQ(d.completed, 101u);
  EXPECT_EQ(d.outstanding, 1u);
  EXPECT_EQ(d.record, 103u);
  EXPECT_EQ(d.cq_produced, 1u);
  ASSERT_TRUE(d.oldest);
  EXPECT_EQ(d.oldest->index, 101u);
  EXPECT_EQ(d.oldest->opcode, static_cast<std::uint8_t>(mlx5::Opcode::kRdmaWrite));
  EXPECT_EQ(d.oldest->standing, Standing::kElsewhere);
  EXPECT_EQ(e.reads, 2u);
  std::string all;
  for (const std::string& line : lines(d)) all += line + "\n";
  EXPECT_NE(all.find("RTS, 103 posted, 102 fetched, 101 completed; doorbell record 103; 1 WQE "
                     "outstanding; 1 CQEs produced\n"
                     "oldest WQE: index 101, RDMA_WRITE, fetched, and without a CQE yet"),
            std::string::npos)
      << all;
}

// A ring that the core took would be one that the engine never sees.
TEST(Elsewhere, NoRingIsTakenByTheCore) {
  Elsewhere e;
  auto* doorbell = const_cast<std::uint64_t*>(reinterpret_cast<const std::uint64_t*>(
      e.f.sender.tables().uars[e.f.sender.tables().find_qp(e.qpn())->uar].page +
      mlx5::kUarDoorbellOffset));
  e.f.qp.post(e.f.write(0, 0, 64));
  const std::uint64_t rung = *doorbell;
  ASSERT_NE(rung, 0u);
  test::RawQp another(e.f.sender.commands(), e.f.sender_pd, e.f.uar, {.log_depth = 2});
  e.f.qp.to_reset();
  EXPECT_EQ(*doorbell, rung);
  EXPECT_EQ(e.f.sender.counters(e.qpn()).producer_index, 0u);
}

TEST(Elsewhere, CountersGoOnOverAResetAndTheErrorDoesNot) {
  Elsewhere e;
  Progress p = Elsewhere::progress(104, 104, 104);
  p.first_error = {103, 0x08, 0x04, 0x51, Refusal::kLkeyUnknown};
  e.f.sender.report(e.qpn(), p);
  e.f.qp.to_reset();
  QpCounters c = e.f.sender.counters(e.qpn());
  EXPECT_EQ(c.wqes_fetched, 4u);
  EXPECT_EQ(c.first_error.syndrome, 0u);
  p.first_error.index = 5;
  e.f.sender.report(e.qpn(), p);
  c = e.f.sender.counters(e.qpn());
  EXPECT_EQ(c.first_error.index, 5u);
  EXPECT_EQ(c.reasons.refusals(Refusal::kLkeyUnknown), 2u);
}

TEST(Elsewhere, FaultsAreReachedAsTheEngineReports) {
  Elsewhere e;
  e.f.sender.report(e.qpn(), Elsewhere::progress(104, 104, 104));
  e.f.sender.arm_faults(e.qpn(), {{FaultKind::kNoop, 0, 3}, {FaultKind::kHold, 1000, 0}});
  const ArmedFaults& armed = *e.f.sender.armed_faults(e.qpn());
  EXPECT_EQ(armed.all()[0].index, 107u);
  Progress p = Elsewhere::progress(108, 104, 104);
  p.held = true;
  p.reached = 2;
  p.arming = armed.arming() - 1;  // of those before
  e.f.sender.report(e.qpn(), p);
  EXPECT_EQ(e.f.sender.unreached_faults(e.qpn()), 2u);
  p.arming = armed.arming();
  e.f.sender.report(e.qpn(), p);
  EXPECT_EQ(e.f.sender.unreached_faults(e.qpn()), 1u);
  const QpDump d = e.f.sender.dump(e.qpn()).value();
  ASSERT_TRUE(d.oldest);
  EXPECT_EQ(d.oldest->standing, Standing::kHeldByFault);
  EXPECT_NE(lines(d)[1].find("not fetched, held by an injected fault"), std::string::npos)
      << lines(d)[1];
}

}  // namespace
}  // namespace peal::nic
