// Atomic ACK extended transport header (IBTA 9.5.3): what lay there before the atomic.
#pragma once

#include "wire/bytes.hpp"

namespace peal::wire {

struct AtomicAckEthFormat {
  Be<8> original;
};
static_assert(sizeof(AtomicAckEthFormat) == 8);

struct AtomicAckEth {
  std::uint64_t original = 0;

  bool operator==(const AtomicAckEth&) const = default;
};

constexpr AtomicAckEthFormat encode(const AtomicAckEth& h) {
  return {Be<8>(h.original)};
}
constexpr AtomicAckEth decode(const AtomicAckEthFormat& f) {
  return {f.original.get()};
}

}  // namespace peal::wire
