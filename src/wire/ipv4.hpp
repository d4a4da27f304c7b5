// IPv4 header without options (RFC 791).
#pragma once

#include "wire/bytes.hpp"

namespace peal::wire {

using Ipv4Address = std::array<std::byte, 4>;

inline constexpr std::uint8_t kIpProtocolUdp = 17;  // IPv6's next_header too
inline constexpr std::uint16_t kDontFragment = 0x4000;
inline constexpr std::uint16_t kMoreFragments = 0x2000;
inline constexpr std::uint16_t kFragmentOffsetMask = 0x1fff;

struct Ipv4Format {
  Be<1> version_ihl;
  Be<1> tos;
  Be<2> total_length;
  Be<2> identification;
  Be<2> flags_fragment;
  Be<1> ttl;
  Be<1> protocol;
  Be<2> checksum;
  Ipv4Address source;
  Ipv4Address destination;
};
static_assert(sizeof(Ipv4Format) == 20);

struct Ipv4 {
  std::uint8_t tos = 0;            // DSCP above ECN
  std::uint16_t total_length = 0;  // bytes, with this header
  std::uint16_t identification = 0;
  std::uint16_t flags_fragment = kDontFragment;
  std::uint8_t ttl = 64;
  std::uint8_t protocol = kIpProtocolUdp;
  std::uint16_t checksum = 0;
  Ipv4Address source{};
  Ipv4Address destination{};

  bool operator==(const Ipv4&) const = default;
};

inline constexpr std::uint8_t kIpv4VersionIhl = 0x45;  // 5 words of 4 bytes: no options

constexpr Ipv4Format encode(const Ipv4& h) {
  return {Be<1>(kIpv4VersionIhl),
          Be<1>(h.tos),
          Be<2>(h.total_length),
          Be<2>(h.identification),
          Be<2>(h.flags_fragment),
          Be<1>(h.ttl),
          Be<1>(h.protocol),
          Be<2>(h.checksum),
          h.source,
          h.destination};
}
constexpr Ipv4 decode(const Ipv4Format& f) {
  return {f.tos.get(),  f.total_length.get(), f.identification.get(), f.flags_fragment.get(),
          f.ttl.get(),  f.protocol.get(),     f.checksum.get(),       f.source,
          f.destination};
}

// What `checksum` has to be (RFC 1071), whatever it is.
constexpr std::uint16_t checksum_of(const Ipv4Format& f) {
  const auto word = [](const Ipv4Address& a, std::size_t i) {
    return std::to_integer<std::uint32_t>(a[i]) << 8 | std::to_integer<std::uint32_t>(a[i + 1]);
  };
  std::uint32_t sum = static_cast<std::uint32_t>(f.version_ihl.get() << 8) + f.tos.get() +
                      f.total_length.get() + f.identification.get() + f.flags_fragment.get() +
                      static_cast<std::uint32_t>(f.ttl.get() << 8) + f.protocol.get();
  for (const Ipv4Address& a : {f.source, f.destination}) sum += word(a, 0) + word(a, 2);
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

}  // namespace peal::wire
