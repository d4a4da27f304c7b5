// The bytes that payloads and guards hold, and how they lie in a region: the arithmetic alone, for
// the CPU and for kernels.
#pragma once

#include <cstdint>

#include "peal/core/config.hpp"

namespace peal::ladder {

inline constexpr std::uint64_t kWordBytes = 8;

namespace pattern {

// Odd, from the golden ratio and the roots of 2 and 3.
inline constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;
inline constexpr std::uint64_t kFactorA = 0x6a09e667f3bcc909;
inline constexpr std::uint64_t kFactorB = 0xbb67ae8584caa73b;

// Every step is a bijection: different inputs never give the same word.
PEAL_HOST_DEVICE constexpr std::uint64_t scramble(std::uint64_t x) {
  x ^= x >> 32;
  x *= kFactorA;
  return x ^ (x >> 29);
}

PEAL_HOST_DEVICE constexpr std::uint64_t mix(std::uint64_t x) {
  x = scramble(x) * kFactorB;
  return x ^ (x >> 32);
}

PEAL_HOST_DEVICE constexpr std::uint64_t producer_base(std::uint64_t seed, std::uint32_t producer) {
  return mix(mix(seed) + kStep * (std::uint64_t{producer} + 1));
}

// A bijection of the sequence, so two PUTs of one producer differ in each of their words.
PEAL_HOST_DEVICE constexpr std::uint64_t put_base(std::uint64_t producer_base,
                                                  std::uint64_t sequence) {
  return mix(producer_base + kStep * sequence);
}

// Guards use the index that no producer has: producer_base adds at least 1.
PEAL_HOST_DEVICE constexpr std::uint64_t guard_base(std::uint64_t seed) {
  return mix(mix(seed));
}

PEAL_HOST_DEVICE constexpr std::uint64_t word_at(std::uint64_t base, std::uint64_t index) {
  return scramble(base + kStep * index);
}

PEAL_HOST_DEVICE constexpr std::uint8_t byte_at(std::uint64_t base, std::uint64_t offset) {
  return static_cast<std::uint8_t>(word_at(base, offset / kWordBytes) >>
                                   (8 * (offset % kWordBytes)));
}

}  // namespace pattern
}  // namespace peal::ladder
