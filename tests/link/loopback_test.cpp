#include "link/loopback.hpp"

#include <gtest/gtest.h>

namespace peal::link {
namespace {

Segment segment(std::uint32_t qpn, std::uint32_t psn, const std::byte* payload = nullptr) {
  Segment s;
  s.kind = SegmentKind::kWriteOnly;
  s.source_qpn = Qpn(qpn);
  s.psn = Psn(psn);
  s.payload = payload;
  return s;
}

TEST(Loopback, HandsOverInOrderAndByReference) {
  Loopback loopback;
  const std::byte payload[4] = {};
  for (std::uint32_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(loopback.a().try_send(segment(1, i, payload + i % 4)));
  }
  Segment s;
  for (std::uint32_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(loopback.b().try_receive(&s));
    EXPECT_EQ(s.psn, Psn(i));
    EXPECT_EQ(s.payload, payload + i % 4);
  }
  EXPECT_FALSE(loopback.b().try_receive(&s));
}

TEST(Loopback, KeepsItsDirectionsApart) {
  Loopback loopback;
  ASSERT_TRUE(loopback.a().try_send(segment(1, 10)));
  ASSERT_TRUE(loopback.b().try_send(segment(2, 20)));
  Segment s;
  ASSERT_TRUE(loopback.a().try_receive(&s));
  EXPECT_EQ(s.psn, Psn(20));
  ASSERT_TRUE(loopback.b().try_receive(&s));
  EXPECT_EQ(s.psn, Psn(10));
  EXPECT_FALSE(loopback.a().try_receive(&s));
}

TEST(Loopback, RefusesWhenItIsFullAndGoesOnWhenThereIsRoom) {
  Loopback loopback;
  std::uint32_t sent = 0;
  while (loopback.a().try_send(segment(1, sent))) ASSERT_LT(++sent, 1'000'000u);
  ASSERT_GT(sent, 0u);
  EXPECT_TRUE(loopback.b().try_send(segment(2, 0)));  // the other way there is room
  Segment s;
  ASSERT_TRUE(loopback.b().try_receive(&s));
  EXPECT_TRUE(loopback.a().try_send(segment(1, sent)));
  EXPECT_FALSE(loopback.a().try_send(segment(1, sent + 1)));
  for (std::uint32_t i = 1; i <= sent; ++i) {
    ASSERT_TRUE(loopback.b().try_receive(&s));
    ASSERT_EQ(s.psn, Psn(i)) << "what was refused must not have been taken";
  }
  EXPECT_FALSE(loopback.b().try_receive(&s));
}

TEST(Loopback, DiscardsTheLaterPayloadsOfOneQpAndNothingElse) {
  Loopback loopback;
  const std::byte payload[1] = {};
  constexpr std::uint32_t kFirst = 0xfffffd;  // the wrap lies between
  for (std::uint32_t i = 0; i < 10; ++i) {
    loopback.a().try_send(segment(1 + i % 2, kFirst + i, payload));
  }
  loopback.a().try_send(segment(1, kFirst + 10));          // refers to no memory
  loopback.b().try_send(segment(1, kFirst + 9, payload));  // the same number at the other end
  EXPECT_TRUE(loopback.a().discard(Qpn(1), SegmentRole::kRequest, Psn(kFirst + 4), kAllLaterPsns));
  EXPECT_FALSE(loopback.a().discard(Qpn(1), SegmentRole::kRequest, Psn(kFirst + 4), kAllLaterPsns));
  EXPECT_FALSE(loopback.a().discard(Qpn(2), SegmentRole::kResponse, Psn(kFirst), kAllLaterPsns));
  EXPECT_TRUE(loopback.a().discard(Qpn(2), SegmentRole::kRequest, Psn(kFirst + 4), 3));
  EXPECT_FALSE(loopback.a().discard(Qpn(2), SegmentRole::kRequest, Psn(kFirst + 4), 3));
  Segment s;
  for (const std::uint32_t i : {0u, 1u, 2u, 3u, 7u, 9u, 10u}) {
    ASSERT_TRUE(loopback.b().try_receive(&s));
    EXPECT_EQ(s.psn, Psn(kFirst + i));
  }
  EXPECT_FALSE(loopback.b().try_receive(&s));
  ASSERT_TRUE(loopback.a().try_receive(&s));
  EXPECT_EQ(s.psn, Psn(kFirst + 9));
}

TEST(Loopback, IsBusyWhileSomethingIsOnItsWay) {
  Loopback loopback;
  EXPECT_FALSE(loopback.a().busy());
  EXPECT_FALSE(loopback.b().busy());
  loopback.a().try_send(segment(1, 0));
  EXPECT_TRUE(loopback.a().busy());
  EXPECT_TRUE(loopback.b().busy());
  Segment s;
  loopback.b().try_receive(&s);
  EXPECT_FALSE(loopback.a().busy());
  EXPECT_FALSE(loopback.b().busy());
  EXPECT_FALSE(loopback.a().closed());
}

}  // namespace
}  // namespace peal::link
