// Requester and responder over links that lose, double and reorder, in virtual time.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "nic/raw_fabric.hpp"
#include "nic/test_wire.hpp"
#include "support/scale.hpp"

namespace peal::nic {
namespace {

using link::Segment;
using link::SegmentKind;
using mlx5::Syndrome;
using test::LossyWire;
using test::RawFabric;
using test::RawFabricOptions;
using test::ScriptedLink;
using Fate = LossyWire::Fate;

constexpr std::uint64_t kAttemptNs = std::uint64_t{4096} << 14;

RawFabricOptions lossy_options(LossyWire& wire) {
  RawFabricOptions o;
  o.a = &wire.a();
  o.b = &wire.b();
  o.connection.send_psn = Psn(0xfffffa);
  o.connection.receive_psn = Psn(0xfffffd);
  return o;
}

// Everything that can happen at this time, and what waits for later segments where there are none.
void come_to_rest(RawFabric<>& fabric, LossyWire& wire) {
  do {
    fabric.settle();
  } while (wire.release());
}

// Lets time pass until nothing is unfinished; false where that never comes.
bool finish_all(RawFabric<>& fabric, LossyWire& wire, std::uint64_t ns_max = 60'000'000'000) {
  const std::uint64_t end_ns = fabric.now_ns + ns_max;
  for (;;) {
    come_to_rest(fabric, wire);
    if (fabric.sender.quiet(fabric.qp.qpn())) return true;
    if (fabric.now_ns > end_ns) return false;
    fabric.now_ns += 1'000'000;
  }
}

std::vector<SegmentKind> kinds_of(const std::vector<Segment>& segments) {
  std::vector<SegmentKind> kinds;
  for (const Segment& s : segments) kinds.push_back(s.kind);
  return kinds;
}

// ---- One thing goes wrong ----------------------------------------------------------------------

TEST(Lossy, EachSegmentIsOnePacket) {
  LossyWire wire({});
  RawFabricOptions o = lossy_options(wire);
  o.connection.mtu = 3;  // 1024
  RawFabric fabric(o);
  fabric.qp.post(fabric.write(3, 7, 4097));
  come_to_rest(fabric, wire);
  EXPECT_EQ(
      kinds_of(wire.a_to_b()),
      (std::vector{SegmentKind::kWriteFirst, SegmentKind::kWriteMiddle, SegmentKind::kWriteMiddle,
                   SegmentKind::kWriteMiddle, SegmentKind::kWriteLast}));
  EXPECT_EQ(wire.a_to_b()[4].payload_bytes, 1u);
  EXPECT_TRUE(fabric.arrived(3, 7, 4097));
  for (const std::uint32_t bytes : {0u, 8u, 0u, 8u}) fabric.qp.post(fabric.write(0, 0, bytes));
  come_to_rest(fabric, wire);
  ASSERT_EQ(wire.a_to_b().size(), 9u);
  EXPECT_EQ(wire.a_to_b()[8].psn, wire.a_to_b()[4].psn.plus(4)) << "one PSN for no bytes, too";
  EXPECT_EQ(fabric.qp.poll_all().size(), 5u);
}

TEST(Lossy, MovesEverySizeAroundAPacketAtEveryMtu) {
  for (std::uint8_t mtu = 1; mtu <= 5; ++mtu) {
    const std::uint32_t m = 128u << mtu;
    LossyWire wire({});
    RawFabricOptions o = lossy_options(wire);
    o.connection.mtu = mtu;
    RawFabric fabric(o);
    for (const std::uint32_t bytes : {0u, 1u, m - 1, m, m + 1, 2 * m, 2 * m + 1}) {
      std::memset(fabric.destination.data(), 0, fabric.destination.size());
      fabric.qp.post(fabric.write(1, 5, bytes));
      come_to_rest(fabric, wire);
      EXPECT_TRUE(fabric.arrived(1, 5, bytes)) << m << ", " << bytes;
      EXPECT_EQ(fabric.destination[5 + bytes], std::byte{0});
    }
    EXPECT_EQ(fabric.qp.poll_all().size(), 7u);
  }
}

TEST(Lossy, ALostPacketIsAskedForOnceAndSentAgainWithAllBehindIt) {
  LossyWire wire(
      {.a_to_b = [](const Segment&, std::uint64_t n) { return Fate{n == 2 ? 0u : 1u}; }});
  RawFabricOptions o = lossy_options(wire);
  o.connection.mtu = 1;
  RawFabric fabric(o);
  fabric.qp.post(fabric.write(0, 0, 6 * 256));
  come_to_rest(fabric, wire);
  EXPECT_TRUE(fabric.arrived(0, 0, 6 * 256));
  EXPECT_EQ(fabric.qp.poll_all().size(), 1u);
  EXPECT_EQ(fabric.counters().retransmitted, 4u);
  EXPECT_EQ(fabric.receiver.drops().out_of_sequence, 3u);
  int naks = 0;
  for (const Segment& s : wire.b_to_a()) {
    if (s.aeth_syndrome != link::kAethNakSequence) continue;
    ++naks;
    EXPECT_EQ(s.psn, fabric.connection.send_psn.plus(2));
  }
  EXPECT_EQ(naks, 1);
  EXPECT_EQ(fabric.peer_counters().received_writes, 1u);
  EXPECT_EQ(fabric.peer_counters().received_bytes, 6u * 256);
}

TEST(Lossy, OneAcknowledgementIsEnoughForAllBeforeIt) {
  LossyWire wire({.b_to_a = [](const Segment& s, std::uint64_t) {
    return Fate{s.psn == Psn(0xfffffa).plus(2) ? 1u : 0u};
  }});
  RawFabric fabric(lossy_options(wire));
  for (std::uint32_t i = 0; i < 3; ++i) {
    fabric.qp.post(fabric.write(i * 8, i * 8, 8));
    come_to_rest(fabric, wire);
    EXPECT_EQ(fabric.qp.poll_all().size(), i < 2 ? 0u : 3u);
  }
  EXPECT_EQ(fabric.counters().retransmitted, 0u);
}

TEST(Lossy, ALostAcknowledgementCostsATimeoutAndNothingIsWrittenTwice) {
  LossyWire wire(
      {.b_to_a = [](const Segment&, std::uint64_t n) { return Fate{n == 0 ? 0u : 1u}; }});
  RawFabric fabric(lossy_options(wire));
  fabric.qp.post(fabric.write(0, 0, 64));
  come_to_rest(fabric, wire);
  ASSERT_TRUE(fabric.arrived(0, 0, 64));
  std::memset(fabric.destination.data(), 0xee, 64);  // as its owner may, once it has seen it
  fabric.now_ns += kAttemptNs - 1;
  come_to_rest(fabric, wire);
  EXPECT_EQ(wire.a_to_b().size(), 1u) << "not before its time";
  fabric.now_ns += 1;
  come_to_rest(fabric, wire);
  EXPECT_EQ(wire.a_to_b().size(), 2u);
  EXPECT_EQ(fabric.qp.poll_all().size(), 1u);
  EXPECT_EQ(fabric.destination[0], std::byte{0xee});
  EXPECT_EQ(fabric.peer_counters().received_writes, 1u);
  EXPECT_EQ(fabric.peer_counters().duplicate_requests, 1u);
}

TEST(Lossy, AnAcknowledgedPartOfAMessageIsNotSentAgain) {
  // The sixth packet is lost for good until the end of the first attempt.
  LossyWire wire(
      {.a_to_b = [](const Segment&, std::uint64_t n) { return Fate{n >= 5 && n < 8 ? 0u : 1u}; },
       .room = {.packets = 8, .payload_bytes = 1 << 20}});
  RawFabricOptions o = lossy_options(wire);
  o.connection.mtu = 1;
  RawFabric fabric(o);
  fabric.qp.post(fabric.write(0, 0, 8 * 256));
  come_to_rest(fabric, wire);
  ASSERT_EQ(wire.a_to_b().size(), 8u);
  fabric.now_ns += kAttemptNs;
  come_to_rest(fabric, wire);
  EXPECT_EQ(fabric.qp.poll_all().size(), 1u);
  EXPECT_TRUE(fabric.arrived(0, 0, 8 * 256));
  ASSERT_GT(wire.a_to_b().size(), 8u);
  EXPECT_GE(wire.a_to_b()[8].psn.since(fabric.connection.send_psn), 4)
      << "a quarter of the room was acknowledged in the middle of the message";
}

// ---- Retries run out ---------------------------------------------------------------------------

TEST(Lossy, SilenceEndsInRetriesExceededAtTheTimeThatTheAttributesSay) {
  for (const std::uint8_t retries : {std::uint8_t{0}, std::uint8_t{3}, std::uint8_t{7}}) {
    LossyWire wire({.a_to_b = [](const Segment&, std::uint64_t) { return Fate{0}; }});
    RawFabricOptions o = lossy_options(wire);
    o.connection.retry_count = retries;
    RawFabric fabric(o);
    const std::uint64_t started_ns = fabric.now_ns;
    fabric.qp.post(fabric.write(0, 0, 64));
    fabric.qp.post(fabric.write(0, 64, 64));
    come_to_rest(fabric, wire);
    for (std::uint32_t k = 1; k <= retries; ++k) {
      fabric.now_ns = started_ns + k * kAttemptNs - 1;
      come_to_rest(fabric, wire);
      EXPECT_EQ(wire.a_to_b().size(), k * 2u);
      ++fabric.now_ns;
      come_to_rest(fabric, wire);
      EXPECT_EQ(wire.a_to_b().size(), (k + 1) * 2u);
    }
    fabric.now_ns = started_ns + (retries + 1u) * kAttemptNs - 1;
    come_to_rest(fabric, wire);
    EXPECT_FALSE(fabric.qp.poll()) << "sooner than it may";
    ++fabric.now_ns;
    come_to_rest(fabric, wire);
    const auto cqes = fabric.qp.poll_all();
    ASSERT_EQ(cqes.size(), 2u) << int{retries};
    EXPECT_TRUE(test::failed_with(cqes[0], Syndrome::kTransportRetryExceeded));
    EXPECT_TRUE(test::failed_with(cqes[1], Syndrome::kFlushed));
    EXPECT_EQ(fabric.refused(Refusal::kNoAnswer), 1u);
    EXPECT_EQ(fabric.state(), QpState::kError);
  }
}

// The last attempt that it has is still one.
TEST(Lossy, TheLastAttemptMaySucceed) {
  for (const std::uint32_t lost : {6u, 7u}) {
    LossyWire wire(
        {.a_to_b = [lost](const Segment&, std::uint64_t n) { return Fate{n < lost ? 0u : 1u}; }});
    RawFabricOptions o = lossy_options(wire);
    o.connection.retry_count = 6;
    RawFabric fabric(o);
    fabric.qp.post(fabric.write(0, 0, 64));
    ASSERT_TRUE(finish_all(fabric, wire));
    const auto cqe = fabric.qp.poll();
    ASSERT_TRUE(cqe);
    EXPECT_EQ(test::succeeded(*cqe), lost == 6) << lost;
  }
}

// What has been answered gives back all attempts.
TEST(Lossy, EveryAnswerStartsTheCountOfAttemptsAnew) {
  // Each packet is lost twice, of two retries.
  std::deque<std::uint32_t> times;
  LossyWire wire({.a_to_b = [&times](const Segment& s, std::uint64_t) {
    const auto n = static_cast<std::size_t>(s.psn.since(Psn(0xfffffa)));
    if (times.size() <= n) times.resize(n + 1);
    return Fate{times[n]++ < 2 ? 0u : 1u};
  }});
  RawFabricOptions o = lossy_options(wire);
  o.connection.retry_count = 2;
  RawFabric fabric(o);
  for (std::uint32_t i = 0; i < 10; ++i) fabric.qp.post(fabric.write(i * 8, i * 8, 8));
  ASSERT_TRUE(finish_all(fabric, wire));
  for (const auto& cqe : fabric.qp.poll_all()) EXPECT_TRUE(test::succeeded(cqe));
  EXPECT_TRUE(fabric.arrived(0, 0, 80));
}

// IBTA 9.7.6.1.3: a timeout of 0 is none.
TEST(Lossy, WithoutATimeoutItWaitsForEver) {
  LossyWire wire({.a_to_b = [](const Segment&, std::uint64_t) { return Fate{0}; }});
  RawFabricOptions o = lossy_options(wire);
  o.connection.ack_timeout = 0;
  RawFabric fabric(o);
  fabric.qp.post(fabric.write(0, 0, 64));
  EXPECT_FALSE(finish_all(fabric, wire));
  EXPECT_EQ(wire.a_to_b().size(), 1u);
}

// ---- Reads and atomics -------------------------------------------------------------------------

TEST(Lossy, ALostPartOfAReadIsReadAgainFromThere) {
  for (std::uint64_t lost = 0; lost < 5; ++lost) {
    LossyWire wire(
        {.b_to_a = [lost](const Segment&, std::uint64_t n) { return Fate{n == lost ? 0u : 1u}; }});
    RawFabricOptions o = lossy_options(wire);
    o.connection.mtu = 1;
    RawFabric fabric(o);
    for (std::size_t i = 0; i < 2048; ++i) fabric.destination[i] = std::byte(i * 13 + 5);
    const auto segments = fabric.read(100, 200, 5 * 256);
    fabric.qp.write_segments(segments);
    fabric.qp.record();
    fabric.qp.ring();
    ASSERT_TRUE(finish_all(fabric, wire));
    const auto cqes = fabric.qp.poll_all();
    ASSERT_EQ(cqes.size(), 1u);
    EXPECT_TRUE(test::succeeded(cqes[0]));
    EXPECT_EQ(std::memcmp(fabric.source.data() + 200, fabric.destination.data() + 100, 5 * 256), 0);
    ASSERT_EQ(wire.a_to_b().size(), 2u) << lost;
    const Segment& again = wire.a_to_b()[1];
    EXPECT_EQ(again.kind, SegmentKind::kReadRequest);
    EXPECT_EQ(again.psn, fabric.connection.send_psn.plus(static_cast<std::uint32_t>(lost)));
    EXPECT_EQ(again.address, fabric.destination.address() + 100 + lost * 256);
    EXPECT_EQ(again.message_bytes, (5 - lost) * 256);
  }
}

// A write behind it that is acknowledged tells that an answer was lost, at once.
TEST(Lossy, AnAcknowledgementBehindALostAnswerAsksForItAgain) {
  LossyWire wire(
      {.b_to_a = [](const Segment&, std::uint64_t n) { return Fate{n == 0 ? 0u : 1u}; }});
  RawFabric fabric(lossy_options(wire));
  fabric.run(fabric.fetch_add(0, 5));
  EXPECT_FALSE(fabric.qp.poll());
  fabric.qp.post(fabric.write(64, 64, 8));
  come_to_rest(fabric, wire);
  EXPECT_EQ(fabric.qp.poll_all().size(), 2u) << "without a timeout";
  std::uint64_t counter = 0;
  std::memcpy(&counter, fabric.destination.data(), 8);
  EXPECT_EQ(counter, 5u) << "added once";
}

TEST(Lossy, AnAtomicIsExecutedOnceAndAnsweredAlike) {
  LossyWire wire({.a_to_b = [](const Segment&, std::uint64_t) { return Fate{2}; },
                  .b_to_a = [](const Segment&, std::uint64_t n) { return Fate{n < 4 ? 0u : 1u}; }});
  RawFabric fabric(lossy_options(wire));
  const std::uint64_t start = 1000;
  std::memcpy(fabric.destination.data(), &start, 8);
  fabric.run(fabric.fetch_add(0, 7));
  ASSERT_TRUE(finish_all(fabric, wire));
  const auto cqe = fabric.qp.poll();
  ASSERT_TRUE(cqe);
  EXPECT_TRUE(test::succeeded(*cqe));
  std::uint64_t counter = 0, old = 0;
  std::memcpy(&counter, fabric.destination.data(), 8);
  std::memcpy(&old, fabric.source.data(), 8);
  EXPECT_EQ(counter, start + 7);
  EXPECT_EQ(old, start);
  EXPECT_EQ(fabric.peer_counters().served_atomics, 1u);
  EXPECT_GE(fabric.peer_counters().duplicate_requests, 3u);
}

TEST(Lossy, MaskedAtomicsAreRefusedWhereTheWireHasNone) {
  LossyWire wire({});
  RawFabric fabric(lossy_options(wire));
  fabric.run({fabric.ctrl(mlx5::Opcode::kMaskedFetchAdd, 4, mlx5::kMaskedAtomic8Bytes),
              fabric.remote(0), mlx5::encode(mlx5::AtomicSeg{1, 0}), fabric.local(0, 8)});
  const auto cqe = fabric.qp.poll();
  ASSERT_TRUE(cqe);
  EXPECT_TRUE(test::failed_with(*cqe, Syndrome::kLocalQpOperation));
  EXPECT_EQ(fabric.refused(Refusal::kNotOnThisLink), 1u);
  EXPECT_TRUE(wire.a_to_b().empty());
}

// Where the parts end does not depend on where one of them broke off.
TEST(Lossy, APartOfAReadIsFinishedBeforeTheNextIsAskedFor) {
  for (std::uint64_t lost = 0; lost < 24; ++lost) {
    LossyWire wire(
        {.b_to_a = [lost](const Segment&, std::uint64_t n) { return Fate{n == lost ? 0u : 1u}; },
         .room = {.packets = 64, .payload_bytes = 4096}});
    RawFabricOptions o = lossy_options(wire);
    o.connection.mtu = 1;
    RawFabric fabric(o);
    for (std::size_t i = 0; i < 6000; ++i) fabric.destination[i] = std::byte(i * 13 + (i >> 8));
    fabric.run(fabric.read(0, 0, 6000));
    ASSERT_TRUE(finish_all(fabric, wire));
    const auto cqe = fabric.qp.poll();
    ASSERT_TRUE(cqe);
    EXPECT_TRUE(test::succeeded(*cqe)) << lost;
    EXPECT_EQ(std::memcmp(fabric.source.data(), fabric.destination.data(), 6000), 0);
    for (const Segment& s : wire.a_to_b()) {
      const std::uint64_t from = s.address - fabric.destination.address();
      EXPECT_TRUE((from + s.message_bytes) % 2048 == 0 || from + s.message_bytes == 6000) << lost;
    }
  }
}

// ---- Room --------------------------------------------------------------------------------------

TEST(Lossy, NeverMoreIsInFlightThanTheLinkHolds) {
  for (const std::uint32_t packets : {1u, 2u, 5u, 16u}) {
    std::vector<std::int32_t> unanswered;
    Psn acknowledged(0xfffffa);
    LossyWire wire({.a_to_b =
                        [&](const Segment& s, std::uint64_t) {
                          unanswered.push_back(s.psn.since(acknowledged) + 1);
                          return Fate{};
                        },
                    .b_to_a =
                        [&](const Segment& s, std::uint64_t) {
                          acknowledged = s.psn.plus(1);
                          return Fate{};
                        },
                    .room = {.packets = packets, .payload_bytes = 1 << 20}});
    RawFabricOptions o = lossy_options(wire);
    o.connection.mtu = 1;
    RawFabric fabric(o);
    fabric.qp.post(fabric.write(0, 0, 40 * 256 + 1));
    for (std::uint32_t i = 0; i < 10; ++i) fabric.qp.post(fabric.write(0, 0, 8));
    ASSERT_TRUE(finish_all(fabric, wire));
    EXPECT_EQ(fabric.qp.poll_all().size(), 11u);
    EXPECT_EQ(fabric.counters().retransmitted, 0u) << "no timeout was needed: " << packets;
    for (const std::int32_t n : unanswered) EXPECT_LE(n, static_cast<std::int32_t>(packets));
    std::uint32_t unasked = 0;
    for (const Segment& s : wire.a_to_b()) {
      unasked = s.ack_request ? 0 : unasked + 1;
      EXPECT_LE(unasked, packets / 4);
    }
  }
}

TEST(Lossy, AReadIsAskedForInPartsForWhichThereIsRoom) {
  LossyWire wire({.room = {.packets = 64, .payload_bytes = 4096}});
  RawFabricOptions o = lossy_options(wire);
  o.connection.mtu = 1;
  RawFabric fabric(o);
  for (std::size_t i = 0; i < fabric.destination.size(); ++i) {
    fabric.destination[i] = std::byte(i * 13 + (i >> 8));
  }
  fabric.run(fabric.read(3, 9, 20'001));
  fabric.run(fabric.read(3, 30'009, 0));
  ASSERT_TRUE(finish_all(fabric, wire));
  for (const auto& cqe : fabric.qp.poll_all()) EXPECT_TRUE(test::succeeded(cqe));
  EXPECT_EQ(std::memcmp(fabric.source.data() + 9, fabric.destination.data() + 3, 20'001), 0);
  std::uint32_t asked = 0;
  for (const Segment& s : wire.a_to_b()) {
    EXPECT_LE(s.message_bytes, 2048u);
    asked += s.message_bytes;
  }
  EXPECT_EQ(asked, 20'001u);
  EXPECT_EQ(fabric.counters().bytes_moved, 20'001u);
}

// ---- No receive --------------------------------------------------------------------------------

struct LossySender {
  explicit LossySender(std::uint8_t rnr_retry)
      : a(false), b(false), fabric(options(*this, rnr_retry)) {}
  static RawFabricOptions options(LossySender& s, std::uint8_t rnr_retry) {
    RawFabricOptions o;
    o.a = &s.a;
    o.b = &s.b;
    o.connection.rnr_retry = rnr_retry;
    return o;
  }
  void answer(Psn at, std::uint8_t syndrome) {
    Segment s;
    s.destination_qpn = fabric.qp.qpn();
    s.psn = at;
    s.aeth_syndrome = syndrome;
    a.incoming.push_back(s);
    step();
  }
  void step() {
    while (fabric.step_sender()) {
    }
  }
  ScriptedLink a, b;
  RawFabric<> fabric;
};

TEST(Lossy, WaitsAsLongAsAPeerWithoutAReceiveAsksAndAsOftenAsItMay) {
  constexpr std::uint8_t kTimer640us = 12;
  LossySender nic(3);
  const Psn psn = nic.fabric.connection.send_psn;
  nic.fabric.qp.post(nic.fabric.write(0, 0, 64));
  nic.step();
  for (std::size_t attempt = 1; attempt <= 3; ++attempt) {
    ASSERT_EQ(nic.a.sent.size(), attempt);
    nic.answer(psn, link::kAethNakNoReceive | kTimer640us);
    nic.fabric.now_ns += 640'000 - 1;
    nic.step();
    EXPECT_EQ(nic.a.sent.size(), attempt) << "not before its time";
    nic.fabric.now_ns += 1;
    nic.step();
  }
  ASSERT_EQ(nic.a.sent.size(), 4u);
  EXPECT_FALSE(nic.fabric.qp.poll());
  nic.answer(psn, link::kAethNakNoReceive | kTimer640us);
  const auto cqe = nic.fabric.qp.poll();
  ASSERT_TRUE(cqe);
  EXPECT_TRUE(test::failed_with(*cqe, Syndrome::kRnrRetryExceeded));
}

TEST(Lossy, AnImmediateWithoutAReceiveChangesNothingHoweverOftenItComes) {
  LossyWire wire({});
  RawFabricOptions o = lossy_options(wire);
  o.connection.rnr_retry = 3;
  o.connection.min_rnr_timer = 5;  // 60 us
  RawFabric fabric(o);
  test::Wqe wqe = fabric.write(5, 0, 64);
  wqe.ctrl.opcode = static_cast<std::uint8_t>(mlx5::Opcode::kRdmaWriteImm);
  fabric.qp.post(wqe);
  ASSERT_TRUE(finish_all(fabric, wire));
  const auto cqe = fabric.qp.poll();
  ASSERT_TRUE(cqe);
  EXPECT_TRUE(test::failed_with(*cqe, Syndrome::kRnrRetryExceeded));
  EXPECT_EQ(wire.a_to_b().size(), 4u);
  EXPECT_EQ(wire.b_to_a()[0].aeth_syndrome, link::kAethNakNoReceive | 5);
  EXPECT_EQ(fabric.destination[0], std::byte{0});
  EXPECT_EQ(fabric.peer_state(), QpState::kRts) << "the responder goes on";
}

// ---- One end alone -----------------------------------------------------------------------------

TEST(Lossy, ANegativeAcknowledgementThatComesTwiceIsHeardOnce) {
  LossySender nic(0);
  const Psn psn = nic.fabric.connection.send_psn;
  for (std::uint32_t i = 0; i < 3; ++i) nic.fabric.qp.post(nic.fabric.write(i, i, 1));
  nic.step();
  ASSERT_EQ(nic.a.sent.size(), 3u);
  nic.answer(psn.plus(1), link::kAethNakSequence);
  ASSERT_EQ(nic.a.sent.size(), 5u);
  EXPECT_EQ(nic.a.sent[3].psn, psn.plus(1));
  nic.answer(psn.plus(1), link::kAethNakSequence);
  EXPECT_EQ(nic.a.sent.size(), 5u);
  nic.answer(psn.plus(2), link::kAethNakSequence);  // the next one is missing too
  EXPECT_EQ(nic.a.sent.size(), 6u);
  // After a timeout it may be said again: the packet was lost again.
  nic.fabric.now_ns += kAttemptNs;
  nic.step();
  EXPECT_EQ(nic.a.sent.size(), 7u);
  nic.answer(psn.plus(2), link::kAethNakSequence);
  EXPECT_EQ(nic.a.sent.size(), 8u);
  nic.answer(psn.plus(2), link::kAethAck);
  EXPECT_EQ(nic.fabric.qp.poll_all().size(), 3u);
}

TEST(Lossy, AnAnswerOfTheWrongLengthOrKindIsNotTaken) {
  LossySender nic(0);
  const Psn psn = nic.fabric.connection.send_psn;
  nic.fabric.qp.write_segments(nic.fabric.read(0, 100, 64));
  nic.fabric.qp.record();
  nic.fabric.qp.ring();
  nic.step();
  const std::vector<std::byte> payload(128, std::byte{0xee});
  Segment s;
  s.kind = SegmentKind::kReadResponseOnly;
  s.destination_qpn = nic.fabric.qp.qpn();
  s.psn = psn;
  s.payload = payload.data();
  const auto answer = [&](SegmentKind kind, std::uint32_t bytes) {
    s.kind = kind;
    s.payload_bytes = bytes;
    nic.a.incoming.push_back(s);
    nic.step();
  };
  for (const std::uint32_t bytes : {0u, 1u, 63u, 65u, 128u}) {
    answer(SegmentKind::kReadResponseOnly, bytes);
  }
  answer(SegmentKind::kAtomicAcknowledge, 0);
  EXPECT_EQ(nic.fabric.counters().stray_responses, 6u);
  EXPECT_NE(nic.fabric.source[100], std::byte{0xee});
  EXPECT_FALSE(nic.fabric.qp.poll());
  answer(SegmentKind::kReadResponseOnly, 64);
  EXPECT_EQ(nic.fabric.qp.poll_all().size(), 1u);
  EXPECT_EQ(nic.fabric.source[100], std::byte{0xee});
}

// A responder alone, whose requester is the test.
struct LossyReceiver {
  LossyReceiver() : a(false), b(false), fabric(options(*this)), psn(fabric.connection.send_psn) {}
  static RawFabricOptions options(LossyReceiver& r) {
    RawFabricOptions o;
    o.a = &r.a;
    o.b = &r.b;
    o.connection.log_rra_max = 0;
    return o;
  }
  Segment request(SegmentKind kind, std::uint32_t n, std::uint32_t bytes) {
    Segment s;
    s.kind = kind;
    s.ack_request = true;
    s.destination_qpn = fabric.peer.qpn();
    s.psn = psn.plus(n);
    s.address = fabric.destination.address();
    s.rkey = Rkey(fabric.destination.key());
    s.message_bytes = bytes;
    if (kind == SegmentKind::kReadRequest) return s;
    s.payload = fabric.source.data();
    s.payload_bytes = link::is_atomic(kind) ? link::kAtomicPayloadBytes : bytes;
    return s;
  }
  std::vector<Segment> take(const Segment& s) {
    b.incoming.push_back(s);
    return step();
  }
  std::vector<Segment> step() {
    while (fabric.step_receiver()) {
    }
    return std::exchange(b.sent, {});
  }
  ScriptedLink a, b;
  RawFabric<> fabric;
  Psn psn;
};

TEST(Lossy, AMissingPacketIsAskedForOnceUntilItHasCome) {
  LossyReceiver nic;
  const auto naks = [&](std::uint32_t n) {
    std::size_t count = 0;
    for (const Segment& s : nic.take(nic.request(SegmentKind::kWriteOnly, n, 8))) {
      count += s.aeth_syndrome == link::kAethNakSequence ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(naks(1), 1u);
  EXPECT_EQ(naks(2), 0u);
  EXPECT_EQ(naks(3), 0u);
  EXPECT_EQ(naks(0), 0u) << "it has come";
  EXPECT_EQ(naks(3), 1u) << "and another one is missing";
  EXPECT_EQ(naks(1), 0u);
  EXPECT_EQ(nic.fabric.receiver.drops().out_of_sequence, 4u);
}

TEST(Lossy, AReadThatWasNotExecutedAsAWholeIsNotAnsweredAgain) {
  LossyReceiver nic;
  EXPECT_EQ(nic.take(nic.request(SegmentKind::kReadRequest, 0, 2 * 4096)).size(), 2u);
  EXPECT_EQ(nic.take(nic.request(SegmentKind::kReadRequest, 0, 2 * 4096)).size(), 2u);
  EXPECT_EQ(nic.take(nic.request(SegmentKind::kReadRequest, 1, 4096)).size(), 1u);
  EXPECT_EQ(nic.take(nic.request(SegmentKind::kReadRequest, 1, 2 * 4096)).size(), 0u);
  // Nor one that may not be any more.
  Segment s = nic.request(SegmentKind::kReadRequest, 0, 2 * 4096);
  s.rkey = Rkey(s.rkey.value ^ 1);
  EXPECT_EQ(nic.take(s).size(), 0u);
  EXPECT_EQ(nic.fabric.peer_state(), QpState::kRts);
}

TEST(Lossy, AnswersThatAreGivenAgainTakeNoRoomOfNewOnes) {
  LossyReceiver nic;  // grants one read at a time
  nic.take(nic.request(SegmentKind::kReadRequest, 0, 64));
  nic.b.full = true;
  for (int i = 0; i < 3; ++i) nic.take(nic.request(SegmentKind::kReadRequest, 0, 64));
  nic.take(nic.request(SegmentKind::kReadRequest, 1, 64));
  EXPECT_EQ(nic.fabric.peer_state(), QpState::kRts);
  nic.b.full = false;
  EXPECT_EQ(nic.step().size(), 4u);
}

// ---- Strangers ---------------------------------------------------------------------------------

TEST(Lossy, AnswersToWhatWasNeverSentChangeNothing) {
  LossySender nic(0);
  nic.fabric.qp.post(nic.fabric.write(0, 0, 64));
  nic.step();
  const Psn psn = nic.fabric.connection.send_psn;
  for (const Psn at : {psn.plus(1), psn.plus(100), psn.plus(Psn::kMask), psn.plus(0x800000)}) {
    for (const std::uint8_t syndrome : {link::kAethAck, link::kAethNakRemoteAccess}) {
      if (at == psn.plus(1) && syndrome != link::kAethAck) continue;
      nic.answer(at, syndrome);
      EXPECT_FALSE(nic.fabric.qp.poll()) << at.value;
    }
  }
  EXPECT_EQ(nic.fabric.counters().stray_responses, 7u);
  EXPECT_EQ(nic.fabric.state(), QpState::kRts);
  nic.answer(psn, link::kAethAck);
  EXPECT_EQ(nic.fabric.qp.poll_all().size(), 1u);
}

TEST(Lossy, ARefusalByTheResponderEndsBothQps) {
  LossyWire wire({});
  RawFabric fabric(lossy_options(wire));
  test::Wqe wqe = fabric.write(0, 0, 64);
  wqe.raddr.rkey = Rkey(fabric.destination.key() ^ 1);
  fabric.qp.post(wqe);
  come_to_rest(fabric, wire);
  const auto cqe = fabric.qp.poll();
  ASSERT_TRUE(cqe);
  EXPECT_TRUE(test::failed_with(*cqe, Syndrome::kRemoteAccess));
  EXPECT_EQ(fabric.state(), QpState::kError);
  EXPECT_EQ(fabric.peer_state(), QpState::kError);
}

// ---- Everything at once ------------------------------------------------------------------------

struct Rates {
  double drop, twice, overtaken;
};

// Writes of all sizes to places of their own, reads and fetch-adds between them, through `rates` in
// both directions. Nothing may be lost, doubled or done in another order.
void run_mix(std::uint64_t seed, Rates rates) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 rng(seed);
  const auto fate = [&rng, rates](const Segment&, std::uint64_t) {
    std::uniform_real_distribution<double> chance(0, 1);
    Fate f;
    if (chance(rng) < rates.drop) f.copies = 0;
    if (chance(rng) < rates.twice) f.copies *= 2;
    if (chance(rng) < rates.overtaken) f.held_for = 1 + static_cast<std::uint32_t>(rng() % 6);
    return f;
  };
  const auto packets = static_cast<std::uint32_t>(4 + rng() % 60);
  LossyWire wire({fate, fate, {.packets = packets, .payload_bytes = 4096 + rng() % 100'000}});
  RawFabricOptions o = lossy_options(wire);
  o.connection.mtu = static_cast<std::uint8_t>(1 + rng() % 5);
  o.connection.send_psn = Psn(static_cast<std::uint32_t>(rng()));
  o.connection.retry_count = 7;
  o.memory_bytes = 1 << 18;
  RawFabric fabric(o);
  const std::uint32_t mtu = 128u << o.connection.mtu;
  constexpr std::uint32_t kReadFrom = 8;  // constant bytes at the destination
  constexpr std::uint32_t kReadBytes = 16'000;
  constexpr std::uint32_t kWritten = 20'000;  // from here on
  for (std::uint32_t i = 0; i < kReadBytes; ++i) {
    fabric.destination[kReadFrom + i] = std::byte(i * 11 + (i >> 8));
  }
  std::uint32_t at = kWritten;
  std::uint64_t adds = 0;
  std::uint64_t posted = 0;
  std::uint64_t done = 0;
  std::vector<std::uint32_t>
      counter_at;  // where the old values land is always 0: checked one by one
  const auto poll = [&] {
    for (const auto& cqe : fabric.qp.poll_all()) {
      ASSERT_TRUE(test::succeeded(cqe)) << "syndrome " << int{cqe.syndrome};
      ASSERT_EQ(cqe.wqe_counter, done & 0xffff);
      ++done;
    }
  };
  while (at + 6 * mtu < fabric.destination.size() && posted < 60) {
    const auto kind = rng() % 8;
    if (kind == 0) {
      fabric.qp.write_segments(fabric.fetch_add(0, 1));
      ++adds;
    } else if (kind == 1) {
      const auto bytes = static_cast<std::uint32_t>(rng() % (4 * mtu + 2)) % kReadBytes;
      fabric.qp.write_segments(fabric.read(kReadFrom, 16, bytes));
    } else {
      const auto bytes = static_cast<std::uint32_t>(rng() % (4 * mtu + 2));
      fabric.qp.write(fabric.write(at, at, bytes));
      at += bytes;
    }
    ++posted;
    fabric.qp.record();
    fabric.qp.ring();
    fabric.settle();
    // The ring has 16 slots.
    for (int i = 0; posted - done >= 12; ++i) {
      ASSERT_LT(i, 10'000) << "it does not go on";
      come_to_rest(fabric, wire);
      ASSERT_NO_FATAL_FAILURE(poll());
      fabric.now_ns += 10'000'000;
    }
  }
  ASSERT_TRUE(finish_all(fabric, wire));
  ASSERT_NO_FATAL_FAILURE(poll());
  EXPECT_EQ(done, posted);
  EXPECT_TRUE(fabric.arrived(kWritten, kWritten, at - kWritten));
  std::uint64_t counter = 0;
  std::memcpy(&counter, fabric.destination.data(), 8);
  EXPECT_EQ(counter, adds);
  EXPECT_EQ(fabric.peer_counters().served_atomics, adds);
  EXPECT_EQ(fabric.peer_counters().received_bytes, at - kWritten);
  EXPECT_EQ(fabric.state(), QpState::kRts);
}

TEST(Lossy, LosesNothingAndDoublesNothing) {
  const auto seeds = static_cast<std::uint64_t>(test::scaled(300));
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const double most = 0.1;
    const Rates rates = seed % 4 == 0   ? Rates{most, most, most}
                        : seed % 4 == 1 ? Rates{most, 0, 0}
                        : seed % 4 == 2 ? Rates{0, most, 0}
                                        : Rates{0, 0, most};
    ASSERT_NO_FATAL_FAILURE(run_mix(seed, rates));
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace peal::nic
