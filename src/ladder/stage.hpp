// The stages of the ladder: each one change against the row above it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace peal::ladder {

struct Stage {
  std::string_view name;
  std::string_view change;  // the one thing that is new
  std::uint32_t producers;
  std::uint32_t qps;
  std::uint32_t window;  // PUTs in flight, all producers together
  std::uint32_t batch;   // PUTs behind one doorbell
};

// Which of a stage's QPs producer `p` uses.
constexpr std::uint32_t qp_of_producer(std::uint32_t p, std::uint32_t qps) {
  return p % qps;
}

// How many of `producers` use that QP.
constexpr std::uint32_t producers_on_qp(std::uint32_t qp, std::uint32_t qps,
                                        std::uint32_t producers) {
  return producers / qps + (qp < producers % qps ? 1 : 0);
}

inline constexpr Stage kStages[] = {
    {"serial", "the original: one WQE, ring, wait", 1, 1, 1, 1},
    {"window", "a window of PUTs in flight, the oldest awaited first", 1, 1, 256, 1},
    {"batch", "contiguous WQEs behind one doorbell", 1, 1, 256, 32},
    {"shared", "four producers on one queue pair", 4, 1, 256, 32},
    {"independent", "a queue pair for each producer, as many slots in total", 4, 4, 256, 32},
};

}  // namespace peal::ladder
