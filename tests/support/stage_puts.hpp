// What the tests of the stages post where nothing is moved: PUTs of every kind of size.
#pragma once

#include <cstdint>
#include <iterator>

#include "peal/device/put.hpp"

namespace peal::test {

inline Put some_put(std::uint64_t i, std::uint64_t bytes) {
  return {0x10000 + i * 64, Lkey(0x1100), 0x90000 + i * 64, Rkey(0x2200), bytes};
}

inline Put nth_put(std::uint64_t i) {
  constexpr std::uint64_t kSizes[] = {8, 0, 64, 4096, 1};
  return some_put(i, kSizes[i % std::size(kSizes)]);
}

// The two that the ladder runs: original and peal.
inline constexpr SubmitOptions kLadderSubmits[] = {
    {DoorbellOrder::kRingRecordRing, PublishOrder::kInOrder},
    {DoorbellOrder::kRecordRing, PublishOrder::kCombine},
};

}  // namespace peal::test
