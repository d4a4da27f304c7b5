// GPU threads as producers on a NIC that a CPU thread steps, with queues, payload or both in GPU
// memory, which it reaches by copies beside the producers' kernel. Skipped where there is no GPU.
#include "verbs/staged_nic.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "engine/threads.hpp"
#include "gpu/producers.hpp"
#include "link/loopback.hpp"
#include "peal/host/context.hpp"
#include "peal/host/memory_region.hpp"
#include "peal/host/queue_pair.hpp"
#include "peal/host/sinks.hpp"
#include "verbs/cuda_memory.hpp"

namespace peal::test {
namespace {

constexpr std::size_t kStagedBytes = 1 << 20;
constexpr std::size_t kStagedArena = 32 << 20;
constexpr std::size_t kStagedSignals = 64 * Launcher::kProducersMax;

struct Placed {
  const char* name;
  bool queues;
  bool payload;
};

class StagedGpuFabric {
 public:
  StagedGpuFabric(Placed on, CompletionMode completion)
      : queue_memory(of(on.queues)),
        payload_memory(of(on.payload)),
        engine({sender_nic.step(), receiver_nic.step()}),
        sender(open(sender_nic, on.queues)),
        receiver(open(receiver_nic, on.queues)),
        source(allocate(kStagedBytes)),
        target(allocate(kStagedBytes + kStagedSignals)),
        from(MemoryRegion::create(sender, source.get(), kStagedBytes, Access::kLocalOnly)),
        to(MemoryRegion::create(receiver, target.get(), kStagedBytes + kStagedSignals,
                                Access::kRemoteAll)),
        sinks(Sinks::create(sender, 1)),
        qp(QueuePair::create(sender, {.depth = 64, .completion = completion})),
        peer(QueuePair::create(receiver, {.depth = 1})),
        sent(kStagedBytes) {
    std::mt19937_64 random(7);
    for (std::byte& b : sent) b = static_cast<std::byte>(random());
    payload_memory->copy_payload(source.get(), sent.data(), kStagedBytes);
    qp.connect(peer.address());
    peer.connect(qp.address());
  }

  using Memory = std::unique_ptr<std::byte, std::function<void(std::byte*)>>;

  Job job() const {
    Job j;
    j.source = from.address();
    j.lkey = from.lkey();
    j.target = to.address();
    j.rkey = to.rkey();
    j.signal = to.address() + kStagedBytes;
    j.sink = sinks[0];
    return j;
  }
  std::vector<Outcome> run(const Job& j) { return launcher().run({qp.handle()}, j); }
  // Whether the first `bytes` have arrived, and nothing behind them was touched.
  bool arrived(std::size_t bytes) {
    std::vector<std::byte> there(kStagedBytes);
    if (payload_memory->copy_payload(there.data(), target.get(), kStagedBytes) != 0) return false;
    const auto end = there.begin() + static_cast<std::ptrdiff_t>(bytes);
    return std::equal(there.begin(), end, sent.begin()) &&
           std::all_of(end, there.end(), [](std::byte b) { return b == std::byte{0}; });
  }
  std::uint64_t signal_of(std::uint32_t producer) {
    std::uint64_t v = 0;
    payload_memory->copy_payload(&v, target.get() + kStagedBytes + producer * 64, sizeof v);
    return v;
  }

  static Launcher& launcher() {
    static Launcher one;
    return one;
  }

  // Not given back before the NICs are done with it.
  std::shared_ptr<verbs::CudaDeviceMemory> device =
      std::make_shared<verbs::CudaDeviceMemory>(kStagedArena);
  verbs::StagedMemory::Range range{device->begin(), device->bytes(), device};
  std::shared_ptr<verbs::CudaHostMemory> host = std::make_shared<verbs::CudaHostMemory>();
  std::shared_ptr<verbs::UarPages> pages = std::make_shared<verbs::CudaUarPages>(16);
  std::shared_ptr<verbs::DeviceMemory> queue_memory;
  std::shared_ptr<verbs::DeviceMemory> payload_memory;
  link::Loopback loopback;
  verbs::StagedNic sender_nic{{.nic_number = 1}, loopback.a()};
  verbs::StagedNic receiver_nic{{.nic_number = 2}, loopback.b()};
  engine::ThreadsEngine engine;
  Context sender;
  Context receiver;
  Memory source;
  Memory target;
  MemoryRegion from;
  MemoryRegion to;
  Sinks sinks;
  QueuePair qp;
  QueuePair peer;
  std::vector<std::byte> sent;

 private:
  std::shared_ptr<verbs::DeviceMemory> of(bool gpu) const {
    if (gpu) return device;
    return host;
  }
  Context open(verbs::StagedNic& nic, bool gpu) {
    return Context::open(
        gpu ? nic.provider(engine, queue_memory, {}, pages) : nic.provider(engine, queue_memory),
        {.handler = NicHandler::kDirect});
  }
  Memory allocate(std::size_t bytes) {
    void* memory = payload_memory->allocate(bytes);
    if (memory == nullptr) throw std::bad_alloc();
    return {static_cast<std::byte*>(memory),
            [this, bytes](std::byte* m) { payload_memory->release(m, bytes); }};
  }
};

class StagedGpu : public testing::TestWithParam<std::tuple<Placed, CompletionMode>> {
 protected:
  void SetUp() override {
    const std::string why = why_no_gpu();
    if (!why.empty()) GTEST_SKIP() << why;
    StagedGpuFabric::launcher();
  }
  Placed on() const { return std::get<0>(GetParam()); }
  CompletionMode completion() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(
    Memory, StagedGpu,
    testing::Combine(testing::Values(Placed{"all", true, true}, Placed{"payload", false, true},
                                     Placed{"queues", true, false}),
                     testing::Values(CompletionMode::kEvery, CompletionMode::kTail)),
    [](const auto& p) {
      return std::string(std::get<0>(p.param).name) + "_" +
             completion_mode_name(std::get<1>(p.param));
    });

TEST_P(StagedGpu, EveryByteArrives) {
  for (const std::uint32_t bytes : {1u, 64u, 4096u}) {
    for (const std::uint32_t producers : {1u, 4u}) {
      StagedGpuFabric fabric(on(), completion());
      Job job = fabric.job();
      job.bytes = bytes;
      job.puts = 60;
      job.producers = producers;
      job.window = 16;
      job.batch = 4;
      job.submit = {DoorbellOrder::kRecordRing, PublishOrder::kCombine};
      for (const Outcome& o : fabric.run(job)) {
        EXPECT_EQ(o.status, Status::kOk) << status_name(o.status);
        EXPECT_EQ(o.completed, job.puts);
      }
      EXPECT_TRUE(fabric.arrived(std::size_t{producers} * job.puts * bytes));
    }
  }
}

TEST_P(StagedGpu, SignalsCountThePutsBeforeThem) {
  StagedGpuFabric fabric(on(), completion());
  Job job = fabric.job();
  job.bytes = 256;
  job.puts = 100;
  job.producers = 4;
  job.window = 8;
  job.signals = true;
  for (const Outcome& o : fabric.run(job)) EXPECT_EQ(o.status, Status::kOk);
  EXPECT_TRUE(fabric.arrived(std::size_t{job.producers} * job.puts * job.bytes));
  for (std::uint32_t p = 0; p < job.producers; ++p) EXPECT_EQ(fabric.signal_of(p), job.puts);
}

TEST_P(StagedGpu, AnErrorEndsEveryWait) {
  StagedGpuFabric fabric(on(), completion());
  Job job = fabric.job();
  job.rkey = Rkey(job.rkey.value ^ 0xff);
  job.bytes = 64;
  job.puts = 100;
  job.producers = 4;
  job.window = 16;
  for (const Outcome& o : fabric.run(job)) {
    EXPECT_EQ(o.status, Status::kCompletionError) << status_name(o.status);
    EXPECT_EQ(o.completed, 0u);
  }
  EXPECT_TRUE(fabric.arrived(0));
}

}  // namespace
}  // namespace peal::test
