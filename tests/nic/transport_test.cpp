// Requester and responder against each other over links that a test makes narrow, and at the ends
// of a connection's life.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "nic/raw_fabric.hpp"
#include "nic/test_wire.hpp"
#include "support/scale.hpp"

namespace peal::nic {
namespace {

using link::SegmentKind;
using mlx5::Syndrome;
using test::failed_with;
using test::RawFabric;
using test::RawFabricOptions;
using test::ScriptedLink;
using test::succeeded;
using test::TestWire;
using test::Wqe;

RawFabricOptions over(TestWire& wire) {
  RawFabricOptions options;
  options.a = &wire.a();
  options.b = &wire.b();
  return options;
}

TEST(Transport, CutsAMessageAtPacketsOfTheMtu) {
  TestWire wire({.max_payload_bytes = 5000});
  RawFabricOptions options = over(wire);
  options.connection.mtu = 3;  // 1024
  options.connection.send_psn = Psn(0xfffffc);
  RawFabric fabric(options);
  fabric.qp.post(fabric.write(3, 7, 9217));
  fabric.settle();
  EXPECT_EQ(std::memcmp(fabric.source.data() + 3, fabric.destination.data() + 7, 9217), 0);
  const auto& sent = wire.a_to_b();
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[0].kind, SegmentKind::kWriteFirst);
  EXPECT_EQ(sent[1].kind, SegmentKind::kWriteMiddle);
  EXPECT_EQ(sent[2].kind, SegmentKind::kWriteLast);
  EXPECT_EQ(sent[0].payload_bytes, 4096u);
  EXPECT_EQ(sent[1].payload_bytes, 4096u);
  EXPECT_EQ(sent[2].payload_bytes, 1025u);
  EXPECT_EQ(sent[0].psn, Psn(0xfffffc));
  EXPECT_EQ(sent[1].psn, Psn(0));
  EXPECT_EQ(sent[2].psn, Psn(4));
  EXPECT_EQ(sent[0].message_bytes, 9217u);
  EXPECT_TRUE(sent[2].ack_request);
  fabric.qp.post(fabric.write(0, 0, 0));
  fabric.qp.post(fabric.write(0, 0, 1));
  fabric.settle();
  ASSERT_EQ(sent.size(), 5u);
  EXPECT_EQ(sent[3].psn, Psn(6));
  EXPECT_EQ(sent[4].psn, Psn(7));
  EXPECT_EQ(fabric.qp.poll_all().size(), 3u);
}

TEST(Transport, MovesEverySizeAroundAPacketExactly) {
  for (const std::uint8_t mtu : {std::uint8_t{1}, std::uint8_t{3}, std::uint8_t{5}}) {
    TestWire wire({.max_payload_bytes = 4096});
    RawFabricOptions options = over(wire);
    options.connection.mtu = mtu;
    RawFabric fabric(options);
    const std::uint32_t m = 128u << mtu;
    for (const std::uint32_t bytes :
         {1u, m - 1, m, m + 1, 2 * m, 2 * m + 1, 4095u, 4096u, 4097u, 8192u, 8193u, 12289u}) {
      std::memset(fabric.destination.data(), 0xee, fabric.destination.size());
      fabric.qp.post(fabric.write(5, 9, bytes));
      fabric.settle();
      const auto cqe = fabric.qp.poll();
      ASSERT_TRUE(cqe && succeeded(*cqe)) << bytes;
      EXPECT_EQ(cqe->byte_count, bytes);
      EXPECT_EQ(std::memcmp(fabric.source.data() + 5, fabric.destination.data() + 9, bytes), 0);
      EXPECT_EQ(fabric.destination[8], std::byte{0xee});
      EXPECT_EQ(fabric.destination[9 + bytes], std::byte{0xee});
    }
  }
}

// Both directions stall at random: nothing is lost, doubled or reordered.
TEST(Transport, LosesNothingWhenTheLinkHasNoRoom) {
  for (std::uint64_t seed = 0; seed < test::scaled(30); ++seed) {
    std::mt19937_64 random(seed);
    TestWire wire({.max_payload_bytes = 4096, .full = [&random] { return random() % 3 != 0; }});
    RawFabric fabric(over(wire));
    std::uint32_t at = 0;
    std::uint32_t posted = 0;
    std::uint16_t completed = 0;
    for (int turn = 0; posted < 40; ++turn) {
      ASSERT_LT(turn, 1'000'000) << "something was lost";
      const auto bytes = static_cast<std::uint32_t>(random() % 1600);
      if (fabric.qp.next() - completed < 16) {
        fabric.qp.post(fabric.write(at, at, bytes));
        at += bytes;
        ++posted;
      }
      fabric.step_sender();
      if (random() % 2 == 0) fabric.step_receiver();
      for (const auto& cqe : fabric.qp.poll_all()) {
        ASSERT_TRUE(succeeded(cqe));
        ASSERT_EQ(cqe.wqe_counter, completed);
        ++completed;
      }
    }
    // A step that finds no room has nothing to do, so rest is no sign of the end.
    for (int turn = 0; completed < 40; ++turn) {
      ASSERT_LT(turn, 1'000'000) << "something was lost";
      fabric.step_sender();
      fabric.step_receiver();
      for (const auto& cqe : fabric.qp.poll_all()) {
        ASSERT_TRUE(succeeded(cqe));
        ASSERT_EQ(cqe.wqe_counter, completed);
        ++completed;
      }
    }
    EXPECT_TRUE(fabric.arrived(0, 0, at)) << seed;
    EXPECT_GT(wire.refusals(), 0u);
    Psn expected = fabric.connection.send_psn;
    for (const link::Segment& s : wire.a_to_b()) {
      ASSERT_EQ(s.psn, expected) << seed;
      expected = expected.plus(s.payload_bytes == 0 ? 1 : (s.payload_bytes + 4095) / 4096);
    }
  }
}

TEST(Transport, AWriteThatThePeerDisabledEndsBothQps) {
  RawFabricOptions options;
  options.connection.remote_write = false;
  RawFabric fabric(options);
  fabric.qp.post(fabric.write(0, 0, 64));
  fabric.qp.post(fabric.write(64, 64, 64));
  fabric.settle();
  const auto cqes = fabric.qp.poll_all();
  ASSERT_EQ(cqes.size(), 2u);
  EXPECT_TRUE(failed_with(cqes[0], Syndrome::kRemoteInvalidRequest));
  EXPECT_TRUE(failed_with(cqes[1], Syndrome::kFlushed));
  EXPECT_EQ(fabric.state(), QpState::kError);
  EXPECT_EQ(fabric.peer_state(), QpState::kError);
  EXPECT_EQ(fabric.peer_refused(Refusal::kRemoteWriteDisabled), 1u);
  EXPECT_EQ(fabric.destination[0], std::byte{0});
}

TEST(Transport, ABadRkeyEndsBothQps) {
  RawFabric fabric;
  Wqe wqe = fabric.write(0, 0, 64);
  wqe.raddr.rkey = Rkey(swap_bytes(fabric.destination.key()));
  fabric.qp.post(wqe);
  fabric.settle();
  const auto cqe = fabric.qp.poll();
  ASSERT_TRUE(cqe);
  EXPECT_TRUE(failed_with(*cqe, Syndrome::kRemoteAccess));
  EXPECT_EQ(cqe->vendor_syndrome, kVendorRemoteAccess);
  EXPECT_EQ(fabric.state(), QpState::kError);
  EXPECT_EQ(fabric.peer_state(), QpState::kError);
  EXPECT_EQ(fabric.peer_refused(Refusal::kRkeySwapped), 1u);
}

TEST(Transport, ARegionWithoutRemoteWriteIsNotWritten) {
  RawFabric fabric;
  test::RawMemory local(fabric.receiver.commands(), fabric.receiver_pd, 64, kLocalWrite);
  Wqe wqe = fabric.write(0, 0, 64);
  wqe.raddr = {local.address(), Rkey(local.key())};
  fabric.qp.post(wqe);
  fabric.settle();
  const auto cqe = fabric.qp.poll();
  ASSERT_TRUE(cqe);
  EXPECT_TRUE(failed_with(*cqe, Syndrome::kRemoteAccess));
  EXPECT_EQ(fabric.peer_refused(Refusal::kRemoteAccess), 1u);
}

TEST(Transport, ADestinationDeregisteredBetweenTwoSegmentsIsNotWritten) {
  TestWire wire({.max_payload_bytes = 4096});
  RawFabric fabric(over(wire));
  fabric.qp.post(fabric.write(0, 0, 8192));
  fabric.step_sender();  // both segments are on the wire
  ASSERT_EQ(wire.a_to_b().size(), 2u);
  fabric.destination.free();
  fabric.settle();
  const auto cqe = fabric.qp.poll();
  ASSERT_TRUE(cqe);
  EXPECT_TRUE(failed_with(*cqe, Syndrome::kRemoteAccess));
  EXPECT_EQ(fabric.peer_refused(Refusal::kRkeyStale), 1u);
}

TEST(Transport, ASourceDeregisteredInFlightIsNotRead) {
  for (const std::uint32_t bytes : {64u, 8192u}) {
    TestWire wire({.max_payload_bytes = 4096});
    RawFabric fabric(over(wire));
    fabric.qp.post(fabric.write(0, 0, bytes));
    fabric.step_sender();
    fabric.source.free();
    fabric.settle();
    const auto cqe = fabric.qp.poll();
    ASSERT_TRUE(cqe);
    EXPECT_TRUE(failed_with(*cqe, Syndrome::kLocalProtection));
    EXPECT_FALSE(wire.a().busy());
    EXPECT_EQ(fabric.destination[1], std::byte{0});
  }
}

// A flushed WQE is over: its buffer may be freed.
TEST(Transport, ASourceFreedAfterItsWqeWasFlushedIsNotRead) {
  RawFabric fabric;
  fabric.qp.post(fabric.write(0, 0, 64));
  fabric.step_sender();  // its segment is on the link
  fabric.qp.to_error();
  fabric.step_sender();
  const auto cqe = fabric.qp.poll();
  ASSERT_TRUE(cqe);
  ASSERT_TRUE(failed_with(*cqe, Syndrome::kFlushed));
  fabric.source.free();
  fabric.settle();
  EXPECT_EQ(fabric.destination[1], std::byte{0});
}

TEST(Transport, ASourceFreedAfterItsQpWasDestroyedIsNotRead) {
  RawFabric fabric;
  fabric.qp.post(fabric.write(0, 0, 64));
  fabric.step_sender();
  fabric.qp.destroy();
  fabric.source.free();
  fabric.settle();
  EXPECT_EQ(fabric.destination[1], std::byte{0});
}

TEST(Transport, ASourceFreedAfterItsQpWasResetIsNotRead) {
  RawFabric fabric;
  fabric.qp.post(fabric.write(0, 0, 64));
  fabric.step_sender();
  fabric.qp.to_reset();
  fabric.source.free();
  fabric.settle();
  EXPECT_EQ(fabric.destination[1], std::byte{0});
}

TEST(Transport, DeregisteringARegionThatNoWqeNamesDisturbsNothing) {
  RawFabric fabric;
  test::RawMemory bystander(fabric.sender.commands(), fabric.sender_pd, 64, kLocalWrite);
  fabric.qp.post(fabric.write(0, 0, 64));
  fabric.step_sender();
  bystander.free();
  fabric.settle();
  const auto cqe = fabric.qp.poll();
  ASSERT_TRUE(cqe && succeeded(*cqe));
  EXPECT_TRUE(fabric.arrived(0, 0, 64));
}

// The error stands at the WQE that named the region; the one before it has done nothing wrong.
TEST(Transport, DeregisteringTheSourceOfTheSecondWqeFailsTheSecond) {
  RawFabric fabric;
  test::RawMemory second(fabric.sender.commands(), fabric.sender_pd, 64, kLocalWrite);
  fabric.qp.write(fabric.write(0, 0, 64));
  Wqe wqe = fabric.write(64, 64, 64);
  wqe.data = {64, Lkey(second.key()), second.address()};
  fabric.qp.write(wqe);
  fabric.qp.record();
  fabric.qp.ring();
  fabric.step_sender();
  second.free();
  fabric.settle();
  const auto cqes = fabric.qp.poll_all();
  ASSERT_EQ(cqes.size(), 2u);
  EXPECT_TRUE(succeeded(cqes[0]));
  EXPECT_TRUE(failed_with(cqes[1], Syndrome::kLocalProtection));
}

// The peer expects another first PSN than this side sends: never a success.
TEST(Transport, FirstPsnBeyondTheExpectedOneEndsInRetriesExceeded) {
  RawFabric fabric({.connected = false});
  fabric.qp.connect(fabric.connection);
  fabric.peer_connection.receive_psn = Psn(fabric.connection.send_psn.value - 5);
  fabric.peer.connect(fabric.peer_connection);
  fabric.qp.post(fabric.write(0, 0, 64));
  for (int i = 0; i < 100; ++i) {
    fabric.settle();
    fabric.now_ns += 1'000'000'000;
  }
  const auto cqe = fabric.qp.poll();
  ASSERT_TRUE(cqe) << "the WQE never completes";
  EXPECT_TRUE(failed_with(*cqe, Syndrome::kTransportRetryExceeded));
  EXPECT_EQ(fabric.destination[1], std::byte{0});
}

TEST(Transport, FirstPsnShortOfTheExpectedOneEndsInRetriesExceeded) {
  RawFabric fabric({.connected = false});
  fabric.qp.connect(fabric.connection);
  fabric.peer_connection.receive_psn = Psn(fabric.connection.send_psn.value + 5);
  fabric.peer.connect(fabric.peer_connection);
  fabric.qp.post(fabric.write(0, 0, 64));
  for (int i = 0; i < 100; ++i) {
    fabric.settle();
    fabric.now_ns += 1'000'000'000;
  }
  EXPECT_EQ(fabric.destination[1], std::byte{0});
  const auto cqe = fabric.qp.poll();
  ASSERT_TRUE(cqe) << "the WQE never completes";
  EXPECT_TRUE(failed_with(*cqe, Syndrome::kTransportRetryExceeded))
      << "syndrome " << int{cqe->syndrome};
}

// Nobody is there: on hardware the retries run out.
TEST(Transport, APeerThatIsGoneEndsInRetriesExceeded) {
  RawFabric fabric;
  fabric.peer.destroy();
  fabric.qp.post(fabric.write(0, 0, 64));
  for (int i = 0; i < 100; ++i) {
    fabric.settle();
    fabric.now_ns += 1'000'000'000;
  }
  EXPECT_EQ(fabric.receiver.drops().unknown_qp, 1u);
  const auto cqe = fabric.qp.poll();
  ASSERT_TRUE(cqe) << "the WQE never completes";
  EXPECT_TRUE(failed_with(*cqe, Syndrome::kTransportRetryExceeded));
}

// ---- Acknowledgements that a test makes by hand
// --------------------------------------------------

struct Sender : RawFabric<> {
  explicit Sender(ScriptedLink& a, ScriptedLink& b) : RawFabric(options(a, b)), wire(a) {}
  static RawFabricOptions options(ScriptedLink& a, ScriptedLink& b) {
    RawFabricOptions o;
    o.a = &a;
    o.b = &b;
    return o;
  }
  void answer(Psn at, std::uint8_t syndrome, Qpn from) {
    link::Segment s;
    s.kind = SegmentKind::kAcknowledge;
    s.source_qpn = from;
    s.destination_qpn = qp.qpn();
    s.psn = at;
    s.aeth_syndrome = syndrome;
    wire.incoming.push_back(s);
    while (step_sender()) {
    }
  }
  Psn psn(std::uint32_t n) const { return connection.send_psn.plus(n); }
  ScriptedLink& wire;
};

TEST(Acknowledgement, OfAWriteCompletesAllBeforeItInOrder) {
  ScriptedLink a, b;
  Sender nic(a, b);
  for (std::uint32_t i = 0; i < 3; ++i) nic.qp.post(nic.write(i, i, 1));
  nic.step_sender();
  ASSERT_EQ(a.sent.size(), 3u);
  EXPECT_FALSE(nic.qp.poll());
  nic.answer(nic.psn(1), link::kAethAck, nic.peer.qpn());
  EXPECT_EQ(nic.qp.poll_all().size(), 2u);
  nic.answer(nic.psn(1), link::kAethAck, nic.peer.qpn());  // again: nothing new
  nic.answer(nic.psn(0), link::kAethAck, nic.peer.qpn());
  EXPECT_FALSE(nic.qp.poll());
  nic.answer(nic.psn(2), link::kAethAck, nic.peer.qpn());
  EXPECT_EQ(nic.qp.poll_all().size(), 1u);
  EXPECT_EQ(nic.counters().bytes_moved, 3u);
}

TEST(Acknowledgement, InTheNegativeCompletesWhatLiesBeforeItsPsn) {
  ScriptedLink a, b;
  Sender nic(a, b);
  for (std::uint32_t i = 0; i < 3; ++i) nic.qp.post(nic.write(i, i, 1));
  nic.step_sender();
  nic.answer(nic.psn(1), link::kAethNakRemoteAccess, nic.peer.qpn());
  const auto cqes = nic.qp.poll_all();
  ASSERT_EQ(cqes.size(), 3u);
  EXPECT_TRUE(succeeded(cqes[0]));
  EXPECT_TRUE(failed_with(cqes[1], Syndrome::kRemoteAccess));
  EXPECT_TRUE(failed_with(cqes[2], Syndrome::kFlushed));
}

TEST(Acknowledgement, OfEachKindGivesItsSyndrome) {
  const std::pair<std::uint8_t, Syndrome> kinds[] = {
      {link::kAethNakSequence, Syndrome::kTransportRetryExceeded},
      {link::kAethNakInvalidRequest, Syndrome::kRemoteInvalidRequest},
      {link::kAethNakRemoteAccess, Syndrome::kRemoteAccess},
      {link::kAethNakRemoteOperation, Syndrome::kRemoteOperation}};
  for (const auto& [aeth, syndrome] : kinds) {
    ScriptedLink a, b;
    Sender nic(a, b);
    nic.qp.post(nic.write(0, 0, 8));
    nic.step_sender();
    nic.answer(nic.psn(0), aeth, nic.peer.qpn());
    const auto cqe = nic.qp.poll();
    ASSERT_TRUE(cqe);
    EXPECT_TRUE(failed_with(*cqe, syndrome)) << int{aeth};
  }
}

TEST(Acknowledgement, FromAStrangerCompletesNothing) {
  ScriptedLink a, b;
  Sender nic(a, b);
  nic.qp.post(nic.write(0, 0, 8));
  nic.step_sender();
  nic.answer(nic.psn(0), link::kAethAck, Qpn(nic.peer.qpn().value + 1));
  EXPECT_FALSE(nic.qp.poll());
}

TEST(Acknowledgement, OfAPsnThatWasNeverSentIsNoSuccess) {
  ScriptedLink a, b;
  Sender nic(a, b);
  nic.qp.post(nic.write(0, 0, 8));
  nic.step_sender();
  nic.answer(nic.psn(1), link::kAethAck, nic.peer.qpn());
  const auto cqe = nic.qp.poll();
  EXPECT_FALSE(cqe && succeeded(*cqe));
}

TEST(Acknowledgement, ToAnIdleQpChangesNothing) {
  ScriptedLink a, b;
  Sender nic(a, b);
  for (const std::uint8_t aeth : {link::kAethAck, link::kAethNakRemoteAccess}) {
    nic.answer(nic.psn(0), aeth, nic.peer.qpn());
    nic.answer(nic.psn(0x400000), aeth, nic.peer.qpn());
  }
  EXPECT_FALSE(nic.qp.poll());
  nic.qp.post(nic.write(0, 0, 8));
  nic.step_sender();
  nic.answer(nic.psn(0), link::kAethAck, nic.peer.qpn());
  const auto cqe = nic.qp.poll();
  ASSERT_TRUE(cqe);
  EXPECT_TRUE(succeeded(*cqe));
}

}  // namespace
}  // namespace peal::nic
