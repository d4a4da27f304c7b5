#include "cli/self_description.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>
#include <vector>

#include "ladder/usage_error.hpp"

namespace peal::cli {
namespace {

struct Described {
  std::string path;  // "peal decode wqe"
  const CLI::App* app;
};

// A command and all below it, in the order of --help.
std::vector<Described> commands_from(const CLI::App& app, const std::string& above = "") {
  const std::string path = above + (above.empty() ? "" : " ") + app.get_name();
  std::vector<Described> all = {{path, &app}};
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    for (Described& d : commands_from(*command, path)) all.push_back(std::move(d));
  }
  return all;
}

bool takes_value(const CLI::Option& option) {
  return option.get_items_expected_max() > 0;
}

// "-s", "--size"; none for what is told by its place.
std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

// A line of roff that shows `text`; bold between backticks.
std::string roff(std::string_view text) {
  std::string line;
  bool bold = false;
  for (const char c : text) {
    switch (c) {
      case '\\': line += "\\e"; break;
      case '-': line += "\\-"; break;
      case '\n': line += ' '; break;
      case '`':
        bold = !bold;
        line += bold ? "\\fB" : "\\fP";
        break;
      default: line += c;
    }
  }
  // Else it would be a request.
  return (line.starts_with('.') || line.starts_with('\'') ? "\\&" : "") + line + "\n";
}

std::string man_option(const CLI::Option& option) {
  std::vector<std::string> names = names_of(option);
  for (std::string& name : names) name = "`" + name + "`";
  std::string tag = names.empty() ? option.get_name() : fmt::format("{}", fmt::join(names, ", "));
  if (!names.empty() && takes_value(option)) tag += " VALUE";
  return ".TP\n" + roff(tag) + roff(option.get_description());
}

std::string man_command(const Described& command) {
  std::string page = ".SS " + roff(command.path) + roff(command.app->get_description() + ".");
  std::string group = "Options";
  for (const CLI::Option* option : command.app->get_options()) {
    const bool grouped = option->get_group() != group && !option->get_positional();
    if (grouped) page += ".PP\n" + roff((group = option->get_group()) + ":");
    page += man_option(*option);
  }
  const std::string footer = command.app->get_footer();
  return footer.empty() ? page : page + ".PP\n" + roff(footer);
}

}  // namespace

std::string man_page(const CLI::App& app) {
  const std::vector<Described> commands = commands_from(app);
  std::string page =
      fmt::format(".TH PEAL 1 \"\" \"{} {}\" \"User Commands\"\n", app.get_name(), app.version());
  page += ".SH NAME\n" + roff(app.get_name() + " - " + app.get_description());
  page += ".SH SYNOPSIS\n" + roff("`" + app.get_name() + "` COMMAND [OPTION]...");
  page += ".SH OPTIONS\n";
  for (const CLI::Option* option : app.get_options()) page += man_option(*option);
  page += ".SH COMMANDS\n";
  for (std::size_t i = 1; i < commands.size(); ++i) page += man_command(commands[i]);
  std::string status = app.get_footer();
  const std::string heading = "Exit status: ";
  if (status.starts_with(heading)) status.erase(0, heading.size());
  return page + ".SH EXIT STATUS\n" + roff(status);
}

std::string completion_script(const CLI::App& app, const std::string& shell) {
  if (shell != "bash") {
    throw ladder::UsageError("SHELL must be bash, not '" + shell + "'");
  }
  // What may follow a command; an option that takes a value is followed by one, or by a file.
  std::string cases;
  std::string paths;
  for (const Described& command : commands_from(app)) {
    std::vector<std::string> words;
    std::vector<std::string> flags;
    for (const CLI::App* below :
         command.app->get_subcommands([](const CLI::App*) { return true; })) {
      words.push_back(below->get_name());
    }
    for (const CLI::Option* option : command.app->get_options()) {
      std::vector<std::string>& kind = takes_value(*option) ? words : flags;
      for (std::string& name : names_of(*option)) kind.push_back(std::move(name));
    }
    cases += fmt::format("    '{}')\n      words='{}'\n      flags='{}'\n      ;;\n", command.path,
                         fmt::join(words, " "), fmt::join(flags, " "));
    if (command.app != &app) {
      paths += fmt::format("{}'{}'", paths.empty() ? "" : " | ", command.path);
    }
  }
  return "# Completion of " + app.get_name() + "'s commands and options; made by `" +
         app.get_name() + " completion bash`.\n" +
         R"(_peal() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  local command=peal typed words flags
  for typed in "${COMP_WORDS[@]:1:COMP_CWORD - 1}"; do
    case "$command $typed" in
      )" +
         paths + R"() command="$command $typed" ;;
    esac
  done
  case $command in
)" + cases +
         R"(  esac
  COMPREPLY=()
  # A value is wanted.
  [[ $previous == -* && " $flags " != *" $previous "* ]] && return
  mapfile -t COMPREPLY < <(compgen -W "$words $flags" -- "$word")
}
complete -o default -F _peal peal
)";
}

}  // namespace peal::cli
