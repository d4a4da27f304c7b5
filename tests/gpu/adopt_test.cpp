// GPU threads on adopted queues: with the rings in host memory and the counters on the GPU, as a
// library has them whose queues libmlx5 made; and with all of it on the GPU.
#include "peal/host/adopt.hpp"

#include <vector>

#include "gpu/fabric.hpp"
#include "peal/host/cuda.hpp"

namespace peal::test {
namespace {

class GpuAdopt : public Gpu,
                 public testing::WithParamInterface<std::tuple<NicOn, CompletionMode>> {};

TEST_P(GpuAdopt, EveryByteArrives) {
  constexpr std::uint64_t kFirst = (std::uint64_t{1} << 16) - 100;
  const auto& [nic, completion] = GetParam();
  Fabric fabric({.nic = nic,
                 .queues = 2,
                 .depth = 64,
                 .first_wqe_index = kFirst,
                 .bytes = 8 << 20,
                 .completion = completion});
  // Where a kernel is the NIC, memory was allocated before it was started.
  const auto counters = nic == NicOn::kCpu ? cuda_device_memory(64 << 10) : fabric.memory;
  std::vector<AdoptedQueue> adopted;
  std::vector<QueueHandle> handles;
  for (const QueuePair& qp : fabric.objects->qps) {
    const QueueHandle theirs = qp.handle();
    ForeignQueue q;
    q.sq = theirs.sq;
    q.cq = theirs.nic_cq;
    q.depth = q.cq_depth = fabric.setup.depth;
    q.dbrec = theirs.dbrec;
    q.doorbell = theirs.doorbell;
    q.qpn = qp.address().qpn;
    q.completion = completion;
    q.first_index = kFirst;
    q.cq_base = 0 - kFirst;
    adopted.push_back(adopt(q, counters));
    handles.push_back(adopted.back().handle());
  }
  Job job = fabric.job();
  job.bytes = 512;
  job.puts = 1000;
  job.producers = 4;
  job.window = 32;
  job.batch = 8;
  job.submit = {DoorbellOrder::kRecordRing, PublishOrder::kCombine};
  expect_all(fabric, job, Fabric::launcher().run(handles, job));
  for (AdoptedQueue& queue : adopted) EXPECT_EQ(queue.hand_back().next_index, kFirst + 2000);

  // The kernel runs and ends, with nothing posted.
  handles.assign(2, fabric.objects->qps[0].handle());
  for (QueueHandle& handle : handles) ++handle.layout;
  for (const Outcome& o : Fabric::launcher().run(handles, job)) {
    EXPECT_EQ(o.status, Status::kInvalid);
    EXPECT_EQ(o.posted, 0u);
  }
}
INSTANTIATE_TEST_SUITE_P(Each, GpuAdopt,
                         testing::Combine(testing::Values(NicOn::kCpu, NicOn::kGpu),
                                          testing::Values(CompletionMode::kEvery,
                                                          CompletionMode::kTail)),
                         [](const auto& p) {
                           return std::string(name_of(std::get<0>(p.param))) + "_" +
                                  completion_mode_name(std::get<1>(p.param));
                         });

}  // namespace
}  // namespace peal::test
