#include "link/capture.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "link/roce_ends.hpp"
#include "link/roce_packet.hpp"
#include "peal/host/error.hpp"
#include "wire/wire_values.hpp"

namespace peal::link {
namespace {

using test::address;
using test::Buffer;
using test::OwnedSegment;
using test::RandomRoceSegments;
using test::RoceEnds;

class CaptureFile {
 public:
  CaptureFile() : path_(testing::TempDir() + "capture_" + std::to_string(::getpid()) + ".pcap") {}
  ~CaptureFile() { std::filesystem::remove(path_); }
  CaptureFile(const CaptureFile&) = delete;
  CaptureFile& operator=(const CaptureFile&) = delete;
  const std::string& path() const { return path_; }

  // The IP packets; fails where the file does not end at a whole one.
  std::vector<Buffer> packets() const {
    std::ifstream file(path_, std::ios::binary);
    const std::vector<char> all(std::istreambuf_iterator<char>(file), {});
    const auto word = [&all](std::size_t at) {
      std::uint32_t value = 0;
      std::memcpy(&value, all.data() + at, sizeof value);
      return value;
    };
    std::vector<Buffer> packets;
    EXPECT_GE(all.size(), 24u);
    if (all.size() < 24) return packets;
    EXPECT_EQ(word(0), 0xa1b23c4du);
    EXPECT_EQ(word(20), 101u) << "raw IP";
    std::size_t at = 24;
    while (at + 16 <= all.size() && word(at + 8) <= all.size() - at - 16) {
      EXPECT_GT(word(at), 1'600'000'000u) << "seconds";
      EXPECT_LT(word(at + 4), 1'000'000'000u) << "nanoseconds";
      EXPECT_EQ(word(at + 8), word(at + 12));
      const auto* data = reinterpret_cast<const std::byte*>(all.data() + at + 16);
      packets.emplace_back(data, data + word(at + 8));
      at += 16 + packets.back().size();
    }
    EXPECT_EQ(at, all.size()) << "it ends within a packet";
    return packets;
  }

 private:
  std::string path_;
};

// A CRC-32 bit by bit, over what IBTA annex A17 says: nothing of it is shared with what it checks.
std::uint32_t icrc_by_hand(Buffer p) {
  const bool v4 = (std::to_integer<unsigned>(p[0]) >> 4) == 4;
  const std::size_t udp = v4 ? 20 : 40;
  const auto ones = [&p](std::initializer_list<std::size_t> bytes) {
    for (const std::size_t b : bytes) p[b] = std::byte{0xff};
  };
  if (v4) {
    ones({1, 8, 10, 11});
  } else {
    p[0] |= std::byte{0x0f};
    ones({1, 2, 3, 7});
  }
  ones({udp + 6, udp + 7, udp + 8 + 4});
  std::uint32_t crc = 0xffffffff;
  const auto add = [&crc](std::byte b) {
    crc ^= std::to_integer<std::uint32_t>(b);
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
  };
  for (int i = 0; i < 8; ++i) add(std::byte{0xff});
  for (std::size_t i = 0; i < p.size() - 4; ++i) add(p[i]);
  return ~crc;
}

struct Seen {
  std::string source;
  std::string destination;
  unsigned identification = 0;
  wire::Datagram datagram;
};

// An independent look at a packet: addresses, lengths and ICRC.
Seen look_at(const Buffer& p, std::uint16_t port) {
  Seen seen;
  const bool v4 = (std::to_integer<unsigned>(p[0]) >> 4) == 4;
  const auto be16 = [&p](std::size_t at) {
    return std::to_integer<unsigned>(p[at]) << 8 | std::to_integer<unsigned>(p[at + 1]);
  };
  const auto text_at = [&](std::size_t at) {
    IpAddress a = address("0.0.0.0");
    std::memcpy(v4 ? &a.bytes[12] : a.bytes.data(), p.data() + at, v4 ? 4 : 16);
    return to_text(a);
  };
  seen.source = text_at(v4 ? 12 : 8);
  seen.destination = text_at(v4 ? 16 : 24);
  EXPECT_EQ(v4 ? be16(2) : be16(4) + 40u, p.size()) << "the IP header's length";
  EXPECT_EQ(be16(v4 ? 24 : 44), p.size() - (v4 ? 20 : 40)) << "the UDP header's length";
  EXPECT_EQ(be16(v4 ? 22 : 42), port);
  if (v4) {
    seen.identification = be16(4);
    EXPECT_EQ(be16(6), 0x4000u) << "no fragment may be made of it";
  }
  std::uint32_t icrc = 0;
  std::memcpy(&icrc, p.data() + p.size() - 4, 4);
  EXPECT_EQ(icrc, icrc_by_hand(p));
  EXPECT_STREQ(wire::malformed_text(wire::read_datagram(p, &seen.datagram, port)),
               "nothing is wrong");
  return seen;
}

// Every packet of a run, as it left and as it arrived, at all sizes.
TEST(Capture, ShowsEachPacketWithTheHeadersThatItTravelsBehind) {
  const struct {
    const char* a;
    const char* b;
    bool offload;
  } ways[] = {
      {"127.0.0.2", "127.0.0.3", true}, {"127.0.0.2", "127.0.0.3", false}, {"::1", "::1", true}};
  for (const auto& way : ways) {
    CaptureFile left_file;
    std::vector<Buffer> left;
    std::vector<Buffer> arrived;
    RoceOptions options;
    options.segmentation_offload = way.offload;
    options.traffic_class = 0x68;
    RoceEnds ends(way.a, way.b, options);
    std::size_t count = 0;
    for (const bool receiving : {false, true}) {
      Capture capture(left_file.path());
      ends[receiving ? 1 : 0].capture_to(&capture);
      RandomRoceSegments segments(1);
      count = 0;
      Segment s;
      const auto pass = [&](std::size_t sent) {
        EXPECT_FALSE(ends[0].try_receive(&s));
        for (std::size_t i = 0; i < sent; ++i) ASSERT_TRUE(ends.receive(1, &s));
        EXPECT_FALSE(ends[1].try_receive(&s));
        count += sent;
      };
      for (std::uint8_t kind = 6; kind <= 20; ++kind) {
        for (const std::uint32_t bytes :
             {0u, 1u, 2u, 3u, 4u, 5u, 255u, 256u, 1023u, 1024u, 4095u, 4096u}) {
          ASSERT_TRUE(ends[0].try_send(segments.of(static_cast<SegmentKind>(kind), bytes).view()));
          ASSERT_NO_FATAL_FAILURE(pass(1));
        }
      }
      for (int i = 0; i < 20; ++i) {
        ASSERT_TRUE(ends[0].try_send(segments.of(SegmentKind::kWriteOnly, 300).view()));
      }
      ASSERT_NO_FATAL_FAILURE(pass(20));
      EXPECT_EQ(capture.packets(), count);
      // While it is being written, as a tool would.
      (receiving ? arrived : left) = left_file.packets();
      EXPECT_EQ(capture.error(), "");
      ends[receiving ? 1 : 0].capture_to(nullptr);
    }
    ASSERT_EQ(left.size(), count);
    ASSERT_EQ(arrived.size(), count);
    for (std::size_t i = 0; i < count; ++i) {
      const Seen out = look_at(left[i], ends[1].udp_port());
      const Seen in = look_at(arrived[i], ends[1].udp_port());
      EXPECT_EQ(out.source, way.a);
      EXPECT_EQ(out.destination, way.b);
      EXPECT_EQ(in.source, way.a);
      EXPECT_EQ(in.destination, way.b);
      EXPECT_EQ(out.datagram.udp.source_port, ends[0].udp_port());
      const std::size_t in_train = i < count - 20 ? 0 : i - (count - 20);
      const bool numbered = way.offload && address(way.a).is_v4();
      EXPECT_EQ(out.identification, numbered ? in_train : 0u);
      EXPECT_EQ(in.identification, out.identification);
      EXPECT_EQ(out.datagram.packet.bth, in.datagram.packet.bth);
      EXPECT_TRUE(out.datagram.packet.bth.mig_req);
    }
  }
}

TEST(Capture, KeepsWhatTheLinkDrops) {
  CaptureFile file;
  Capture capture(file.path());
  RoceEnds ends("127.0.0.1", "127.0.0.1");
  RoceLink stranger({.local = address("127.0.0.9")});
  stranger.connect({.address = address("127.0.0.1"), .udp_port = ends[0].udp_port()});
  ends[0].capture_to(&capture);
  RandomRoceSegments segments(2);
  ASSERT_TRUE(stranger.try_send(segments.of(SegmentKind::kWriteOnly, 9).view()));
  Segment s;
  EXPECT_FALSE(stranger.try_receive(&s));
  ASSERT_TRUE(test::wait_until([&] {
    EXPECT_FALSE(ends[0].try_receive(&s));
    return ends[0].counters().of(RoceDrop::kStranger) == 1;
  }));
  EXPECT_FALSE(ends[0].try_receive(&s));
  const std::vector<Buffer> packets = file.packets();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(look_at(packets[0], ends[0].udp_port()).source, "127.0.0.9");
}

TEST(Capture, IsWholeOnceItIsClosed) {
  CaptureFile file;
  const Buffer datagram(5000, std::byte{0x45});
  {
    Capture capture(file.path());
    for (int i = 0; i < 200; ++i) capture.add(datagram);  // more than it collects
    capture.add(Buffer{});
  }
  const std::vector<Buffer> packets = file.packets();
  ASSERT_EQ(packets.size(), 201u);
  EXPECT_EQ(packets[7], datagram);
  EXPECT_TRUE(packets[200].empty());
}

TEST(Capture, RefusesAFileThatCannotBe) {
  try {
    Capture capture("/nowhere/at/all.pcap");
    ADD_FAILURE() << "it is open";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "opening the capture file /nowhere/at/all.pcap: No such file or directory");
  }
}

// The limit on a file's size stands for a disk that is full.
TEST(Capture, EndsAtAWholePacketWhereTheDiskIsFull) {
  CaptureFile file;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  Capture capture(file.path());
  const Buffer datagram(100, std::byte{0x45});
  const rlimit small{24 + 10 * 116 + 50, before.rlim_max};
  EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  for (int i = 0; i < 40; ++i) {
    capture.add(datagram);
    if (i % 8 == 7) capture.flush();
  }
  EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(capture.error(), "the capture file " + file.path() + " ends early: File too large");
  EXPECT_EQ(capture.packets(), 8u);
  capture.add(datagram);
  capture.flush();
  EXPECT_EQ(file.packets().size(), 8u);
}

}  // namespace
}  // namespace peal::link
