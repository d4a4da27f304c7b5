// Identifiers and byte order. Each number of the protocol is a type of its own, converted
// explicitly; keys are in host order here and are swapped only where a format is encoded.
#pragma once

#include <cstdint>

#include "peal/core/config.hpp"

namespace peal {

// A number that names something. Only equal types compare; there is no arithmetic.
template <class Tag>
struct Identifier {
  std::uint32_t value = 0;

  constexpr Identifier() = default;
  PEAL_HOST_DEVICE constexpr explicit Identifier(std::uint32_t v) : value(v) {}
  PEAL_HOST_DEVICE friend constexpr bool operator==(Identifier a, Identifier b) {
    return a.value == b.value;
  }
  PEAL_HOST_DEVICE friend constexpr bool operator!=(Identifier a, Identifier b) {
    return a.value != b.value;
  }
};

// Queue pair number, 24 bits. 0 is never a valid one.
using Qpn = Identifier<struct QpnTag>;
// Memory keys, host order: 24-bit index above an 8-bit tag. 0 is never a valid key.
using Lkey = Identifier<struct LkeyTag>;
using Rkey = Identifier<struct RkeyTag>;

// Packet sequence number. Compares modulo 2^24 (IBTA 9.7.2): a is before b when the shortest way
// from a to b leads forward.
struct Psn {
  static constexpr std::uint32_t kMask = 0xffffff;
  std::uint32_t value = 0;

  constexpr Psn() = default;
  PEAL_HOST_DEVICE constexpr explicit Psn(std::uint32_t v) : value(v & kMask) {}
  PEAL_HOST_DEVICE constexpr Psn plus(std::uint32_t n) const { return Psn(value + n); }
  // Signed distance from `from` to this, in -2^23 .. 2^23 - 1.
  PEAL_HOST_DEVICE constexpr std::int32_t since(Psn from) const {
    const std::uint32_t d = (value - from.value) & kMask;
    return d < 0x800000 ? static_cast<std::int32_t>(d) : static_cast<std::int32_t>(d) - 0x1000000;
  }
  PEAL_HOST_DEVICE friend constexpr bool operator==(Psn a, Psn b) { return a.value == b.value; }
};

PEAL_HOST_DEVICE constexpr std::uint16_t swap_bytes(std::uint16_t v) {
  return static_cast<std::uint16_t>((v << 8) | (v >> 8));
}
PEAL_HOST_DEVICE constexpr std::uint32_t swap_bytes(std::uint32_t v) {
  return (v << 24) | ((v & 0xff00u) << 8) | ((v >> 8) & 0xff00u) | (v >> 24);
}
PEAL_HOST_DEVICE constexpr std::uint64_t swap_bytes(std::uint64_t v) {
  return (std::uint64_t{swap_bytes(static_cast<std::uint32_t>(v))} << 32) |
         swap_bytes(static_cast<std::uint32_t>(v >> 32));
}

// An integer as it lies in memory, big-endian.
template <class T>
struct BigEndian {
  T raw = 0;

  PEAL_HOST_DEVICE static constexpr BigEndian from_host(T v) { return BigEndian{swap_bytes(v)}; }
  PEAL_HOST_DEVICE constexpr T to_host() const { return swap_bytes(raw); }
};
using Be16 = BigEndian<std::uint16_t>;
using Be32 = BigEndian<std::uint32_t>;
using Be64 = BigEndian<std::uint64_t>;

}  // namespace peal
