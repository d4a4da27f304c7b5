// Latencies as a histogram of bounded size, for percentiles of any number of them.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

namespace peal::ladder {

// Up to 128 ns exact; above, in buckets that are less than 2 % wide.
class Latencies {
 public:
  static constexpr bool kWanted = true;

  void add(std::uint64_t ns) {
    ++counts_[bucket_of(ns)];
    ++count_;
    max_ns_ = std::max(max_ns_, ns);
  }

  void add(const Latencies& other) {
    for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
    count_ += other.count_;
    max_ns_ = std::max(max_ns_, other.max_ns_);
  }

  std::uint64_t count() const { return count_; }

  // The least latency that `percent` (0 to 100) of all do not exceed, to the upper end of its
  // bucket. Nothing when there are none.
  std::optional<double> percentile(double percent) const {
    if (count_ == 0) return std::nullopt;
    const auto rank = std::max<std::uint64_t>(
        1, static_cast<std::uint64_t>(std::ceil(static_cast<double>(count_) * percent / 100)));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      seen += counts_[i];
      if (seen >= rank) return static_cast<double>(std::min(last_of(i), max_ns_));
    }
    return static_cast<double>(max_ns_);
  }

  std::optional<double> max() const {
    if (count_ == 0) return std::nullopt;
    return static_cast<double>(max_ns_);
  }

 private:
  // Each power of two from 2^kBits on has 2^(kBits - 1) buckets.
  static constexpr unsigned kBits = 7;
  static constexpr std::uint64_t kHalf = std::uint64_t{1} << (kBits - 1);

  static std::size_t bucket_of(std::uint64_t ns) {
    const unsigned width = static_cast<unsigned>(std::bit_width(ns));
    if (width <= kBits) return ns;
    const unsigned shift = width - kBits;
    return shift * kHalf + (ns >> shift);
  }
  static std::uint64_t last_of(std::size_t bucket) {
    if (bucket < 2 * kHalf) return bucket;
    const std::uint64_t shift = bucket / kHalf - 1;
    const std::uint64_t top = bucket - shift * kHalf;
    return ((top + 1) << shift) - 1;
  }

  std::vector<std::uint64_t> counts_ = std::vector<std::uint64_t>(bucket_of(UINT64_MAX) + 1);
  std::uint64_t count_ = 0;
  std::uint64_t max_ns_ = 0;
};

}  // namespace peal::ladder
