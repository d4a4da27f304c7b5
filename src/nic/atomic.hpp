// What atomics compute: pure functions, and how their operands travel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "link/link.hpp"
#include "peal/core/types.hpp"

namespace peal::nic {

// Of any atomic; a plain one is a masked one whose masks are all ones, or without a boundary. For a
// fetch-add `compare` is the field boundary.
struct AtomicOperands {
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;
  std::uint64_t swap_mask = 0;
  std::uint64_t compare_mask = 0;
};

// As the payload of a request: big-endian, in the order of the fields.
inline void encode(const AtomicOperands& o, std::byte* to) {
  const std::uint64_t fields[] = {swap_bytes(o.swap_or_add), swap_bytes(o.compare),
                                  swap_bytes(o.swap_mask), swap_bytes(o.compare_mask)};
  static_assert(sizeof fields == link::kAtomicPayloadBytes);
  std::memcpy(to, fields, sizeof fields);
}
inline AtomicOperands decode_operands(const std::byte* from) {
  std::uint64_t fields[4];
  std::memcpy(fields, from, sizeof fields);
  return {swap_bytes(fields[0]), swap_bytes(fields[1]), swap_bytes(fields[2]),
          swap_bytes(fields[3])};
}

// What a compare-swap leaves where `old` was.
constexpr std::uint64_t compare_swapped(std::uint64_t old, const AtomicOperands& o) {
  if (((old ^ o.compare) & o.compare_mask) != 0) return old;
  return (old & ~o.swap_mask) | (o.swap_or_add & o.swap_mask);
}

// What a fetch-add leaves where `old` was: a sum of fields, each ending at a set bit of the
// boundary. The bits below the boundary are added as one number; a boundary bit takes its carry in
// and hands none on.
constexpr std::uint64_t fetch_added(std::uint64_t old, const AtomicOperands& o) {
  const std::uint64_t boundary = o.compare;
  const std::uint64_t below = (old & ~boundary) + (o.swap_or_add & ~boundary);
  return below ^ ((old ^ o.swap_or_add) & boundary);
}

}  // namespace peal::nic
