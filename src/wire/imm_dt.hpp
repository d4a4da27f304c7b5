// Immediate data (IBTA 9.3.6): of the last packet of a message with immediate.
#pragma once

#include "wire/bytes.hpp"

namespace peal::wire {

struct ImmDtFormat {
  Be<4> data;
};
static_assert(sizeof(ImmDtFormat) == 4);

struct ImmDt {
  std::uint32_t data = 0;

  bool operator==(const ImmDt&) const = default;
};

constexpr ImmDtFormat encode(const ImmDt& h) {
  return {Be<4>(h.data)};
}
constexpr ImmDt decode(const ImmDtFormat& f) {
  return {f.data.get()};
}

}  // namespace peal::wire
