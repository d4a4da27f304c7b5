#include "explore/exploration.hpp"

namespace peal::explore {
namespace {

constexpr int kRunsAtMost = 400;
constexpr std::uint64_t kSeedsATrial = 6;

using Simplify = void (*)(Configuration&);

// From what makes a run much smaller to what makes it plainer.
constexpr Simplify kSimplifications[] = {
    [](Configuration& c) { c.fault = {}; },
    [](Configuration& c) { c.producers = 1; },
    [](Configuration& c) { c.producers -= c.producers > 1 ? 1 : 0; },
    [](Configuration& c) { c.qps = 1; },
    [](Configuration& c) { c.puts = (c.puts + 1) / 2; },
    [](Configuration& c) { c.puts -= c.puts > 1 ? 1 : 0; },
    [](Configuration& c) { c.mixed = 0; },
    [](Configuration& c) { c.window = 1; },
    [](Configuration& c) { c.window = (c.window + 1) / 2; },
    [](Configuration& c) { c.batch = 1; },
    [](Configuration& c) { c.max_message_bytes = Configuration{}.max_message_bytes; },
    [](Configuration& c) { c.payload_bytes = 4; },
    [](Configuration& c) { c.trouble = {}; },
    [](Configuration& c) { c.trouble.overtaken = 0; },
    [](Configuration& c) { c.trouble.doubled = 0; },
    [](Configuration& c) { c.latency_ns_max = 0; },
    [](Configuration& c) { c.one_nic_agent = true; },
    [](Configuration& c) { c.one_page = false; },
    [](Configuration& c) { c.handler = NicHandler::kDirect; },
    [](Configuration& c) { c.completion = CompletionMode::kEvery; },
    [](Configuration& c) { c.doorbell = DoorbellOrder::kRecordRing; },
    [](Configuration& c) { c.doorbell_source = nic::DoorbellSource::kRegister; },
    [](Configuration& c) { c.order = nic::WriteOrder::kStrict; },
    [](Configuration& c) { c.first_index = 0; },
};

}  // namespace

SweepResult sweep(const Sweep& s, const std::function<bool()>& stop) {
  SweepResult result;
  for (std::uint64_t seed = s.first_seed; !stop(); ++seed) {
    const Configuration c = configuration_of(seed, s.given);
    const RunResult r = run(c, {.seed = seed, .plant = s.plant});
    ++result.seeds;
    result.operations += r.operations;
    result.simulated_ns += r.simulated_ns;
    if (r.finding) {
      result.found = Found{seed, c, r.finding};
      break;
    }
    if (seed == s.last_seed) break;
  }
  return result;
}

Found reduce(const Found& found, sim::Plant plant) {
  Found best = found;
  int runs = 0;
  const auto still_found = [&](const Configuration& trial) {
    for (std::uint64_t i = 0; i < kSeedsATrial && runs < kRunsAtMost; ++i, ++runs) {
      const std::uint64_t seed = best.seed + i;
      const RunResult r = run(trial, {.seed = seed, .plant = plant});
      if (r.finding.checker != found.finding.checker) continue;
      best = {seed, trial, r.finding};
      return true;
    }
    return false;
  };
  for (bool smaller = true; smaller && runs < kRunsAtMost;) {
    smaller = false;
    for (const Simplify simplify : kSimplifications) {
      Configuration trial = best.configuration;
      simplify(trial);
      mend(trial);
      if (to_options(trial) != to_options(best.configuration)) smaller |= still_found(trial);
    }
  }
  return best;
}

}  // namespace peal::explore
