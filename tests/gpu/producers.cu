#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "engine/gpu/serve.cuh"
#include "gpu/producers.hpp"
#include "peal/device/producer.hpp"
#include "peal/memory/gpu_group.hpp"
#include "peal/memory/gpu_memory.hpp"

namespace peal::test {
namespace {

constexpr std::uint32_t kWindowMax = Launcher::kWindowMax;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // or the next launch would seem to have failed
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

constexpr std::uint32_t kBlockThreads = 128;

template <Sharing S, class Group>
__device__ void produce_as(const QueueHandle* queues, const Job& job, InFlight* fifos,
                           Outcome* outcomes, std::uint32_t p, Group group) {
  ProducerOptions options;
  options.submit = job.submit;
  options.window = job.window;
  options.batch = job.batch;
  options.producers_on_queue = (job.producers + job.queues - 1) / job.queues;
  options.timeout_ns = job.timeout_ns;
  const QueueHandle queue = queues[p % job.queues];
  Producer<GpuMemory, S, NoLatencies, Group> producer(queue, options, fifos + p * kWindowMax,
                                                      nullptr, group);
  const std::uint64_t from = std::uint64_t{p} * job.puts * job.bytes;
  const auto put_of = [&](std::uint64_t i) {
    return Put{job.source + from + i * job.bytes, job.lkey, job.target + from + i * job.bytes,
               job.rkey, job.bytes};
  };
  const std::uint64_t started_ns = GpuMemory::now_ns();
  Status status = Status::kOk;
  if (job.signals) {
    const FetchAdd signal{{job.signal + p * 64, job.rkey, job.sink}, 1};
    for (std::uint32_t i = 0; i != job.puts && status == Status::kOk; ++i) {
      status = producer.put_signal(put_of(i), signal);
    }
  } else {
    status = producer.put_many(job.puts, put_of);
  }
  if (status == Status::kOk) status = producer.flush();
  if (status != Status::kOk) producer.settle();
  if (group.rank() != 0) return;
  outcomes[p] = {status, producer.posted_puts(), producer.completed_puts(), started_ns,
                 GpuMemory::now_ns()};
}

// By block `block` of the producers': which producer a thread is, or of which it is a part.
template <Sharing S>
__device__ void produce_in(std::uint32_t block, std::uint64_t* word, const QueueHandle* queues,
                           const Job& job, InFlight* fifos, Outcome* outcomes,
                           std::uint32_t* ended) {
  const std::uint32_t thread = threadIdx.x;
  const bool one_block = job.sharing == Sharing::kBlock && job.exec == Exec::kThread;
  const std::uint32_t p = one_block ? thread : block;
  if (p >= job.producers) return;
  switch (job.exec) {
    case Exec::kThread:
      if (!one_block && thread != 0) return;
      produce_as<S>(queues, job, fifos, outcomes, p, OneThread{});
      break;
    case Exec::kWarp:
      if (thread >= 32) return;
      produce_as<S>(queues, job, fifos, outcomes, p, Warp{thread});
      break;
    case Exec::kBlock:
      produce_as<S>(queues, job, fifos, outcomes, p, Block{thread, blockDim.x, word});
      break;
  }
  // MO-15, by whoever leads.
  const bool leads = job.exec == Exec::kThread || thread == 0;
  if (leads && ended != nullptr) {
    GpuMemory::add_count_release(ended, 1, FenceScope::kSystem);
  }
}

template <Sharing S>
__global__ void produce(const QueueHandle* queues, Job job, InFlight* fifos, Outcome* outcomes) {
  __shared__ std::uint64_t word;
  produce_in<S>(blockIdx.x, &word, queues, job, fifos, outcomes, nullptr);
}

// The first blocks are the NIC.
template <Sharing S>
__global__ void __launch_bounds__(engine::gpu::kThreads, 1)
    produce_and_serve(engine::gpu::Nic nic, const QueueHandle* queues, Job job, InFlight* fifos,
                      Outcome* outcomes) {
  __shared__ std::uint64_t word;
  if (blockIdx.x < nic.blocks) {
    engine::gpu::serve_block(nic, engine::gpu::shared_memory(), blockIdx.x);
  } else {
    produce_in<S>(blockIdx.x - nic.blocks, &word, queues, job, fifos, outcomes, nic.ended);
  }
}

const void* fused_kernel(Sharing sharing) {
  switch (sharing) {
    case Sharing::kExclusive:
      return reinterpret_cast<const void*>(produce_and_serve<Sharing::kExclusive>);
    case Sharing::kBlock: return reinterpret_cast<const void*>(produce_and_serve<Sharing::kBlock>);
    default: return reinterpret_cast<const void*>(produce_and_serve<Sharing::kDevice>);
  }
}

}  // namespace

std::string why_no_gpu() {
  // Before the first call: what is loaded later would wait for a kernel that runs for ever.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  return devices == 0 ? "there is no GPU" : "";
}

struct Launcher::Impl {
  QueueHandle* queues = nullptr;  // pinned, as are the outcomes
  Outcome* outcomes = nullptr;
  InFlight* fifos = nullptr;  // on the GPU
  cudaStream_t stream = nullptr;

  void launch(const Job& job, const engine::gpu::Nic* nic) {
    if (nic != nullptr) return launch_fused(job, *nic);
    const bool one_block = job.sharing == Sharing::kBlock && job.exec == Exec::kThread;
    const std::uint32_t blocks = one_block || job.producers == 0 ? 1 : job.producers;
    std::uint32_t threads = one_block && job.producers != 0 ? job.producers : 1;
    if (job.exec == Exec::kWarp) threads = 32;
    if (job.exec == Exec::kBlock) threads = kBlockThreads;
    switch (job.sharing) {
      case Sharing::kExclusive:
        produce<Sharing::kExclusive><<<blocks, threads, 0, stream>>>(queues, job, fifos, outcomes);
        break;
      case Sharing::kBlock:
        produce<Sharing::kBlock><<<blocks, threads, 0, stream>>>(queues, job, fifos, outcomes);
        break;
      case Sharing::kDevice:
        produce<Sharing::kDevice><<<blocks, threads, 0, stream>>>(queues, job, fifos, outcomes);
        break;
    }
    check(cudaGetLastError(), "launching producers");
    check(cudaStreamSynchronize(stream), "waiting for the producers");
  }

  // All blocks must run at once, so that the launch is cooperative: one that does not fit is
  // refused.
  void launch_fused(Job job, engine::gpu::Nic nic) {
    const bool one_block = job.sharing == Sharing::kBlock && job.exec == Exec::kThread;
    nic.producers = job.producers;
    check(cudaMemsetAsync(nic.ended, 0, sizeof *nic.ended, stream), "counting producers from 0");
    void* arguments[] = {&nic, &queues, &job, &fifos, &outcomes};
    const void* fused = fused_kernel(job.sharing);
    const dim3 blocks(nic.blocks + (one_block ? 1 : job.producers));
    check(cudaFuncSetAttribute(fused, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               sizeof(engine::gpu::Shared)),
          "giving the NIC's blocks their shared memory");
    check(cudaLaunchCooperativeKernel(fused, blocks, dim3(engine::gpu::kThreads), arguments,
                                      sizeof(engine::gpu::Shared), stream),
          "launching producers and the NIC's blocks in one kernel");
    check(cudaStreamSynchronize(stream), "waiting for the producers and the NIC's blocks");
  }
};

Launcher::Launcher() : impl_(new Impl) {
  check(cudaHostAlloc(&impl_->queues, kProducersMax * sizeof(QueueHandle), cudaHostAllocMapped),
        "cudaHostAlloc");
  check(cudaHostAlloc(&impl_->outcomes, kProducersMax * sizeof(Outcome), cudaHostAllocMapped),
        "cudaHostAlloc");
  check(cudaMalloc(&impl_->fifos, std::size_t{kProducersMax} * kWindowMax * sizeof(InFlight)),
        "cudaMalloc");
  check(cudaStreamCreateWithFlags(&impl_->stream, cudaStreamNonBlocking), "cudaStreamCreate");
  // So that nothing is loaded, and no local memory grows, at a later launch.
  for (const Sharing sharing : {Sharing::kExclusive, Sharing::kBlock, Sharing::kDevice}) {
    Job nothing;
    nothing.producers = 0;
    nothing.sharing = sharing;
    impl_->launch(nothing, nullptr);
  }
}

Launcher::~Launcher() {
  cudaStreamDestroy(impl_->stream);
  cudaFreeHost(impl_->queues);
  cudaFreeHost(impl_->outcomes);
  cudaFree(impl_->fifos);
  delete impl_;
}

std::vector<Outcome> Launcher::run(const std::vector<QueueHandle>& queues, const Job& job,
                                   const engine::gpu::Nic* nic) {
  if (job.window > kWindowMax || job.producers > kProducersMax || queues.size() > kProducersMax) {
    throw std::runtime_error("there is no room for so many producers, or for such a window");
  }
  std::copy(queues.begin(), queues.end(), impl_->queues);
  std::fill_n(impl_->outcomes, job.producers, Outcome{});
  impl_->launch(job, nic);
  return {impl_->outcomes, impl_->outcomes + job.producers};
}

}  // namespace peal::test
