// How a stage's producers share its window and its queues.
#pragma once

#include <cstdint>

#include "peal/core/config.hpp"

namespace peal::ladder {

// Which of a stage's QPs producer `p` uses.
PEAL_HOST_DEVICE constexpr std::uint32_t qp_of_producer(std::uint32_t p, std::uint32_t qps) {
  return p % qps;
}

// How many of `producers` use that QP.
PEAL_HOST_DEVICE constexpr std::uint32_t producers_on_qp(std::uint32_t qp, std::uint32_t qps,
                                                         std::uint32_t producers) {
  return producers / qps + (qp < producers % qps ? 1 : 0);
}

// Producer p's part of a window of `window` PUTs for all: parts differ by one at most, and none is
// 0.
PEAL_HOST_DEVICE constexpr std::uint32_t share_of_window(std::uint32_t window,
                                                         std::uint32_t producers, std::uint32_t p) {
  const std::uint32_t share = window / producers + (p < window % producers ? 1 : 0);
  return share == 0 ? 1 : share;
}

}  // namespace peal::ladder
