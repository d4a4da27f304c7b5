// Identifiers, sequence numbers and byte order.
#include "peal/core/types.hpp"

#include <endian.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <type_traits>
#include <utility>

namespace peal {
namespace {

template <class A, class B, class = void>
struct Comparable : std::false_type {};
template <class A, class B>
struct Comparable<A, B, std::void_t<decltype(std::declval<A>() == std::declval<B>())>>
    : std::true_type {};

static_assert(Comparable<Qpn, Qpn>::value);
static_assert(Comparable<Psn, Psn>::value);
static_assert(!Comparable<Qpn, Lkey>::value);
static_assert(!Comparable<Lkey, Rkey>::value);
static_assert(!Comparable<Rkey, std::uint32_t>::value);
static_assert(!Comparable<Psn, std::uint32_t>::value);

static_assert(!std::is_convertible_v<std::uint32_t, Qpn>);
static_assert(!std::is_convertible_v<std::uint32_t, Psn>);
static_assert(!std::is_convertible_v<Qpn, std::uint32_t>);
static_assert(!std::is_constructible_v<Lkey, Rkey>);
static_assert(!std::is_constructible_v<Rkey, Lkey>);
static_assert(!std::is_constructible_v<Qpn, Psn>);
static_assert(!std::is_assignable_v<Lkey&, Rkey>);
static_assert(!std::is_convertible_v<Be32, std::uint32_t>);
static_assert(sizeof(Qpn) == 4 && std::is_trivially_copyable_v<Qpn>);
static_assert(sizeof(Be16) == 2 && sizeof(Be32) == 4 && sizeof(Be64) == 8);
static_assert(Be32::from_host(0x00130100).raw == 0x00011300);
static_assert(Qpn(3) == Qpn(3) && Qpn(3) != Qpn(4));

TEST(Psn, WrapsAfterTwentyFourBits) {
  EXPECT_EQ(Psn(0xffffff).plus(1), Psn(0));
  EXPECT_EQ(Psn(0x1000005), Psn(5));
  EXPECT_EQ(Psn(0xfffffe).plus(5).value, 3u);
}

TEST(Psn, IsLaterByOneWhenTheWrapLiesBetween) {
  EXPECT_EQ(Psn(0).since(Psn(0xffffff)), 1);
  EXPECT_EQ(Psn(0xffffff).since(Psn(0)), -1);
  EXPECT_EQ(Psn(7).since(Psn(7)), 0);
}

TEST(Psn, HalfTheSpaceAwayCountsAsEarlier) {
  EXPECT_EQ(Psn(0x7fffff).since(Psn(0)), 0x7fffff);
  EXPECT_EQ(Psn(0x800000).since(Psn(0)), -0x800000);
  EXPECT_EQ(Psn(0).since(Psn(0x800000)), -0x800000);
  EXPECT_EQ(Psn(0).since(Psn(0x800001)), 0x7fffff);
}

TEST(Psn, DistanceUndoesAdditionFromARandomStart) {
  std::mt19937 random(0x5eed0040);
  for (int i = 0; i < 20000; ++i) {
    const Psn from(static_cast<std::uint32_t>(random()));
    const auto distance = static_cast<std::int32_t>(random() & 0xffffff) - 0x800000;
    const Psn to = from.plus(static_cast<std::uint32_t>(distance));
    ASSERT_LE(to.value, Psn::kMask);
    ASSERT_EQ(to.since(from), distance);
    if (distance != -0x800000) {
      ASSERT_EQ(from.since(to), -distance);
    }
  }
}

TEST(ByteOrder, SwapsAsTheSystemDoes) {
  std::mt19937_64 random(0x5eed0041);
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t v = random();
    ASSERT_EQ(swap_bytes(static_cast<std::uint16_t>(v)), htobe16(static_cast<std::uint16_t>(v)));
    ASSERT_EQ(swap_bytes(static_cast<std::uint32_t>(v)), htobe32(static_cast<std::uint32_t>(v)));
    ASSERT_EQ(swap_bytes(v), htobe64(v));
    ASSERT_EQ(swap_bytes(swap_bytes(v)), v);
  }
}

TEST(ByteOrder, BigEndianIntegerHasItsMostSignificantByteFirst) {
  const Be64 v = Be64::from_host(0x0102030405060708);
  std::uint8_t bytes[8];
  std::memcpy(bytes, &v, sizeof bytes);
  for (std::uint8_t i = 0; i < 8; ++i) EXPECT_EQ(bytes[i], i + 1);
  EXPECT_EQ(v.to_host(), 0x0102030405060708u);
  EXPECT_EQ(Be16::from_host(0x1234).raw, 0x3412);
  EXPECT_EQ(Be16::from_host(0x1234).to_host(), 0x1234);
}

}  // namespace
}  // namespace peal
