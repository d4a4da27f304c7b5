#include "link/roce.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <string>

#include "link/roce_ends.hpp"
#include "peal/host/error.hpp"
#include "support/scale.hpp"

namespace peal::link {
namespace {

using test::difference;
using test::OwnedSegment;
using test::RandomRoceSegments;
using test::RoceEnds;

// The kinds of way between two ends.
struct RoceWay {
  const char* name;
  const char* a;
  const char* b;
  bool offload = true;
  bool raw = false;
};
void PrintTo(const RoceWay& way, std::ostream* out) {
  *out << way.name;
}

class RoceOverWay : public testing::TestWithParam<RoceWay> {
 protected:
  void SetUp() override {
    const RoceWay& way = GetParam();
    try {
      RoceOptions options;
      options.receives_raw = way.raw;
      options.segmentation_offload = way.offload;
      ends = std::make_unique<RoceEnds>(way.a, way.b, options);
    } catch (const Error& e) {
      if (e.code() == EPERM || e.code() == EADDRNOTAVAIL) GTEST_SKIP() << e.what();
      throw;
    }
  }
  std::unique_ptr<RoceEnds> ends;
};

INSTANTIATE_TEST_SUITE_P(, RoceOverWay,
                         testing::Values(RoceWay{"OneAddress", "127.0.0.1", "127.0.0.1"},
                                         RoceWay{"TwoAddresses", "127.0.0.2", "127.0.0.3"},
                                         RoceWay{"PacketByPacket", "127.0.0.1", "127.0.0.1", false},
                                         RoceWay{"Ipv6", "::1", "::1"},
                                         RoceWay{"Ipv6PacketByPacket", "::1", "::1", false},
                                         RoceWay{"Raw", "127.0.0.2", "127.0.0.3", true, true}),
                         [](const auto& way) { return std::string(way.param.name); });

TEST_P(RoceOverWay, CarriesEveryKindOfSegmentInEverySize) {
  RandomRoceSegments segments(1);
  std::vector<std::uint32_t> sizes{0, 1, 2, 3, 4, 5};
  for (std::uint32_t mtu = 256; mtu <= 4096; mtu *= 2) {
    sizes.push_back(mtu - 1);
    sizes.push_back(mtu);
  }
  for (std::uint8_t kind = 6; kind <= 20; ++kind) {
    for (const std::uint32_t size : sizes) {
      const OwnedSegment sent = segments.of(static_cast<SegmentKind>(kind), size);
      {
        OwnedSegment offered = sent;
        offered.segment.source_qpn = Qpn(77);  // which no packet tells
        ASSERT_TRUE((*ends)[0].try_send(offered.view()));
        std::fill(offered.payload.begin(), offered.payload.end(), std::byte{0xee});
      }
      EXPECT_TRUE((*ends)[0].busy());
      Segment none;
      EXPECT_FALSE((*ends)[0].try_receive(&none));
      EXPECT_FALSE((*ends)[0].busy());
      Segment got;
      ASSERT_TRUE(ends->receive(1, &got));
      EXPECT_EQ(difference(got, sent.view()), "") << "kind " << int{kind} << ", " << size;
    }
  }
  EXPECT_EQ((*ends)[1].counters().all_dropped(), 0u);
  EXPECT_EQ((*ends)[1].counters().overflowed, 0u);
  EXPECT_EQ((*ends)[1].counters().received_packets, (*ends)[0].counters().sent_packets);
}

// Random steps at both ends against two queues. Loopback neither loses nor reorders what fits.
TEST_P(RoceOverWay, CarriesRandomSegmentsAsTheyCame) {
  RandomRoceSegments segments(2);
  std::array<std::deque<OwnedSegment>, 2> in_flight;
  std::array<std::size_t, 2> sent{};
  const std::size_t count = test::scaled(3000);
  std::array<std::size_t, 2> received{};
  ASSERT_TRUE(test::wait_until([&] {
    const std::size_t end = segments.number() % 2;
    if (sent[end] < count && in_flight[end].size() < 40 && segments.number() % 4 != 0) {
      // Many of a size, so that there are trains.
      OwnedSegment owned = segments.number() % 8 == 0
                               ? segments.next(4096)
                               : segments.of(SegmentKind::kWriteOnly, 64u << sent[end] / 50 % 7);
      if ((*ends)[end].try_send(owned.view())) {
        in_flight[end].push_back(std::move(owned));
        ++sent[end];
      }
    } else if (Segment got; (*ends)[end].try_receive(&got)) {
      auto& expected = in_flight[1 - end];
      if (expected.empty() || difference(got, expected.front().view()) != "") return true;
      expected.pop_front();
      ++received[end];
    }
    return received[0] == count && received[1] == count;
  }));
  EXPECT_EQ(received[0], count);
  EXPECT_EQ(received[1], count);
  for (const auto& end : ends->ends) {
    EXPECT_FALSE(end->busy());
    EXPECT_EQ(end->error(), "");
    EXPECT_EQ(end->counters().all_dropped(), 0u);
  }
}

}  // namespace
}  // namespace peal::link
