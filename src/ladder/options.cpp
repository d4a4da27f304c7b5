#include "ladder/options.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include "ladder/parse.hpp"
#include "ladder/payload.hpp"
#include "ladder/rules.hpp"
#include "ladder/usage_error.hpp"
#include "nic/tables.hpp"
#include "peal/mlx5/wqe.hpp"

namespace peal::ladder {
namespace {

// The most a single PUT may carry: slots, regions and sums stay far from 64 bits.
constexpr std::uint64_t kMaxPutBytes = std::uint64_t{1} << 40;
constexpr std::uint64_t kMaxRegionBytes = std::uint64_t{1} << 50;
constexpr std::uint64_t kMaxIters = 1'000'000'000;
constexpr std::uint64_t kMaxProducers = 1024;
constexpr std::uint32_t kDefaultSlots = 1024;  // of all a stage's queues together
constexpr std::uint64_t kMaxWindow = 1u << 20;
constexpr double kMaxDeadlineS = 3600;

template <class T>
T choose(std::string_view option, const std::string& text,
         std::initializer_list<std::pair<std::string_view, T>> choices) {
  std::string all;
  for (const auto& [name, value] : choices) {
    if (text == name) return value;
    all += (all.empty() ? "" : ", ") + std::string(name);
  }
  throw UsageError(std::string(option) + " must be one of " + all + ", not '" + text + "'");
}

std::vector<Stage> parse_stages(const std::string& text) {
  std::vector<Stage> stages;
  if (text.empty()) return {std::begin(kStages), std::end(kStages)};
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t to = std::min(text.find(',', from), text.size());
    const std::string name = text.substr(from, to - from);
    const auto* stage = std::find_if(std::begin(kStages), std::end(kStages),
                                     [&name](const Stage& s) { return s.name == name; });
    if (stage == std::end(kStages)) {
      std::string all;
      for (const Stage& s : kStages) all += (all.empty() ? "" : ", ") + std::string(s.name);
      throw UsageError("--stages takes a list of " + all + "; there is no stage '" + name + "'");
    }
    stages.push_back(*stage);
    from = to + 1;
  }
  return stages;
}

std::vector<SubmitVariant> parse_submits(const LadderArguments& a) {
  const SubmitVariant original{"original",
                               {DoorbellOrder::kRingRecordRing, PublishOrder::kInOrder}};
  const SubmitVariant peal{"peal", {DoorbellOrder::kRecordRing, PublishOrder::kCombine}};
  std::vector<SubmitVariant> submits = choose<std::vector<SubmitVariant>>(
      "--submit", a.submit.empty() ? "both" : a.submit,
      {{"original", {original}}, {"peal", {peal}}, {"both", {original, peal}}});
  if (a.doorbell.empty() && a.publish.empty()) return submits;
  if (a.submit == "both" || a.submit == "peal" || a.submit == "original") {
    throw UsageError("--submit sets --doorbell and --publish together: give it or them, not both");
  }
  // One variant: the original but for what is named.
  SubmitVariant named = original;
  named.name = "custom";
  if (!a.doorbell.empty()) {
    named.options.doorbell =
        choose<DoorbellOrder>("--doorbell", a.doorbell,
                              {{"ring_record_ring", DoorbellOrder::kRingRecordRing},
                               {"record_ring", DoorbellOrder::kRecordRing}});
  }
  if (!a.publish.empty()) {
    named.options.publish = choose<PublishOrder>(
        "--publish", a.publish,
        {{"in_order", PublishOrder::kInOrder}, {"combine", PublishOrder::kCombine}});
  }
  return {named};
}

std::uint32_t parse_depth(const std::string& text) {
  const std::uint64_t depth = parse_count("--depth", text, {1, mlx5::kMaxSqDepth});
  if (!std::has_single_bit(depth)) {
    throw UsageError("--depth must be a power of two up to " + std::to_string(mlx5::kMaxSqDepth) +
                     ", not '" + text + "'; the next one is " +
                     std::to_string(std::bit_ceil(depth)));
  }
  return static_cast<std::uint32_t>(depth);
}

double parse_deadline(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value) ||
      value < 0.001 || value > kMaxDeadlineS) {
    throw UsageError("--deadline must be seconds from 0.001 to 3600, not '" + text + "'");
  }
  return value;
}

// Sets the knob of the stages that have one; a stage that is defined by a 1 keeps it, and is what
// `fixed` calls it.
void set_knob(const std::string& option, std::uint64_t value, std::uint32_t Stage::*knob,
              const std::string& fixed, std::vector<Stage>* stages) {
  bool used = false;
  for (Stage& s : *stages) {
    if (s.*knob == 1) continue;
    s.*knob = static_cast<std::uint32_t>(value);
    used = true;
  }
  if (!used) {
    throw UsageError(option + " has no use here: stage " + std::string(stages->front().name) +
                     " is " + fixed);
  }
}

void set_windows(const std::string& text, std::vector<Stage>* stages) {
  if (!text.empty()) {
    const std::uint64_t given = parse_count("--window", text, {1, kMaxWindow});
    for (const Stage& s : *stages) {
      if (s.window == 1 || given >= s.producers) continue;
      throw UsageError("--window " + text + " is less than the " + std::to_string(s.producers) +
                       " producers of stage " + std::string(s.name) + ": each needs one of it");
    }
    set_knob("--window", given, &Stage::window, "the one whose window is 1", stages);
  }
  for (Stage& s : *stages) s.window = std::max(s.window, s.producers);
}

void set_batches(const std::string& text, std::vector<Stage>* stages) {
  if (text.empty()) return;
  const std::uint64_t given = parse_count("--batch", text, {1, mlx5::kMaxSqDepth});
  set_knob("--batch", given, &Stage::batch, "one whose batch is 1", stages);
}

NicHandler parse_handler(const std::string& text) {
  if (text.empty()) return NicHandler::kAutomatic;
  return choose<NicHandler>("--handler", text,
                            {{"automatic", NicHandler::kAutomatic},
                             {"direct", NicHandler::kDirect},
                             {"proxy", NicHandler::kProxy}});
}

void check_faults(const LadderOptions& o) {
  std::uint32_t presets = 0;
  for (const FaultSpec& f : o.faults) {
    const auto refuse = [&f](const std::string& why) {
      throw UsageError("--fault " + f.text + ": " + why);
    };
    switch (f.kind) {
      case FaultSpec::Kind::kCorrupt:
      case FaultSpec::Kind::kNoop:
        if (std::find(o.sizes.begin(), o.sizes.end(), 0u) != o.sizes.end()) {
          refuse("a PUT of 0 bytes has no payload that could be wrong");
        }
        if (o.null_nic) refuse("--nic null moves no payload that could be wrong");
        break;
      case FaultSpec::Kind::kPreset:
        if (++presets > 1) refuse("preset can be given once");
        break;
      case FaultSpec::Kind::kCqe:
      case FaultSpec::Kind::kHold:
      case FaultSpec::Kind::kDelay:
      case FaultSpec::Kind::kRegFail: break;
      case FaultSpec::Kind::kUarFail:
        if (o.handler == NicHandler::kProxy) refuse("--handler proxy maps no doorbell page");
        break;
      case FaultSpec::Kind::kDrop:
      case FaultSpec::Kind::kDup:
      case FaultSpec::Kind::kReorder:
        refuse("the links of this build lose, repeat and reorder nothing");
        break;
    }
    for (const Stage& s : o.stages) {
      if (f.qp >= s.qps) {
        refuse("stage " + std::string(s.name) + " has " + std::to_string(s.qps) +
               " QPs, counted from 0");
      }
    }
  }
}

// Every parameter with its place: the one list behind the three functions below.
template <class Arguments, class F>
void for_each_parameter(Arguments& a, F f) {
  f("batch", a.batch);
  f("completion", a.completion);
  f("dbsrc", a.dbsrc);
  f("depth", a.depth);
  f("doorbell", a.doorbell);
  f("engine", a.engine);
  f("handler", a.handler);
  f("iters", a.iters);
  f("nic", a.nic);
  f("order", a.order);
  f("producers", a.producers);
  f("provider", a.provider);
  f("publish", a.publish);
  f("qps", a.qps);
  f("region", a.region);
  f("repeat", a.repeat);
  f("seed", a.seed);
  f("sharing", a.sharing);
  f("size", a.size);
  f("stages", a.stages);
  f("submit", a.submit);
  f("window", a.window);
  f("deadline", a.deadline);
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& t : texts) all += (all.empty() ? "" : " ") + t;
  return all;
}

std::vector<std::string> parted(const std::string& text) {
  std::vector<std::string> all;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t to = std::min(text.find(' ', from), text.size());
    all.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  return all;
}

void parse_nic(const LadderArguments& a, LadderOptions* o) {
  if (!a.nic.empty()) o->null_nic = choose<bool>("--nic", a.nic, {{"null", true}});
  if (!a.order.empty()) {
    o->order = choose<nic::WriteOrder>(
        "--order", a.order,
        {{"strict", nic::WriteOrder::kStrict}, {"relaxed", nic::WriteOrder::kRelaxed}});
  }
  if (!a.dbsrc.empty()) {
    o->doorbell_source = choose<nic::DoorbellSource>(
        "--dbsrc", a.dbsrc,
        {{"mmio", nic::DoorbellSource::kRegister}, {"dbr", nic::DoorbellSource::kRecord}});
  }
  o->rules = parse_rules(a.rules);
}

}  // namespace

std::uint64_t LadderOptions::iters_for(const Stage& stage, std::uint64_t payload_bytes) const {
  if (iters) return *iters;
  // About 64 MiB a repeat, all producers together, within bounds that keep small sizes quick and
  // fill the window of large ones.
  const std::uint64_t puts = std::clamp<std::uint64_t>(
      (64u << 20) / std::max<std::uint64_t>(payload_bytes, 1), 256, 20000);
  return std::max<std::uint64_t>(puts / stage.producers, 1);
}

std::uint32_t LadderOptions::depth_for(const Stage& stage) const {
  // The same number of slots in every stage, so that more queues are the only change.
  return depth.value_or(std::bit_floor(std::max(kDefaultSlots / stage.qps, 1u)));
}

std::uint64_t LadderOptions::first_wqe_index() const {
  for (const FaultSpec& f : faults) {
    if (f.kind == FaultSpec::Kind::kPreset) return f.value;
  }
  return 0;
}

LadderOptions make_options(const LadderArguments& a) {
  LadderOptions o;
  if (!a.provider.empty()) choose<int>("--provider", a.provider, {{"software", 0}});
  if (!a.engine.empty()) choose<int>("--engine", a.engine, {{"threads", 0}});
  if (!a.size.empty()) o.sizes = parse_size_list("--size", a.size, {0, kMaxPutBytes});
  if (!a.iters.empty()) o.iters = parse_count("--iters", a.iters, {1, kMaxIters});
  o.stages = parse_stages(a.stages);
  o.submits = parse_submits(a);
  if (!a.sharing.empty()) {
    o.sharing = choose<Sharing>("--sharing", a.sharing,
                                {{"exclusive", Sharing::kExclusive},
                                 {"block", Sharing::kBlock},
                                 {"device", Sharing::kDevice}});
  }
  if (!a.completion.empty()) {
    o.completion = choose<CompletionMode>(
        "--completion", a.completion,
        {{"every", CompletionMode::kEvery}, {"tail", CompletionMode::kTail}});
  }
  for (Stage& s : o.stages) {
    if (!a.producers.empty()) {
      s.producers =
          static_cast<std::uint32_t>(parse_count("--producers", a.producers, {1, kMaxProducers}));
    }
    if (!a.qps.empty()) {
      s.qps = static_cast<std::uint32_t>(parse_count("--qps", a.qps, {1, nic::kMaxQps - 1}));
    }
    if (o.sharing == Sharing::kExclusive && s.producers > s.qps) {
      throw UsageError("--sharing exclusive needs a QP for each producer: stage " +
                       std::string(s.name) + " has " + std::to_string(s.producers) +
                       " producers and " + std::to_string(s.qps) + " QPs");
    }
  }
  set_windows(a.window, &o.stages);
  set_batches(a.batch, &o.stages);
  if (!a.depth.empty()) o.depth = parse_depth(a.depth);
  o.handler = parse_handler(a.handler);
  parse_nic(a, &o);
  if (!a.region.empty()) o.region_bytes = parse_bytes("--region", a.region, {1, kMaxRegionBytes});
  if (!a.repeat.empty()) {
    o.repeat = static_cast<std::uint32_t>(parse_count("--repeat", a.repeat, {1, 1000}));
  }
  if (!a.deadline.empty()) o.deadline_s = parse_deadline(a.deadline);
  if (!a.seed.empty()) o.seed = parse_count("--seed", a.seed, {0, UINT64_MAX});
  for (const std::string& f : a.faults) o.faults.push_back(parse_fault(f));
  check_faults(o);
  return o;
}

nlohmann::json to_json(const LadderArguments& a) {
  nlohmann::json j = nlohmann::json::object();
  for_each_parameter(a, [&](const char* name, const std::string& text) { j[name] = text; });
  j["fault"] = joined(a.faults);
  j["rule"] = joined(a.rules);
  return j;
}

nlohmann::json parameters_of(const LadderArguments& a) {
  const LadderOptions o = make_options(a);
  nlohmann::json p = to_json(a);
  p["size"] = o.sizes;
  p["stages"] = nlohmann::json::array();
  for (const Stage& s : o.stages) p["stages"].push_back(s.name);
  p["submit"] = nlohmann::json::array();
  for (const SubmitVariant& s : o.submits) p["submit"].push_back(s.name);
  p["handler"] = nic_handler_name(o.handler);
  p["sharing"] = sharing_name(o.sharing);
  p["completion"] = completion_mode_name(o.completion);
  p["order"] = write_order_name(o.order);
  p["dbsrc"] = doorbell_source_name(o.doorbell_source);
  p["rule"] = changed_rules(o.rules);
  p["repeat"] = o.repeat;
  p.erase("deadline");  // each end waits as long as it likes
  p["seed"] = o.seed;
  // These stand for "by size", "by stage" or "by machine" where they were not given.
  const auto number = [&](const char* name, const std::string& text, std::uint64_t value) {
    if (!text.empty()) p[name] = value;
  };
  number("batch", a.batch, std::ranges::max(o.stages, {}, &Stage::batch).batch);
  number("depth", a.depth, o.depth.value_or(0));
  number("iters", a.iters, o.iters.value_or(0));
  number("producers", a.producers, o.stages[0].producers);
  number("qps", a.qps, o.stages[0].qps);
  number("window", a.window, std::ranges::max(o.stages, {}, &Stage::window).window);
  number("region", a.region, o.region_bytes.value_or(0));
  return p;
}

nlohmann::json given_parameters(const LadderArguments& a) {
  nlohmann::json given = nlohmann::json::object();
  const nlohmann::json texts = to_json(a);
  const nlohmann::json values = parameters_of(a);
  for (const auto& [name, text] : texts.items()) {
    if (text != "" && values.contains(name)) given[name] = values[name];
  }
  return given;
}

LadderArguments arguments_from(const nlohmann::json& j) {
  LadderArguments a;
  for_each_parameter(
      a, [&](const char* name, std::string& text) { text = j.at(name).get<std::string>(); });
  a.faults = parted(j.at("fault").get<std::string>());
  a.rules = parted(j.at("rule").get<std::string>());
  return a;
}

}  // namespace peal::ladder
