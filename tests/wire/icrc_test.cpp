// The ICRC of packets that others sent, and what it covers.
#include "wire/icrc.hpp"

#include <gtest/gtest.h>

#include <string>

#include "wire/wire_values.hpp"

namespace peal::wire {
namespace {

using test::Buffer;
using test::from_hex;

// A congestion notification that a ConnectX-4 Lx sent, and a UC SEND Only; both are in the public
// tests of scapy's RoCE layer.
const char* const kCnp =
    "45c2003c 718c4000 40119161 0a001101 0a001201 000012b7 00280000 8100ffff 40000118 00000000"
    "00000000 00000000 00000000 00000000 82fd002a";
const char* const kUcSend =
    "45010040 04784000 4011b4d5 c0a80007 c0a80007 c00012b7 002caca2 2460ffff 000000d3 00cf1710"
    "4630818b e28935d9 0e9a9550 5401be88 5e500000 78f353f3";

TEST(Icrc, IsThatOfPublishedPackets) {
  for (const char* text : {kCnp, kUcSend}) {
    const Buffer bytes = from_hex(text);
    Datagram d;
    EXPECT_STREQ(malformed_text(read_datagram(bytes, &d)), "nothing is wrong") << text;
    Buffer written(bytes_of(d));
    write_datagram(d, written);
    EXPECT_EQ(written, bytes);
  }
  Datagram cnp;
  const Buffer cnp_bytes = from_hex(kCnp);
  ASSERT_EQ(read_datagram(cnp_bytes, &cnp), Malformed::kNot);
  EXPECT_EQ(cnp.packet.bth.opcode, Opcode::kCongestionNotification);
  EXPECT_TRUE(cnp.packet.bth.becn);
  EXPECT_EQ(cnp.packet.bth.dest_qp, Qpn(0x118));
  EXPECT_EQ(cnp.packet.payload.size(), 16u);

  Datagram uc;
  const Buffer uc_bytes = from_hex(kUcSend);
  ASSERT_EQ(read_datagram(uc_bytes, &uc), Malformed::kNot);
  EXPECT_TRUE(uc.packet.bth.mig_req);
  EXPECT_EQ(uc.packet.bth.psn, Psn(13571856));
  EXPECT_EQ(uc.packet.payload.size(), 18u);
}

// Which bits of `Header` change the ICRC, as a string of 0 and 1; `icrc` computes it for a header.
template <class Header, class Compute>
std::string covered_bits(const Header& header, Compute icrc) {
  std::string bits;
  const IcrcFormat before = icrc(header);
  for (std::size_t bit = 0; bit < 8 * sizeof header; ++bit) {
    Header other = header;
    auto* bytes = reinterpret_cast<std::byte*>(&other);
    bytes[bit / 8] ^= static_cast<std::byte>(0x80 >> bit % 8);
    bits += icrc(other) == before ? '0' : '1';
  }
  return bits;
}

std::string ones(std::size_t bytes) {
  return std::string(8 * bytes, '1');
}
std::string zeros(std::size_t bytes) {
  return std::string(8 * bytes, '0');
}

TEST(Icrc, CoversAllButWhatRoutersChange) {
  test::WireValues values(0x5eed0303);
  const Buffer rest = values.buffer(20);
  const Ipv4Format ipv4 = encode(values.ipv4());
  const Ipv6Format ipv6 = encode(values.ipv6());
  const UdpFormat udp = encode(values.udp());
  const BthFormat bth = encode(values.bth());
  EXPECT_EQ(covered_bits(ipv4, [&](const auto& h) { return icrc_of(h, udp, bth, rest); }),
            ones(1) + zeros(1) + ones(6) + zeros(1) + ones(1) + zeros(2) + ones(8));
  EXPECT_EQ(covered_bits(ipv6, [&](const auto& h) { return icrc_of(h, udp, bth, rest); }),
            "1111" + zeros(3) + "0000" + ones(3) + zeros(1) + ones(32));
  for (const bool over_ipv6 : {false, true}) {
    const auto icrc = [&](const UdpFormat& u, const BthFormat& b) {
      return over_ipv6 ? icrc_of(ipv6, u, b, rest) : icrc_of(ipv4, u, b, rest);
    };
    EXPECT_EQ(covered_bits(udp, [&](const auto& h) { return icrc(h, bth); }), ones(6) + zeros(2));
    EXPECT_EQ(covered_bits(bth, [&](const auto& h) { return icrc(udp, h); }),
              ones(4) + zeros(1) + ones(7));
  }
}

}  // namespace
}  // namespace peal::wire
