#include "link/impaired.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <stdexcept>
#include <vector>

#include "link/owned_segment.hpp"

namespace peal::link {
namespace {

using test::OwnedSegment;

// Keeps what it is given, while it has room.
class KeepingLink : public Link {
 public:
  std::uint32_t max_payload_bytes() const override { return 77; }
  InFlight most_in_flight() const override { return {5, 6}; }
  bool carries_masked_atomics() const override { return false; }
  bool try_send(const Segment& s) override {
    if (sent.size() == room) return false;
    sent.push_back(s);
    bytes.push_back(s.payload == nullptr ? std::byte{0} : *s.payload);
    return true;
  }
  bool try_receive(Segment* s) override {
    *s = {};
    return true;
  }
  bool payload_stays() const override { return stays; }
  bool discard(Qpn, SegmentRole, Psn, std::int32_t) override { return discards; }
  bool busy() const override { return false; }
  bool closed() const override { return is_closed; }

  std::vector<std::uint32_t> psns() const {
    std::vector<std::uint32_t> all;
    for (const Segment& s : sent) all.push_back(s.psn.value);
    return all;
  }

  std::vector<Segment> sent;
  std::vector<std::byte> bytes;  // the first of each payload, as it was on arrival
  std::size_t room = ~std::size_t{0};
  bool stays = false;
  bool discards = false;
  bool is_closed = false;
};

struct Impaired {
  explicit Impaired(Impairments impairments, bool stays = false) : link(inner, with(impairments)) {
    inner.stays = stays;
  }
  Impairments with(Impairments i) {
    i.clock = [this] { return now_ns; };
    return i;
  }
  void send(std::uint32_t first, std::uint32_t count) {
    for (std::uint32_t psn = first; psn < first + count; ++psn) {
      Segment s;
      s.kind = SegmentKind::kWriteOnly;
      s.psn = Psn(psn);
      s.source_qpn = Qpn(1);
      ASSERT_TRUE(link.try_send(s));
    }
  }
  void pass(std::uint64_t ns) {
    now_ns += ns;
    Segment s;
    EXPECT_TRUE(link.try_receive(&s));
  }

  std::uint64_t now_ns = 1000;
  KeepingLink inner;
  ImpairedLink link;
};

std::vector<std::uint32_t> numbers(std::uint32_t count) {
  std::vector<std::uint32_t> all(count);
  for (std::uint32_t i = 0; i < count; ++i) all[i] = i;
  return all;
}

TEST(ImpairedLink, SendsAllAtOnceAndInOrderWithoutImpairments) {
  Impaired way({});
  way.send(0, 100);
  EXPECT_EQ(way.inner.psns(), numbers(100));
  EXPECT_FALSE(way.link.busy());
  EXPECT_FALSE(way.link.lossless());
}

TEST(ImpairedLink, SaysWhatTheInnerLinkSays) {
  Impaired way({});
  EXPECT_EQ(way.link.max_payload_bytes(), 77u);
  EXPECT_EQ(way.link.most_in_flight().packets, 5u);
  EXPECT_FALSE(way.link.carries_masked_atomics());
  EXPECT_FALSE(way.link.payload_stays());
  EXPECT_FALSE(way.link.closed());
  way.inner.is_closed = true;
  EXPECT_TRUE(way.link.closed());
  EXPECT_FALSE(way.link.try_send({}));
}

TEST(ImpairedLink, DropsOrDoublesEachAtAProbabilityOfOne) {
  Impaired none({.drop = 1});
  none.send(0, 50);
  EXPECT_TRUE(none.inner.sent.empty());
  EXPECT_EQ(none.link.counters().dropped, 50u);

  Impaired twice({.duplicate = 1});
  twice.send(0, 3);
  EXPECT_EQ(twice.inner.psns(), (std::vector<std::uint32_t>{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(twice.link.counters().duplicated, 3u);
}

TEST(ImpairedLink, RefusesAProbabilityThatIsNone) {
  KeepingLink inner;
  EXPECT_THROW(ImpairedLink(inner, {.drop = 1.01}), std::invalid_argument);
  EXPECT_THROW(ImpairedLink(inner, {.duplicate = -0.1}), std::invalid_argument);
  EXPECT_THROW(ImpairedLink(inner, {.reorder = std::stod("nan")}), std::invalid_argument);
}

TEST(ImpairedLink, DoesTheSameForTheSameSeed) {
  const auto fate = [](std::uint64_t seed) {
    Impaired way({.drop = 0.1, .duplicate = 0.1, .reorder = 0.2, .seed = seed});
    way.send(0, 2000);
    way.pass(ImpairedLink::kReorderNs);
    return way.inner.psns();
  };
  EXPECT_EQ(fate(1), fate(1));
  EXPECT_NE(fate(1), fate(2));
}

TEST(ImpairedLink, DropsAboutAsManyAsItIsTold) {
  Impaired way({.drop = 0.1});
  way.send(0, 10000);
  EXPECT_NEAR(static_cast<double>(way.link.counters().dropped), 1000, 150);
  EXPECT_EQ(way.inner.sent.size() + way.link.counters().dropped, 10000u);
}

TEST(ImpairedLink, LosesNothingByReordering) {
  for (const double probability : {0.05, 0.5, 1.0}) {
    Impaired way({.reorder = probability});
    way.send(0, 5000);
    way.pass(ImpairedLink::kReorderNs);
    std::vector<std::uint32_t> psns = way.inner.psns();
    EXPECT_NE(psns, numbers(5000));
    EXPECT_GT(way.link.counters().reordered, 100u);
    EXPECT_FALSE(way.link.busy());
    // Of those behind it each may overtake, if it waits itself as well; never one too far behind.
    std::uint32_t latest = 0;
    for (std::size_t i = 0; i < psns.size(); ++i) {
      latest = std::max(latest, psns[i]);
      EXPECT_LE(latest - psns[i], ImpairedLink::kReorderSegments) << "at " << i;
    }
    std::sort(psns.begin(), psns.end());
    EXPECT_EQ(psns, numbers(5000));
  }
}

TEST(ImpairedLink, HoldsUpNoneButTheReordered) {
  Impaired way({.reorder = 0.5});
  for (std::uint32_t psn = 0; psn < 100; ++psn) {
    const std::uint64_t reordered = way.link.counters().reordered;
    way.send(psn, 1);
    if (way.link.counters().reordered != reordered) continue;
    const std::vector<std::uint32_t> psns = way.inner.psns();
    EXPECT_EQ(std::count(psns.begin(), psns.end(), psn), 1);
  }
}

TEST(ImpairedLink, WaitsNoLongerThanItMayForOthersToOvertake) {
  Impaired way({.reorder = 1});
  way.send(7, 1);
  EXPECT_TRUE(way.link.busy());
  way.pass(ImpairedLink::kReorderNs - 1);
  EXPECT_TRUE(way.inner.sent.empty());
  way.pass(1);
  EXPECT_EQ(way.inner.psns(), std::vector<std::uint32_t>{7});
  EXPECT_FALSE(way.link.busy());
}

TEST(ImpairedLink, DelaysEachByTheSameTime) {
  Impaired way({.delay_ns = 500});
  way.send(0, 2);
  way.pass(100);
  way.send(2, 1);
  way.pass(399);
  EXPECT_TRUE(way.inner.sent.empty());
  way.pass(1);
  EXPECT_EQ(way.inner.psns(), numbers(2));
  EXPECT_TRUE(way.link.busy());
  way.pass(100);
  EXPECT_EQ(way.inner.psns(), numbers(3));
  EXPECT_FALSE(way.link.busy());
}

TEST(ImpairedLink, KeepsWhatTheInnerLinkHasNoRoomFor) {
  Impaired way({});
  way.inner.room = 2;
  way.send(0, 4);
  EXPECT_TRUE(way.link.busy());
  EXPECT_EQ(way.inner.psns(), numbers(2));
  way.inner.room = 4;
  way.pass(0);
  EXPECT_EQ(way.inner.psns(), numbers(4));
  EXPECT_FALSE(way.link.busy());
}

TEST(ImpairedLink, RefusesOnceItHoldsAsManyAsItMay) {
  Impaired way({.delay_ns = 1});
  std::size_t taken = 0;
  while (taken <= ImpairedLink::kHeldMax && way.link.try_send({})) ++taken;
  EXPECT_GE(taken, ImpairedLink::kHeldMax - 1);
  EXPECT_LE(taken, ImpairedLink::kHeldMax);
  way.now_ns += 1;
  EXPECT_TRUE(way.link.try_send({}));
  EXPECT_EQ(way.inner.sent.size(), taken);
}

TEST(ImpairedLink, CopiesAPayloadWhereTheInnerLinkWould) {
  for (const bool stays : {false, true}) {
    Impaired way({.delay_ns = 1}, stays);
    std::byte payload{1};
    Segment s;
    s.kind = SegmentKind::kWriteOnly;
    s.payload = &payload;
    s.payload_bytes = 1;
    ASSERT_TRUE(way.link.try_send(s));
    payload = std::byte{2};
    way.pass(1);
    ASSERT_EQ(way.inner.bytes.size(), 1u);
    EXPECT_EQ(way.inner.bytes[0], stays ? std::byte{2} : std::byte{1});
    EXPECT_EQ(way.inner.sent[0].payload == &payload, stays);
  }
}

TEST(ImpairedLink, ForgetsWhatRefersToAPayload) {
  Impaired way({.delay_ns = 1}, true);
  std::byte payload{1};
  const auto take = [&](std::uint32_t psn, std::uint32_t qpn, SegmentKind kind, bool refers) {
    Segment s;
    s.kind = kind;
    s.psn = Psn(psn);
    s.source_qpn = Qpn(qpn);
    if (refers) {
      s.payload = &payload;
      s.payload_bytes = 1;
    }
    ASSERT_TRUE(way.link.try_send(s));
  };
  take(9, 1, SegmentKind::kWriteOnly, true);
  take(10, 1, SegmentKind::kWriteOnly, true);         // this one
  take(11, 1, SegmentKind::kReadResponseOnly, true);  // of the other role
  take(11, 2, SegmentKind::kWriteOnly, true);         // another QP's
  take(11, 1, SegmentKind::kWriteOnly, false);        // refers to nothing
  take(12, 1, SegmentKind::kWriteOnly, true);         // behind the range
  EXPECT_TRUE(way.link.discard(Qpn(1), SegmentRole::kRequest, Psn(10), 2));
  EXPECT_FALSE(way.link.discard(Qpn(1), SegmentRole::kRequest, Psn(10), 2));
  way.pass(1);
  EXPECT_EQ(way.inner.psns(), (std::vector<std::uint32_t>{9, 11, 11, 11, 12}));
  way.inner.discards = true;
  EXPECT_TRUE(way.link.discard(Qpn(1), SegmentRole::kRequest, Psn(0), 1));
}

}  // namespace
}  // namespace peal::link
