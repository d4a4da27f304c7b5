// One simulated run of a configuration, under the eyes of its checkers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "explore/configuration.hpp"
#include "sim/plants.hpp"

namespace peal::explore {

// The first thing that a checker found wrong.
struct Finding {
  std::string checker;  // its name; empty: nothing is wrong
  std::string sentence;
  explicit operator bool() const { return !checker.empty(); }
};

struct RunOptions {
  std::uint64_t seed = 1;
  sim::Plant plant = sim::Plant::kNone;
  std::size_t trace_events = 0;
};

struct RunResult {
  Finding finding;
  std::uint64_t operations = 0;  // acknowledged
  std::uint64_t simulated_ns = 0;
  std::vector<std::string> trace;  // the last operations on memory, up to the finding
};

// Never blocks for long: virtual time bounds every wait, and the points of a run are limited.
RunResult run(const Configuration& c, const RunOptions& options);

}  // namespace peal::explore
