// Figures of software, for a look: shapes of the stages, and what bounds a block of the NIC.
#include "gpu/fabric.hpp"

namespace peal::test {
namespace {

struct Shape {
  Exec exec;
  std::uint32_t producers, queues, window, batch, puts;
  std::uint32_t bytes = 4096;
  std::uint32_t blocks_a_queue = 1;
};

void run_at_its_rate(const Shape& s, DoorbellOrder order, bool null_payload) {
  Fabric fabric({.nic = NicOn::kGpu,
                 .queues = s.queues,
                 .depth = 1024,
                 .bytes = std::size_t{s.producers} * s.puts * s.bytes,
                 .null_payload = null_payload,
                 .blocks = s.queues * s.blocks_a_queue,
                 .blocks_a_queue = s.blocks_a_queue});
  Job job = fabric.job();
  job.bytes = s.bytes;
  job.puts = s.puts;
  job.producers = s.producers;
  job.window = s.window;
  job.batch = s.batch;
  job.exec = s.exec;
  job.submit = {
      order, order == DoorbellOrder::kRecordRing ? PublishOrder::kCombine : PublishOrder::kInOrder};
  job.sharing = order == DoorbellOrder::kRecordRing && s.queues == s.producers ? Sharing::kExclusive
                                                                               : Sharing::kDevice;
  const std::vector<Outcome> outcomes = fabric.run(job);
  std::printf("%s%s %s %s, %u blocks a queue", null_payload ? "null NIC, " : "",
              exec_name(job.exec), sharing_name(job.sharing), doorbell_order_name(order),
              s.blocks_a_queue);
  if (!null_payload) return expect_all(fabric, job, outcomes);
  std::uint64_t first_ns = ~std::uint64_t{0};
  std::uint64_t last_ns = 0;
  for (const Outcome& o : outcomes) {
    EXPECT_EQ(o.status, Status::kOk);
    first_ns = std::min(first_ns, o.started_ns);
    last_ns = std::max(last_ns, o.ended_ns);
  }
  std::printf("  %u producers, %u QPs, window %u, batch %u: %.3f million a second\n", s.producers,
              s.queues, s.window, s.batch,
              1e3 * s.producers * s.puts / static_cast<double>(last_ns - first_ns));
}

TEST_F(Gpu, RatesAt4KiB) {
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
        run_at_its_rate(s, order, null_payload);
      }
    }
  }
}

// What the copying warps can do, with few WQEs to look at.
TEST_F(Gpu, RatesOfLongPuts) {
  for (const Shape& s : {Shape{Exec::kWarp, 1, 1, 64, 16, 4000, 64 << 10},
                         Shape{Exec::kWarp, 4, 4, 64, 16, 1000, 64 << 10},
                         Shape{Exec::kWarp, 16, 16, 64, 16, 1000, 64 << 10},
                         Shape{Exec::kWarp, 1, 1, 16, 4, 256, 1 << 20},
                         Shape{Exec::kWarp, 16, 16, 16, 4, 64, 1 << 20}}) {
    run_at_its_rate(s, DoorbellOrder::kRecordRing, false);
  }
}

TEST_F(Gpu, RatesOfSeveralBlocksAQueue) {
  for (const std::uint32_t blocks : {1u, 2u, 4u, 8u}) {
    for (const Shape& s : {Shape{Exec::kWarp, 1, 1, 1024, 64, 16000, 4096, blocks},
                           Shape{Exec::kThread, 4, 1, 64, 32, 4000, 4096, blocks},
                           Shape{Exec::kWarp, 1, 1, 64, 16, 4000, 64 << 10, blocks},
                           Shape{Exec::kWarp, 1, 1, 16, 4, 256, 1 << 20, blocks}}) {
      run_at_its_rate(s, DoorbellOrder::kRecordRing, false);
    }
  }
}

}  // namespace
}  // namespace peal::test
