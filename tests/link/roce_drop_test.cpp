// What a RoCE link makes of packets that are not, or not quite, its peer's.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "link/roce_ends.hpp"
#include "link/roce_packet.hpp"
#include "peal/host/error.hpp"
#include "wire/wire_values.hpp"

namespace peal::link {
namespace {

using test::address;
using test::Buffer;
using wire::Malformed;

constexpr const char* kUs = "127.0.0.2";
constexpr const char* kPeer = "127.0.0.3";

// A link, and a bare socket at its peer's address, or at another.
class RoceDrops : public testing::Test {
 protected:
  virtual RoceOptions options() const { return {.local = address(kUs)}; }
  void SetUp() override {
    try {
      link = std::make_unique<RoceLink>(options());
    } catch (const Error& e) {
      if (e.code() == EPERM) GTEST_SKIP() << e.what();
      throw;
    }
    packet.bth = {.opcode = wire::Opcode::kWriteOnly,
                  .mig_req = true,
                  .dest_qp = Qpn(0x17),
                  .ack_request = true,
                  .psn = Psn(3)};
    packet.payload = payload;
  }

  void connect(bool is_peal = true) {
    link->connect({.address = address(kPeer), .udp_port = 4791, .is_peal = is_peal});
  }

  // The UDP payload of `packet`, as if it came from `from` with an identification.
  Buffer bytes_of_packet(const char* from = kPeer, std::uint16_t identification = 0) {
    Buffer bytes(wire::bytes_of(packet));
    write_packet(packet, ip_between(address(from), address(kUs), identification),
                 {.source_port = kSourcePort, .destination_port = link->udp_port()}, bytes);
    return bytes;
  }

  void send(const Buffer& bytes, const char* from = kPeer) {
    const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const auto at = [](const char* text, std::uint16_t port) {
      sockaddr_in a{};
      a.sin_family = AF_INET;
      a.sin_port = htons(port);
      std::memcpy(&a.sin_addr, &address(text).bytes[12], 4);
      return a;
    };
    const sockaddr_in source = at(from, kSourcePort);
    const sockaddr_in target = at(kUs, link->udp_port());
    ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&source), sizeof source), 0);
    EXPECT_EQ(::sendto(fd, bytes.data(), bytes.size(), 0,
                       reinterpret_cast<const sockaddr*>(&target), sizeof target),
              static_cast<ssize_t>(bytes.size()));
    ::close(fd);
  }

  testing::AssertionResult is_taken() {
    const std::uint64_t dropped = link->counters().all_dropped();
    bool taken = false;
    const bool decided = test::wait_until([&] {
      taken = link->try_receive(&got);
      return taken || link->counters().all_dropped() != dropped;
    });
    if (!decided) return testing::AssertionFailure() << "nothing arrives";
    return taken ? testing::AssertionSuccess() : testing::AssertionFailure() << "it is dropped";
  }
  template <class Reason>
  void expect_dropped(const Buffer& bytes, Reason reason, const char* from = kPeer) {
    const std::uint64_t before = link->counters().of(reason);
    const std::uint64_t taken_before = link->counters().received_packets;
    send(bytes, from);
    EXPECT_FALSE(is_taken());
    EXPECT_EQ(link->counters().of(reason), before + 1);
    EXPECT_EQ(link->counters().received_packets, taken_before);
    EXPECT_FALSE(link->closed());
  }

  static constexpr std::uint16_t kSourcePort = 45678;
  std::unique_ptr<RoceLink> link;
  wire::Packet packet;
  Buffer payload{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}, std::byte{5}};
  Segment got;
};

TEST_F(RoceDrops, TakesAPeersPacketFromAnySourcePort) {
  connect();
  send(bytes_of_packet());
  ASSERT_TRUE(is_taken());
  EXPECT_EQ(got.destination_qpn, Qpn(0x17));
  EXPECT_EQ(got.source_qpn, Qpn(0));
  EXPECT_EQ(got.payload_bytes, 5u);
  EXPECT_TRUE(got.ack_request);
  EXPECT_EQ(link->counters().received_packets, 1u);
}

TEST_F(RoceDrops, DropsAStrangersPacket) {
  expect_dropped(bytes_of_packet(), RoceDrop::kStranger);  // there is no peer yet
  connect();
  expect_dropped(bytes_of_packet("127.0.0.4"), RoceDrop::kStranger, "127.0.0.4");
}

TEST_F(RoceDrops, DropsAnotherPartitionsPacket) {
  connect();
  packet.bth.pkey = 0x1234;
  expect_dropped(bytes_of_packet(), RoceDrop::kPartition);
  packet.bth.pkey = 0x7fff;  // a limited member of ours, which is a full one
  send(bytes_of_packet());
  EXPECT_TRUE(is_taken());
}

class RoceDropsOfALimitedMember : public RoceDrops {
 protected:
  RoceOptions options() const override { return {.local = address(kUs), .pkey = 0x7fff}; }
};

TEST_F(RoceDropsOfALimitedMember, DropsAnotherLimitedMembersPacket) {
  connect();
  packet.bth.pkey = 0x7fff;
  expect_dropped(bytes_of_packet(), RoceDrop::kPartition);
  packet.bth.pkey = 0xffff;
  send(bytes_of_packet());
  EXPECT_TRUE(is_taken());
}

TEST_F(RoceDrops, DropsWhatNoQueuePairOfOursTakes) {
  connect();
  for (const wire::Opcode opcode : {wire::Opcode::kSendOnly, wire::Opcode::kSendOnlyInvalidate,
                                    static_cast<wire::Opcode>(wire::kUc + 10)}) {
    packet.bth.opcode = opcode;
    expect_dropped(bytes_of_packet(), RoceDrop::kOpcode);
  }
  payload.resize(16);
  packet.payload = payload;
  packet.bth.opcode = wire::Opcode::kCongestionNotification;
  expect_dropped(bytes_of_packet(), RoceDrop::kOpcode);
  payload.resize(4097);
  packet.payload = payload;
  packet.bth.opcode = wire::Opcode::kWriteOnly;
  expect_dropped(bytes_of_packet(), RoceDrop::kOversized);
  payload.resize(60000);
  packet.payload = payload;
  expect_dropped(bytes_of_packet(), RoceDrop::kOversized);
  payload.resize(4096);
  packet.payload = payload;
  send(bytes_of_packet());
  EXPECT_TRUE(is_taken());
}

// Each after its ICRC was made right, but for the last.
TEST_F(RoceDrops, DropsMalformedPacketsEachForItsReason) {
  connect();
  const auto with = [&](std::size_t at, unsigned value, std::size_t bytes) {
    Buffer b = bytes_of_packet();
    if (at < b.size()) b[at] = static_cast<std::byte>(value);
    b.resize(bytes);
    constexpr std::size_t kLeast = sizeof(wire::BthFormat) + sizeof(wire::IcrcFormat);
    if (b.size() < kLeast) return b;
    const auto ip = std::get<wire::Ipv4>(ip_between(address(kPeer), address(kUs)));
    wire::Ipv4 in_front = ip;
    in_front.total_length = static_cast<std::uint16_t>(28 + b.size());
    const wire::Udp udp{.source_port = kSourcePort,
                        .destination_port = link->udp_port(),
                        .length = static_cast<std::uint16_t>(8 + b.size())};
    const wire::Bytes all(b);
    const wire::IcrcFormat icrc =
        icrc_of(encode(in_front), encode(udp), *wire::view_of<wire::BthFormat>(all),
                all.subspan(sizeof(wire::BthFormat), b.size() - kLeast));
    std::memcpy(b.data() + b.size() - sizeof icrc, &icrc, sizeof icrc);
    return b;
  };
  const std::size_t whole = bytes_of_packet().size();  // BTH, RETH, 5 bytes, 3 of pad, ICRC
  send(with(0, 10, whole));
  EXPECT_TRUE(is_taken()) << "and so are they malformed by what was changed";
  expect_dropped({}, Malformed::kTooShort);
  expect_dropped(with(0, 10, 11), Malformed::kTooShort);
  expect_dropped(with(0, 10, 15), Malformed::kTooShort);
  expect_dropped(with(1, 0x71, whole), Malformed::kBthVersion);
  expect_dropped(with(0, 21, whole), Malformed::kOpcode);
  expect_dropped(with(0, 0xd3, whole), Malformed::kOpcode);  // a masked atomic between streams
  expect_dropped(with(0, 10, 31), Malformed::kHeaderCutOff);
  expect_dropped(with(0, 12, whole), Malformed::kPayload);  // a read request that carries some
  expect_dropped(with(1, 0x70, 34), Malformed::kPad);       // pad 3, but there are 2 bytes
  expect_dropped(with(0, 7, whole), Malformed::kPaddedPart);
  expect_dropped(with(1, 0x40, whole - 3), Malformed::kWords);
  Buffer bad = bytes_of_packet();
  bad[20] ^= std::byte{1};
  expect_dropped(bad, Malformed::kIcrc);
  // By an address that is not the one it came from: all zero, or another's.
  expect_dropped(bytes_of_packet("0.0.0.0"), Malformed::kIcrc);
  expect_dropped(bytes_of_packet("127.0.0.4"), Malformed::kIcrc);
}

TEST_F(RoceDrops, TakesEitherMigrationStateAndReservedBits) {
  connect();
  packet.bth.mig_req = false;
  send(bytes_of_packet());
  EXPECT_TRUE(is_taken());
  packet.bth.fecn = true;
  packet.bth.reserved6 = 0x3f;
  packet.bth.reserved7 = 0x7f;
  send(bytes_of_packet());
  EXPECT_TRUE(is_taken());
}

TEST_F(RoceDrops, TakesIdentificationsThatAPealsTrainHas) {
  connect();
  for (const std::size_t bytes : {0u, 1u, 100u, 4096u}) {
    payload.resize(bytes);
    packet.payload = payload;
    for (std::uint16_t id = 0; id < 64; ++id) {
      send(bytes_of_packet(kPeer, id));
      ASSERT_TRUE(is_taken()) << id;
    }
    for (const int id : {64, 65, 127, 0x8000, 0xffff}) {
      expect_dropped(bytes_of_packet(kPeer, static_cast<std::uint16_t>(id)), Malformed::kIcrc);
    }
  }
}

TEST_F(RoceDrops, TakesNoIdentificationButNoneFromOthers) {
  connect(false);
  send(bytes_of_packet());
  EXPECT_TRUE(is_taken());
  expect_dropped(bytes_of_packet(kPeer, 1), Malformed::kIcrc);
  expect_dropped(bytes_of_packet(kPeer, 63), Malformed::kIcrc);
}

TEST_F(RoceDrops, ReturnsToItsOwnerInAFlood) {
  const Buffer bytes = bytes_of_packet();
  for (int i = 0; i < 200; ++i) send(bytes);
  Segment s;
  ASSERT_TRUE(test::wait_until([&] {
    EXPECT_FALSE(link->try_receive(&s));
    return link->counters().of(RoceDrop::kStranger) > 0;
  }));
  EXPECT_LT(link->counters().of(RoceDrop::kStranger), 200u);
  EXPECT_TRUE(test::wait_until([&] {
    EXPECT_FALSE(link->try_receive(&s));
    return link->counters().of(RoceDrop::kStranger) == 200;
  }));
}

// ---- whole IP packets ----

class RoceRawDrops : public RoceDrops {
 protected:
  RoceOptions options() const override { return {.local = address(kUs), .receives_raw = true}; }

  // All of it is ours, but for lengths and checksum, which the kernel writes.
  void send_raw(const Buffer& datagram) {
    const int fd = ::socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
    ASSERT_GE(fd, 0);
    sockaddr_in target{};
    target.sin_family = AF_INET;
    std::memcpy(&target.sin_addr, &address(kUs).bytes[12], 4);
    EXPECT_EQ(::sendto(fd, datagram.data(), datagram.size(), 0,
                       reinterpret_cast<const sockaddr*>(&target), sizeof target),
              static_cast<ssize_t>(datagram.size()));
    ::close(fd);
  }
  Buffer datagram(std::uint16_t identification, const char* from = kPeer) {
    const wire::Datagram d{ip_between(address(from), address(kUs), identification),
                           {.source_port = kSourcePort, .destination_port = link->udp_port()},
                           packet};
    Buffer bytes(wire::bytes_of(d));
    write_datagram(d, bytes);
    return bytes;
  }
};

TEST_F(RoceRawDrops, TakesMovingIdentifications) {
  connect(false);
  for (const int id : {1, 63, 64, 0x1234, 0xffff}) {
    send_raw(datagram(static_cast<std::uint16_t>(id)));
    EXPECT_TRUE(is_taken()) << id;
    EXPECT_EQ(got.payload_bytes, 5u);
  }
  EXPECT_EQ(link->counters().received_packets, 5u);
  EXPECT_EQ(link->counters().all_dropped(), 0u);
}

TEST_F(RoceRawDrops, DropsByTheSameReasons) {
  const auto expect_raw_dropped = [&](const Buffer& bytes, auto reason) {
    const std::uint64_t before = link->counters().of(reason);
    send_raw(bytes);
    EXPECT_FALSE(is_taken());
    EXPECT_EQ(link->counters().of(reason), before + 1);
  };
  expect_raw_dropped(datagram(7), RoceDrop::kStranger);
  connect(false);
  expect_raw_dropped(datagram(7, "127.0.0.4"), RoceDrop::kStranger);
  Buffer bad = datagram(7);
  bad[50] ^= std::byte{1};
  expect_raw_dropped(bad, Malformed::kIcrc);
  Buffer renumbered = datagram(7);
  renumbered[5] ^= std::byte{1};
  expect_raw_dropped(renumbered, Malformed::kIcrc);
  packet.bth.pkey = 1;
  expect_raw_dropped(datagram(7), RoceDrop::kPartition);
}

// Another port's packets never come as far as to be counted, and none is answered by ICMP.
TEST_F(RoceRawDrops, HearsItsPortAlone) {
  connect(false);
  const std::uint16_t port = link->udp_port();
  Buffer other = datagram(7);
  other[23] ^= std::byte{1};  // the destination port
  send_raw(other);
  send_raw(datagram(8));
  EXPECT_TRUE(is_taken());
  EXPECT_EQ(link->counters().all_dropped(), 0u);

  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in target{};
  target.sin_family = AF_INET;
  target.sin_port = htons(port);
  std::memcpy(&target.sin_addr, &address(kUs).bytes[12], 4);
  ASSERT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&target), sizeof target), 0);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(::send(fd, "x", 1, 0), 1) << "the first has been answered by ICMP";
    EXPECT_FALSE(is_taken());
  }
  ::close(fd);
}

TEST_F(RoceRawDrops, ReadsNoDatagramForAnotherAddress) {
  RoceReader reader(address(kUs), link->udp_port(), 0xffff);
  reader.set_peer(address(kPeer), false);
  const wire::Datagram d{ip_between(address(kPeer), address("127.0.0.5"), 3),
                         {.source_port = 1, .destination_port = link->udp_port()},
                         packet};
  Buffer bytes(wire::bytes_of(d));
  write_datagram(d, bytes);
  EXPECT_FALSE(reader.read_ip(bytes, &got));
  EXPECT_EQ(reader.counters().of(RoceDrop::kDestination), 1u);
}

}  // namespace
}  // namespace peal::link
