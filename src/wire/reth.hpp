// RDMA extended transport header (IBTA 9.3.3): of a write's first packet and of a read request.
#pragma once

#include "peal/core/types.hpp"
#include "wire/bytes.hpp"

namespace peal::wire {

struct RethFormat {
  Be<8> address;
  Be<4> rkey;
  Be<4> length;
};
static_assert(sizeof(RethFormat) == 16);

struct Reth {
  std::uint64_t address = 0;
  Rkey rkey{};
  std::uint32_t length = 0;  // bytes of the whole message

  bool operator==(const Reth&) const = default;
};

constexpr RethFormat encode(const Reth& h) {
  return {Be<8>(h.address), Be<4>(h.rkey.value), Be<4>(h.length)};
}
constexpr Reth decode(const RethFormat& f) {
  return {f.address.get(), Rkey(f.rkey.get()), f.length.get()};
}

}  // namespace peal::wire
