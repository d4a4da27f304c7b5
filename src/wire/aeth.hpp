// ACK extended transport header (IBTA 9.3.5).
#pragma once

#include "wire/bytes.hpp"
#include "wire/syndrome.hpp"

namespace peal::wire {

struct AethFormat {
  Be<1> syndrome;
  Be<3> msn;
};
static_assert(sizeof(AethFormat) == 4);

struct Aeth {
  std::uint8_t syndrome = 0;
  std::uint32_t msn = 0;  // 24 bits: messages that the responder has completed

  bool operator==(const Aeth&) const = default;
};

constexpr AethFormat encode(const Aeth& h) {
  return {Be<1>(h.syndrome), Be<3>(h.msn)};
}
constexpr Aeth decode(const AethFormat& f) {
  return {f.syndrome.get(), f.msn.get()};
}

}  // namespace peal::wire
