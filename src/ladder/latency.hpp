// Latencies as a histogram of bounded size, for percentiles of any number of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "ladder/latency_buckets.hpp"

namespace peal::ladder {

class Latencies {
 public:
  static constexpr bool kWanted = true;

  void add(std::uint64_t ns) {
    ++counts_[LatencyBuckets::bucket_of(ns)];
    ++count_;
    max_ns_ = std::max(max_ns_, ns);
  }

  void add(const Latencies& other) {
    for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
    count_ += other.count_;
    max_ns_ = std::max(max_ns_, other.max_ns_);
  }

  // Counted by LatencyBuckets elsewhere: kLatencyBuckets of them, and the largest latency.
  void add(const std::uint64_t* counts, std::uint64_t max_ns) {
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      counts_[i] += counts[i];
      count_ += counts[i];
    }
    max_ns_ = std::max(max_ns_, max_ns);
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
      if (seen >= rank) return static_cast<double>(std::min(LatencyBuckets::last_of(i), max_ns_));
    }
    return static_cast<double>(max_ns_);
  }

  std::optional<double> max() const {
    if (count_ == 0) return std::nullopt;
    return static_cast<double>(max_ns_);
  }

 private:
  std::vector<std::uint64_t> counts_ = std::vector<std::uint64_t>(kLatencyBuckets);
  std::uint64_t count_ = 0;
  std::uint64_t max_ns_ = 0;
};

}  // namespace peal::ladder
