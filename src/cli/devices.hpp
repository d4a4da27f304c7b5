#pragma once

#include "ladder/options.hpp"
#include "ladder/runner.hpp"

namespace peal::cli {

// Opens each device as a run would, and says on the standard output what it is. Throws Error.
void print_devices(const ladder::LadderOptions& options, const ladder::RunEvents& events);

}  // namespace peal::cli
