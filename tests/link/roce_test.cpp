#include "link/roce.hpp"

#include <gtest/gtest.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <thread>

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
  const auto step = [&] {
    const std::size_t end = segments.number() % 2;
    Segment got;
    if (sent[end] < count && in_flight[end].size() < 40 && segments.number() % 4 != 0) {
      // Many of a size, so that there are trains.
      OwnedSegment owned = segments.number() % 8 == 0
                               ? segments.next(4096)
                               : segments.of(SegmentKind::kWriteOnly, 64u << sent[end] / 50 % 7);
      if (!(*ends)[end].try_send(owned.view())) return;
      in_flight[end].push_back(std::move(owned));
      ++sent[end];
    } else if ((*ends)[end].try_receive(&got)) {
      auto& expected = in_flight[1 - end];
      ASSERT_FALSE(expected.empty());
      ASSERT_EQ(difference(got, expected.front().view()), "") << "after " << received[end];
      expected.pop_front();
      ++received[end];
    }
  };
  ASSERT_TRUE(test::wait_until([&] {
    for (int steps = 0; steps < 1000 && !HasFatalFailure(); ++steps) step();
    return HasFatalFailure() || (received[0] == count && received[1] == count);
  }));
  EXPECT_EQ(received[0], count);
  EXPECT_EQ(received[1], count);
  for (const auto& end : ends->ends) {
    EXPECT_FALSE(end->busy());
    EXPECT_EQ(end->error(), "");
    EXPECT_EQ(end->counters().all_dropped(), 0u);
  }
}

// ---- Trains ----

// Sends `count` zero-byte or full segments, and receives them.
void expect_all_arrive(RoceEnds* ends, std::uint32_t count, std::uint32_t payload_bytes) {
  RandomRoceSegments segments(3);
  std::vector<OwnedSegment> sent;
  for (std::uint32_t i = 0; i < count; ++i) {
    sent.push_back(segments.of(SegmentKind::kWriteOnly, payload_bytes));
    ASSERT_TRUE((*ends)[0].try_send(sent.back().view()));
  }
  Segment s;
  EXPECT_FALSE((*ends)[0].try_receive(&s));
  for (const OwnedSegment& expected : sent) {
    ASSERT_TRUE(ends->receive(1, &s));
    EXPECT_EQ(difference(s, expected.view()), "");
  }
}

TEST(RoceLink, LeavesTheCuttingOfATrainToTheKernel) {
  for (const char* at : {"127.0.0.1", "::1"}) {
    RoceEnds ends(at, at);
    expect_all_arrive(&ends, 64, 0);
    EXPECT_EQ(ends[0].counters().sent_calls, 1u);
    EXPECT_EQ(ends[0].counters().sent_packets, 64u);
    EXPECT_EQ(ends[1].counters().received_calls, 1u) << "they arrive as one train";
    expect_all_arrive(&ends, 15, 4096);  // 15 * 4128 bytes: the most that a datagram holds
    EXPECT_EQ(ends[0].counters().sent_calls, 2u);
    expect_all_arrive(&ends, 16, 4096);
    EXPECT_EQ(ends[0].counters().sent_calls, 4u);
    EXPECT_EQ(ends[1].counters().all_dropped(), 0u);
  }
}

TEST(RoceLink, SendsToOthersOneCallManyPackets) {
  RoceOptions options;
  options.segmentation_offload = false;
  RoceEnds ends("127.0.0.1", "127.0.0.1", options);
  expect_all_arrive(&ends, 64, 4096);
  EXPECT_EQ(ends[0].counters().sent_calls, 1u);
  EXPECT_EQ(ends[0].counters().sent_packets, 64u);
}

TEST(RoceLink, LosesWhatCannotBeSent) {
  RoceOptions options;
  options.local = test::address("127.0.0.1");
  RoceLink link(options);
  RandomRoceSegments segments(4);
  EXPECT_TRUE(link.try_send(segments.of(SegmentKind::kWriteOnly, 1).view()));  // there is no peer
  link.connect({.address = options.local, .udp_port = link.udp_port()});
  EXPECT_TRUE(link.try_send(segments.of(SegmentKind::kWriteOnly, 4097).view()));
  EXPECT_TRUE(link.try_send(segments.of(SegmentKind::kWriteOnly, 1u << 20).view()));
  OwnedSegment masked = segments.of(SegmentKind::kCompareSwap, 0);
  masked.segment.kind = SegmentKind::kMaskedCompareSwap;
  EXPECT_TRUE(link.try_send(masked.view()));
  OwnedSegment operands = segments.of(SegmentKind::kFetchAdd, 0);
  operands.payload.resize(31);
  EXPECT_TRUE(link.try_send(operands.view()));
  OwnedSegment first = segments.of(SegmentKind::kWriteFirst, 256);
  first.payload.resize(255);
  EXPECT_TRUE(link.try_send(first.view()));
  OwnedSegment acknowledge = segments.of(SegmentKind::kAcknowledge, 0);
  acknowledge.payload.resize(4);
  EXPECT_TRUE(link.try_send(acknowledge.view()));
  EXPECT_EQ(link.counters().unsendable, 7u);
  EXPECT_FALSE(link.busy());
  EXPECT_FALSE(link.closed());
}

TEST(RoceLink, GoesOnWhereNobodyListens) {
  std::uint16_t nobodys_port = 0;
  {
    RoceLink gone({.local = test::address("127.0.0.1")});
    nobodys_port = gone.udp_port();
  }
  RoceLink link({.local = test::address("127.0.0.1")});
  link.connect({.address = test::address("127.0.0.1"), .udp_port = nobodys_port});
  RandomRoceSegments segments(5);
  Segment s;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(link.try_send(segments.of(SegmentKind::kWriteOnly, 1).view()));
    EXPECT_FALSE(link.try_receive(&s));
  }
  EXPECT_FALSE(link.closed());
  EXPECT_FALSE(link.busy());
}

// ---- What it says of itself ----

std::string refusal_of(const RoceOptions& options) {
  try {
    RoceLink link(options);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(RoceLink, RefusesInOneSentence) {
  EXPECT_EQ(refusal_of({.local = test::address("192.0.2.1")}),
            "192.0.2.1 is no address of an interface of this host");
  EXPECT_EQ(refusal_of({.local = test::address("2001:db8::1")}),
            "2001:db8::1 is no address of an interface of this host");
  EXPECT_EQ(refusal_of({.local = test::address("::1"), .receives_raw = true}),
            "packets are received raw with IPv4 only, and ::1 is an IPv6 address: a UDP socket can "
            "check all of IPv6's");
  RoceLink link({.local = test::address("127.0.0.1")});
  EXPECT_EQ(refusal_of({.local = test::address("127.0.0.1"), .udp_port = link.udp_port()}),
            "binding UDP port " + std::to_string(link.udp_port()) +
                " of 127.0.0.1: Address already in use");
  try {
    link.connect({.address = test::address("::1")});
    ADD_FAILURE() << "it is connected";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "127.0.0.1 and its peer's ::1 are not of the same IP version");
  }
}

TEST(RoceLink, KeepsTheKernelsReceiveBufferFromOverflowing) {
  // A kernel that holds little of what arrives: it takes all that is allowed to be unanswered.
  for (const std::uint32_t bytes : {0u, 1u, 200u, 256u, 1000u, 1024u, 2048u, 4000u, 4096u}) {
    RoceOptions options;
    options.segmentation_offload = false;  // each packet for itself: the most expensive
    RoceEnds ends("127.0.0.1", "127.0.0.1", options);
    const InFlight most = ends[0].most_in_flight();
    const std::uint64_t count = std::min<std::uint64_t>(
        most.packets, bytes == 0 ? most.packets : most.payload_bytes / bytes);
    ASSERT_GE(count, 4u);
    RandomRoceSegments segments(6);
    const OwnedSegment sent = segments.of(SegmentKind::kWriteOnly, bytes);
    for (std::uint64_t i = 0; i < count; ++i) ASSERT_TRUE(ends[0].try_send(sent.view()));
    Segment s;
    EXPECT_FALSE(ends[0].try_receive(&s));
    for (std::uint64_t i = 0; i < count; ++i) ASSERT_TRUE(ends.receive(1, &s)) << i;
    EXPECT_EQ(ends[1].counters().overflowed, 0u);
  }
}

TEST(RoceLink, CountsWhatTheKernelHadNoRoomFor) {
  RoceOptions options;
  options.segmentation_offload = false;
  RoceEnds ends("127.0.0.1", "127.0.0.1", options);
  RandomRoceSegments segments(6);
  const OwnedSegment sent = segments.of(SegmentKind::kWriteOnly, 4096);
  const std::uint64_t count = ends[1].receive_buffer_bytes() / 4096;
  for (std::uint64_t i = 0; i < count; ++i) ASSERT_TRUE(ends[0].try_send(sent.view()));
  Segment s;
  EXPECT_FALSE(ends[0].try_receive(&s));
  std::uint64_t received = 0;
  EXPECT_TRUE(test::wait_until([&] {
    received += ends[1].try_receive(&s) ? 1 : 0;
    return received + ends[1].counters().overflowed == count;
  }));
  EXPECT_GT(ends[1].counters().overflowed, 0u);
}

TEST(IpAddress, IsReadAndWritten) {
  for (const char* text : {"127.0.0.1", "10.1.2.3", "::1", "fe80::1", "2001:db8::a:b", "::"}) {
    EXPECT_EQ(to_text(test::address(text)), text);
  }
  EXPECT_TRUE(test::address("1.2.3.4").is_v4());
  EXPECT_FALSE(test::address("::1").is_v4());
  EXPECT_EQ(test::address("::ffff:1.2.3.4"), test::address("1.2.3.4"));
  for (const char* text :
       {"", "localhost", "1.2.3", "1.2.3.256", "1.2.3.4/8", "::1%lo", "1.2.3.4 "}) {
    EXPECT_FALSE(ip_address_from(text).has_value()) << text;
  }
}

// ---- On a network of their own ----

// Runs on a thread that alone is in a new network namespace, where nothing but a loopback interface
// is, of this MTU. False where this process may not have one.
bool with_own_loopback(int mtu, const std::function<void()>& body) {
  bool ran = false;
  std::thread([&] {
    if (::unshare(CLONE_NEWNET) != 0) return;
    const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ifreq request{};
    std::strcpy(request.ifr_name, "lo");
    request.ifr_mtu = mtu;
    const bool set = ::ioctl(fd, SIOCSIFMTU, &request) == 0;
    request.ifr_flags = IFF_UP;
    const bool up = ::ioctl(fd, SIOCSIFFLAGS, &request) == 0;
    ::close(fd);
    ran = set && up;
    if (ran) body();
  }).join();
  return ran;
}

TEST(RoceLink, TakesTheLargestMtuThatTheInterfaceCarries) {
  const struct {
    int interface;
    std::uint32_t roce;
  } cases[] = {{320, 256},   {575, 256},   {576, 512},   {1087, 512},  {1088, 1024}, {1500, 1024},
               {4159, 2048}, {4160, 4096}, {4300, 4096}, {9000, 4096}, {65535, 4096}};
  for (const auto& c : cases) {
    if (!with_own_loopback(c.interface, [&] {
          EXPECT_EQ(RoceLink({.local = test::address("127.0.0.1")}).mtu_bytes(), c.roce)
              << c.interface;
        })) {
      GTEST_SKIP() << "no network namespace of its own can be made here";
    }
  }
  with_own_loopback(319, [] {
    EXPECT_EQ(refusal_of({.local = test::address("127.0.0.1")}),
              "the interface of 127.0.0.1 has an MTU of 319 bytes: a RoCE packet of 256 bytes does "
              "not fit");
  });
}

// Payload at the MTU fits with all headers, whatever the kind; the kernel numbers a train's packets
// from 0 on, which a raw socket sees.
TEST(RoceLink, FitsTheMtuThatItSays) {
  for (const int interface : {320, 1500, 4160}) {
    const bool ran = with_own_loopback(interface, [] {
      RoceEnds ends("127.0.0.1", "127.0.0.1");
      const std::uint32_t mtu = ends[0].mtu_bytes();
      RandomRoceSegments segments(7);
      Segment s;
      for (std::uint8_t kind = 6; kind <= 20; ++kind) {
        const OwnedSegment sent = segments.of(static_cast<SegmentKind>(kind), mtu);
        ASSERT_TRUE(ends[0].try_send(sent.view()));
        EXPECT_FALSE(ends[0].try_receive(&s));
        ASSERT_TRUE(ends.receive(1, &s));
        EXPECT_EQ(difference(s, sent.view()), "");
      }
      expect_all_arrive(&ends, 15, mtu);
      EXPECT_EQ(ends[0].counters().too_long, 0u);
      EXPECT_EQ(ends[0].counters().sent_calls, 16u);
    });
    if (!ran) GTEST_SKIP() << "no network namespace of its own can be made here";
  }
}

// Makes the loopback interface cut trains, as a raw socket sees whole ones otherwise.
bool let_loopback_cut_trains() {
  constexpr std::uint32_t kFeaturesMax = 256;
  alignas(8) std::array<std::byte, sizeof(ethtool_gstrings) + kFeaturesMax * ETH_GSTRING_LEN>
      names{};
  alignas(8) std::array<std::byte, sizeof(ethtool_sfeatures) +
                                       kFeaturesMax / 32 * sizeof(ethtool_set_features_block)>
      off{};
  auto& all = *new (names.data()) ethtool_gstrings;
  all.cmd = ETHTOOL_GSTRINGS;
  all.string_set = ETH_SS_FEATURES;
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_data = reinterpret_cast<char*>(&all);
  bool done = false;
  const bool named = ::ioctl(fd, SIOCETHTOOL, &request) == 0;
  for (std::uint32_t i = 0; named && i < std::min(all.len, kFeaturesMax); ++i) {
    const auto* name = reinterpret_cast<const char*>(&all.data[i * ETH_GSTRING_LEN]);
    if (std::strcmp(name, "tx-udp-segmentation") != 0) continue;
    auto& set = *new (off.data()) ethtool_sfeatures;
    set.cmd = ETHTOOL_SFEATURES;
    set.size = (all.len + 31) / 32;
    set.features[i / 32].valid = 1u << i % 32;
    request.ifr_data = reinterpret_cast<char*>(&set);
    done = ::ioctl(fd, SIOCETHTOOL, &request) == 0;
  }
  ::close(fd);
  return done;
}

TEST(RoceLink, NumbersATrainAsTheKernelDoes) {
  bool cuts = false;
  const bool ran = with_own_loopback(65535, [&] {
    cuts = let_loopback_cut_trains();
    if (!cuts) return;
    RoceLink sender({.local = test::address("127.0.0.2")});
    RoceLink receiver({.local = test::address("127.0.0.3"), .receives_raw = true});
    sender.connect(
        {.address = test::address("127.0.0.3"), .udp_port = receiver.udp_port(), .is_peal = true});
    receiver.connect({.address = test::address("127.0.0.2")});
    RandomRoceSegments segments(8);
    for (int i = 0; i < 64; ++i) {
      ASSERT_TRUE(sender.try_send(segments.of(SegmentKind::kWriteOnly, 100).view()));
    }
    Segment s;
    EXPECT_FALSE(sender.try_receive(&s));
    EXPECT_EQ(sender.counters().sent_calls, 1u);
    EXPECT_TRUE(test::wait_until([&] {
      (void)receiver.try_receive(&s);
      return receiver.counters().received_packets + receiver.counters().all_dropped() == 64;
    }));
    EXPECT_EQ(receiver.counters().all_dropped(), 0u);
  });
  if (!ran) GTEST_SKIP() << "no network namespace of its own can be made here";
  if (!cuts) GTEST_SKIP() << "the loopback interface cuts no trains here";
}

// A train whose packets are too long for the path is cut by hand, and what fits of it arrives.
TEST(RoceLink, CutsATrainThatTheKernelRefuses) {
  const bool ran = with_own_loopback(1500, [] {
    RoceLink sender({.local = test::address("127.0.0.2")});
    RoceLink receiver({.local = test::address("127.0.0.3")});
    sender.connect(
        {.address = test::address("127.0.0.3"), .udp_port = receiver.udp_port(), .is_peal = true});
    receiver.connect({.address = test::address("127.0.0.2")});  // takes identification 0 alone
    RandomRoceSegments segments(9);
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(sender.try_send(segments.of(SegmentKind::kWriteOnly, 2048).view()));
    }
    ASSERT_TRUE(sender.try_send(segments.of(SegmentKind::kWriteOnly, 1024).view()));
    Segment s;
    EXPECT_FALSE(sender.try_receive(&s));
    EXPECT_EQ(sender.counters().too_long, 3u);
    EXPECT_EQ(sender.counters().sent_packets, 1u);
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(sender.try_send(segments.of(SegmentKind::kWriteOnly, 64).view()));
    }
    EXPECT_FALSE(sender.try_receive(&s));
    EXPECT_FALSE(sender.closed());
    EXPECT_TRUE(test::wait_until([&] {
      (void)receiver.try_receive(&s);
      return receiver.counters().received_packets + receiver.counters().all_dropped() == 3;
    }));
    EXPECT_EQ(receiver.counters().all_dropped(), 0u);
  });
  if (!ran) GTEST_SKIP() << "no network namespace of its own can be made here";
}

}  // namespace
}  // namespace peal::link
