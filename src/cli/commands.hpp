// The commands, as functions from arguments to exit status.
#pragma once

namespace CLI {
class App;
}

namespace peal::cli {

// Parses and runs; returns the exit status. Never throws.
int run(int argc, char** argv);

}  // namespace peal::cli
