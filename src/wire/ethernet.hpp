// Ethernet II header (IEEE 802.3).
#pragma once

#include "wire/bytes.hpp"

namespace peal::wire {

using MacAddress = std::array<std::byte, 6>;

inline constexpr std::uint16_t kEtherTypeIpv4 = 0x0800;
inline constexpr std::uint16_t kEtherTypeVlan = 0x8100;  // a tag of 4 bytes is in front of the type
inline constexpr std::uint16_t kEtherTypeIpv6 = 0x86dd;

struct EthernetFormat {
  MacAddress destination;
  MacAddress source;
  Be<2> ether_type;
};
static_assert(sizeof(EthernetFormat) == 14);

struct Ethernet {
  MacAddress destination{};
  MacAddress source{};
  std::uint16_t ether_type = kEtherTypeIpv4;

  bool operator==(const Ethernet&) const = default;
};

constexpr EthernetFormat encode(const Ethernet& e) {
  return {e.destination, e.source, Be<2>(e.ether_type)};
}
constexpr Ethernet decode(const EthernetFormat& f) {
  return {f.destination, f.source, f.ether_type.get()};
}

}  // namespace peal::wire
