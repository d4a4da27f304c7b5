#include "ladder/options.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <set>

#include "ladder/parse.hpp"
#include "ladder/payload.hpp"
#include "ladder/rules.hpp"
#include "ladder/usage_error.hpp"
#include "link/ip_address.hpp"
#include "nic/tables.hpp"
#include "peal/mlx5/wqe.hpp"

namespace peal::ladder {
namespace {

// The most a single PUT may carry: slots, regions and sums stay far from 64 bits.
constexpr std::uint64_t kMaxPutBytes = std::uint64_t{1} << 40;
constexpr std::uint64_t kMaxRegionBytes = std::uint64_t{1} << 50;
constexpr std::uint64_t kMaxIters = 1'000'000'000;
constexpr std::uint32_t kDefaultSlots = 1024;  // of all a stage's queues together
constexpr std::uint64_t kMaxWindow = 1u << 20;
constexpr double kMaxDeadlineS = 3600;
constexpr std::uint64_t kMaxGpu = 63;
constexpr std::uint64_t kMaxNicBlocks = 132;
constexpr std::uint64_t kMaxBlocksPerQp = 16;
constexpr std::uint32_t kMaxBlockThreads = 1024;

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
                               {"record_ring", DoorbellOrder::kRecordRing},
                               {"ring_only", DoorbellOrder::kRingOnly}});
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
  std::set<FaultSpec::Kind> once;
  for (const FaultSpec& f : o.faults) {
    const auto refuse = [&f](const std::string& why) {
      throw UsageError("--fault " + f.text + ": " + why);
    };
    const bool of_link = is_of_link(f.kind);
    if ((of_link || f.kind == FaultSpec::Kind::kPreset) && !once.insert(f.kind).second) {
      refuse(f.text.substr(0, f.text.find('=')) + " can be given once");
    }
    if (of_link && o.link != LinkKind::kRoce) {
      refuse("it is of --link roce: any other link loses, repeats, reorders and delays nothing");
    }
    switch (f.kind) {
      case FaultSpec::Kind::kCorrupt:
      case FaultSpec::Kind::kNoop:
        if (std::find(o.sizes.begin(), o.sizes.end(), 0u) != o.sizes.end()) {
          refuse("a PUT of 0 bytes has no payload that could be wrong");
        }
        if (o.null_nic) refuse("--nic null moves no payload that could be wrong");
        break;
      case FaultSpec::Kind::kPreset:
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
      case FaultSpec::Kind::kLinkDelay: break;
    }
    for (const Stage& s : o.stages) {
      if (f.qp >= s.qps) {
        refuse("stage " + std::string(s.name) + " has " + std::to_string(s.qps) +
               " QPs, counted from 0");
      }
    }
  }
}

// "host", "gpu" or "gpu0".
Place parse_place(const std::string& text) {
  if (text == "host") return {};
  Place place{.on_gpu = true, .gpu = {}};
  if (text == "gpu") return place;
  if (text.starts_with("gpu")) {
    place.gpu = static_cast<std::uint32_t>(parse_count("--memory", text.substr(3), {0, kMaxGpu}));
    return place;
  }
  throw UsageError("--memory takes host, gpu or gpuN, or two of them by a comma, not '" + text +
                   "'");
}

void parse_memory(const std::string& text, LadderOptions* o) {
  if (text.empty()) {
    o->source.on_gpu = o->destination.on_gpu = o->engine != EngineKind::kThreads;
    return;
  }
  const std::size_t comma = text.find(',');
  o->source = parse_place(text.substr(0, comma));
  o->destination = comma == std::string::npos ? o->source : parse_place(text.substr(comma + 1));
}

// What a NIC that is a kernel does not do.
void check_gpu_engine(const LadderArguments& a, const LadderOptions& o) {
  const std::string engine = std::string("--engine ") + engine_name(o.engine);
  const auto refuse = [&](bool wrong, const std::string& why) {
    if (wrong) throw UsageError(engine + " " + why);
  };
  refuse(o.initiator == Initiator::kCpu, "serves producers on a GPU: not with --initiator cpu");
  refuse(o.handler == NicHandler::kProxy,
         "has no proxy: its queues lie where the CPU has no addresses");
  refuse(o.order == nic::WriteOrder::kStrict,
         "places writes in any order: not with --order strict");
  refuse(o.doorbell_source == nic::DoorbellSource::kRecord,
         "believes the doorbell: not with --dbsrc dbr");
  for (const FaultSpec& f : o.faults) {
    refuse(f.kind == FaultSpec::Kind::kDelay, "delays no CQEs: not with --fault " + f.text);
  }
  refuse(o.engine == EngineKind::kGpuFused &&
             o.gpu.nic_gpu.value_or(o.gpu.producers_gpu) != o.gpu.producers_gpu,
         "runs the NIC in the producers' kernel: not with --nic-gpu of another GPU");
  refuse(o.gpu.nic_blocks.value_or(o.gpu.blocks_per_qp) % o.gpu.blocks_per_qp != 0,
         "needs --nic-blocks " + a.nic_blocks + " to be a multiple of --blocks-per-qp " +
             std::to_string(o.gpu.blocks_per_qp));
}

void check_threads_engine(const LadderArguments& a, const LadderOptions& o) {
  for (const auto& [name, text] :
       {std::pair{"--nic-gpu", &a.nic_gpu}, std::pair{"--nic-blocks", &a.nic_blocks},
        std::pair{"--blocks-per-qp", &a.blocks_per_qp}}) {
    if (!text->empty()) throw UsageError(std::string(name) + " is of --engine gpu");
  }
  if (o.gpu.doorbell_on_gpu) {
    throw UsageError("--doorbell-memory gpu is of --engine gpu: a CPU polls its own memory");
  }
  if (o.initiator == Initiator::kCpu && o.exec != Exec::kThread) {
    throw UsageError(std::string("--exec ") + exec_name(o.exec) +
                     " needs producers on a GPU: --engine gpu, or --initiator gpu");
  }
}

// Threads of one block share by a block's means.
void check_block_sharing(const LadderOptions& o) {
  if (o.initiator == Initiator::kCpu || o.sharing != Sharing::kBlock) return;
  for (const Stage& s : o.stages) {
    const std::uint32_t threads = s.producers * threads_of(o.exec);
    if (o.exec == Exec::kBlock && s.producers > s.qps) {
      throw UsageError("--sharing block with --exec block needs a QP for each producer: stage " +
                       std::string(s.name) + " has " + std::to_string(s.producers) +
                       " producers and " + std::to_string(s.qps) + " QPs");
    }
    if (o.exec != Exec::kBlock && threads > kMaxBlockThreads) {
      throw UsageError("--sharing block puts all producers of stage " + std::string(s.name) +
                       " into one block of threads, which has at most " +
                       std::to_string(kMaxBlockThreads) + ", not " + std::to_string(threads));
    }
  }
}

void parse_gpu(const LadderArguments& a, LadderOptions* o) {
  if (!a.engine.empty()) {
    o->engine = choose<EngineKind>("--engine", a.engine,
                                   {{"threads", EngineKind::kThreads},
                                    {"gpu", EngineKind::kGpu},
                                    {"gpu-fused", EngineKind::kGpuFused}});
  }
  if (o->engine != EngineKind::kThreads) o->initiator = Initiator::kGpu;
  if (!a.initiator.empty()) {
    o->initiator = choose<Initiator>("--initiator", a.initiator,
                                     {{"cpu", Initiator::kCpu}, {"gpu", Initiator::kGpu}});
  }
  if (!a.exec.empty()) {
    o->exec =
        choose<Exec>("--exec", a.exec,
                     {{"thread", Exec::kThread}, {"warp", Exec::kWarp}, {"block", Exec::kBlock}});
  }
  parse_memory(a.memory, o);
  if (!a.doorbell_memory.empty()) {
    o->gpu.doorbell_on_gpu =
        choose<bool>("--doorbell-memory", a.doorbell_memory, {{"host", false}, {"gpu", true}});
  }
  const auto number = [](const char* name, const std::string& text, std::uint64_t least,
                         std::uint64_t most) {
    return static_cast<std::uint32_t>(parse_count(name, text, {least, most}));
  };
  if (!a.gpu.empty()) o->gpu.producers_gpu = number("--gpu", a.gpu, 0, kMaxGpu);
  if (!a.nic_gpu.empty()) o->gpu.nic_gpu = number("--nic-gpu", a.nic_gpu, 0, kMaxGpu);
  if (!a.nic_blocks.empty()) {
    o->gpu.nic_blocks = number("--nic-blocks", a.nic_blocks, 1, kMaxNicBlocks);
  }
  if (!a.blocks_per_qp.empty()) {
    o->gpu.blocks_per_qp = number("--blocks-per-qp", a.blocks_per_qp, 1, kMaxBlocksPerQp);
  }
}

void check_gpu(const LadderArguments& a, const LadderOptions& o) {
  if (o.engine == EngineKind::kThreads) {
    check_threads_engine(a, o);
  } else {
    check_gpu_engine(a, o);
  }
  if (!a.gpu.empty() && !o.needs_gpu())
    throw UsageError("--gpu has no use here: nothing is on one");
  check_block_sharing(o);
}

// Every parameter with its place: the one list behind the three functions below.
template <class Arguments, class F>
void for_each_parameter(Arguments& a, F f) {
  f("batch", a.batch);
  f("completion", a.completion);
  f("dbsrc", a.dbsrc);
  f("blocks-per-qp", a.blocks_per_qp);
  f("depth", a.depth);
  f("doorbell-memory", a.doorbell_memory);
  f("exec", a.exec);
  f("gpu", a.gpu);
  f("initiator", a.initiator);
  f("memory", a.memory);
  f("nic-blocks", a.nic_blocks);
  f("nic-gpu", a.nic_gpu);
  f("doorbell", a.doorbell);
  f("engine", a.engine);
  f("handler", a.handler);
  f("iters", a.iters);
  f("link", a.link);
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
  f("mtu", a.mtu);
  f("qp-timeout", a.qp_timeout);
  f("retry", a.retry);
  f("traffic-class", a.traffic_class);
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

void parse_device(const LadderArguments& a, LadderOptions* o) {
  if (!a.provider.empty()) {
    o->provider = choose<ProviderKind>(
        "--provider", a.provider,
        {{"software", ProviderKind::kSoftware}, {"rdma_core", ProviderKind::kRdmaCore}});
  }
  const std::size_t comma = a.device.find(',');
  o->device.source = a.device.substr(0, comma);
  o->device.destination =
      comma == std::string::npos ? o->device.source : a.device.substr(comma + 1);
  if (!a.ib_port.empty()) {
    o->device.ib_port = static_cast<std::uint8_t>(parse_count("--ib-port", a.ib_port, {1, 255}));
  }
  if (!a.gid_index.empty()) {
    o->device.gid_index =
        static_cast<std::uint32_t>(parse_count("--gid-index", a.gid_index, {0, 255}));
  }
  if (!a.pkey_index.empty()) {
    o->device.pkey_index =
        static_cast<std::uint16_t>(parse_count("--pkey-index", a.pkey_index, {0, 65535}));
  }
  if (!a.gid_type.empty()) {
    o->device.gid_type = choose<GidType>("--gid-type", a.gid_type,
                                         {{"ib", GidType::kInfiniBand},
                                          {"roce_v1", GidType::kRoceV1},
                                          {"roce_v2", GidType::kRoceV2}});
  }
}

void parse_path(const LadderArguments& a, LadderOptions* o) {
  if (!a.mtu.empty()) {
    o->path.mtu_bytes = choose<std::uint32_t>(
        "--mtu", a.mtu,
        {{"256", 256}, {"512", 512}, {"1024", 1024}, {"2048", 2048}, {"4096", 4096}});
  }
  const auto byte = [](const char* name, const std::string& text, std::uint64_t least,
                       std::uint64_t most, std::uint8_t* to) {
    if (!text.empty()) *to = static_cast<std::uint8_t>(parse_count(name, text, {least, most}));
  };
  byte("--traffic-class", a.traffic_class, 0, 255, &o->path.traffic_class);
  byte("--qp-timeout", a.qp_timeout, 1, 31, &o->path.ack_timeout);
  byte("--retry", a.retry, 0, 7, &o->path.retry_count);
}

constexpr std::uint8_t kRoceAckTimeout = 16;  // 268 ms

void parse_link(const LadderArguments& a, LadderOptions* o) {
  if (!a.link.empty()) {
    o->link = choose<LinkKind>("--link", a.link,
                               {{"loopback", LinkKind::kLossless},
                                {"stream", LinkKind::kLossless},
                                {"roce", LinkKind::kRoce}});
  }
  for (const auto& [name, given] :
       {std::pair{"--roce-port", !a.roce_port.empty()}, std::pair{"--capture", !a.capture.empty()},
        std::pair{"--bind", !a.roce_address.empty()}}) {
    if (given && o->link != LinkKind::kRoce) {
      throw UsageError(std::string(name) + " is of --link roce");
    }
  }
  if (!a.roce_address.empty()) o->roce.address = a.roce_address;
  if (!link::ip_address_from(o->roce.address)) {
    throw UsageError("--bind must be an IPv4 or IPv6 address of this host, not '" +
                     o->roce.address + "'");
  }
  if (!a.roce_port.empty()) {
    o->roce.udp_port =
        static_cast<std::uint16_t>(parse_count("--roce-port", a.roce_port, {0, 65535}));
  }
  o->roce.capture = a.capture;
  // A lost last packet costs one of these waits, and all attempts fit into a run's deadline.
  if (o->link == LinkKind::kRoce && a.qp_timeout.empty()) o->path.ack_timeout = kRoceAckTimeout;
}

// What only a NIC in software does.
void check_provider(const LadderArguments& a, const LadderOptions& o) {
  if (o.provider == ProviderKind::kSoftware) return;
  for (const auto& [name, given] :
       {std::pair{"--engine", !a.engine.empty()}, std::pair{"--nic", !a.nic.empty()},
        std::pair{"--order", !a.order.empty()}, std::pair{"--dbsrc", !a.dbsrc.empty()},
        std::pair{"--rule", !a.rules.empty()}, std::pair{"--fault", !a.faults.empty()},
        std::pair{"--link", !a.link.empty()},
        std::pair{"--doorbell-memory", !a.doorbell_memory.empty()}}) {
    if (given) {
      throw UsageError(std::string(name) +
                       " is of the software ConnectX: not with --provider rdma_core");
    }
  }
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
  if (a.dbsrc == "dbr" && a.doorbell == "ring_only") {
    throw UsageError("--doorbell ring_only writes no doorbell record for --dbsrc dbr to believe");
  }
  o->rules = parse_rules(a.rules);
}

}  // namespace

std::uint64_t LadderOptions::iters_for(const Stage& stage, std::uint64_t payload_bytes) const {
  if (iters) return *iters;
  // About 64 MiB a repeat, all producers together, within bounds that keep small sizes quick and
  // fill the window of large ones. A GPU that does not wait for each PUT has that done in no time.
  const bool more = initiator == Initiator::kGpu && stage.batch > 1;
  const std::uint64_t bytes = more ? std::uint64_t{4} << 30 : std::uint64_t{64} << 20;
  const std::uint64_t puts = std::clamp<std::uint64_t>(
      bytes / std::max<std::uint64_t>(payload_bytes, 1), 256, more ? 1'000'000 : 20'000);
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
  parse_device(a, &o);
  parse_path(a, &o);
  parse_link(a, &o);
  parse_gpu(a, &o);
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
  check_gpu(a, o);
  check_provider(a, o);
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
  p["engine"] = engine_name(o.engine);
  p["exec"] = exec_name(o.exec);
  p["initiator"] = o.initiator == Initiator::kGpu ? "gpu" : "cpu";
  p["completion"] = completion_mode_name(o.completion);
  p["order"] = write_order_name(o.order);
  p["dbsrc"] = doorbell_source_name(o.doorbell_source);
  p["rule"] = changed_rules(o.rules);
  p["repeat"] = o.repeat;
  p["provider"] = provider_name(o.provider);
  p["link"] = o.link == LinkKind::kRoce ? "roce" : "stream";
  p["mtu"] = o.path.mtu_bytes;
  p["qp-timeout"] = o.path.ack_timeout;
  p["retry"] = o.path.retry_count;
  p["traffic-class"] = o.path.traffic_class;
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
