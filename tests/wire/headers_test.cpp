// Each header alone: golden bytes, round trips, buffers that are too short.
#include <gtest/gtest.h>

#include <cstring>

#include "link/link.hpp"
#include "support/scale.hpp"
#include "wire/ethernet.hpp"
#include "wire/wire_values.hpp"

namespace peal::wire {
namespace {

using test::Buffer;
using test::from_hex;
using test::WireValues;

template <class Value>
Buffer bytes_of_header(const Value& value) {
  const auto format = encode(value);
  Buffer bytes(sizeof format);
  std::memcpy(bytes.data(), &format, sizeof format);
  return bytes;
}

// Encoded, and read again where it lies. A buffer of each shorter length has no such header.
template <class Value>
void expect_round_trip(const Value& value) {
  using Format = decltype(encode(value));
  const Buffer bytes = bytes_of_header(value);
  const Format* format = view_of<Format>(bytes);
  ASSERT_NE(format, nullptr);
  EXPECT_TRUE(decode(*format) == value);
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    const Buffer shorter(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
    EXPECT_EQ(view_of<Format>(shorter), nullptr) << n;
  }
}

TEST(WireHeaders, AnyValuesAreReadAsTheyWereWritten) {
  WireValues values(0x5eed0301);
  for (std::uint64_t i = 0; i < test::scaled(200); ++i) {
    expect_round_trip(values.bth());
    expect_round_trip(values.reth());
    expect_round_trip(values.atomic_eth());
    expect_round_trip(values.aeth());
    expect_round_trip(values.atomic_ack_eth());
    expect_round_trip(values.imm_dt());
    expect_round_trip(values.ieth());
    expect_round_trip(values.udp());
    expect_round_trip(values.ipv4());
    expect_round_trip(values.ipv6());
    expect_round_trip(
        Ethernet{values.address<6>(), values.address<6>(), values.any<std::uint16_t>()});
  }
}

// No bit of a header is left out of its value: but IPv4's version and length and IPv6's version,
// which are always the same.
template <class Format>
void expect_every_bit_kept(WireValues* values) {
  const Buffer bytes = values->buffer(sizeof(Format));
  EXPECT_EQ(bytes_of_header(decode(*view_of<Format>(bytes))), bytes);
}

TEST(WireHeaders, AnyBytesAreWrittenAsTheyWereRead) {
  WireValues values(0x5eed0302);
  for (std::uint64_t i = 0; i < test::scaled(200); ++i) {
    expect_every_bit_kept<BthFormat>(&values);
    expect_every_bit_kept<RethFormat>(&values);
    expect_every_bit_kept<AtomicEthFormat>(&values);
    expect_every_bit_kept<AethFormat>(&values);
    expect_every_bit_kept<AtomicAckEthFormat>(&values);
    expect_every_bit_kept<ImmDtFormat>(&values);
    expect_every_bit_kept<IethFormat>(&values);
    expect_every_bit_kept<UdpFormat>(&values);
    expect_every_bit_kept<EthernetFormat>(&values);
  }
}

TEST(WireHeaders, LieAsTheSpecificationsSay) {
  EXPECT_EQ(bytes_of_header(Bth{.opcode = Opcode::kWriteLast,
                                .solicited = true,
                                .pad_count = 3,
                                .pkey = 0x8001,
                                .becn = true,
                                .dest_qp = Qpn(0x123456),
                                .ack_request = true,
                                .psn = Psn(0xabcdef)}),
            from_hex("08 b0 8001 40 123456 80 abcdef"));
  EXPECT_EQ(bytes_of_header(Bth{.mig_req = true, .version = 5, .fecn = true, .reserved6 = 1}),
            from_hex("00 45 ffff 81 000000 00 000000"));
  EXPECT_EQ(bytes_of_header(Reth{0x1122334455667788, Rkey(0x99aabbcc), 0x01020304}),
            from_hex("1122334455667788 99aabbcc 01020304"));
  EXPECT_EQ(bytes_of_header(AtomicEth{1, Rkey(2), 3, 4}),
            from_hex("0000000000000001 00000002 0000000000000003 0000000000000004"));
  EXPECT_EQ(bytes_of_header(Aeth{0x62, 0x0a0b0c}), from_hex("62 0a0b0c"));
  EXPECT_EQ(bytes_of_header(AtomicAckEth{0x0102030405060708}), from_hex("0102030405060708"));
  EXPECT_EQ(bytes_of_header(ImmDt{0x1234abcd}), from_hex("1234abcd"));
  EXPECT_EQ(bytes_of_header(Ieth{Rkey(0x1234abcd)}), from_hex("1234abcd"));
  EXPECT_EQ(bytes_of_header(Udp{0xc18c, kRocePort, 1064, 0}), from_hex("c18c 12b7 0428 0000"));
  EXPECT_EQ(bytes_of_header(Ipv6{.traffic_class = 0xab, .flow_label = 0xcdef0, .hop_limit = 2}),
            from_hex("6abcdef0 0000 11 02" + std::string(64, '0')));
}

TEST(WireHeaders, TheIpv4ChecksumIsThatOfACapturedHeader) {
  const Buffer bytes = from_hex("4500043c bc8a4000 4011655c 0a630002 0a630003");
  const auto* format = view_of<Ipv4Format>(bytes);
  EXPECT_EQ(checksum_of(*format), 0x655c);
  Ipv4 ip = decode(*format);
  EXPECT_EQ(ip.identification, 0xbc8a);
  EXPECT_EQ(ip.flags_fragment, kDontFragment);
  ip.checksum = 0xffff;
  EXPECT_EQ(checksum_of(encode(ip)), 0x655c) << "the field itself does not count";
}

// The links' segments are numbered as opcodes, and answer with syndromes.
TEST(WireHeaders, OpcodesAndSyndromesAreThoseOfTheLinks) {
  const auto opcode = [](link::SegmentKind kind) { return static_cast<Opcode>(kind); };
  EXPECT_EQ(opcode(link::SegmentKind::kWriteFirst), Opcode::kWriteFirst);
  EXPECT_EQ(opcode(link::SegmentKind::kWriteOnlyImmediate), Opcode::kWriteOnlyImmediate);
  EXPECT_EQ(opcode(link::SegmentKind::kReadRequest), Opcode::kReadRequest);
  EXPECT_EQ(opcode(link::SegmentKind::kReadResponseOnly), Opcode::kReadResponseOnly);
  EXPECT_EQ(opcode(link::SegmentKind::kAcknowledge), Opcode::kAcknowledge);
  EXPECT_EQ(opcode(link::SegmentKind::kFetchAdd), Opcode::kFetchAdd);

  EXPECT_EQ(aeth_kind(link::kAethAck), AethKind::kAck);
  EXPECT_EQ(aeth_value(link::kAethAck), kCreditNotLimited);
  EXPECT_EQ(aeth_kind(link::kAethNakNoReceive | 12), AethKind::kRnrNak);
  EXPECT_EQ(rnr_timer_us(aeth_value(link::kAethNakNoReceive | 12)), 640u);
  EXPECT_EQ(aeth_kind(link::kAethNakSequence), AethKind::kNak);
  EXPECT_STREQ(nak_text(aeth_value(link::kAethNakSequence)), "PSN sequence error");
  EXPECT_STREQ(nak_text(aeth_value(link::kAethNakRemoteAccess)), "remote access error");
  EXPECT_STREQ(nak_text(aeth_value(link::kAethNakRemoteOperation)), "remote operational error");
  EXPECT_STREQ(nak_text(31), "reserved code");
}

TEST(WireHeaders, KnowsTheOpcodesOfConnectionsAndOfCongestion) {
  int known = 0;
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    known += format_of(static_cast<std::uint8_t>(opcode)) != nullptr;
  }
  EXPECT_EQ(known, 23 + 12 + 1);
  EXPECT_EQ(format_of(21), nullptr);        // RESYNC, of reliable datagrams
  EXPECT_EQ(format_of(kUc + 12), nullptr);  // there are no reads of UC
  EXPECT_EQ(format_of(0x64), nullptr);      // UD
  EXPECT_STREQ(format_of(9)->name, "RDMA WRITE Last with Immediate");
  EXPECT_STREQ(format_of(kUc + 4)->name, "SEND Only");
  EXPECT_STREQ(transport_name(kUc + 4), "UC");
}

}  // namespace
}  // namespace peal::wire
