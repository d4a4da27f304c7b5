// IPv6 header (RFC 8200). Extension headers are none of RoCEv2's.
#pragma once

#include "wire/bytes.hpp"

namespace peal::wire {

using Ipv6Address = std::array<std::byte, 16>;

inline constexpr std::uint8_t kIpv6FragmentHeader = 44;  // a next_header

struct Ipv6Format {
  Be<4> version_class_flow;  // 4, 8 and 20 bits
  Be<2> payload_length;
  Be<1> next_header;
  Be<1> hop_limit;
  Ipv6Address source;
  Ipv6Address destination;
};
static_assert(sizeof(Ipv6Format) == 40);

struct Ipv6 {
  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;      // 20 bits
  std::uint16_t payload_length = 0;  // bytes, without this header
  std::uint8_t next_header = 17;     // UDP
  std::uint8_t hop_limit = 64;
  Ipv6Address source{};
  Ipv6Address destination{};

  bool operator==(const Ipv6&) const = default;
};

constexpr Ipv6Format encode(const Ipv6& h) {
  return {Be<4>(6u << 28 | std::uint32_t{h.traffic_class} << 20 | (h.flow_label & 0xfffff)),
          Be<2>(h.payload_length),
          Be<1>(h.next_header),
          Be<1>(h.hop_limit),
          h.source,
          h.destination};
}
constexpr Ipv6 decode(const Ipv6Format& f) {
  const std::uint32_t first = f.version_class_flow.get();
  return {static_cast<std::uint8_t>(first >> 20),
          first & 0xfffff,
          f.payload_length.get(),
          f.next_header.get(),
          f.hop_limit.get(),
          f.source,
          f.destination};
}

}  // namespace peal::wire
