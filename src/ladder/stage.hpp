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

// By how much a stage was faster than the one before it in the published ladder: a ConnectX-7 and a
// GPU, so it stands beside our gains and never in place of one. docs/STAGES.md has its source.
struct PublishedGain {
  std::string_view stage;
  std::uint64_t payload_bytes;
  std::string_view gain;
};
inline constexpr PublishedGain kPublishedGains[] = {
    {"window", 4096, "+53.2 %"},       {"window", 65536, "+77.1 %"},
    {"window", 1048576, "+36.6 %"},    {"independent", 4096, "+30.3 %"},
    {"independent", 65536, "+5.74 %"}, {"independent", 1048576, "+5.73 %"},
};

// Empty where none was published.
constexpr std::string_view published_gain(std::string_view stage, std::uint64_t payload_bytes) {
  for (const PublishedGain& g : kPublishedGains) {
    if (g.stage == stage && g.payload_bytes == payload_bytes) return g.gain;
  }
  return {};
}

inline constexpr Stage kStages[] = {
    {"serial", "the original: one WQE, ring, wait", 1, 1, 1, 1},
    {"window", "a window of PUTs in flight, the oldest awaited first", 1, 1, 256, 1},
    {"batch", "contiguous WQEs behind one doorbell", 1, 1, 256, 32},
    {"shared", "four producers on one queue pair", 4, 1, 256, 32},
    {"independent", "a queue pair for each producer, as many slots in total", 4, 4, 256, 32},
};

}  // namespace peal::ladder
