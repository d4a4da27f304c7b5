// `peal explore`: seeds of the simulated engine.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "explore/configuration.hpp"

namespace peal::cli {

// As typed; empty where nothing was.
struct ExploreArguments {
  std::string seeds;
  std::string plant;
  std::string stage;
  std::string trace;
  bool list_plants = false;
  std::vector<std::string> options;  // one for each of explore::all_options()
};

void add_explore_command(CLI::App& app, ExploreArguments& a);

// Returns the exit status. Throws UsageError.
int run_explore_command(const ExploreArguments& a);

}  // namespace peal::cli
