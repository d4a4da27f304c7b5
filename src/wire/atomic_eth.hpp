// Atomic extended transport header (IBTA 9.3.4): of a compare-and-swap or fetch-and-add request.
#pragma once

#include "peal/core/types.hpp"
#include "wire/bytes.hpp"

namespace peal::wire {

struct AtomicEthFormat {
  Be<8> address;
  Be<4> rkey;
  Be<8> swap_or_add;
  Be<8> compare;
};
static_assert(sizeof(AtomicEthFormat) == 28);

struct AtomicEth {
  std::uint64_t address = 0;
  Rkey rkey{};
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;  // not looked at by a fetch-and-add

  bool operator==(const AtomicEth&) const = default;
};

constexpr AtomicEthFormat encode(const AtomicEth& h) {
  return {Be<8>(h.address), Be<4>(h.rkey.value), Be<8>(h.swap_or_add), Be<8>(h.compare)};
}
constexpr AtomicEth decode(const AtomicEthFormat& f) {
  return {f.address.get(), Rkey(f.rkey.get()), f.swap_or_add.get(), f.compare.get()};
}

}  // namespace peal::wire
