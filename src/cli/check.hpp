#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "ladder/options.hpp"

namespace peal::cli {

struct CheckArguments {
  bool check = false;
  std::string gpu;
};

// To `peal devices`, which has its other options by then.
void add_check_options(CLI::App& devices, CheckArguments& arguments);

// Prints what a run on hardware needs of this machine, with the device and port of `run` where it
// names them, and returns the exit status. Throws UsageError.
int print_check(const CheckArguments& arguments, const ladder::LadderArguments& run);

}  // namespace peal::cli
