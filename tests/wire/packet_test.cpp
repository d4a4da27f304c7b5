#include "wire/packet.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/scale.hpp"
#include "wire/capture.hpp"
#include "wire/ethernet.hpp"
#include "wire/wire_values.hpp"

namespace peal::wire {
namespace {

using test::Buffer;
using test::Frame;
using test::WireValues;

Buffer written(const Datagram& d) {
  Buffer bytes(bytes_of(d));
  write_datagram(d, bytes);
  return bytes;
}

Bytes without_ethernet(const Frame& frame) {
  return Bytes(frame).subspan(sizeof(EthernetFormat));
}

// ---- what a Soft-RoCE peer sent ----

// What another decoder says of a packet. `length`: RETH's; `answer`: syndrome and MSN of the AETH.
struct Known {
  unsigned opcode;
  unsigned pad;
  bool ack_request;
  std::uint32_t dest_qp;
  std::uint32_t psn;
  std::size_t payload_bytes;
  std::uint32_t length = 0;
  unsigned syndrome = 0;
  std::uint32_t msn = 0;
};

void expect_known(const Packet& p, const Known& k) {
  EXPECT_EQ(static_cast<unsigned>(p.bth.opcode), k.opcode);
  EXPECT_EQ(p.bth.pad_count, k.pad);
  EXPECT_EQ(p.bth.ack_request, k.ack_request);
  EXPECT_EQ(p.bth.dest_qp, Qpn(k.dest_qp));
  EXPECT_EQ(p.bth.psn.value, k.psn);
  EXPECT_EQ(p.bth.pkey, 0xffff);
  EXPECT_EQ(p.payload.size(), k.payload_bytes);
  EXPECT_EQ(p.reth.length, k.length);
  EXPECT_EQ(p.aeth.syndrome, k.syndrome);
  EXPECT_EQ(p.aeth.msn, k.msn);
}

// Each frame of the file is read, is what is known of it, and is written as the same bytes: from
// its IP header on, and as a UDP payload with the facts of the headers before it.
std::vector<Datagram> expect_capture(const std::vector<Frame>& frames,
                                     const std::vector<Known>& known) {
  std::vector<Datagram> datagrams;
  EXPECT_EQ(frames.size(), known.size());
  for (std::size_t i = 0; i < std::min(frames.size(), known.size()); ++i) {
    SCOPED_TRACE("frame " + std::to_string(i + 1));
    const Bytes bytes = without_ethernet(frames[i]);
    Datagram& d = datagrams.emplace_back();
    EXPECT_STREQ(malformed_text(read_datagram(bytes, &d)), "nothing is wrong");
    expect_known(d.packet, known[i]);
    EXPECT_TRUE(std::ranges::equal(written(d), bytes));

    const std::size_t transport_bytes = bytes_of(d.packet);
    const Bytes transport = bytes.last(transport_bytes);
    Ip ip = d.ip;
    if (auto* v4 = std::get_if<Ipv4>(&ip)) v4->total_length = v4->checksum = 0;
    Packet p;
    EXPECT_EQ(read_packet(transport, ip, {.source_port = d.udp.source_port}, &p), Malformed::kNot);
    expect_known(p, known[i]);
    Buffer again(transport_bytes);
    write_packet(p, ip, {.source_port = d.udp.source_port}, again);
    EXPECT_TRUE(std::ranges::equal(again, transport));
  }
  return datagrams;
}

void expect_pattern(Bytes payload, std::size_t from, unsigned start) {
  for (std::size_t i = 0; i < payload.size(); ++i) {
    const std::size_t k = from + i;
    ASSERT_EQ(std::to_integer<unsigned>(payload[i]), (start + 7 * k + (k >> 8)) % 256) << k;
  }
}

TEST(Packet, CapturedWritesAreReadAndWrittenAsTheyAre) {
  std::vector<Known> known;
  for (std::uint32_t message = 0; message < 3; ++message) {
    const std::uint32_t psn = 1000 + 4 * message;
    known.push_back({6, 0, false, 0x12, psn, 1024, 4096});
    known.push_back({7, 0, false, 0x12, psn + 1, 1024});
    known.push_back({7, 0, false, 0x12, psn + 2, 1024});
    known.push_back({8, 0, true, 0x12, psn + 3, 1024});
    known.push_back({17, 0, false, 0x16, psn + 3, 0, 0, 0x1f, message + 1});
  }
  const auto frames = test::frames_of("rxe_write.pcap");
  const auto datagrams = expect_capture(frames, known);
  ASSERT_EQ(datagrams.size(), 15u);
  for (unsigned i = 0; i < 15; ++i) {
    expect_pattern(datagrams[i].packet.payload, 1024 * (i % 5), 17 + i / 5);
  }
  const Reth& reth = datagrams[5].packet.reth;
  EXPECT_EQ(reth.address, 0x558fb9002000u);
  EXPECT_EQ(reth.rkey, Rkey(0x355));
  const Ipv4& ip = std::get<Ipv4>(datagrams[0].ip);
  EXPECT_EQ(ip.identification, 0xbc8a);
  EXPECT_EQ(datagrams[0].udp.source_port, 49548);
}

TEST(Packet, CapturedOperationsAreReadAndWrittenAsTheyAre) {
  const std::uint32_t to = 0x13;
  const std::uint32_t back = 0x17;
  const auto ack = [=](std::uint32_t psn, std::uint32_t msn) {
    return Known{17, 0, false, back, psn, 0, 0, 0x1f, msn};
  };
  const std::vector<Known> known = {
      {10, 0, true, to, 0xfffffc, 0, 0},
      ack(0xfffffc, 1),
      {10, 3, true, to, 0xfffffd, 1, 1},
      ack(0xfffffd, 2),
      {10, 3, true, to, 0xfffffe, 5, 5},
      ack(0xfffffe, 3),
      {10, 3, true, to, 0xffffff, 1021, 1021},
      ack(0xffffff, 4),
      {10, 0, true, to, 0, 1024, 1024},
      ack(0, 5),
      {6, 0, false, to, 1, 1024, 1025},
      {8, 3, true, to, 2, 1},
      ack(2, 6),
      {6, 0, false, to, 3, 1024, 2048},
      {8, 0, true, to, 4, 1024},
      ack(4, 7),
      {6, 0, false, to, 5, 1024, 3073},
      {7, 0, false, to, 6, 1024},
      {7, 0, false, to, 7, 1024},
      {8, 3, true, to, 8, 1},
      ack(8, 8),
      {6, 0, false, to, 9, 1024, 1500},
      {9, 0, true, to, 10, 476},
      ack(10, 9),
      {0, 0, false, to, 11, 1024},
      {1, 0, false, to, 12, 1024},
      {2, 0, true, to, 13, 452},
      ack(13, 10),
      {12, 0, true, to, 14, 0, 4096},
      {13, 0, false, back, 14, 1024, 0, 0x1f, 11},
      {14, 0, false, back, 15, 1024},
      {14, 0, false, back, 16, 1024},
      {15, 0, false, back, 17, 1024, 0, 0x1f, 11},
      {20, 0, true, to, 18, 0},
      {18, 0, false, back, 18, 0, 0, 0x1f, 12},
      {10, 0, true, to, 19, 100, 100},
      {17, 0, false, back, 19, 0, 0, 0x62, 12},
      {6, 0, false, 0x14, 100, 1024, 2048},
      {8, 0, true, 0x14, 101, 1024},
      {17, 0, false, 0x18, 101, 0, 0, 0x1f, 1},
  };
  const auto frames = test::frames_of("rxe_ops.pcap");
  const auto datagrams = expect_capture(frames, known);
  ASSERT_EQ(datagrams.size(), 40u);
  EXPECT_EQ(datagrams[22].packet.imm_dt.data, 0x1234abcdu);
  const AtomicEth& add = datagrams[33].packet.atomic_eth;
  EXPECT_EQ(add.address, 0x564d84118000u);
  EXPECT_EQ(add.rkey, Rkey(0x47f));
  EXPECT_EQ(add.swap_or_add, 5u);
  EXPECT_EQ(add.compare, 0u);
  EXPECT_EQ(datagrams[34].packet.atomic_ack_eth.original, 0u);
  expect_pattern(datagrams[6].packet.payload, 0, 99);
  expect_pattern(datagrams[19].packet.payload, 3072, 99);
  for (std::size_t i = 0; i < datagrams.size(); ++i) {
    EXPECT_EQ(std::holds_alternative<Ipv6>(datagrams[i].ip), i >= 37) << i;
  }
  expect_pattern(datagrams[37].packet.payload, 0, 7);
  expect_pattern(datagrams[38].packet.payload, 1024, 7);
}

// ---- round trips ----

std::vector<std::uint8_t> known_opcodes() {
  std::vector<std::uint8_t> opcodes;
  for (unsigned i = 0; i < 256; ++i) {
    const auto opcode = static_cast<std::uint8_t>(i);
    if (format_of(opcode) != nullptr) opcodes.push_back(opcode);
  }
  return opcodes;
}

// As much payload as the opcode may have, where `bytes` are wished for.
std::size_t payload_bytes(std::uint8_t opcode, std::size_t bytes) {
  switch (format_of(opcode)->carries) {
    case Carries::kNothing: return 0;
    case Carries::kPayload: return bytes;
    case Carries::kWholeMtu: return bytes & ~std::size_t{3};
  }
  return 0;
}

// Those headers that `opcode` has are equal.
void expect_same(const Packet& a, const Packet& b) {
  const OpcodeFormat& f = *format_of(static_cast<std::uint8_t>(a.bth.opcode));
  EXPECT_TRUE(a.bth == b.bth);
  EXPECT_TRUE(!f.has(kHasReth) || a.reth == b.reth);
  EXPECT_TRUE(!f.has(kHasAtomicEth) || a.atomic_eth == b.atomic_eth);
  EXPECT_TRUE(!f.has(kHasAeth) || a.aeth == b.aeth);
  EXPECT_TRUE(!f.has(kHasAtomicAckEth) || a.atomic_ack_eth == b.atomic_ack_eth);
  EXPECT_TRUE(!f.has(kHasImmDt) || a.imm_dt == b.imm_dt);
  EXPECT_TRUE(!f.has(kHasIeth) || a.ieth == b.ieth);
  EXPECT_TRUE(std::ranges::equal(a.payload, b.payload));
}

TEST(Packet, WhatIsWrittenIsReadForEachOpcode) {
  WireValues values(0x5eed0304);
  for (std::uint64_t i = 0; i < test::scaled(40); ++i) {
    for (const std::uint8_t opcode : known_opcodes()) {
      const Buffer payload = values.buffer(payload_bytes(opcode, values.bits(6)));
      Datagram d = values.datagram(opcode, payload, values.flag());
      const Buffer bytes = written(d);
      Datagram read;
      ASSERT_STREQ(malformed_text(read_datagram(bytes, &read)), "nothing is wrong")
          << unsigned{opcode};
      d.packet.bth.pad_count = static_cast<std::uint8_t>((4 - payload.size() % 4) % 4);
      expect_same(d.packet, read.packet);
      EXPECT_EQ(d.ip.index(), read.ip.index());
      EXPECT_EQ(written(read), bytes);
      // What an Ethernet frame is filled up with is not looked at.
      Buffer longer = bytes;
      longer.resize(bytes.size() + 18);
      EXPECT_EQ(read_datagram(longer, &read), Malformed::kNot);
    }
  }
}

TEST(Packet, IsNotWrittenWhereItWouldBeRefused) {
  WireValues values(0x5eed0305);
  const Buffer payload = values.buffer(65536);
  const auto bytes_with = [&](std::uint8_t opcode, std::size_t n, bool over_ipv6 = false) {
    return bytes_of(values.datagram(opcode, Bytes(payload).first(n), over_ipv6));
  };
  EXPECT_EQ(bytes_with(4, 5), 20u + 8 + 12 + 5 + 3 + 4);
  EXPECT_EQ(bytes_with(10, 8, true), 40u + 8 + 12 + 16 + 8 + 4);
  EXPECT_EQ(bytes_with(17, 0), 20u + 8 + 12 + 4 + 4);
  EXPECT_EQ(bytes_with(17, 1), 0u) << "an ACK has no payload";
  EXPECT_EQ(bytes_with(7, 5), 0u) << "a Middle is not padded";
  EXPECT_EQ(bytes_with(21, 0), 0u) << "no such opcode";
  const std::size_t most = 65535 - 20 - 8 - 12 - 4;
  EXPECT_EQ(bytes_with(4, most / 4 * 4), 65532u);
  EXPECT_EQ(bytes_with(4, most), 0u) << "with its pad it is too long";
  EXPECT_EQ(bytes_with(4, 65536), 0u);
}

// ---- what is refused ----

TEST(Packet, EveryShorterDatagramIsRefused) {
  WireValues values(0x5eed0306);
  for (const bool over_ipv6 : {false, true}) {
    const std::size_t ip_bytes = over_ipv6 ? 40 : 20;
    for (const std::uint8_t opcode : known_opcodes()) {
      const Buffer payload = values.buffer(payload_bytes(opcode, 9));
      const Buffer bytes = written(values.datagram(opcode, payload, over_ipv6));
      for (std::size_t n = 0; n < bytes.size(); ++n) {
        const Buffer shorter(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
        Datagram d;
        EXPECT_EQ(read_datagram(shorter, &d),
                  n < ip_bytes ? Malformed::kTooShort : Malformed::kTotalLength)
            << unsigned{opcode} << " cut to " << n;
      }
    }
  }
}

TEST(Packet, EveryShorterUdpPayloadIsRefused) {
  WireValues values(0x5eed0307);
  for (const std::uint8_t opcode : known_opcodes()) {
    const Buffer payload = values.buffer(payload_bytes(opcode, 9));
    const Datagram d = values.datagram(opcode, payload, values.flag());
    Buffer bytes(bytes_of(d.packet));
    write_packet(d.packet, d.ip, d.udp, bytes);
    const std::size_t headers = bytes.size() - payload.size() - (4 - payload.size() % 4) % 4 - 4;
    for (std::size_t n = 0; n < bytes.size(); ++n) {
      SCOPED_TRACE(std::to_string(opcode) + " cut to " + std::to_string(n));
      const Buffer shorter(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
      Packet p;
      const Malformed m = read_packet(shorter, d.ip, d.udp, &p);
      if (n < 16) {
        EXPECT_EQ(m, Malformed::kTooShort);
      } else if (n < headers + 4) {
        EXPECT_EQ(m, Malformed::kHeaderCutOff);
      } else if (payload.size() == 9 && n - headers - 4 < 3) {
        EXPECT_EQ(m, Malformed::kPad);
      } else {
        EXPECT_EQ(m, n % 4 != 0 ? Malformed::kWords : Malformed::kIcrc);
      }
    }
  }
}

constexpr std::size_t kLastByte = 67;  // of the ICRC, over IPv4

// A write of 5 bytes, over IPv4 or IPv6, with one field changed.
struct RefusedCase {
  Malformed reason;
  bool over_ipv6;
  std::size_t at;        // the byte that is changed
  unsigned value;        // but the last byte is inverted
  bool checksum = true;  // made right again
};

TEST(Packet, IsRefusedByEachReason) {
  const std::vector<RefusedCase> cases = {
      {Malformed::kIpVersion, false, 0, 0x55},
      {Malformed::kIpVersion, true, 0, 0x00},
      {Malformed::kIpHeaderLength, false, 0, 0x46},
      {Malformed::kIpHeaderLength, false, 0, 0x44},
      {Malformed::kTotalLength, false, 3, 69},
      {Malformed::kTotalLength, false, 3, 27},
      {Malformed::kTotalLength, true, 5, 49},
      {Malformed::kTotalLength, true, 5, 7},
      {Malformed::kIpChecksum, false, 8, 63, false},
      {Malformed::kIpChecksum, false, 10, 0x11, false},
      {Malformed::kFragment, false, 6, 0x60},
      {Malformed::kFragment, false, 7, 0x01},
      {Malformed::kFragment, true, 6, 44},
      {Malformed::kNotUdp, false, 9, 6},
      {Malformed::kNotUdp, true, 6, 0},
      {Malformed::kUdpPort, false, 23, 0xb8},
      {Malformed::kUdpPort, true, 42, 0x13},
      {Malformed::kUdpLength, false, 25, 47},
      {Malformed::kUdpLength, true, 45, 49},
      {Malformed::kUdpLength, false, 3, 67},
      {Malformed::kBthVersion, false, 29, 0x31},
      {Malformed::kOpcode, false, 28, 21},
      {Malformed::kOpcode, true, 48, 0x64},
      {Malformed::kHeaderCutOff, false, 28, 19},
      {Malformed::kPayload, false, 28, 17},
      {Malformed::kPaddedPart, true, 48, 6},
      {Malformed::kIcrc, false, 29, 0x20},
      {Malformed::kIcrc, true, 8, 0xfe},
      {Malformed::kIcrc, false, kLastByte, 0},
  };
  WireValues values(0x5eed0308);
  const Buffer payload = test::from_hex("0102030405");
  for (const RefusedCase& c : cases) {
    Datagram d = values.datagram(10, payload, c.over_ipv6);
    if (!c.over_ipv6) {
      auto& ip = std::get<Ipv4>(d.ip);
      ip.flags_fragment = kDontFragment;
      ip.ttl = 64;
    } else {
      std::get<Ipv6>(d.ip).source = {};
    }
    d.packet.bth.solicited = d.packet.bth.mig_req = false;
    Buffer bytes = written(d);
    ASSERT_EQ(bytes.size(), c.over_ipv6 ? 88u : 68u);
    bytes[c.at] = c.at == kLastByte ? ~bytes[c.at] : static_cast<std::byte>(c.value);
    if (!c.over_ipv6 && c.checksum) {
      const std::uint16_t sum = checksum_of(*view_of<Ipv4Format>(bytes));
      bytes[10] = static_cast<std::byte>(sum >> 8);
      bytes[11] = static_cast<std::byte>(sum);
    }
    Datagram read;
    EXPECT_STREQ(malformed_text(read_datagram(bytes, &read)), malformed_text(c.reason))
        << "byte " << c.at << " is " << c.value;
  }
}

TEST(Packet, EveryChangedBitIsSeenButThoseThatRoutersChange) {
  WireValues values(0x5eed0309);
  const Buffer payload = values.buffer(6);
  for (const bool over_ipv6 : {false, true}) {
    const Buffer bytes = written(values.datagram(9, payload, over_ipv6));
    std::size_t unseen = 0;
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      Buffer changed = bytes;
      changed[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      Datagram d;
      unseen += read_datagram(changed, &d) == Malformed::kNot;
    }
    // UDP checksum and the BTH's congestion byte; of IPv6 the traffic class, flow label and hop
    // limit as well, while IPv4's are seen by its checksum.
    EXPECT_EQ(unseen, over_ipv6 ? 16u + 8 + 8 + 20 + 8 : 16u + 8);
  }
}

TEST(Packet, EveryReasonHasASentenceOfItsOwn) {
  std::vector<std::string> texts;
  for (unsigned i = 0; i < static_cast<unsigned>(Malformed::kCount); ++i) {
    texts.emplace_back(malformed_text(static_cast<Malformed>(i)));
    EXPECT_NE(texts.back(), "unknown reason") << i;
  }
  std::sort(texts.begin(), texts.end());
  EXPECT_EQ(std::adjacent_find(texts.begin(), texts.end()), texts.end());
}

}  // namespace
}  // namespace peal::wire
