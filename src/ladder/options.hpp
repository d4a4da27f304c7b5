// What a run was asked to do, checked: by the time these exist, only the machine can refuse.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ladder/exec.hpp"
#include "ladder/fault.hpp"
#include "ladder/stage.hpp"
#include "nic/requester.hpp"
#include "nic/responder.hpp"
#include "peal/host/queue_pair.hpp"
#include "peal/memory/scope.hpp"

namespace peal::ladder {

inline constexpr std::uint32_t kMaxProducers = 1024;

// One way of submitting, under the name that its rows carry.
struct SubmitVariant {
  std::string name;
  SubmitOptions options;
};

// As options and rows name them.
constexpr const char* write_order_name(nic::WriteOrder o) {
  return o == nic::WriteOrder::kStrict ? "strict" : "relaxed";
}
constexpr const char* doorbell_source_name(nic::DoorbellSource s) {
  return s == nic::DoorbellSource::kRegister ? "mmio" : "dbr";
}

// What runs the NICs.
enum class EngineKind : std::uint8_t {
  kThreads,   // a CPU thread
  kGpu,       // a kernel of its own
  kGpuFused,  // blocks of the producers' kernel
};
constexpr const char* engine_name(EngineKind e) {
  return e == EngineKind::kThreads ? "threads" : e == EngineKind::kGpu ? "gpu" : "gpu-fused";
}

// Of which processor the producers are threads.
enum class Initiator : std::uint8_t { kCpu, kGpu };

// Where an end's payload lies.
struct Place {
  bool on_gpu = false;
  std::optional<std::uint32_t> gpu;  // absent: the producers'
};

// What only runs with a GPU look at.
struct GpuOptions {
  std::uint32_t producers_gpu = 0;
  std::optional<std::uint32_t> nic_gpu;  // absent: the producers'
  bool doorbell_on_gpu = false;          // else in pinned host memory
  std::uint32_t blocks_per_qp = 1;
  std::optional<std::uint32_t> nic_blocks;  // absent: by the stages' QPs
};

// Where the NICs come from.
enum class ProviderKind : std::uint8_t {
  kSoftware,
  kRdmaCore,  // the system's RDMA libraries
};
constexpr const char* provider_name(ProviderKind p) {
  return p == ProviderKind::kSoftware ? "software" : "rdma_core";
}

// What joins software NICs.
enum class LinkKind : std::uint8_t {
  kLossless,  // a loopback in one process, a TCP stream between two
  kRoce,      // RoCEv2's packets, by UDP sockets
};

// Of this end's RoCEv2 link: its own affair, too.
struct RoceSettings {
  std::string address = "127.0.0.1";  // of both ends of a ladder
  std::uint16_t udp_port = 0;         // 0: one that the kernel chooses
  std::string capture;                // file for the packets; empty: none
};

// Which device this end uses: its own affair, of which the other end need not know.
struct DeviceOptions {
  std::string source;  // by name; empty: the first
  std::string destination;
  std::uint8_t ib_port = 1;
  std::optional<std::uint32_t> gid_index;
  std::optional<GidType> gid_type;
  std::uint16_t pkey_index = 0;
};

// How packets go; both ends agree.
struct PathOptions {
  std::uint32_t mtu_bytes = 0;  // 0: what both ports can
  std::uint8_t traffic_class = 0;
  std::uint8_t ack_timeout = QueuePairOptions{}.ack_timeout;
  std::uint8_t retry_count = QueuePairOptions{}.retry_count;

  QueuePairOptions of_queue_pairs() const {
    return {.ack_timeout = ack_timeout, .retry_count = retry_count, .traffic_class = traffic_class};
  }
};

struct LadderOptions {
  ProviderKind provider = ProviderKind::kSoftware;
  DeviceOptions device;
  PathOptions path;
  LinkKind link = LinkKind::kLossless;
  RoceSettings roce;
  EngineKind engine = EngineKind::kThreads;
  Initiator initiator = Initiator::kCpu;
  Exec exec = Exec::kThread;
  Place source;
  Place destination;
  GpuOptions gpu;
  std::vector<std::uint64_t> sizes = {4096, 65536, 1048576};
  std::optional<std::uint64_t> iters;  // per producer, size and repeat; absent: by stage and size
  std::vector<Stage> stages;
  std::vector<SubmitVariant> submits;
  Sharing sharing = Sharing::kDevice;
  CompletionMode completion = CompletionMode::kEvery;
  std::optional<std::uint32_t> depth;  // of each queue; absent: by stage
  bool null_nic = false;
  // Of both ends' NICs.
  nic::WriteOrder order = nic::WriteOrder::kRelaxed;
  nic::DoorbellSource doorbell_source = nic::DoorbellSource::kRegister;
  nic::Rules rules = nic::default_rules();
  NicHandler handler = NicHandler::kAutomatic;
  std::optional<std::uint64_t> region_bytes;
  std::uint32_t repeat = 5;
  double deadline_s = 5;
  std::uint64_t seed = 1;
  std::vector<FaultSpec> faults;

  // With which an end opens its device.
  ContextOptions context_options(const std::string& name) const {
    return {.device = name,
            .port = device.ib_port,
            .gid_index = device.gid_index,
            .gid_type = device.gid_type,
            .pkey_index = device.pkey_index,
            .mtu_bytes = path.mtu_bytes};
  }
  std::uint64_t deadline_ns() const { return static_cast<std::uint64_t>(deadline_s * 1e9); }
  std::uint64_t iters_for(const Stage& stage, std::uint64_t payload_bytes) const;
  std::uint32_t depth_for(const Stage& stage) const;
  std::uint64_t first_wqe_index() const;  // the preset fault, else 0
  bool needs_gpu() const {
    return initiator == Initiator::kGpu || source.on_gpu || destination.on_gpu;
  }
  bool has_timed_faults() const;
};

// The same as the user typed them; empty: not given. Kept so that a server can hold what it was
// given against what a client asks for.
struct LadderArguments {
  std::string size, iters, stages, submit, doorbell, publish, sharing, producers, qps, window,
      batch, depth, nic, region, repeat, deadline, seed, provider, engine, handler, completion,
      order, dbsrc, initiator, exec, memory, doorbell_memory, gpu, nic_gpu, nic_blocks,
      blocks_per_qp, mtu, traffic_class, qp_timeout, retry, link;
  // Of this end alone.
  std::string device, ib_port, gid_index, gid_type, pkey_index, roce_address, roce_port, capture;
  std::vector<std::string> faults, rules;
};

// Throws UsageError: one sentence about the first argument that cannot be used.
LadderOptions make_options(const LadderArguments& arguments);

// As a flat object of strings, by option name, and back. Reading throws what the JSON library
// throws.
nlohmann::json to_json(const LadderArguments& arguments);
LadderArguments arguments_from(const nlohmann::json& j);

// The parameters that both ends of a run must agree on, by option name, for arguments that
// make_options takes: numbers however they were written, and defaults as what they stand for.
nlohmann::json parameters_of(const LadderArguments& arguments);
// Only those that were given.
nlohmann::json given_parameters(const LadderArguments& arguments);

}  // namespace peal::ladder
