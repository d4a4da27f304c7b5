// What the command says of itself to man and to the shell, made of its options: neither can rot.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace peal::cli {

// peal(1), in roff.
std::string man_page(const CLI::App& app);

// A script for bash that completes commands and their options. Throws UsageError for another shell.
std::string completion_script(const CLI::App& app, const std::string& shell);

}  // namespace peal::cli
