// GPU threads as producers on a software ConnectX that a CPU thread steps: queues, doorbells and
// payload lie in host memory that the GPU reaches. Skipped where there is no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

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

struct Setup {
  std::uint32_t queues = 1;
  std::uint32_t depth = 64;
  std::uint64_t first_wqe_index = 0;
  std::size_t bytes = 1 << 20;
  NicHandler handler = NicHandler::kDirect;
  CompletionMode completion = CompletionMode::kEvery;
};

class Fabric {
 public:
  explicit Fabric(const Setup& s)
      : sender_nic({.nic_number = 1, .first_wqe_index = s.first_wqe_index}, loopback.a()),
        receiver_nic({.nic_number = 2}, loopback.b()),
        engine({sender_nic.step(), receiver_nic.step()}),
        memory(std::make_shared<verbs::CudaHostMemory>()),
        sender(Context::open(sender_nic.provider(engine, memory), {.handler = s.handler})),
        receiver(Context::open(receiver_nic.provider(engine))),
        source(s.bytes),
        target(s.bytes + kSignalBytes),
        from(MemoryRegion::create(sender, source.data(), source.size(), Access::kLocalOnly)),
        to(MemoryRegion::create(receiver, target.data(), target.size(), Access::kRemoteAll)),
        sinks(Sinks::create(sender, 1)) {
    std::mt19937_64 random(7);
    for (std::size_t i = 0; i < source.size(); ++i) source.data()[i] = std::byte(random());
    for (std::uint32_t i = 0; i < s.queues; ++i) {
      qps.push_back(QueuePair::create(
          sender,
          {.depth = s.depth, .first_wqe_index = s.first_wqe_index, .completion = s.completion}));
      peers.push_back(QueuePair::create(receiver, {.depth = 1}));
      qps[i].connect(peers[i].address());
      peers[i].connect(qps[i].address());
    }
  }

  Job job() const {
    Job j;
    j.source = from.address();
    j.lkey = from.lkey();
    j.target = to.address();
    j.rkey = to.rkey();
    j.queues = static_cast<std::uint32_t>(qps.size());
    j.signal = to.address() + source.size();
    j.sink = sinks[0];
    return j;
  }
  std::vector<Outcome> run(const Job& job) const {
    std::vector<QueueHandle> handles;
    for (const QueuePair& qp : qps) handles.push_back(qp.handle());
    return run_producers(handles, job);
  }
  // Whether the first `bytes` have arrived, and nothing behind them was touched.
  bool arrived(std::size_t bytes) const {
    if (std::memcmp(source.data(), target.data(), bytes) != 0) return false;
    return std::all_of(target.data() + bytes, target.data() + source.size(),
                       [](std::byte b) { return b == std::byte{0}; });
  }
  std::uint64_t signal_of(std::uint32_t producer) const {
    std::uint64_t v = 0;
    std::memcpy(&v, target.data() + source.size() + producer * 64, sizeof v);
    return v;
  }
  void arm(const std::vector<nic::Fault>& faults) {
    engine.call([&] { sender_nic.core().arm_faults(qps[0].address().qpn, faults); });
  }

  static constexpr std::size_t kSignalBytes = 64 * 64;

  link::Loopback loopback;
  verbs::SoftwareNic sender_nic;
  verbs::SoftwareNic receiver_nic;
  engine::ThreadsEngine engine;
  std::shared_ptr<verbs::CudaHostMemory> memory;
  Context sender;
  Context receiver;
  Pinned source;
  Pinned target;
  MemoryRegion from;
  MemoryRegion to;
  Sinks sinks;
  std::vector<QueuePair> qps;
  std::vector<QueuePair> peers;
};

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    const std::string why = why_no_gpu();
    if (!why.empty()) GTEST_SKIP() << why;
  }
};

// All succeeded, and each byte is where it belongs.
void expect_all(const Fabric& fabric, const Job& job, const std::vector<Outcome>& outcomes) {
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
  std::printf(
      "  %u producers, %u QPs, window %u, batch %u, %u bytes: %.3f million PUTs a second, "
      "moved by software\n",
      job.producers, job.queues, job.window, job.batch, job.bytes,
      puts * 1e3 / static_cast<double>(std::max<std::uint64_t>(last_ns - first_ns, 1)));
}

TEST_F(Gpu, OneThreadPutsOneAfterTheOther) {
  for (const std::uint32_t bytes : {1u, 63u, 64u, 4096u, 10'000u}) {
    Fabric fabric({});
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
class GpuStages : public Gpu,
                  public testing::WithParamInterface<
                      std::tuple<Stage, DoorbellOrder, PublishOrder, CompletionMode, NicHandler>> {
};

TEST_P(GpuStages, EveryByteArrives) {
  const auto& [stage, doorbell, publish, completion, handler] = GetParam();
  Fabric fabric({.queues = stage.queues,
                 .depth = 256,
                 .first_wqe_index = (std::uint64_t{1} << 16) - 100,
                 .bytes = 8 << 20,
                 .handler = handler,
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
         completion_mode_name(std::get<3>(p.param)) + "_" + nic_handler_name(std::get<4>(p.param));
}
INSTANTIATE_TEST_SUITE_P(
    Each, GpuStages,
    testing::Combine(testing::Values(Stage{"serial", 1, 1, 1, 1}, Stage{"window", 1, 1, 64, 1},
                                     Stage{"batch", 1, 1, 128, 32}, Stage{"shared", 4, 1, 64, 16},
                                     Stage{"independent", 4, 4, 64, 16}),
                     testing::Values(DoorbellOrder::kRingRecordRing, DoorbellOrder::kRecordRing),
                     testing::Values(PublishOrder::kInOrder, PublishOrder::kCombine),
                     testing::Values(CompletionMode::kEvery, CompletionMode::kTail),
                     testing::Values(NicHandler::kDirect, NicHandler::kProxy)),
    stage_name);

TEST_F(Gpu, ThreadsOfOneBlockShareAQueue) {
  Fabric fabric({.depth = 128, .bytes = 4 << 20});
  Job job = fabric.job();
  job.bytes = 64;
  job.puts = 500;
  job.producers = 32;
  job.window = 4;
  job.submit = {DoorbellOrder::kRecordRing, PublishOrder::kCombine};
  job.sharing = Sharing::kBlock;
  expect_all(fabric, job, fabric.run(job));
}

TEST_F(Gpu, AnExclusiveQueueEach) {
  Fabric fabric({.queues = 8, .depth = 128, .bytes = 4 << 20});
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

TEST_F(Gpu, SignalsCountThePutsBeforeThem) {
  Fabric fabric({.depth = 64});
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
TEST_F(Gpu, AnErrorEndsEveryWaitAndSpoilsNothingElse) {
  for (const std::uint32_t producers : {1u, 4u}) {
    Fabric fabric({.depth = 64});
    fabric.arm({{nic::FaultKind::kCqe, 0x13, 50}});
    Job job = fabric.job();
    job.bytes = 64;
    job.puts = 200;
    job.producers = producers;
    job.window = 16;
    job.batch = 4;
    const std::vector<Outcome> outcomes = fabric.run(job);
    std::uint64_t completed = 0;
    for (const Outcome& o : outcomes) {
      EXPECT_EQ(o.status, Status::kCompletionError) << status_name(o.status);
      completed += o.completed;
    }
    EXPECT_LE(completed, 50u);
    Fabric another({});
    Job good = another.job();
    good.bytes = 64;
    good.puts = 100;
    expect_all(another, good, another.run(good));
  }
}

TEST_F(Gpu, AWaitEndsAtItsDeadline) {
  Fabric fabric({});
  fabric.arm({{nic::FaultKind::kHold, 3'600'000'000'000, 0}});
  Job job = fabric.job();
  job.bytes = 64;
  job.puts = 10;
  job.timeout_ns = 50'000'000;
  const std::vector<Outcome> outcomes = fabric.run(job);
  EXPECT_EQ(outcomes[0].status, Status::kDeadline);
  EXPECT_GE(outcomes[0].ended_ns - outcomes[0].started_ns, job.timeout_ns);
  EXPECT_EQ(outcomes[0].completed, 0u);
}

TEST_F(Gpu, AQueueIsUsedAgainAfterReset) {
  Fabric fabric({});
  Job job = fabric.job();
  job.bytes = 64;
  job.puts = 100;
  for (int round = 0; round < 5; ++round) {
    fabric.arm({{nic::FaultKind::kCqe, 0x13, 10}});
    EXPECT_EQ(fabric.run(job)[0].status, Status::kCompletionError);
    fabric.qps[0].reset();
    fabric.peers[0].reset();
    fabric.qps[0].connect(fabric.peers[0].address());
    fabric.peers[0].connect(fabric.qps[0].address());
    fabric.arm({});
    expect_all(fabric, job, fabric.run(job));
  }
}

}  // namespace
}  // namespace peal::test
