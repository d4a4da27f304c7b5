// GPU threads as producers on a software ConnectX: one that a CPU thread steps, whose queues and
// payload lie in host memory that the GPU reaches; one that is a kernel on the same GPU, with all
// of that in GPU memory and the doorbells in pinned host memory; and the same one as blocks of the
// producers' own kernel.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "engine/gpu/gpu_engine.hpp"
#include "engine/threads.hpp"
#include "gpu/producers.hpp"
#include "link/loopback.hpp"
#include "peal/host/context.hpp"
#include "peal/host/error.hpp"
#include "peal/host/memory_region.hpp"
#include "peal/host/queue_pair.hpp"
#include "peal/host/sinks.hpp"
#include "verbs/cuda_memory.hpp"
#include "verbs/software_nic.hpp"

namespace peal::test {

enum class NicOn : std::uint8_t { kCpu, kGpu, kFused };
inline const char* name_of(NicOn nic) {
  return nic == NicOn::kCpu ? "threads" : nic == NicOn::kGpu ? "gpu" : "fused";
}

struct Setup {
  NicOn nic = NicOn::kCpu;
  std::uint32_t queues = 1;
  std::uint32_t depth = 64;
  std::uint64_t first_wqe_index = 0;
  std::size_t bytes = 1 << 20;
  NicHandler handler = NicHandler::kDirect;
  CompletionMode completion = CompletionMode::kEvery;
  bool connected = true;
  bool null_payload = false;
  std::uint32_t blocks = 4;
  std::uint32_t blocks_a_queue = 1;
  int device = -1;
  // Of the payload; null: the queues' memory.
  std::shared_ptr<verbs::DeviceMemory> source;
  std::shared_ptr<verbs::DeviceMemory> target;
};

inline constexpr std::size_t kSignalBytes = 64 * Launcher::kProducersMax;
inline constexpr std::size_t kQueueBytes = 96 << 20;
inline constexpr std::size_t kPages = 256;

class Fabric {
 public:
  explicit Fabric(const Setup& s)
      : setup(s),
        sender_nic({.nic_number = 1,
                    .first_wqe_index = s.first_wqe_index,
                    .notify = [this](const nic::Notice& n) { heard(n); }},
                   loopback.a()),
        receiver_nic({.nic_number = 2, .notify = [this](const nic::Notice& n) { heard(n); }},
                     loopback.b()) {
    pages = std::make_shared<verbs::CudaUarPages>(kPages);
    // All memory before the engine: its kernel would be waited for.
    if (s.nic == NicOn::kCpu) {
      memory = std::make_shared<verbs::CudaHostMemory>();
    } else {
      memory = std::make_shared<verbs::CudaDeviceMemory>(kQueueBytes + 2 * s.bytes + kSignalBytes);
    }
    from_memory = s.source != nullptr ? s.source : memory;
    to_memory = s.target != nullptr ? s.target : memory;
    source = static_cast<std::byte*>(from_memory->allocate(s.bytes));
    target = static_cast<std::byte*>(to_memory->allocate(s.bytes + kSignalBytes));
    if (source == nullptr || target == nullptr) throw std::bad_alloc();
    if (s.nic == NicOn::kCpu) {
      engine = std::make_unique<engine::ThreadsEngine>(
          std::vector<engine::Step>{sender_nic.step(), receiver_nic.step()});
    } else {
      gpu = new engine::GpuEngine(sender_nic.core(), receiver_nic.core(),
                                  {.blocks = s.blocks,
                                   .blocks_a_queue = s.blocks_a_queue,
                                   .null_payload = s.null_payload,
                                   .device = s.device,
                                   .fused = s.nic == NicOn::kFused});
      engine.reset(gpu);
    }
    sent.resize(s.bytes);
    std::mt19937_64 random(7);
    for (std::byte& b : sent) b = static_cast<std::byte>(random());
    from_memory->copy_to_device(source, sent.data(), s.bytes);
    connect();
  }
  ~Fabric() {
    objects.reset();
    engine.reset();
    from_memory->release(source, setup.bytes);
    to_memory->release(target, setup.bytes + kSignalBytes);
  }

  struct Objects {
    Context sender;
    Context receiver;
    MemoryRegion from;
    MemoryRegion to;
    Sinks sinks;
    std::vector<QueuePair> qps;
    std::vector<QueuePair> peers;
  };

  void connect() {
    const bool mapped = setup.nic == NicOn::kCpu;
    const auto provider = [&](verbs::SoftwareNic& nic) {
      return mapped ? nic.provider(*engine, memory) : nic.provider(*engine, memory, {}, pages);
    };
    Context sender = Context::open(provider(sender_nic), {.handler = setup.handler});
    Context receiver = Context::open(provider(receiver_nic));
    MemoryRegion from = MemoryRegion::create(sender, source, setup.bytes, Access::kLocalOnly);
    MemoryRegion to =
        MemoryRegion::create(receiver, target, setup.bytes + kSignalBytes, Access::kRemoteAll);
    Sinks sinks = Sinks::create(sender, 1);
    objects.emplace(
        Objects{sender, receiver, std::move(from), std::move(to), std::move(sinks), {}, {}});
    for (std::uint32_t i = 0; i < setup.queues; ++i) {
      objects->qps.push_back(QueuePair::create(sender, {.depth = setup.depth,
                                                        .first_wqe_index = setup.first_wqe_index,
                                                        .completion = setup.completion}));
      objects->peers.push_back(QueuePair::create(receiver, {.depth = 1}));
      if (!setup.connected) continue;
      objects->qps[i].connect(objects->peers[i].address());
      objects->peers[i].connect(objects->qps[i].address());
    }
  }

  Job job() const {
    Job j;
    j.source = objects->from.address();
    j.lkey = objects->from.lkey();
    j.target = objects->to.address();
    j.rkey = objects->to.rkey();
    j.queues = setup.queues;
    j.signal = objects->to.address() + setup.bytes;
    j.sink = objects->sinks[0];
    return j;
  }
  std::vector<Outcome> run(const Job& job) {
    std::vector<QueueHandle> handles;
    for (const QueuePair& qp : objects->qps) handles.push_back(qp.handle());
    return launcher().run(handles, job, setup.nic == NicOn::kFused ? &gpu->nic() : nullptr);
  }
  // Whether the first `bytes` have arrived, and nothing behind them was touched.
  bool arrived(std::size_t bytes) {
    std::vector<std::byte> there(setup.bytes);
    if (to_memory->copy_from_device(there.data(), target, setup.bytes) != 0) return false;
    const auto end = there.begin() + static_cast<std::ptrdiff_t>(bytes);
    return std::equal(there.begin(), end, sent.begin()) &&
           std::all_of(end, there.end(), [](std::byte b) { return b == std::byte{0}; });
  }
  std::uint64_t signal_of(std::uint32_t producer) {
    std::uint64_t v = 0;
    to_memory->copy_from_device(&v, target + setup.bytes + producer * 64, sizeof v);
    return v;
  }
  void arm(const std::vector<nic::Fault>& faults) {
    engine->call([&] { sender_nic.core().arm_faults(objects->qps[0].address().qpn, faults); });
  }
  std::uint32_t unreached() {
    std::uint32_t n = 0;
    engine->call([&] { n = sender_nic.core().unreached_faults(qpn(0)); });
    return n;
  }
  nic::QpCounters counters(std::uint32_t i = 0) {
    nic::QpCounters c;
    engine->call([&] { c = sender_nic.core().counters(qpn(i)); });
    return c;
  }
  void reset() {
    QueuePair& qp = objects->qps[0];
    QueuePair& peer = objects->peers[0];
    qp.reset();
    peer.reset();
    qp.connect(peer.address());
    peer.connect(qp.address());
  }

  Qpn qpn(std::uint32_t i) const { return objects->qps[i].address().qpn; }
  void wait_until_quiet() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    for (bool quiet = false; !quiet && std::chrono::steady_clock::now() < deadline;) {
      engine->call([&] { quiet = sender_nic.core().quiet(qpn(0)); });
    }
  }
  void heard(const nic::Notice& n) {
    if (n.level == nic::Strictness::kRefuse) refusals.push_back(n);
  }

  // Before any engine: see Launcher.
  static Launcher& launcher() {
    static Launcher one;
    return one;
  }

  Setup setup;
  std::vector<nic::Notice> refusals;  // on the engine's thread, in its calls or steps
  link::Loopback loopback;
  verbs::SoftwareNic sender_nic;
  verbs::SoftwareNic receiver_nic;
  std::shared_ptr<verbs::DeviceMemory> memory;
  std::shared_ptr<verbs::DeviceMemory> from_memory;
  std::shared_ptr<verbs::DeviceMemory> to_memory;
  std::shared_ptr<verbs::UarPages> pages;
  std::unique_ptr<engine::Engine> engine;
  engine::GpuEngine* gpu = nullptr;
  std::byte* source = nullptr;
  std::byte* target = nullptr;
  std::vector<std::byte> sent;
  std::optional<Objects> objects;
};

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    const std::string why = why_no_gpu();
    if (!why.empty()) GTEST_SKIP() << why;
    Fabric::launcher();
  }
};

// All succeeded, and each byte is where it belongs.
inline void expect_all(Fabric& fabric, const Job& job, const std::vector<Outcome>& outcomes) {
  ASSERT_EQ(outcomes.size(), job.producers);
  std::uint64_t first_ns = ~std::uint64_t{0};
  std::uint64_t last_ns = 0;
  for (const Outcome& o : outcomes) {
    EXPECT_EQ(o.status, Status::kOk) << status_name(o.status);
    EXPECT_EQ(o.posted, job.puts);
    EXPECT_EQ(o.completed, job.puts);
    first_ns = std::min(first_ns, o.started_ns);
    last_ns = std::max(last_ns, o.ended_ns);
  }
  EXPECT_TRUE(fabric.arrived(std::size_t{job.producers} * job.puts * job.bytes));
  const double puts = static_cast<double>(job.producers) * job.puts;
  const double ns = static_cast<double>(std::max<std::uint64_t>(last_ns - first_ns, 1));
  std::printf(
      "  engine %s: %u producers, %u QPs, window %u, batch %u, %u bytes: %.3f million PUTs a "
      "second, %.2f Gbps, moved by software\n",
      name_of(fabric.setup.nic), job.producers, job.queues, job.window, job.batch, job.bytes,
      puts * 1e3 / ns, puts * job.bytes * 8 / ns);
}

}  // namespace peal::test
