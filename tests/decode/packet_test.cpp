#include "decode/packet.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <string_view>

#include "decode/decoded_text.hpp"
#include "decode/dump.hpp"
#include "support/scale.hpp"
#include "wire/capture.hpp"
#include "wire/wire_values.hpp"

namespace peal::decode {
namespace {

using test::meaning;
using test::notes;
using test::raw;
using test::wrongs;

Bytes dump_of(const test::Buffer& buffer) {
  Bytes bytes(buffer.size());
  if (!bytes.empty()) std::memcpy(bytes.data(), buffer.data(), bytes.size());
  return bytes;
}

// A write of 8 bytes with immediate from 10.0.0.1 to 10.0.0.2, or over IPv6.
wire::Datagram write_imm(bool over_ipv6 = false) {
  static const test::Buffer payload = test::from_hex("0001020304050607");
  wire::Datagram d;
  if (over_ipv6) {
    wire::Ipv6 ip;
    ip.source[15] = std::byte{1};
    ip.destination[15] = std::byte{2};
    d.ip = ip;
  } else {
    wire::Ipv4 ip;
    std::memcpy(ip.source.data(), "\x0a\x00\x00\x01", 4);
    std::memcpy(ip.destination.data(), "\x0a\x00\x00\x02", 4);
    d.ip = ip;
  }
  d.udp.source_port = 50000;
  d.packet.bth = {.opcode = wire::Opcode::kWriteOnlyImmediate,
                  .dest_qp = Qpn(0x12),
                  .ack_request = true,
                  .psn = Psn(1000)};
  d.packet.reth = {0x7f0000001000, Rkey(0x355), 8};
  d.packet.imm_dt = {0x1234abcd};
  d.packet.payload = payload;
  return d;
}

Bytes packet_of(const wire::Datagram& d) {
  test::Buffer bytes(bytes_of(d));
  write_datagram(d, bytes);
  return dump_of(bytes);
}

TEST(DecodePacket, SaysAllFieldsOfAWriteWithImmediate) {
  EXPECT_EQ(to_text(decode_packet(packet_of(write_imm()), PacketStart::kIp)),
            "packet: RC RDMA WRITE Only with Immediate, QPN 0x12, PSN 1000, 8 bytes\n"
            "    0  45                version_ihl           version 4, header of 20 bytes\n"
            "    1  00                tos                   DSCP 0, ECN 0\n"
            "    2  0048              total_length          72 bytes\n"
            "    4  0000              identification        0x0000\n"
            "    6  4000              flags_fragment        don't fragment 1, more fragments 0, "
            "offset 0\n"
            "    8  40                ttl                   64\n"
            "    9  11                protocol              17, UDP\n"
            "   10  26a3              header_checksum       0x26a3, right\n"
            "   12  0a000001          ip_source             10.0.0.1\n"
            "   16  0a000002          ip_destination        10.0.0.2\n"
            "   20  c350              udp_source_port       50000\n"
            "   22  12b7              udp_destination_port  4791, RoCEv2\n"
            "   24  0034              udp_length            52 bytes\n"
            "   26  0000              udp_checksum          none\n"
            "   28  0b                opcode                0x0b, RC RDMA WRITE Only with "
            "Immediate\n"
            "   29  00                se_m_pad_tver         solicited 0, mig_req 0, pad 0, version "
            "0\n"
            "   30  ffff              pkey                  0xffff\n"
            "   32  00                fecn_becn             FECN 0, BECN 0\n"
            "   33  000012            dest_qp               0x12 (18)\n"
            "   36  80                ack_request           1\n"
            "   37  0003e8            psn                   1000\n"
            "   40  00007f0000001000  remote_address        0x7f0000001000\n"
            "   48  00000355          rkey                  0x00000355\n"
            "   52  00000008          dma_length            8 bytes, of the whole message\n"
            "   56  1234abcd          imm                   0x1234abcd\n"
            "   60  0001020304050607  payload               bytes 0-7\n"
            "   68  d7a9f22c          icrc                  right\n"
            "nothing wrong found\n");
}

TEST(DecodePacket, FindsNothingWrongWithWhatSoftRoceSentButItsNak) {
  std::size_t naks = 0;
  for (const char* name : {"rxe_write.pcap", "rxe_ops.pcap"}) {
    for (const test::Frame& frame : test::frames_of(name)) {
      const Decoded d = decode_packet(dump_of(frame));
      EXPECT_EQ(meaning(d, "icrc"), "right");
      EXPECT_EQ(notes(d),
                "the bytes were taken to begin with an Ethernet header; --from says otherwise");
      if (d.wrong()) {
        ++naks;
        EXPECT_EQ(wrongs(d),
                  "the responder refuses: remote access error (syndrome 0x62) at PSN 19");
      }
    }
  }
  EXPECT_EQ(naks, 1u);
}

TEST(DecodePacket, SaysWhatThePacketsOfAReadAndAnAtomicCarry) {
  const auto frames = test::frames_of("rxe_ops.pcap");
  ASSERT_EQ(frames.size(), 40u);
  const auto decoded = [&frames](std::size_t frame) {
    return decode_packet(dump_of(frames[frame - 1]));
  };
  EXPECT_EQ(decoded(29).title, "packet: RC RDMA READ Request, QPN 0x13, PSN 14");
  EXPECT_EQ(decoded(31).title,
            "packet: RC RDMA READ response Middle, QPN 0x17, PSN 15, 1024 bytes");
  EXPECT_EQ(meaning(decoded(33), "syndrome"), "0x1f: ACK, credit not limited");
  EXPECT_EQ(meaning(decoded(33), "msn"), "11");
  EXPECT_EQ(meaning(decoded(34), "add"), "0x5 (5)");
  EXPECT_EQ(meaning(decoded(34), "compare"), "not used by this opcode");
  EXPECT_EQ(meaning(decoded(35), "original"), "0x0 (0)");
  EXPECT_EQ(meaning(decoded(37), "syndrome"), "0x62: NAK, remote access error");
  EXPECT_EQ(meaning(decoded(5), "pad"), "3 bytes");
  EXPECT_EQ(raw(decoded(5), "payload"), "636a71787f");
  EXPECT_EQ(meaning(decoded(38), "version_class_flow").substr(0, 9), "version 6");
  EXPECT_EQ(meaning(decoded(38), "ip_source").substr(0, 6), "fe80::");
}

TEST(DecodePacket, GuessesWhereTheBytesBegin) {
  const Bytes ip = packet_of(write_imm());
  const Bytes ip6 = packet_of(write_imm(true));
  const Bytes bth(ip.begin() + 28, ip.end());
  const std::string title = decode_packet(ip, PacketStart::kIp).title;
  Bytes tagged = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0x60, 7, 0x08, 0};
  tagged.insert(tagged.end(), ip.begin(), ip.end());
  for (const Bytes& bytes : {ip, ip6, bth, tagged}) {
    EXPECT_EQ(decode_packet(bytes).title, title);
    EXPECT_FALSE(decode_packet(bytes).wrong());
  }
  EXPECT_EQ(notes(decode_packet(ip)),
            "the bytes were taken to begin with an IP header; --from says otherwise");
  EXPECT_EQ(meaning(decode_packet(tagged), "vlan_tag"), "VLAN 7, priority 3");
  EXPECT_EQ(notes(decode_packet(bth)),
            "the bytes were taken to begin with a BTH; --from says otherwise\n"
            "the ICRC covers the IP header too, and can be checked only with it");
  EXPECT_EQ(notes(decode_packet(bth, PacketStart::kBth)),
            "the ICRC covers the IP header too, and can be checked only with it");
  EXPECT_EQ(meaning(decode_packet(bth), "icrc"), "not checked");
}

struct WrongPacket {
  std::size_t at;
  Bytes to;  // the bytes that are put there
  std::string what;
  bool over_ipv6 = false;
};

// The lines of `all` but those of what a change makes wrong besides.
std::string without_sums(const std::string& all) {
  std::string kept;
  std::size_t from = 0;
  while (from < all.size()) {
    const std::size_t to = std::min(all.find('\n', from), all.size());
    const std::string line = all.substr(from, to - from);
    if (!line.starts_with("the ICRC is ") && !line.starts_with("the IPv4 header's checksum")) {
      kept += (kept.empty() ? "" : "\n") + line;
    }
    from = to + 1;
  }
  return kept;
}

TEST(DecodePacket, SaysOneSentenceForEachThingThatIsWrong) {
  const WrongPacket cases[] = {
      {0, {0x55}, "the IP version is 5, neither 4 nor 6"},
      {0, {0x46}, "the IPv4 header counts 24 bytes, not 20"},
      {2, {0, 73}, "total_length counts 73 bytes, but 72 are given"},
      {2, {0, 27}, "total_length is 27, too few for a UDP header"},
      {2,
       {0, 71},
       "udp_length is 52, but the IP header leaves 51 for UDP\n"
       "payload and pad are 7 bytes, not whole words of 4\n"
       "dma_length is 8, but the only packet of the message carries 7 bytes"},
      {4, {0, 7}, "payload_length is 7, too few for a UDP header", true},
      {4, {0, 53}, "payload_length counts 53 bytes, but 52 are given", true},
      {6, {0x60, 0}, "the IP packet is a fragment"},
      {9, {6}, "the IP packet is of protocol 6, not 17"},
      {6, {44}, "the IP packet is of protocol 44, not 17", true},
      {22, {0x12, 0xb8}, "the UDP destination port is 4792, not 4791"},
      {24, {0, 51}, "udp_length is 51, but the IP header leaves 52 for UDP"},
      {29, {0x01}, "the transport version is 1, not 0"},
      {28, {0x64}, "opcode 0x64 (UD) is none of RC, UC or CNP"},
      {28, {0x15}, "opcode 0x15 (RC) is none of RC, UC or CNP"},
      {28,
       {0x13, 0, 0xff, 0xff, 0, 0, 0, 0x12, 0x80, 0, 3, 0xe8, 0, 0, 0x7f, 0, 0, 0, 0x10, 1},
       "the remote address 0x7f0000001001 of the atomic is not a multiple of 8"},
      {28,
       {0x11},
       "RC Acknowledge has no payload, but 24 bytes lie between its headers and the "
       "ICRC"},
      {29, {0x10}, "dma_length is 8, but the only packet of the message carries 7 bytes"},
      {52, {0, 0, 0, 9}, "dma_length is 9, but the only packet of the message carries 8 bytes"},
      {28,
       {0x06},
       "RC RDMA WRITE First carries 12 bytes, which is no path MTU\n"
       "dma_length is 8, but the first of several packets carries 12 bytes"},
      {28, {0x07, 0x10}, "pad is 1, but more of the message has to follow"},
  };
  for (const WrongPacket& c : cases) {
    Bytes bytes = packet_of(write_imm(c.over_ipv6));
    std::copy(c.to.begin(), c.to.end(), bytes.begin() + static_cast<std::ptrdiff_t>(c.at));
    const Decoded d = decode_packet(bytes, PacketStart::kIp);
    EXPECT_EQ(without_sums(wrongs(d)), c.what);
    EXPECT_TRUE(d.wrong());
  }
}

TEST(DecodePacket, SaysBothSumsWhereOneIsWrong) {
  Bytes bytes = packet_of(write_imm());
  bytes[8] = 63;  // the TTL: no part of the ICRC
  EXPECT_EQ(wrongs(decode_packet(bytes)),
            "the IPv4 header's checksum is 0x26a3, but 0x27a3 is right");
  bytes = packet_of(write_imm());
  bytes[71] ^= 1;
  Decoded d = decode_packet(bytes);
  EXPECT_EQ(wrongs(d), "the ICRC is d7a9f22d, but d7a9f22c is right");
  EXPECT_EQ(meaning(d, "icrc"), "wrong: d7a9f22c is right");
  bytes[71] ^= 1;
  std::reverse(bytes.end() - 4, bytes.end());
  d = decode_packet(bytes);
  EXPECT_EQ(wrongs(d), "the ICRC is 2cf2a9d7, the right one with its bytes swapped");
}

TEST(DecodePacket, SaysWhatEachSyndromeMeans) {
  const struct {
    std::uint8_t syndrome;
    const char* text;
    const char* wrong;
  } cases[] = {
      {0x05, "0x05: ACK, credit code 5", ""},
      {0x2c, "0x2c: RNR NAK, no receive was posted; wait 640 us", ""},
      {0x40, "0x40: reserved", "syndrome 0x40 is reserved"},
      {0x60, "0x60: NAK, PSN sequence error",
       "the responder refuses: PSN sequence error (syndrome 0x60) at PSN 1000"},
      {0x61, "0x61: NAK, invalid request",
       "the responder refuses: invalid request (syndrome 0x61) at PSN 1000"},
      {0x63, "0x63: NAK, remote operational error",
       "the responder refuses: remote operational error (syndrome 0x63) at PSN 1000"},
      {0x7f, "0x7f: NAK, reserved code",
       "the responder refuses: reserved code (syndrome 0x7f) at PSN 1000"},
  };
  for (const auto& c : cases) {
    wire::Datagram d = write_imm();
    d.packet.bth.opcode = wire::Opcode::kAcknowledge;
    d.packet.payload = {};
    d.packet.aeth.syndrome = c.syndrome;
    const Decoded decoded = decode_packet(packet_of(d));
    EXPECT_EQ(meaning(decoded, "syndrome"), c.text);
    EXPECT_EQ(wrongs(decoded), c.wrong);
  }
}

TEST(DecodePacket, SaysWhereEveryShorterPacketIsCutOff) {
  for (const bool over_ipv6 : {false, true}) {
    const Bytes whole = packet_of(write_imm(over_ipv6));
    for (std::size_t n = 0; n < whole.size(); ++n) {
      const Bytes bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n));
      EXPECT_TRUE(decode_packet(bytes, PacketStart::kIp).wrong()) << n;
    }
  }
  const Bytes whole = packet_of(write_imm());
  const Bytes cut(whole.begin(), whole.begin() + 62);
  const Decoded d = decode_packet(cut, PacketStart::kIp);
  EXPECT_EQ(wrongs(d), "total_length counts 72 bytes, but 62 are given");
  EXPECT_EQ(notes(d), "the packet is cut off: pad and ICRC are not known");
  EXPECT_EQ(raw(d, "payload"), "0001");
  const Bytes within(whole.begin() + 28, whole.begin() + 50);
  EXPECT_EQ(wrongs(decode_packet(within, PacketStart::kBth)),
            "the RETH at byte 12 has 16 bytes, but 10 are left there");
}

// What the reader of packets refuses is wrong here too, and what it takes is not.
TEST(DecodePacket, AgreesWithTheReaderOfPackets) {
  std::mt19937_64 random(0x5eed0310);
  test::WireValues values(0x5eed0311);
  std::uint64_t taken = 0;
  for (std::uint64_t i = 0; i < test::scaled(1000); ++i) {
    wire::Datagram d = write_imm(random() % 2 == 0);
    d.udp = values.udp();
    d.udp.destination_port = wire::kRocePort;
    Bytes bytes = packet_of(d);
    for (std::uint64_t changes = random() % 3; changes > 0; --changes) {
      bytes[random() % bytes.size()] ^= static_cast<std::uint8_t>(1u << random() % 8);
    }
    if (random() % 8 == 0) bytes.resize(random() % bytes.size());
    if (random() % 8 == 0) bytes.resize(bytes.size() + 4);
    wire::Datagram read;
    const bool refused =
        read_datagram(std::as_bytes(std::span(bytes)), &read) != wire::Malformed::kNot;
    taken += !refused;
    ASSERT_EQ(decode_packet(bytes, PacketStart::kIp).wrong(), refused)
        << to_text(decode_packet(bytes, PacketStart::kIp));
  }
  EXPECT_GT(taken, test::scaled(1000) / 10);
}

TEST(DecodePacket, EndsOnAnyBytes) {
  std::mt19937_64 random(0x5eed0312);
  const Bytes ip = packet_of(write_imm());
  for (std::uint64_t i = 0; i < test::scaled(300); ++i) {
    Bytes bytes(16 + random() % 120);
    for (std::uint8_t& b : bytes) b = static_cast<std::uint8_t>(random() % 3 == 0 ? 0 : random());
    if (random() % 2 == 0)
      std::copy_n(ip.begin(), std::min<std::size_t>(bytes.size(), 28), bytes.begin());
    for (const PacketStart from :
         {PacketStart::kGuessed, PacketStart::kEthernet, PacketStart::kIp, PacketStart::kBth}) {
      const Decoded d = decode_packet(bytes, from);
      for (const Field& f : d.fields) {
        ASSERT_LE(f.offset + f.raw.size() / 2, bytes.size());
        ASSERT_FALSE(f.meaning.empty());
      }
      ASSERT_FALSE(to_text(d).empty());
    }
  }
}

TEST(DecodePacket, RefusesSizesThatAreNone) {
  for (const std::size_t bytes : {16u, 60u, 65535u, 65553u}) {
    EXPECT_FALSE(refuse_packet_size(bytes).has_value()) << bytes;
  }
  for (const std::size_t bytes : {0u, 15u, 65554u}) {
    EXPECT_TRUE(refuse_packet_size(bytes).has_value()) << bytes;
  }
  EXPECT_EQ(*refuse_packet_size(15), "a packet is given as 16 to 65553 bytes, and not as 15");
}

}  // namespace
}  // namespace peal::decode
