// Sweeps seeds until one of them finds something, and makes what it found small.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "explore/configuration.hpp"
#include "explore/run.hpp"
#include "sim/plants.hpp"

namespace peal::explore {

struct Sweep {
  std::uint64_t first_seed = 1;
  std::uint64_t last_seed = 1;  // included
  std::vector<Given> given = {};
  sim::Plant plant = sim::Plant::kNone;
};

// A configuration and a seed that lead to a finding.
struct Found {
  std::uint64_t seed = 0;
  Configuration configuration;
  Finding finding;
};

struct SweepResult {
  std::uint64_t seeds = 0;  // that were run
  std::uint64_t operations = 0;
  std::uint64_t simulated_ns = 0;
  std::optional<Found> found;
};

// `stop` is asked before each seed.
SweepResult sweep(
    const Sweep& sweep, const std::function<bool()>& stop = [] { return false; });

// The same checker's finding with fewer and plainer options, perhaps of another seed. Bounded: some
// hundred runs.
Found reduce(const Found& found, sim::Plant plant);

}  // namespace peal::explore
