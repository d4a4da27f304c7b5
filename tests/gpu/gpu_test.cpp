// GPU threads as producers on a software ConnectX: one that a CPU thread steps, whose queues and
// payload lie in host memory that the GPU reaches; one that is a kernel on the same GPU, with all
// of that in GPU memory and the doorbells in pinned host memory; and the same one as blocks of the
// producers' own kernel. Skipped where there is no GPU.
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
#include "peal/host/memory_region.hpp"
#include "peal/host/queue_pair.hpp"
#include "peal/host/sinks.hpp"
#include "verbs/cuda_memory.hpp"
#include "verbs/software_nic.hpp"

namespace peal::test {
namespace {

enum class NicOn : std::uint8_t { kCpu, kGpu, kFused };
const char* name_of(NicOn nic) {
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
};

constexpr std::size_t kSignalBytes = 64 * Launcher::kProducersMax;
constexpr std::size_t kQueueBytes = 96 << 20;
constexpr std::size_t kPages = 256;

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
    if (s.nic == NicOn::kCpu) {
      memory = std::make_shared<verbs::CudaHostMemory>();
      engine = std::make_unique<engine::ThreadsEngine>(
          std::vector<engine::Step>{sender_nic.step(), receiver_nic.step()});
    } else {
      memory = std::make_shared<verbs::CudaDeviceMemory>(kQueueBytes + 2 * s.bytes + kSignalBytes);
      gpu = new engine::GpuEngine(
          sender_nic.core(), receiver_nic.core(),
          {.blocks = s.blocks, .null_payload = s.null_payload, .fused = s.nic == NicOn::kFused});
      engine.reset(gpu);
    }
    source = static_cast<std::byte*>(memory->allocate(s.bytes));
    target = static_cast<std::byte*>(memory->allocate(s.bytes + kSignalBytes));
    if (source == nullptr || target == nullptr) throw std::bad_alloc();
    sent.resize(s.bytes);
    std::mt19937_64 random(7);
    for (std::byte& b : sent) b = static_cast<std::byte>(random());
    memory->copy_to_device(source, sent.data(), s.bytes);
    connect();
  }
  ~Fabric() {
    objects.reset();
    memory->release(source, setup.bytes);
    memory->release(target, setup.bytes + kSignalBytes);
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
    if (memory->copy_from_device(there.data(), target, setup.bytes) != 0) return false;
    const auto end = there.begin() + static_cast<std::ptrdiff_t>(bytes);
    return std::equal(there.begin(), end, sent.begin()) &&
           std::all_of(end, there.end(), [](std::byte b) { return b == std::byte{0}; });
  }
  std::uint64_t signal_of(std::uint32_t producer) {
    std::uint64_t v = 0;
    memory->copy_from_device(&v, target + setup.bytes + producer * 64, sizeof v);
    return v;
  }
  void arm(const std::vector<nic::Fault>& faults) {
    engine->call([&] { sender_nic.core().arm_faults(objects->qps[0].address().qpn, faults); });
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

class OnEach : public Gpu, public testing::WithParamInterface<NicOn> {};
INSTANTIATE_TEST_SUITE_P(Nic, OnEach, testing::Values(NicOn::kCpu, NicOn::kGpu, NicOn::kFused),
                         [](const auto& p) { return std::string(name_of(p.param)); });

// All succeeded, and each byte is where it belongs.
void expect_all(Fabric& fabric, const Job& job, const std::vector<Outcome>& outcomes) {
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

TEST_P(OnEach, OneThreadPutsOneAfterTheOther) {
  for (const std::uint32_t bytes : {1u, 63u, 64u, 4096u, 10'000u}) {
    Fabric fabric({.nic = GetParam()});
    Job job = fabric.job();
    job.bytes = bytes;
    job.puts = 100;
    expect_all(fabric, job, fabric.run(job));
  }
}

struct Stage {
  const char* name;
  std::uint32_t producers, queues, window, batch;
};
struct Nics {
  const char* name;
  NicOn nic;
  NicHandler handler;
};
class GpuStages : public Gpu,
                  public testing::WithParamInterface<
                      std::tuple<Stage, DoorbellOrder, PublishOrder, CompletionMode, Nics>> {};

TEST_P(GpuStages, EveryByteArrives) {
  const auto& [stage, doorbell, publish, completion, nics] = GetParam();
  Fabric fabric({.nic = nics.nic,
                 .queues = stage.queues,
                 .depth = 256,
                 .first_wqe_index = (std::uint64_t{1} << 16) - 100,
                 .bytes = 8 << 20,
                 .handler = nics.handler,
                 .completion = completion});
  Job job = fabric.job();
  job.bytes = 512;
  job.puts = 2000;
  job.producers = stage.producers;
  job.window = stage.window;
  job.batch = stage.batch;
  job.submit = {doorbell, publish};
  expect_all(fabric, job, fabric.run(job));
}
std::string stage_name(const testing::TestParamInfo<GpuStages::ParamType>& p) {
  return std::string(std::get<0>(p.param).name) + "_" + doorbell_order_name(std::get<1>(p.param)) +
         "_" + publish_order_name(std::get<2>(p.param)) + "_" +
         completion_mode_name(std::get<3>(p.param)) + "_" + std::get<4>(p.param).name;
}
INSTANTIATE_TEST_SUITE_P(
    Each, GpuStages,
    testing::Combine(testing::Values(Stage{"serial", 1, 1, 1, 1}, Stage{"window", 1, 1, 64, 1},
                                     Stage{"batch", 1, 1, 128, 32}, Stage{"shared", 4, 1, 64, 16},
                                     Stage{"independent", 4, 4, 64, 16}),
                     testing::Values(DoorbellOrder::kRingRecordRing, DoorbellOrder::kRecordRing),
                     testing::Values(PublishOrder::kInOrder, PublishOrder::kCombine),
                     testing::Values(CompletionMode::kEvery, CompletionMode::kTail),
                     testing::Values(Nics{"threads_direct", NicOn::kCpu, NicHandler::kDirect},
                                     Nics{"threads_proxy", NicOn::kCpu, NicHandler::kProxy},
                                     Nics{"gpu", NicOn::kGpu, NicHandler::kDirect},
                                     Nics{"fused", NicOn::kFused, NicHandler::kDirect})),
    stage_name);

TEST_P(OnEach, ThreadsOfOneBlockShareAQueue) {
  Fabric fabric({.nic = GetParam(), .depth = 128, .bytes = 4 << 20});
  Job job = fabric.job();
  job.bytes = 64;
  job.puts = 500;
  job.producers = 32;
  job.window = 4;
  job.submit = {DoorbellOrder::kRecordRing, PublishOrder::kCombine};
  job.sharing = Sharing::kBlock;
  expect_all(fabric, job, fabric.run(job));
}

TEST_P(OnEach, AnExclusiveQueueEach) {
  Fabric fabric({.nic = GetParam(), .queues = 8, .depth = 128, .bytes = 4 << 20});
  Job job = fabric.job();
  job.bytes = 64;
  job.puts = 1000;
  job.producers = 8;
  job.window = 64;
  job.batch = 32;
  job.submit = {DoorbellOrder::kRecordRing, PublishOrder::kCombine};
  job.sharing = Sharing::kExclusive;
  expect_all(fabric, job, fabric.run(job));
}

// Groups of threads that act as one producer, in batches that they do and do not divide.
TEST_P(OnEach, AWarpAndABlockActAsOneProducer) {
  for (const Exec exec : {Exec::kWarp, Exec::kBlock}) {
    for (const Sharing sharing : {Sharing::kExclusive, Sharing::kDevice}) {
      for (const CompletionMode completion : {CompletionMode::kEvery, CompletionMode::kTail}) {
        for (const std::uint32_t batch : {1u, 7u, 32u, 100u}) {
          Fabric fabric({.nic = GetParam(),
                         .queues = sharing == Sharing::kExclusive ? 3u : 1u,
                         .depth = 512,
                         .first_wqe_index = (std::uint64_t{1} << 32) - 50,
                         .bytes = 2 << 20,
                         .completion = completion});
          Job job = fabric.job();
          job.bytes = 200;
          job.puts = 1000;
          job.producers = 3;
          job.window = 128;
          job.batch = batch;
          job.submit = {DoorbellOrder::kRecordRing, PublishOrder::kCombine};
          job.sharing = sharing;
          job.exec = exec;
          std::printf("  %s", exec_name(exec));
          expect_all(fabric, job, fabric.run(job));
        }
      }
    }
  }
}

TEST_P(OnEach, AGroupEndsAtAnErrorAsOne) {
  for (const Exec exec : {Exec::kWarp, Exec::kBlock}) {
    Fabric fabric({.nic = GetParam()});
    Job job = fabric.job();
    job.lkey = Lkey(job.lkey.value ^ 0xff);
    job.bytes = 64;
    job.puts = 200;
    job.window = 32;
    job.batch = 16;
    job.exec = exec;
    const std::vector<Outcome> outcomes = fabric.run(job);
    EXPECT_EQ(outcomes[0].status, Status::kCompletionError);
    EXPECT_EQ(outcomes[0].completed, 0u);
  }
}

TEST_P(OnEach, AGroupSendsSignals) {
  for (const Exec exec : {Exec::kWarp, Exec::kBlock}) {
    Fabric fabric({.nic = GetParam()});
    Job job = fabric.job();
    job.bytes = 256;
    job.puts = 100;
    job.window = 8;
    job.signals = true;
    job.exec = exec;
    expect_all(fabric, job, fabric.run(job));
    EXPECT_EQ(fabric.signal_of(0), job.puts);
  }
}

TEST_P(OnEach, SignalsCountThePutsBeforeThem) {
  Fabric fabric({.nic = GetParam(), .depth = 64});
  Job job = fabric.job();
  job.bytes = 256;
  job.puts = 200;
  job.producers = 4;
  job.window = 8;
  job.signals = true;
  expect_all(fabric, job, fabric.run(job));
  for (std::uint32_t p = 0; p < job.producers; ++p) EXPECT_EQ(fabric.signal_of(p), job.puts);
}

// The error ends every wait with a status; the context goes on to be of use.
TEST_P(OnEach, AnErrorEndsEveryWaitAndSpoilsNothingElse) {
  for (const std::uint32_t producers : {1u, 4u}) {
    {
      Fabric fabric({.nic = GetParam(), .depth = 64});
      Job job = fabric.job();
      job.rkey = Rkey(job.rkey.value ^ 0xff);
      job.bytes = 64;
      job.puts = 200;
      job.producers = producers;
      job.window = 16;
      job.batch = 4;
      for (const Outcome& o : fabric.run(job)) {
        EXPECT_EQ(o.status, Status::kCompletionError) << status_name(o.status);
        EXPECT_EQ(o.completed, 0u);
      }
      EXPECT_TRUE(fabric.arrived(0));
      EXPECT_EQ(fabric.objects->qps[0].state(), QueuePairState::kError);
      EXPECT_EQ(fabric.objects->peers[0].state(), QueuePairState::kError);
    }
    Fabric another({.nic = GetParam()});
    Job good = another.job();
    good.bytes = 64;
    good.puts = 100;
    expect_all(another, good, another.run(good));
  }
}

TEST_P(OnEach, AWaitEndsAtItsDeadline) {
  Fabric fabric({.nic = GetParam(), .connected = false});  // nobody serves it
  Job job = fabric.job();
  job.bytes = 64;
  job.puts = 10;
  job.timeout_ns = 50'000'000;
  const std::vector<Outcome> outcomes = fabric.run(job);
  EXPECT_EQ(outcomes[0].status, Status::kDeadline);
  EXPECT_GE(outcomes[0].ended_ns - outcomes[0].started_ns, job.timeout_ns);
  EXPECT_EQ(outcomes[0].completed, 0u);
}

TEST_P(OnEach, AQueueIsUsedAgainAfterReset) {
  for (const CompletionMode completion : {CompletionMode::kEvery, CompletionMode::kTail}) {
    Fabric fabric({.nic = GetParam(), .completion = completion});
    Job job = fabric.job();
    job.bytes = 64;
    job.puts = 1;
    for (int round = 0; round < 10; ++round) {
      Job wrong = job;
      wrong.lkey = Lkey(job.lkey.value ^ 0xff);
      EXPECT_EQ(fabric.run(wrong)[0].status, Status::kCompletionError);
      fabric.reset();
      expect_all(fabric, job, fabric.run(job));
    }
  }
}

// The kernel sees what is registered after its start, and no longer what is gone.
TEST_P(OnEach, ServesRegionsAsTheyComeAndGo) {
  Fabric fabric({.nic = GetParam()});
  Job job = fabric.job();
  job.bytes = 64;
  job.puts = 10;
  {
    const MemoryRegion later =
        MemoryRegion::create(fabric.objects->receiver, fabric.target, 640, Access::kRemoteWrite);
    job.rkey = later.rkey();
    expect_all(fabric, job, fabric.run(job));
  }
  EXPECT_EQ(fabric.run(job)[0].status, Status::kCompletionError);
}

// Between two launches a queue is only in memory.
TEST_F(Gpu, AFusedNicGoesOnWhereTheLastLaunchEnded) {
  Fabric fabric({.nic = NicOn::kFused, .queues = 5, .depth = 64, .blocks = 2});
  Job job = fabric.job();
  job.bytes = 64;
  job.puts = 77;
  job.producers = 5;
  job.window = 20;
  job.batch = 3;
  for (std::uint32_t round = 1; round <= 5; ++round) {
    expect_all(fabric, job, fabric.run(job));
    for (std::uint32_t i = 0; i < 5; ++i) {
      const engine::GpuQueueReport r = fabric.gpu->report(fabric.qpn(i));
      EXPECT_EQ(r.wqes, 77u * round);
      EXPECT_EQ(r.cqes, 77u * round);
    }
  }
}

TEST_F(Gpu, AFusedLaunchThatDoesNotFitIsRefused) {
  Fabric fabric({.nic = NicOn::kFused, .blocks = 132});
  Job job = fabric.job();
  job.bytes = 64;
  job.puts = 1;
  job.producers = 64;
  try {
    fabric.run(job);
    FAIL() << "it was launched";
  } catch (const std::runtime_error& e) {
    EXPECT_NE(std::string(e.what()).find("in one kernel: "), std::string::npos) << e.what();
  }
  job.producers = 1;
  Fabric another({.nic = NicOn::kFused});
  Job good = another.job();
  good.bytes = 64;
  good.puts = 10;
  expect_all(another, good, another.run(good));
}

TEST_F(Gpu, TheKernelReportsWhatItDid) {
  Fabric fabric({.nic = NicOn::kGpu, .queues = 3, .blocks = 2});
  Job job = fabric.job();
  job.bytes = 128;
  job.puts = 100;
  job.producers = 3;
  job.window = 32;
  job.batch = 8;
  expect_all(fabric, job, fabric.run(job));
  for (const QueuePair& qp : fabric.objects->qps) {
    const engine::GpuQueueReport r = fabric.gpu->report(qp.address().qpn);
    EXPECT_EQ(r.wqes, 100u);
    EXPECT_EQ(r.cqes, 100u);
    EXPECT_EQ(r.bytes, 12'800u);
    EXPECT_EQ(r.reason, nic::Refusal::kNone);
  }
}

// What the NIC has done and refused is in its core's counters, whichever NIC it is.
TEST_P(OnEach, TheCoreCountsWhatWasDone) {
  Fabric fabric({.nic = GetParam(), .queues = 2});
  Job job = fabric.job();
  job.bytes = 128;
  job.puts = 100;
  job.producers = 2;
  job.window = 32;
  job.batch = 8;
  expect_all(fabric, job, fabric.run(job));
  Job wrong = fabric.job();
  wrong.bytes = 64;
  wrong.puts = 5;
  wrong.window = 5;
  wrong.queues = 1;
  wrong.rkey = Rkey(job.rkey.value ^ 0xff);
  EXPECT_EQ(fabric.run(wrong)[0].status, Status::kCompletionError);
  fabric.wait_until_quiet();  // those that are flushed may still be on their way
  fabric.engine->call([&] {
    const auto& core = fabric.sender_nic.core();
    const nic::QpCounters c[] = {core.counters(fabric.qpn(0)), core.counters(fabric.qpn(1))};
    EXPECT_EQ(c[1].wqes_fetched, 100u);
    EXPECT_EQ(c[1].writes, 100u);
    EXPECT_EQ(c[1].cqes, 100u);
    EXPECT_EQ(c[1].error_cqes, 0u);
    EXPECT_EQ(c[1].bytes_moved, 12'800u);
    EXPECT_EQ(c[1].first_error.syndrome, 0u);
    EXPECT_GE(c[0].wqes_fetched, 101u);
    EXPECT_EQ(c[0].cqes, c[0].wqes_fetched);
    EXPECT_EQ(c[0].error_cqes, c[0].wqes_fetched - 100);
    EXPECT_EQ(c[0].bytes_moved, 12'800u);
    EXPECT_EQ(c[0].first_error.index, 100u);
    EXPECT_EQ(c[0].first_error.opcode, static_cast<std::uint8_t>(mlx5::Opcode::kRdmaWrite));
    EXPECT_EQ(c[0].first_error.syndrome, static_cast<std::uint8_t>(mlx5::Syndrome::kRemoteAccess));
    EXPECT_EQ(c[0].first_error.vendor_syndrome, nic::kVendorRemoteAccess);
    EXPECT_EQ(c[0].reasons.refusals(nic::Refusal::kRemoteRefused), 1u);
    const nic::QpDump d = core.dump(fabric.qpn(0)).value();
    EXPECT_EQ(d.state, nic::QpState::kError);
    EXPECT_EQ(d.completed, c[0].wqes_fetched);
    EXPECT_EQ(d.record, static_cast<std::uint16_t>(d.posted));
    EXPECT_FALSE(d.oldest);
  });
  for (const nic::Refusal why : {nic::Refusal::kRemoteRefused, nic::Refusal::kRkeyStale}) {
    EXPECT_EQ(std::count_if(fabric.refusals.begin(), fabric.refusals.end(),
                            [&](const nic::Notice& n) { return n.reason == why; }),
              1)
        << nic::refusal_name(why);
  }
}

// Figures of software, for a look: shapes of the stages at 4 KiB.
TEST_F(Gpu, RatesAt4KiB) {
  struct Shape {
    Exec exec;
    std::uint32_t producers, queues, window, batch, puts;
  };
  const Shape shapes[] = {
      {Exec::kThread, 1, 1, 1, 1, 2000},     {Exec::kThread, 1, 1, 256, 1, 4000},
      {Exec::kThread, 1, 1, 256, 32, 8000},  {Exec::kWarp, 1, 1, 1024, 64, 16000},
      {Exec::kThread, 4, 1, 64, 32, 4000},   {Exec::kThread, 4, 4, 64, 32, 8000},
      {Exec::kWarp, 4, 4, 512, 64, 16000},   {Exec::kThread, 16, 16, 256, 32, 8000},
      {Exec::kWarp, 16, 16, 512, 64, 16000},
  };
  for (const bool null_payload : {false, true}) {
    for (const Shape& s : shapes) {
      for (const DoorbellOrder order :
           {DoorbellOrder::kRingRecordRing, DoorbellOrder::kRecordRing}) {
        Fabric fabric({.nic = NicOn::kGpu,
                       .queues = s.queues,
                       .depth = 1024,
                       .bytes = std::size_t{s.producers} * s.puts * 4096,
                       .null_payload = null_payload,
                       .blocks = s.queues});
        Job job = fabric.job();
        job.bytes = 4096;
        job.puts = s.puts;
        job.producers = s.producers;
        job.window = s.window;
        job.batch = s.batch;
        job.exec = s.exec;
        job.submit = {order, order == DoorbellOrder::kRecordRing ? PublishOrder::kCombine
                                                                 : PublishOrder::kInOrder};
        job.sharing = order == DoorbellOrder::kRecordRing && s.queues == s.producers
                          ? Sharing::kExclusive
                          : Sharing::kDevice;
        const std::vector<Outcome> outcomes = fabric.run(job);
        std::printf("%s%s %s %s", null_payload ? "null NIC, " : "", exec_name(job.exec),
                    sharing_name(job.sharing), doorbell_order_name(order));
        if (!null_payload) {
          expect_all(fabric, job, outcomes);
          continue;
        }
        std::uint64_t first_ns = ~std::uint64_t{0};
        std::uint64_t last_ns = 0;
        for (const Outcome& o : outcomes) {
          EXPECT_EQ(o.status, Status::kOk);
          first_ns = std::min(first_ns, o.started_ns);
          last_ns = std::max(last_ns, o.ended_ns);
        }
        std::printf("  %u producers, %u QPs, window %u, batch %u: %.3f million a second\n",
                    s.producers, s.queues, s.window, s.batch,
                    1e3 * s.producers * s.puts / static_cast<double>(last_ns - first_ns));
      }
    }
  }
}

}  // namespace
}  // namespace peal::test
