// UDP header (RFC 768).
#pragma once

#include "wire/bytes.hpp"

namespace peal::wire {

inline constexpr std::uint16_t kRocePort = 4791;  // the destination port (IBTA annex A17)

struct UdpFormat {
  Be<2> source_port;
  Be<2> destination_port;
  Be<2> length;
  Be<2> checksum;
};
static_assert(sizeof(UdpFormat) == 8);

struct Udp {
  std::uint16_t source_port = 0;
  std::uint16_t destination_port = kRocePort;
  std::uint16_t length = 0;    // bytes, with this header
  std::uint16_t checksum = 0;  // 0: none; a receiver relies on the ICRC

  bool operator==(const Udp&) const = default;
};

constexpr UdpFormat encode(const Udp& h) {
  return {Be<2>(h.source_port), Be<2>(h.destination_port), Be<2>(h.length), Be<2>(h.checksum)};
}
constexpr Udp decode(const UdpFormat& f) {
  return {f.source_port.get(), f.destination_port.get(), f.length.get(), f.checksum.get()};
}

}  // namespace peal::wire
