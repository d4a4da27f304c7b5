// Of how many nanoseconds the buckets of a latency histogram are: up to 128 exact; above, less than
// 2 % wide.
#pragma once

#include <cstdint>

#include "peal/core/config.hpp"

namespace peal::ladder {

struct LatencyBuckets {
  // Each power of two from 2^kBits on has 2^(kBits - 1) buckets.
  static constexpr unsigned kBits = 7;
  static constexpr std::uint64_t kHalf = std::uint64_t{1} << (kBits - 1);

  PEAL_HOST_DEVICE static constexpr std::uint64_t bucket_of(std::uint64_t ns) {
    unsigned shift = 0;
    for (unsigned step = 32; step != 0; step /= 2) {
      if (ns >> (shift + step) >> kBits != 0) shift += step;
    }
    if (ns >> kBits != 0) ++shift;
    return shift * kHalf + (ns >> shift);
  }
  static constexpr std::uint64_t last_of(std::uint64_t bucket) {
    if (bucket < 2 * kHalf) return bucket;
    const std::uint64_t shift = bucket / kHalf - 1;
    const std::uint64_t top = bucket - shift * kHalf;
    return ((top + 1) << shift) - 1;
  }
};

inline constexpr std::uint64_t kLatencyBuckets = LatencyBuckets::bucket_of(UINT64_MAX) + 1;

}  // namespace peal::ladder
