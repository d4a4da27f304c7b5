#include <cuda_runtime.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

#include "engine/gpu/serve.cuh"
#include "ladder/gpu/produce.hpp"
#include "ladder/latency_buckets.hpp"
#include "ladder/shares.hpp"
#include "peal/device/producer.hpp"
#include "peal/memory/gpu_group.hpp"
#include "peal/memory/gpu_memory.hpp"
#include "verbs/cuda_check.hpp"

namespace peal::ladder::gpu {
namespace {

using namespace cuda;

// Of one launch, in GPU memory.
struct Control {
  std::uint32_t arrived = 0;  // producers at the start
};

// What producers have besides their work.
struct Seats {
  InFlight* fifos = nullptr;                // in GPU memory
  std::uint64_t* latency_counts = nullptr;  // likewise; kLatencyBuckets a producer
  Control* control = nullptr;
  // Likewise: every wait looks at it, and a look over PCIe takes longer than most waits. The host
  // or the first producer that fails sets it.
  std::uint32_t* stop = nullptr;
  Produced* produced = nullptr;  // in pinned memory
};

// Hears of latencies, in one producer's buckets, where they are wanted: with another type where
// they are not, all would be compiled twice.
struct CountedLatencies {
  static constexpr bool kWanted = true;
  std::uint64_t* counts;  // null: nowhere
  std::uint64_t max_ns = 0;

  __device__ void add(std::uint64_t ns) {
    if (counts == nullptr) return;
    ++counts[LatencyBuckets::bucket_of(ns)];
    if (ns > max_ns) max_ns = ns;
  }
};

// Parts differ by one at most; the larger ones come first.
__device__ InFlight* fifo_of(const ProduceWork& work, const Seats& seats, std::uint32_t p) {
  const std::uint32_t share = work.window / work.producers;
  const std::uint32_t larger = work.window % work.producers;
  return seats.fifos + std::uint64_t{share} * p + (p < larger ? p : larger);
}

// By a producer's leader: waits for all the others, so that they start as one. False when that
// took too long or all are to stop.
__device__ bool start_together(const ProduceWork& work, const Seats& seats) {
  atomicAdd(&seats.control->arrived, 1);
  Wait<GpuMemory> wait(work.timeout_ns);
  while (GpuMemory::load_relaxed(&seats.control->arrived) < work.producers) {
    if (GpuMemory::load_relaxed(seats.stop) != 0 || wait.turn_until_deadline()) return false;
  }
  return true;
}

template <Sharing S, class Group>
__device__ void produce_as(const ProduceWork& work, const Seats& seats, std::uint32_t p,
                           Group group) {
  ProducerOptions options;
  options.submit = work.submit;
  options.window = share_of_window(work.window, work.producers, p);
  options.batch = work.batch;
  const std::uint32_t queue = qp_of_producer(p, work.qps);
  options.producers_on_queue = producers_on_qp(queue, work.qps, work.producers);
  options.timeout_ns = work.timeout_ns;
  // A ticket's latency is a PUT's only where it stands for one.
  CountedLatencies latencies{work.batch == 1 ? seats.latency_counts + p * kLatencyBuckets
                                             : nullptr};
  Producer<GpuMemory, S, CountedLatencies, Group> producer(
      work.queues[queue], options, fifo_of(work, seats, p), &latencies, group);

  const std::uint64_t first = p * work.puts;
  const auto put_of = [&](std::uint64_t i) {
    const std::uint64_t offset = (first + i) * work.stride_bytes;
    return Put{work.source + offset, work.lkey, work.destination + offset, work.rkey, work.bytes};
  };
  Produced done;
  const bool started =
      group.from_leader(group.rank() == 0 && start_together(work, seats) ? 1u : 0u) != 0;
  done.start_ns = GpuMemory::now_ns();
  done.status = started ? Status::kOk : Status::kDeadline;
  if (started && work.signal != 0) {
    const FetchAdd signal{{work.signal + p * 64, work.rkey, work.sink}, 1};
    for (std::uint64_t i = 0; i != work.puts && done.status == Status::kOk; ++i) {
      done.status = producer.put_signal(put_of(i), signal);
    }
  } else if (started) {
    done.status = producer.put_many(work.puts, put_of);
  }
  if (done.status == Status::kOk) done.status = producer.flush();
  done.end_ns = GpuMemory::now_ns();
  producer.settle();
  done.puts = producer.posted_puts();
  done.completed_puts = producer.completed_puts();
  done.wqes = producer.posted_wqes();
  done.reservations = producer.posted_reservations();
  done.latency_max_ns = latencies.max_ns;
  if (group.rank() != 0) return;
  seats.produced[p] = done;
  if (done.status != Status::kOk) *static_cast<volatile std::uint32_t*>(seats.stop) = 1;
}

// By a thread of block `block` of the producers': a producer a block; but where producers share as
// a block does, all are of one. `ended` counts them.
template <Sharing S>
__device__ void produce_in(std::uint32_t block, std::uint32_t block_producer_threads,
                           std::uint64_t* word, const ProduceWork& work, const Seats& seats,
                           std::uint32_t* ended) {
  const bool whole_block = work.exec == Exec::kBlock;
  const std::uint32_t group = whole_block ? block_producer_threads : threads_of(work.exec);
  const std::uint32_t in_block = S == Sharing::kBlock && !whole_block ? work.producers : 1;
  const std::uint32_t p = block + threadIdx.x / group;
  if (threadIdx.x / group >= in_block || p >= work.producers) return;
  const std::uint32_t rank = threadIdx.x % group;
  switch (work.exec) {
    case Exec::kThread: produce_as<S>(work, seats, p, OneThread{}); break;
    case Exec::kWarp: produce_as<S>(work, seats, p, Warp{rank}); break;
    case Exec::kBlock: produce_as<S>(work, seats, p, Block{rank, group, word}); break;
  }
  if (rank == 0 && ended != nullptr) {
    GpuMemory::add_count_release(ended, 1, FenceScope::kSystem);  // MO-15
  }
}

template <Sharing S>
__global__ void produce(ProduceWork work, Seats seats) {
  __shared__ std::uint64_t word;
  produce_in<S>(blockIdx.x, blockDim.x, &word, work, seats, nullptr);
}

// The first blocks are the NIC.
template <Sharing S>
__global__ void __launch_bounds__(engine::gpu::kThreads, 1)
    produce_and_serve(engine::gpu::Nic nic, ProduceWork work, Seats seats) {
  __shared__ std::uint64_t word;
  if (blockIdx.x < nic.blocks) {
    engine::gpu::serve_block(nic, engine::gpu::shared_memory(), blockIdx.x);
  } else {
    produce_in<S>(blockIdx.x - nic.blocks, blockDim.x, &word, work, seats, nic.ended);
  }
}

const void* kernel(Sharing sharing, bool serves) {
  const auto choose = [&](auto* alone, auto* with_nic) {
    return serves ? reinterpret_cast<const void*>(with_nic) : reinterpret_cast<const void*>(alone);
  };
  switch (sharing) {
    case Sharing::kExclusive:
      return choose(produce<Sharing::kExclusive>, produce_and_serve<Sharing::kExclusive>);
    case Sharing::kBlock:
      return choose(produce<Sharing::kBlock>, produce_and_serve<Sharing::kBlock>);
    default: return choose(produce<Sharing::kDevice>, produce_and_serve<Sharing::kDevice>);
  }
}

}  // namespace

struct ProducerLauncher::Impl {
  int gpu = 0;
  std::uint32_t producers = 0;
  std::uint32_t window = 0;
  Seats seats;
  std::uint64_t* latency_counts = nullptr;  // pinned: those of the last run
  std::uint32_t* stopped = nullptr;         // pinned: the 1 that stops
  cudaStream_t stream = nullptr;
  cudaStream_t stop_stream = nullptr;

  void allocate();
  void release() noexcept;
  void launch(ProduceWork work, const engine::gpu::Nic* with_nic);
  void wait(const std::function<void()>& watch);
};

void ProducerLauncher::Impl::allocate() {
  const std::size_t counts = std::size_t{producers} * kLatencyBuckets * sizeof(std::uint64_t);
  // A share is never 0, however small the window.
  const std::size_t tickets = std::size_t{window} + producers;
  const OnGpu on(gpu);
  must(cudaMalloc(&seats.fifos, tickets * sizeof(InFlight)), "allocating GPU memory");
  must(cudaMalloc(&seats.latency_counts, counts), "allocating GPU memory");
  must(cudaMalloc(&seats.control, sizeof(Control)), "allocating GPU memory");
  must(cudaHostAlloc(&seats.produced, producers * sizeof(Produced), cudaHostAllocMapped),
       "allocating pinned memory");
  must(cudaMalloc(&seats.stop, sizeof *seats.stop), "allocating GPU memory");
  must(cudaMemset(seats.stop, 0, sizeof *seats.stop), "clearing GPU memory");
  must(cudaHostAlloc(&stopped, sizeof *stopped, cudaHostAllocPortable), "allocating pinned memory");
  must(cudaHostAlloc(&latency_counts, counts, cudaHostAllocMapped), "allocating pinned memory");
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  must(cudaStreamCreateWithFlags(&stop_stream, cudaStreamNonBlocking), "making a stream");
  *stopped = 1;
  // So that no local memory grows at a later launch.
  for (const Sharing sharing : {Sharing::kExclusive, Sharing::kBlock, Sharing::kDevice}) {
    ProduceWork nothing;
    nothing.producers = 0;
    nothing.sharing = sharing;
    launch(nothing, nullptr);
    must(cudaStreamSynchronize(stream), "waiting for a kernel of no producers");
  }
}

void ProducerLauncher::Impl::release() noexcept {
  const OnGpu on(gpu);
  if (stream != nullptr) cudaStreamDestroy(stream);
  if (stop_stream != nullptr) cudaStreamDestroy(stop_stream);
  cudaFree(seats.fifos);
  cudaFree(seats.latency_counts);
  cudaFree(seats.control);
  cudaFreeHost(seats.produced);
  cudaFree(seats.stop);
  cudaFreeHost(stopped);
  cudaFreeHost(latency_counts);
}

void ProducerLauncher::Impl::launch(ProduceWork work, const engine::gpu::Nic* with_nic) {
  const std::uint32_t group = threads_of(work.exec);
  const bool one_block = work.sharing == Sharing::kBlock && work.exec != Exec::kBlock;
  const std::uint32_t blocks = one_block || work.producers == 0 ? 1 : work.producers;
  const void* function = kernel(work.sharing, with_nic != nullptr);
  if (with_nic == nullptr) {
    const std::uint32_t threads = one_block && work.producers != 0 ? work.producers * group : group;
    void* arguments[] = {&work, &seats};
    return must(cudaLaunchKernel(function, dim3(blocks), dim3(threads), arguments, 0, stream),
                "launching the producers");
  }
  // All blocks must run at once, so that the launch is cooperative: one that does not fit is
  // refused.
  engine::gpu::Nic nic = *with_nic;
  nic.producers = work.producers;
  must(cudaMemsetAsync(nic.ended, 0, sizeof *nic.ended, stream), "counting producers from 0");
  void* arguments[] = {&nic, &work, &seats};
  const std::size_t shared = sizeof(engine::gpu::Shared);
  must(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
       "giving the NIC's blocks their shared memory");
  must(cudaLaunchCooperativeKernel(function, dim3(nic.blocks + blocks), dim3(engine::gpu::kThreads),
                                   arguments, shared, stream),
       "launching " + std::to_string(blocks) + " blocks of producers and " +
           std::to_string(nic.blocks) + " of the NIC in one kernel");
}

// Each wait of a producer has a deadline, so that the kernel ends.
void ProducerLauncher::Impl::wait(const std::function<void()>& watch) {
  constexpr auto kBetweenLooks = std::chrono::microseconds(200);
  constexpr unsigned kLooksBetweenWatches = 500;
  for (unsigned looks = 1;; ++looks) {
    const cudaError_t error = cudaStreamQuery(stream);
    if (error != cudaErrorNotReady) return must(error, "waiting for the producers");
    std::this_thread::sleep_for(kBetweenLooks);
    if (looks % kLooksBetweenWatches == 0) watch();
  }
}

ProducerLauncher::ProducerLauncher(std::uint32_t gpu, std::uint32_t producers, std::uint32_t window)
    : impl_(new Impl) {
  impl_->gpu = static_cast<int>(gpu);
  impl_->producers = producers;
  impl_->window = window;
  try {
    impl_->allocate();
  } catch (...) {
    impl_->release();
    delete impl_;
    throw;
  }
}

ProducerLauncher::~ProducerLauncher() {
  impl_->release();
  delete impl_;
}

std::vector<Produced> ProducerLauncher::run(const ProduceWork& work, const engine::gpu::Nic* nic,
                                            const std::function<void()>& watch) {
  if (work.producers > impl_->producers || work.window > impl_->window) {
    throw Error(EINVAL, "there is no room for so many producers, or for such a window");
  }
  const OnGpu on(impl_->gpu);
  Seats& seats = impl_->seats;
  const std::size_t counts = work.producers * kLatencyBuckets * sizeof(std::uint64_t);
  const bool latencies = work.batch == 1;
  for (std::uint32_t p = 0; p < work.producers; ++p) seats.produced[p] = Produced{};
  must(cudaMemsetAsync(seats.control, 0, sizeof(Control), impl_->stream), "clearing counts");
  must(cudaMemsetAsync(seats.stop, 0, sizeof *seats.stop, impl_->stream), "clearing counts");
  if (latencies) {
    must(cudaMemsetAsync(seats.latency_counts, 0, counts, impl_->stream), "clearing counts");
  }
  impl_->launch(work, nic);
  impl_->wait(watch);
  if (latencies) {
    must(cudaMemcpyAsync(impl_->latency_counts, seats.latency_counts, counts,
                         cudaMemcpyDeviceToHost, impl_->stream),
         "copying latencies");
    must(cudaStreamSynchronize(impl_->stream), "copying latencies");
  }
  return {seats.produced, seats.produced + work.producers};
}

const std::uint64_t* ProducerLauncher::latency_counts(std::uint32_t p) const {
  return impl_->latency_counts + p * kLatencyBuckets;
}

// What fails here fails at the next look at the producers, too.
void ProducerLauncher::stop() {
  const OnGpu on(impl_->gpu);
  cudaMemcpyAsync(impl_->seats.stop, impl_->stopped, sizeof *impl_->stopped, cudaMemcpyHostToDevice,
                  impl_->stop_stream);
  cudaStreamSynchronize(impl_->stop_stream);
}

const std::uint32_t* ProducerLauncher::stop_word() const {
  return impl_->seats.stop;
}

}  // namespace peal::ladder::gpu
