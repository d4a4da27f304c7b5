#include "ladder/gpu/runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "engine/gpu/gpu_engine.hpp"
#include "engine/threads.hpp"
#include "ladder/gpu/cuda_payload.hpp"
#include "ladder/gpu/gpu_producers.hpp"
#include "ladder/gpu/setup.hpp"
#include "ladder/gpu/topology.hpp"
#include "ladder/nics.hpp"
#include "ladder/table.hpp"
#include "ladder/usage_error.hpp"
#include "verbs/cuda_check.hpp"
#include "verbs/cuda_memory.hpp"
#include "verbs/staged_nic.hpp"

namespace peal::ladder::gpu {
namespace {

using namespace cuda;

constexpr std::uint64_t kCeilingBytes = std::uint64_t{1} << 30;
constexpr std::uint32_t kDefaultNicBlocks = 64;

// What a run has of CUDA, all of it before a kernel runs for ever.
class Bench {
 public:
  Bench(const LadderOptions& options, bool both_ends) : o_(options) {
    require_any_gpu();
    require_gpus();
    const OnGpu on(static_cast<int>(o_.gpu.producers_gpu));
    const std::uint64_t bytes = region_bytes(o_);
    source_.emplace(gpu_of(o_, o_.source), bytes);
    if (both_ends) destination_.emplace(gpu_of(o_, o_.destination), bytes);
    if (both_ends) measure_ceiling();
    producers_ = make_producers(o_);
    make_queue_memory();
  }

  std::uint32_t nic_gpu() const { return o_.gpu.nic_gpu.value_or(o_.gpu.producers_gpu); }
  Producers& producers() { return *producers_; }
  // Whether a NIC on the CPU has addresses for all of it.
  bool reached_by_cpu() const { return ranges_.empty(); }
  // From now on the producers' kernels hold the NIC's blocks.
  void fuse(const engine::GpuEngine& engine) {
    static_cast<GpuProducers&>(*producers_).serve(engine.nic());
  }
  CudaPayload& source() { return *source_; }
  CudaPayload& destination() { return *destination_; }

  template <class Nic>
  Provider provider(Nic& nic, engine::Engine& engine, verbs::RefuseHook refuse = {}) const {
    return nic.provider(engine, queues_, std::move(refuse), pages_);
  }

  engine::GpuEngineOptions engine_options() const {
    engine::GpuEngineOptions e;
    e.device = static_cast<int>(nic_gpu());
    e.blocks = nic_blocks();
    e.blocks_a_queue = o_.gpu.blocks_per_qp;
    e.null_payload = o_.null_nic;
    e.fused = o_.engine == EngineKind::kGpuFused;
    return e;
  }

  RunFacts facts(const char* link) const {
    RunFacts f;
    f.engine = engine_name(o_.engine);
    f.link = link;
    f.memory = payload_text(o_, destination_.has_value());
    f.doorbell_memory = o_.gpu.doorbell_on_gpu ? "gpu" : "host";
    f.gpu = gpu_name(o_.gpu.producers_gpu);
    f.driver = driver_version();
    f.copy_ceiling_gbps = ceiling_gbps_;
    return f;
  }

  // What stands where, a line each.
  void tell(const std::function<void(const std::string&)>& note) const {
    for (std::uint32_t i = 0; i < gpus(); ++i) {
      note(fmt::format("GPU {}: {}, driver {}", i, gpu_name(i), driver_version()));
    }
    const std::uint32_t own = o_.gpu.producers_gpu;
    std::string nic = "a CPU thread";
    if (o_.engine != EngineKind::kThreads) {
      nic = fmt::format("{} block{} {} on GPU {}", nic_blocks(), nic_blocks() == 1 ? "" : "s",
                        o_.engine == EngineKind::kGpu ? "of a kernel" : "of the producers' kernel",
                        nic_gpu());
    }
    note(fmt::format("producers on {}; NIC: {}; queues in {}, doorbells in {}",
                     o_.initiator == Initiator::kGpu ? fmt::format("GPU {}", own) : "the CPU", nic,
                     queues_text(),
                     o_.gpu.doorbell_on_gpu ? fmt::format("memory of GPU {}", own)
                                            : "pinned host memory (a ring crosses PCIe)"));
    note(fmt::format("payload from {}{}", memory_text(o_.source),
                     destination_ ? " to " + memory_text(o_.destination) : ""));
    if (!ceiling_gbps_) return;
    note(fmt::format("copy ceiling: {} Gbps, by cudaMemcpyAsync of {} bytes between the two",
                     four_digits(*ceiling_gbps_), std::min(kCeilingBytes, source_->bytes())));
  }

 private:
  std::uint32_t nic_blocks() const {
    const std::uint32_t qps = std::min(most(o_.stages, &Stage::qps), kDefaultNicBlocks);
    return o_.gpu.nic_blocks.value_or(std::max(qps * o_.gpu.blocks_per_qp, o_.gpu.blocks_per_qp));
  }
  std::string memory_text(const Place& p) const {
    if (!p.on_gpu) return "pinned host memory";
    const std::uint32_t gpu = *gpu_of(o_, p);
    return fmt::format("memory of GPU {} ({})", gpu,
                       gpu == nic_gpu() ? "the NIC's own" : "by " + path_between(nic_gpu(), gpu));
  }
  // Queues lie where their producers reach them best, and the NIC can.
  bool queues_on_gpu() const {
    return o_.initiator == Initiator::kGpu &&
           (o_.engine != EngineKind::kThreads || o_.source.on_gpu);
  }
  std::string queues_text() const {
    if (queues_on_gpu()) return fmt::format("memory of GPU {}", o_.gpu.producers_gpu);
    return o_.initiator == Initiator::kGpu ? "pinned host memory" : "host memory";
  }

  void require_gpus() const {
    require_gpu(o_.gpu.producers_gpu, "--gpu");
    require_gpu(nic_gpu(), "--nic-gpu");
    require_payload_gpus(o_);
    if (o_.engine == EngineKind::kThreads) return;
    require_peer_access(nic_gpu(), o_.gpu.producers_gpu);
    for (const Place* p : {&o_.source, &o_.destination}) {
      if (p->on_gpu) require_peer_access(nic_gpu(), *gpu_of(o_, *p));
    }
  }

  void measure_ceiling() {
    ceiling_gbps_ = copy_gbps(nic_gpu(), destination_->memory(), source_->memory(),
                              std::min(kCeilingBytes, source_->bytes()));
  }

  void make_queue_memory() {
    if (queues_on_gpu()) {
      auto memory = std::make_shared<verbs::CudaDeviceMemory>(queue_bytes(o_));
      reach(memory);
      queues_ = std::move(memory);
    } else if (o_.initiator == Initiator::kGpu) {
      queues_ = std::make_shared<verbs::CudaHostMemory>();
    } else {
      queues_ = std::make_shared<verbs::HostMemory>();
    }
    reach(source_->device_memory());
    if (destination_) reach(destination_->device_memory());
    if (queues_on_gpu()) {
      const std::size_t pages = 2 * std::size_t{most(o_.stages, &Stage::qps)} + 16;
      pages_ = std::make_shared<verbs::CudaUarPages>(pages, o_.gpu.doorbell_on_gpu);
    }
  }

  // Lets a NIC on the CPU reach it by copies.
  void reach(const std::shared_ptr<verbs::CudaDeviceMemory>& memory) {
    if (memory == nullptr) return;
    ranges_.push_back(
        std::make_unique<verbs::StagedMemory::Range>(memory->begin(), memory->bytes(), memory));
  }

  const LadderOptions& o_;
  std::optional<CudaPayload> source_;
  std::optional<CudaPayload> destination_;
  std::unique_ptr<Producers> producers_;
  std::shared_ptr<verbs::DeviceMemory> queues_;
  std::shared_ptr<verbs::UarPages> pages_ = std::make_shared<verbs::UarPages>();
  std::optional<double> ceiling_gbps_;
  std::vector<std::unique_ptr<verbs::StagedMemory::Range>> ranges_;
};

// What a run is told and tells by.
struct Talk {
  const LadderOptions& options;
  const Interrupt& interrupt;
  const RunEvents& events;
  Notices& notices;
};

// From a sender to a receiver that may be elsewhere.
template <class Nic>
Outcome run_from(const Talk& talk, Bench& bench, Nic& sender, engine::Engine& engine,
                 Receiver& receiver, const char* link_name, std::uint64_t ends_here) {
  const RunEnds ends{&sender.core(),
                     &engine,
                     open_sender(bench.provider(sender, engine, sender_refusals(talk.options)),
                                 talk.options, talk.events),
                     bench.producers(),
                     bench.source(),
                     receiver,
                     talk.notices,
                     bench.facts(link_name),
                     ends_here};
  return run_ladder(talk.options, ends, talk.interrupt, talk.events);
}

// Both ends.
template <class Nic>
Outcome run_ends(const Talk& talk, Bench& bench, Nic& sender, Nic& receiver, engine::Engine& engine,
                 const char* link_name) {
  LocalReceiver far_end(open_receiver(bench.provider(receiver, engine), talk.options),
                        bench.destination(), talk.options.path.of_queue_pairs());
  return run_from(talk, bench, sender, engine, far_end, link_name, 2);
}

template <class Nic>
Outcome run_on_thread(const Talk& talk, Bench& bench, LocalLinks& links) {
  const LinkEnd from = links.sender();
  const LinkEnd to = links.receiver();
  Nic sender(sender_options(talk.options, talk.notices.listener()), from.link, from.port);
  Nic receiver(receiver_options(talk.options, talk.notices.listener()), to.link, to.port);
  engine::ThreadsEngine engine({sender.step(), receiver.step()});
  return run_ends(talk, bench, sender, receiver, engine, from.name);
}

// The sending end alone.
template <class Nic>
Outcome run_end(const Talk& talk, Bench& bench, const LinkEnd& end, Receiver& receiver) {
  Nic sender(sender_options(talk.options, talk.notices.listener()), end.link, end.port);
  engine::ThreadsEngine engine({sender.step()});
  return run_from(talk, bench, sender, engine, receiver, end.name, 1);
}

}  // namespace

Outcome run_local(const LadderOptions& options, LocalLinks& links, const Interrupt& interrupt,
                  const RunEvents& events, Notices& notices) {
  if (options.engine != EngineKind::kThreads && options.link != LinkKind::kLossless) {
    throw UsageError(std::string("--engine ") + engine_name(options.engine) +
                     " joins a ladder's ends by loopback: a kernel has no sockets for --link roce");
  }
  const Talk talk{options, interrupt, events, notices};
  Bench bench(options, true);
  bench.tell(events.note);
  if (options.engine == EngineKind::kThreads) {
    return bench.reached_by_cpu() ? run_on_thread<verbs::SoftwareNic>(talk, bench, links)
                                  : run_on_thread<verbs::StagedNic>(talk, bench, links);
  }
  const LinkEnd from = links.sender();
  const LinkEnd to = links.receiver();
  verbs::SoftwareNic sender(sender_options(options, notices.listener()), from.link);
  verbs::SoftwareNic receiver(receiver_options(options, notices.listener()), to.link);
  engine::GpuEngine engine(sender.core(), receiver.core(), bench.engine_options());
  if (options.engine == EngineKind::kGpuFused) bench.fuse(engine);
  return run_ends(talk, bench, sender, receiver, engine, from.name);
}

Outcome run_sender(const LadderOptions& options, const LinkEnd& link, Receiver& receiver,
                   const Interrupt& interrupt, const RunEvents& events, Notices& notices) {
  LadderOptions on_thread = options;
  if (options.engine != EngineKind::kThreads) {
    on_thread.engine = EngineKind::kThreads;
    events.note("a kernel has no sockets: the NIC of this end is a CPU thread");
  }
  const Talk talk{on_thread, interrupt, events, notices};
  Bench bench(on_thread, false);
  bench.tell(events.note);
  return bench.reached_by_cpu() ? run_end<verbs::SoftwareNic>(talk, bench, link, receiver)
                                : run_end<verbs::StagedNic>(talk, bench, link, receiver);
}

}  // namespace peal::ladder::gpu
