// The invariant CRC at the end of each packet (IBTA annex A17, 7.8.1): over all that no router may
// change, from the IP header to the pad.
#pragma once

#include "wire/bth.hpp"
#include "wire/ipv4.hpp"
#include "wire/ipv6.hpp"
#include "wire/udp.hpp"

namespace peal::wire {

// Little-endian: unlike all else in a packet.
struct IcrcFormat {
  std::array<std::byte, 4> bytes{};

  constexpr IcrcFormat() = default;
  constexpr explicit IcrcFormat(std::uint32_t crc) {
    for (std::byte& b : bytes) {
      b = static_cast<std::byte>(crc);
      crc >>= 8;
    }
  }
  constexpr std::uint32_t get() const {
    std::uint32_t crc = 0;
    for (std::size_t i = bytes.size(); i > 0; --i) {
      crc = crc << 8 | std::to_integer<std::uint32_t>(bytes[i - 1]);
    }
    return crc;
  }
  bool operator==(const IcrcFormat&) const = default;
};
static_assert(sizeof(IcrcFormat) == 4);

// `rest`: what lies between the BTH and the ICRC. The IP header is that which goes on the wire: its
// length and IPv4's identification and flags count.
IcrcFormat icrc_of(Ipv4Format ip, UdpFormat udp, BthFormat bth, Bytes rest);
IcrcFormat icrc_of(Ipv6Format ip, UdpFormat udp, BthFormat bth, Bytes rest);

}  // namespace peal::wire
