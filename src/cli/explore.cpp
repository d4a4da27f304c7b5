#include "cli/explore.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>

#include "explore/exploration.hpp"
#include "ladder/interrupt.hpp"
#include "ladder/outcome.hpp"
#include "ladder/parse.hpp"
#include "ladder/stage.hpp"
#include "ladder/usage_error.hpp"

namespace peal::cli {
namespace {

using explore::Found;
using explore::Given;
using ladder::UsageError;

constexpr std::uint64_t kDefaultSeeds = 1000;
constexpr std::uint64_t kDefaultTrace = 60;
constexpr std::size_t kEventsALine = 16;  // of an operation of many words

// The options that a stage of the ladder stands for.
std::vector<Given> parse_stage(const std::string& text) {
  if (text.empty()) return {};
  std::string names;
  for (const ladder::Stage& s : ladder::kStages) {
    if (text == s.name) {
      return {{"producers", std::to_string(s.producers)},
              {"qps", std::to_string(s.qps)},
              {"window", std::to_string(s.window / s.producers)},
              {"batch", std::to_string(s.batch)}};
    }
    names += fmt::format("{}{}", names.empty() ? "" : ", ", s.name);
  }
  throw UsageError(fmt::format("--stage takes one of {}, not '{}'", names, text));
}

std::vector<Given> parse_given(const ExploreArguments& a) {
  std::vector<Given> given = parse_stage(a.stage);
  explore::Configuration scratch;
  for (std::size_t i = 0; i < a.options.size(); ++i) {
    const explore::Option& option = explore::all_options()[i];
    const std::string& text = a.options[i];
    if (text.empty()) continue;
    if (!option.set(scratch, text)) {
      throw UsageError(fmt::format("--{} takes {}, not '{}'", option.name, option.what, text));
    }
    given.push_back({option.name, text});
  }
  return given;
}

void parse_seeds(const std::string& text, explore::Sweep& sweep) {
  if (text.empty()) {
    sweep.last_seed = kDefaultSeeds;
    return;
  }
  const std::size_t dots = text.find("..");
  const std::string first = text.substr(0, dots);
  sweep.first_seed = ladder::parse_count("--seeds", first, {0});
  sweep.last_seed = dots == std::string::npos
                        ? sweep.first_seed
                        : ladder::parse_count("--seeds", text.substr(dots + 2), {0});
  if (sweep.last_seed < sweep.first_seed) {
    throw UsageError(fmt::format("--seeds must go from low to high, not '{}'", text));
  }
}

sim::Plant parse_plant(const std::string& text) {
  if (text.empty()) return sim::Plant::kNone;
  const auto plant = sim::plant_of(text);
  if (!plant) {
    throw UsageError(fmt::format("--plant takes a name that --list-plants prints, not '{}'", text));
  }
  return *plant;
}

std::string plant_option(sim::Plant plant) {
  return plant == sim::Plant::kNone ? "" : fmt::format(" --plant {}", sim::plant_name(plant));
}

std::string replay(std::uint64_t seed, sim::Plant plant, const std::string& options) {
  return fmt::format("peal explore --seeds {0}..{0}{1}{2}{3}", seed, plant_option(plant),
                     options.empty() ? "" : " ", options);
}

std::string given_options(const std::vector<Given>& given) {
  std::string all;
  for (const Given& g : given) {
    all += fmt::format("{}--{} {}", all.empty() ? "" : " ", g.name, g.value);
  }
  return all;
}

void print_found(const explore::Sweep& sweep, const Found& found, std::size_t lines) {
  fmt::print("seed {}: {}: {}\n  {}\n", found.seed, found.finding.checker, found.finding.sentence,
             explore::to_options(found.configuration));
  std::fflush(stdout);
  const Found small = explore::reduce(found, sweep.plant);
  fmt::print("reduced to seed {}: {}: {}\n  {}\n", small.seed, small.finding.checker,
             small.finding.sentence, explore::to_options(small.configuration));
  const explore::RunResult r = explore::run(
      small.configuration,
      {.seed = small.seed, .plant = sweep.plant, .trace_events = lines * kEventsALine});
  const std::size_t from = r.trace.size() > lines ? r.trace.size() - lines : 0;
  fmt::print("its last {} operations on memory:\n", r.trace.size() - from);
  for (std::size_t i = from; i < r.trace.size(); ++i) fmt::print("{}\n", r.trace[i]);
  fmt::print("replay the reduced one: {}\n",
             replay(small.seed, sweep.plant, explore::to_options(small.configuration)));
  fmt::print("replay: {}\n", replay(found.seed, sweep.plant, given_options(sweep.given)));
}

}  // namespace

void add_explore_command(CLI::App& app, ExploreArguments& a) {
  CLI::App* command = app.add_subcommand(
      "explore",
      "simulate the data path and the NIC, seed by seed, in virtual time and weak memory");
  command->add_option("--seeds", a.seeds, "A..B, or one; default: 1..1000");
  command->add_option("--plant", a.plant, "take one thing out, to see it found");
  command->add_flag("--list-plants", a.list_plants, "print the names of the plants, one a line");
  command->add_option("--trace", a.trace,
                      "operations on memory to print of what was found; default: 60");
  command->add_option("--stage", a.stage,
                      "producers, qps, window and batch of one of the ladder's stages");
  const auto& options = explore::all_options();
  a.options.resize(options.size());
  for (std::size_t i = 0; i < options.size(); ++i) {
    command->add_option("--" + std::string(options[i].name), a.options[i], options[i].what)
        ->group("What the seed does not choose");
  }
  command->footer("Exit status: 0 nothing found; 1 something was; 2 wrong usage; 130 interrupted.");
}

int run_explore_command(const ExploreArguments& a) {
  if (a.list_plants) {
    for (const sim::PlantName& p : sim::all_plants()) fmt::print("{}\n", p.name);
    return ladder::kExitValidated;
  }
  explore::Sweep sweep;
  parse_seeds(a.seeds, sweep);
  sweep.plant = parse_plant(a.plant);
  sweep.given = parse_given(a);
  const std::size_t lines =
      a.trace.empty() ? kDefaultTrace : ladder::parse_count("--trace", a.trace, {1, 1'000'000});
  const ladder::Interrupt interrupt;

  const std::string given = given_options(sweep.given);
  fmt::print("explore: seeds {}..{}{}{}{}\n", sweep.first_seed, sweep.last_seed,
             plant_option(sweep.plant), given.empty() ? "" : " ", given);
  if (sweep.first_seed == sweep.last_seed) {
    fmt::print("  {}\n",
               explore::to_options(explore::configuration_of(sweep.first_seed, sweep.given)));
  }
  std::fflush(stdout);
  const auto start = std::chrono::steady_clock::now();
  const explore::SweepResult r = explore::sweep(sweep, [&] { return interrupt.raised(); });
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (r.found) {
    print_found(sweep, *r.found, lines);
    return ladder::kExitWrongPayload;
  }
  fmt::print(
      "{} seeds, nothing found: {} operations acknowledged in {:.3f} s of virtual time; took "
      "{:.1f} "
      "s\n",
      r.seeds, r.operations, static_cast<double>(r.simulated_ns) / 1e9, took.count());
  return interrupt.raised() ? ladder::kExitInterrupted : ladder::kExitValidated;
}

}  // namespace peal::cli
