// Invalidate extended transport header (IBTA 9.3.7): of the last packet of a SEND with Invalidate.
#pragma once

#include "peal/core/types.hpp"
#include "wire/bytes.hpp"

namespace peal::wire {

struct IethFormat {
  Be<4> rkey;
};
static_assert(sizeof(IethFormat) == 4);

struct Ieth {
  Rkey rkey{};

  bool operator==(const Ieth&) const = default;
};

constexpr IethFormat encode(const Ieth& h) {
  return {Be<4>(h.rkey.value)};
}
constexpr Ieth decode(const IethFormat& f) {
  return {Rkey(f.rkey.get())};
}

}  // namespace peal::wire
