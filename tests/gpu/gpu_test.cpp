// What GPU threads and the GPU's NIC do together. Skipped where there is no GPU.
#include "gpu/fabric.hpp"

namespace peal::test {
namespace {

class OnEach : public Gpu, public testing::WithParamInterface<NicOn> {};
INSTANTIATE_TEST_SUITE_P(Nic, OnEach, testing::Values(NicOn::kCpu, NicOn::kGpu, NicOn::kFused),
                         [](const auto& p) { return std::string(name_of(p.param)); });

// Around what is copied in bulk, and in pieces, and where neither can be.
TEST_P(OnEach, OneThreadPutsOneAfterTheOther) {
  for (const std::uint32_t bytes :
       {1u, 63u, 64u, 1008u, 1023u, 1024u, 4096u, 4097u, 8200u, 10'000u, 100'000u}) {
    Fabric fabric({.nic = GetParam()});
    Job job = fabric.job();
    job.bytes = bytes;
    job.puts = std::min(100u, (1u << 20) / bytes);
    expect_all(fabric, job, fabric.run(job));
  }
}

// More pieces than their ring has room for, of several PUTs at once.
TEST_P(OnEach, LongPutsArriveWhole) {
  for (const std::uint32_t bytes : {64u << 10, 1u << 20, (4u << 20) + 12'345}) {
    Fabric fabric({.nic = GetParam(), .queues = 2, .bytes = 48 << 20, .blocks = 1});
    Job job = fabric.job();
    job.bytes = bytes;
    job.producers = 2;
    job.puts = std::min(64u, (24u << 20) / bytes);
    job.window = 16;
    job.batch = 4;
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

// Groups of blocks: PUTs of one piece and of many, few at a time and more than a block begins at
// once, and atomics, which stay with the front's block.
class OnSeveralBlocks : public Gpu,
                        public testing::WithParamInterface<std::tuple<NicOn, std::uint32_t>> {};
INSTANTIATE_TEST_SUITE_P(Nic, OnSeveralBlocks,
                         testing::Combine(testing::Values(NicOn::kGpu, NicOn::kFused),
                                          testing::Values(2u, 3u, 8u)),
                         [](const auto& p) {
                           return std::string(name_of(std::get<0>(p.param))) + "_" +
                                  std::to_string(std::get<1>(p.param));
                         });

TEST_P(OnSeveralBlocks, EveryByteArrives) {
  const auto [nic, blocks] = GetParam();
  for (const std::uint32_t bytes : {64u, 4096u, 5000u, 64u << 10, (1u << 20) + 16}) {
    for (const std::uint32_t window : {1u, 256u}) {
      Fabric fabric({.nic = nic,
                     .queues = 3,
                     .depth = 512,
                     .first_wqe_index = (std::uint64_t{1} << 16) - 100,
                     .bytes = 20 << 20,
                     .blocks = 2 * blocks,
                     .blocks_a_queue = blocks});
      Job job = fabric.job();
      job.bytes = bytes;
      job.producers = 3;
      job.puts = std::min(1000u, (6u << 20) / bytes);
      job.window = window;
      job.batch = window == 1 ? 1 : 64;
      job.exec = Exec::kWarp;
      // Twice: between two launches of a fused NIC the rings to its helpers are only in memory.
      expect_all(fabric, job, fabric.run(job));
      if (nic == NicOn::kFused) EXPECT_EQ(fabric.run(job)[0].completed, job.puts);
    }
  }
}

TEST_P(OnSeveralBlocks, SignalsComeAfterThePutsBeforeThem) {
  const auto [nic, blocks] = GetParam();
  Fabric fabric(
      {.nic = nic, .depth = 64, .bytes = 32 << 20, .blocks = blocks, .blocks_a_queue = blocks});
  Job job = fabric.job();
  job.bytes = 128 << 10;
  job.puts = 50;
  job.producers = 4;
  job.window = 8;
  job.signals = true;
  expect_all(fabric, job, fabric.run(job));
  for (std::uint32_t p = 0; p < job.producers; ++p) EXPECT_EQ(fabric.signal_of(p), job.puts);
}

TEST_F(Gpu, BlocksThatDoNotDivideAreRefused) {
  link::Loopback loopback;
  verbs::SoftwareNic a({.nic_number = 1}, loopback.a());
  verbs::SoftwareNic b({.nic_number = 2}, loopback.b());
  for (const std::uint32_t together : {0u, 3u, 17u}) {
    EXPECT_THROW(engine::GpuEngine(a.core(), b.core(), {.blocks = 34, .blocks_a_queue = together}),
                 Error);
  }
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
      const nic::QpCounters r = fabric.counters(i);
      EXPECT_EQ(r.wqes_fetched, 77u * round);
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
  for (std::uint32_t i = 0; i < 3; ++i) {
    const nic::QpCounters r = fabric.counters(i);
    EXPECT_EQ(r.wqes_fetched, 100u);
    EXPECT_EQ(r.cqes, 100u);
    EXPECT_EQ(r.bytes_moved, 12'800u);
    EXPECT_EQ(r.first_error.reason, nic::Refusal::kNone);
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

}  // namespace
}  // namespace peal::test
