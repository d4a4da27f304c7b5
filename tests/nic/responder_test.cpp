#include "nic/responder.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "nic/raw_fabric.hpp"
#include "nic/test_wire.hpp"
#include "support/scale.hpp"

namespace peal::nic {
namespace {

using link::Segment;
using link::SegmentKind;
using test::RawConnection;
using test::RawMemory;
using test::RawQp;
using test::RawUar;
using test::ScriptedLink;

constexpr std::uint32_t kMtuBytes = 4096;
constexpr Qpn kPeer{0x777};
constexpr Psn kPsn{0xfffffe};  // every test crosses the wrap

// One NIC whose QP expects kPsn of kPeer; the test hands it segments.
struct Receiver {
  explicit Receiver(const RawConnection& connection = {.remote_qpn = kPeer,
                                                       .send_psn = Psn(1),
                                                       .receive_psn = kPsn})
      : core({.nic_number = 1}, link),
        pd(core.commands().allocate_pd()),
        uar(core.commands()),
        memory(core.commands(), pd, 1 << 16, kLocalWrite | kRemoteWrite),
        qp(core.commands(), pd, uar) {
    payload.resize(1 << 16);
    for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = std::byte((i * 7 + 1) & 0xff);
    qp.connect(connection);
  }

  Segment segment(SegmentKind kind, Psn psn, std::uint64_t to, std::uint32_t bytes) {
    Segment s;
    s.kind = kind;
    s.ack_request = kind == SegmentKind::kWriteOnly || kind == SegmentKind::kWriteLast;
    s.source_qpn = kPeer;
    s.destination_qpn = qp.qpn();
    s.psn = psn;
    s.address = memory.address() + to;
    s.rkey = Rkey(memory.key());
    s.message_bytes = bytes;
    s.payload = payload.data() + to;
    s.payload_bytes = bytes;
    return s;
  }
  void take(const Segment& s) {
    link.incoming.push_back(s);
    while (core.step(1)) {
    }
  }
  // What the NIC has answered since the last call.
  std::vector<Segment> answers() {
    std::vector<Segment> sent;
    sent.swap(link.sent);
    return sent;
  }
  bool untouched() {
    for (std::size_t i = 0; i < memory.size(); ++i) {
      if (memory[i] != std::byte{0}) return false;
    }
    return true;
  }
  QpState state() const { return core.tables().find_qp(qp.qpn())->state; }
  QpCounters counters() const { return core.counters(qp.qpn()); }
  std::uint64_t refused(Refusal why) const { return counters().reasons.refusals(why); }

  ScriptedLink link;
  Core<CpuMemory> core;
  std::uint32_t pd;
  RawUar uar;
  RawMemory memory;
  RawQp qp;
  std::vector<std::byte> payload;
};

TEST(Responder, PlacesAWriteAndAcknowledgesIt) {
  Receiver nic;
  nic.take(nic.segment(SegmentKind::kWriteOnly, kPsn, 100, 64));
  EXPECT_EQ(std::memcmp(nic.memory.data() + 100, nic.payload.data() + 100, 64), 0);
  const auto answers = nic.answers();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].kind, SegmentKind::kAcknowledge);
  EXPECT_EQ(answers[0].aeth_syndrome, link::kAethAck);
  EXPECT_EQ(answers[0].psn, kPsn);
  EXPECT_EQ(answers[0].msn, 1u);
  EXPECT_EQ(answers[0].destination_qpn, kPeer);
  EXPECT_EQ(answers[0].source_qpn, nic.qp.qpn());
}

TEST(Responder, DropsAndCountsWhatNamesNoQp) {
  Receiver nic;
  Segment s = nic.segment(SegmentKind::kWriteOnly, kPsn, 0, 64);
  s.destination_qpn = Qpn(nic.qp.qpn().value + 1);
  nic.take(s);
  s.destination_qpn = Qpn(0);
  nic.take(s);
  s.kind = SegmentKind::kAcknowledge;
  nic.take(s);
  EXPECT_EQ(nic.core.drops().unknown_qp, 3u);
  EXPECT_TRUE(nic.answers().empty());
  EXPECT_TRUE(nic.untouched());
}

TEST(Responder, DropsAndCountsWhatComesBeforeRtr) {
  Receiver nic;
  nic.qp.to_reset();
  nic.take(nic.segment(SegmentKind::kWriteOnly, kPsn, 0, 64));
  nic.qp.to_init({.remote_qpn = kPeer, .receive_psn = kPsn});
  nic.take(nic.segment(SegmentKind::kWriteOnly, kPsn, 0, 64));
  EXPECT_EQ(nic.core.drops().wrong_state, 2u);
  nic.qp.to_rtr({.remote_qpn = kPeer, .receive_psn = kPsn});
  nic.take(nic.segment(SegmentKind::kWriteOnly, kPsn, 0, 64));
  EXPECT_EQ(nic.counters().received_writes, 1u);
  nic.qp.to_error();
  nic.take(nic.segment(SegmentKind::kWriteOnly, kPsn.plus(1), 0, 64));
  EXPECT_EQ(nic.core.drops().wrong_state, 3u);
}

TEST(Responder, DropsAndCountsWhatAStrangerSends) {
  Receiver nic;
  Segment s = nic.segment(SegmentKind::kWriteOnly, kPsn, 0, 64);
  s.source_qpn = Qpn(kPeer.value + 1);
  nic.take(s);
  EXPECT_EQ(nic.core.drops().wrong_source, 1u);
  EXPECT_TRUE(nic.answers().empty());
  EXPECT_TRUE(nic.untouched());
  EXPECT_EQ(nic.state(), QpState::kRts);
}

TEST(Responder, NaksAPsnFromTheFutureWithTheOneExpected) {
  for (const std::uint32_t ahead : {1u, 2u, 100u, 0x7fffffu}) {
    Receiver nic;
    nic.take(nic.segment(SegmentKind::kWriteOnly, kPsn.plus(ahead), 0, 64));
    EXPECT_EQ(nic.core.drops().out_of_sequence, 1u);
    EXPECT_TRUE(nic.untouched());
    const auto answers = nic.answers();
    ASSERT_EQ(answers.size(), 1u) << ahead;
    EXPECT_EQ(answers[0].aeth_syndrome, link::kAethNakSequence);
    EXPECT_EQ(answers[0].psn, kPsn);
  }
}

TEST(Responder, AcknowledgesAnOldPsnAgainAndDoesNotExecuteIt) {
  Receiver nic;
  nic.take(nic.segment(SegmentKind::kWriteOnly, kPsn, 0, 64));
  nic.take(nic.segment(SegmentKind::kWriteOnly, kPsn.plus(1), 64, 64));
  nic.answers();
  for (const std::uint32_t behind : {2u, 1u}) {
    nic.memory[0] = nic.memory[64] = std::byte{0xee};
    nic.take(nic.segment(SegmentKind::kWriteOnly, kPsn.plus(2 - behind), (2 - behind) * 64, 64));
    const auto answers = nic.answers();
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].aeth_syndrome, link::kAethAck);
    EXPECT_EQ(answers[0].psn, kPsn.plus(1)) << "the newest, not the repeated one";
    EXPECT_EQ(answers[0].msn, 2u);
    EXPECT_EQ(nic.memory[0], std::byte{0xee});
    EXPECT_EQ(nic.memory[64], std::byte{0xee});
  }
  EXPECT_EQ(nic.counters().received_writes, 2u);
}

TEST(Responder, IsNotDisturbedByAnOldSegmentInTheMiddleOfAMessage) {
  Receiver nic;
  nic.take(nic.segment(SegmentKind::kWriteOnly, kPsn, 0, 64));
  Segment first = nic.segment(SegmentKind::kWriteFirst, kPsn.plus(1), 0, kMtuBytes);
  first.message_bytes = 2 * kMtuBytes;
  nic.take(first);
  nic.take(nic.segment(SegmentKind::kWriteOnly, kPsn, 0, 64));  // again
  nic.take(nic.segment(SegmentKind::kWriteLast, kPsn.plus(2), kMtuBytes, kMtuBytes));
  EXPECT_EQ(std::memcmp(nic.memory.data(), nic.payload.data(), 2 * kMtuBytes), 0);
  EXPECT_EQ(nic.answers().back().psn, kPsn.plus(2));
  EXPECT_EQ(nic.counters().received_writes, 2u);
}

TEST(Responder, CountsPsnsByPacketsAcrossTheWrap) {
  Receiver nic;  // expects 0xfffffe
  Segment first = nic.segment(SegmentKind::kWriteFirst, Psn(0xfffffe), 0, 2 * kMtuBytes);
  first.message_bytes = 4 * kMtuBytes + 1;
  nic.take(first);
  nic.take(nic.segment(SegmentKind::kWriteMiddle, Psn(0), 2 * kMtuBytes, 2 * kMtuBytes));
  nic.take(nic.segment(SegmentKind::kWriteLast, Psn(2), 4 * kMtuBytes, 1));
  auto answers = nic.answers();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].psn, Psn(2));
  EXPECT_EQ(answers[0].msn, 1u);
  // A write of length 0 uses one PSN.
  nic.take(nic.segment(SegmentKind::kWriteOnly, Psn(3), 0, 0));
  nic.take(nic.segment(SegmentKind::kWriteOnly, Psn(4), 0, 8));
  answers = nic.answers();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[1].psn, Psn(4));
  EXPECT_EQ(answers[1].aeth_syndrome, link::kAethAck);
}

TEST(Responder, OneAcknowledgementStandsForAllBeforeIt) {
  Receiver nic;
  for (std::uint32_t i = 0; i < 10; ++i) {
    nic.link.incoming.push_back(nic.segment(SegmentKind::kWriteOnly, kPsn.plus(i), i * 64, 64));
  }
  while (nic.core.step(1)) {
  }
  const auto answers = nic.answers();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].psn, kPsn.plus(9));
  EXPECT_EQ(answers[0].msn, 10u);
}

TEST(Responder, KeepsAnAcknowledgementUntilTheLinkHasRoom) {
  Receiver nic;
  nic.link.full = true;
  nic.take(nic.segment(SegmentKind::kWriteOnly, kPsn, 0, 64));
  nic.take(nic.segment(SegmentKind::kWriteOnly, kPsn.plus(1), 64, 64));
  EXPECT_TRUE(nic.answers().empty());
  nic.link.full = false;
  while (nic.core.step(1)) {
  }
  const auto answers = nic.answers();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].psn, kPsn.plus(1));
}

// Every request that may never be served: one NAK, nothing written, the QP in error.
struct Wrong {
  const char* name;
  std::uint8_t aeth_syndrome;
  Refusal counted;  // kNone: by its NAK alone
  void (*send)(Receiver&);
};
const Wrong kWrongs[] = {
    {"middle without first", link::kAethNakInvalidRequest, Refusal::kNone,
     [](Receiver& n) { n.take(n.segment(SegmentKind::kWriteMiddle, kPsn, 0, kMtuBytes)); }},
    {"last without first", link::kAethNakInvalidRequest, Refusal::kNone,
     [](Receiver& n) { n.take(n.segment(SegmentKind::kWriteLast, kPsn, 0, 64)); }},
    {"shorter than its message", link::kAethNakInvalidRequest, Refusal::kNone,
     [](Receiver& n) {
       Segment s = n.segment(SegmentKind::kWriteOnly, kPsn, 0, 64);
       s.message_bytes = 65;
       n.take(s);
     }},
    {"longer than its message", link::kAethNakInvalidRequest, Refusal::kNone,
     [](Receiver& n) {
       Segment s = n.segment(SegmentKind::kWriteOnly, kPsn, 0, 64);
       s.message_bytes = 63;
       n.take(s);
     }},
    {"first that is the whole message", link::kAethNakInvalidRequest, Refusal::kNone,
     [](Receiver& n) { n.take(n.segment(SegmentKind::kWriteFirst, kPsn, 0, kMtuBytes)); }},
    {"first of part of a packet", link::kAethNakInvalidRequest, Refusal::kNone,
     [](Receiver& n) {
       Segment s = n.segment(SegmentKind::kWriteFirst, kPsn, 0, kMtuBytes - 1);
       s.message_bytes = 2 * kMtuBytes;
       n.take(s);
     }},
    {"first without payload", link::kAethNakInvalidRequest, Refusal::kNone,
     [](Receiver& n) {
       Segment s = n.segment(SegmentKind::kWriteFirst, kPsn, 0, 0);
       s.message_bytes = kMtuBytes;
       n.take(s);
     }},
    {"bad rkey", link::kAethNakRemoteAccess, Refusal::kRkeyUnknown,
     [](Receiver& n) {
       Segment s = n.segment(SegmentKind::kWriteOnly, kPsn, 0, 64);
       s.rkey = Rkey(1);
       n.take(s);
     }},
    {"swapped rkey", link::kAethNakRemoteAccess, Refusal::kRkeySwapped,
     [](Receiver& n) {
       Segment s = n.segment(SegmentKind::kWriteOnly, kPsn, 0, 64);
       s.rkey = Rkey(swap_bytes(s.rkey.value));
       n.take(s);
     }},
    {"stale rkey", link::kAethNakRemoteAccess, Refusal::kRkeyStale,
     [](Receiver& n) {
       Segment s = n.segment(SegmentKind::kWriteOnly, kPsn, 0, 64);
       s.rkey = Rkey(s.rkey.value ^ 0x80);
       n.take(s);
     }},
    {"beyond the region", link::kAethNakRemoteAccess, Refusal::kRemoteRange,
     [](Receiver& n) {
       Segment s = n.segment(SegmentKind::kWriteOnly, kPsn, 0, 64);
       s.address += n.memory.size() - 63;
       n.take(s);
     }},
    {"a message of which only the first packet lies in the region", link::kAethNakRemoteAccess,
     Refusal::kRemoteRange,
     [](Receiver& n) {
       Segment s = n.segment(SegmentKind::kWriteFirst, kPsn, 0, kMtuBytes);
       s.message_bytes = static_cast<std::uint32_t>(n.memory.size()) + 1;
       n.take(s);
     }},
};

TEST(Responder, RefusesEachWrongRequestWithItsNakAndGoesToError) {
  for (const Wrong& wrong : kWrongs) {
    Receiver nic;
    wrong.send(nic);
    const auto answers = nic.answers();
    ASSERT_EQ(answers.size(), 1u) << wrong.name;
    EXPECT_EQ(answers[0].aeth_syndrome, wrong.aeth_syndrome) << wrong.name;
    EXPECT_EQ(answers[0].psn, kPsn) << wrong.name;
    EXPECT_EQ(nic.state(), QpState::kError) << wrong.name;
    EXPECT_TRUE(nic.untouched()) << wrong.name;
    EXPECT_EQ(nic.counters().received_bytes, 0u) << wrong.name;
    if (wrong.counted != Refusal::kNone) {
      EXPECT_EQ(nic.refused(wrong.counted), 1u) << wrong.name;
    }
  }
}

TEST(Responder, RefusesANewMessageInTheMiddleOfOne) {
  for (const SegmentKind kind : {SegmentKind::kWriteFirst, SegmentKind::kWriteOnly}) {
    Receiver nic;
    Segment first = nic.segment(SegmentKind::kWriteFirst, kPsn, 0, kMtuBytes);
    first.message_bytes = 3 * kMtuBytes;
    nic.take(first);
    nic.take(nic.segment(kind, kPsn.plus(1), kMtuBytes, 64));
    EXPECT_EQ(nic.answers().back().aeth_syndrome, link::kAethNakInvalidRequest);
    EXPECT_EQ(nic.state(), QpState::kError);
    EXPECT_EQ(nic.memory[kMtuBytes], std::byte{0});
  }
}

TEST(Responder, RefusesALastThatBringsMoreOrLessThanIsLeft) {
  for (const std::uint32_t bytes : {kMtuBytes - 1, kMtuBytes + 1}) {
    Receiver nic;
    Segment first = nic.segment(SegmentKind::kWriteFirst, kPsn, 0, kMtuBytes);
    first.message_bytes = 2 * kMtuBytes;
    nic.take(first);
    nic.take(nic.segment(SegmentKind::kWriteLast, kPsn.plus(1), kMtuBytes, bytes));
    EXPECT_EQ(nic.answers().back().aeth_syndrome, link::kAethNakInvalidRequest) << bytes;
    EXPECT_EQ(nic.memory[kMtuBytes], std::byte{0}) << bytes;
  }
}

TEST(Responder, WritesNothingIntoARegionDeregisteredInTheMiddleOfAMessage) {
  Receiver nic;
  Segment first = nic.segment(SegmentKind::kWriteFirst, kPsn, 0, kMtuBytes);
  first.message_bytes = 2 * kMtuBytes;
  Segment last = nic.segment(SegmentKind::kWriteLast, kPsn.plus(1), kMtuBytes, kMtuBytes);
  nic.take(first);
  EXPECT_EQ(std::memcmp(nic.memory.data(), nic.payload.data(), kMtuBytes), 0);
  nic.memory.free();
  nic.take(last);
  const auto answers = nic.answers();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].aeth_syndrome, link::kAethNakRemoteAccess);
  EXPECT_EQ(nic.refused(Refusal::kRkeyStale), 1u);
}

TEST(Responder, WritesNothingIntoTheRegionThatTookTheKeysPlace) {
  Receiver nic;
  Segment first = nic.segment(SegmentKind::kWriteFirst, kPsn, 0, kMtuBytes);
  first.message_bytes = 2 * kMtuBytes;
  nic.take(first);
  const std::uint64_t start = nic.memory.address();
  const Segment last = nic.segment(SegmentKind::kWriteLast, kPsn.plus(1), kMtuBytes, kMtuBytes);
  nic.memory.free();
  std::vector<std::byte> other(1 << 16);
  const std::uint32_t key = nic.core.commands().register_region(
      nic.pd, start, other.data(), other.size(), kLocalWrite | kRemoteWrite);
  ASSERT_NE(key, first.rkey.value);
  nic.take(last);
  for (const std::byte b : other) ASSERT_EQ(b, std::byte{0});
  EXPECT_EQ(nic.answers().back().aeth_syndrome, link::kAethNakRemoteAccess);
  EXPECT_TRUE(nic.core.commands().deregister_region(key));
}

TEST(Responder, TakesNoPacketOfAnEarlierLifeOfItsQpn) {
  Receiver nic;
  const Segment old = nic.segment(SegmentKind::kWriteOnly, kPsn, 0, 64);
  nic.qp.destroy();
  RawQp again(nic.core.commands(), nic.pd, nic.uar);
  ASSERT_EQ(again.qpn(), old.destination_qpn);
  nic.take(old);  // before it is connected
  again.connect({.remote_qpn = kPeer, .receive_psn = kPsn.plus(0x1000)});
  nic.take(old);
  EXPECT_TRUE(nic.untouched());
  EXPECT_EQ(nic.core.counters(again.qpn()).received_writes, 0u);
}

TEST(Responder, SurvivesAnySegment) {
  const std::uint64_t rounds = test::scaled(20'000);
  std::mt19937_64 random(11);
  Receiver nic;
  for (std::uint64_t i = 0; i < rounds; ++i) {
    static constexpr SegmentKind kKinds[] = {SegmentKind::kWriteFirst, SegmentKind::kWriteMiddle,
                                             SegmentKind::kWriteLast, SegmentKind::kWriteOnly,
                                             SegmentKind::kAcknowledge};
    const auto bytes =
        static_cast<std::uint32_t>(random() % 2 == 0 ? random() % 8192 : random() % 3 * kMtuBytes);
    Segment s = nic.segment(kKinds[random() % 5],
                            Psn(static_cast<std::uint32_t>(kPsn.value + random() % 6)), 0, bytes);
    s.address = nic.memory.address() + random() % (1 << 16);
    if (random() % 8 == 0) s.address = random();
    if (random() % 4 == 0) s.message_bytes = static_cast<std::uint32_t>(random() % 20'000);
    if (random() % 16 == 0) s.rkey = Rkey(static_cast<std::uint32_t>(random()));
    if (random() % 16 == 0) s.source_qpn = Qpn(static_cast<std::uint32_t>(random()) & 0xffffff);
    if (random() % 16 == 0) s.destination_qpn = Qpn(static_cast<std::uint32_t>(random()));
    s.aeth_syndrome = static_cast<std::uint8_t>(random());
    nic.take(s);
    if (nic.state() == QpState::kError) {
      nic.qp.to_reset();
      nic.qp.connect({.remote_qpn = kPeer, .send_psn = Psn(1), .receive_psn = kPsn});
    }
    nic.answers();
  }
  EXPECT_GT(nic.counters().received_writes, 0u);  // some were right
}

}  // namespace
}  // namespace peal::nic
