#include <cuda_runtime.h>

#include <cstring>
#include <stdexcept>

#include "gpu/producers.hpp"
#include "peal/device/producer.hpp"
#include "peal/memory/gpu_memory.hpp"

namespace peal::test {
namespace {

constexpr std::uint32_t kWindowMax = 1024;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

template <Sharing S>
__global__ void produce(const QueueHandle* queues, Job job, InFlight* fifos, Outcome* outcomes) {
  const std::uint32_t p = blockIdx.x * blockDim.x + threadIdx.x;
  if (p >= job.producers) return;
  ProducerOptions options;
  options.submit = job.submit;
  options.window = job.window;
  options.batch = job.batch;
  options.producers_on_queue = (job.producers + job.queues - 1) / job.queues;
  options.timeout_ns = job.timeout_ns;
  Producer<GpuMemory, S> producer(queues[p % job.queues], options, fifos + p * kWindowMax);
  const std::uint64_t from = std::uint64_t{p} * job.puts * job.bytes;
  const auto put_of = [&](std::uint64_t i) {
    return Put{job.source + from + i * job.bytes, job.lkey, job.target + from + i * job.bytes,
               job.rkey, job.bytes};
  };
  Outcome& outcome = outcomes[p];
  outcome.started_ns = GpuMemory::now_ns();
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
  outcome.ended_ns = GpuMemory::now_ns();
  outcome.posted = producer.posted_puts();
  outcome.completed = producer.completed_puts();
  outcome.status = status;
}

template <class T>
class OnGpu {
 public:
  explicit OnGpu(std::size_t count) : count_(count) {
    check(cudaMalloc(&data_, count * sizeof(T)), "cudaMalloc");
  }
  ~OnGpu() { cudaFree(data_); }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;
  T* data() const { return data_; }
  void fill(const std::vector<T>& from) {
    check(cudaMemcpy(data_, from.data(), count_ * sizeof(T), cudaMemcpyDefault), "cudaMemcpy");
  }
  std::vector<T> read() const {
    std::vector<T> to(count_);
    check(cudaMemcpy(to.data(), data_, count_ * sizeof(T), cudaMemcpyDefault), "cudaMemcpy");
    return to;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

}  // namespace

std::string why_no_gpu() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  return devices == 0 ? "there is no GPU" : "";
}

std::vector<Outcome> run_producers(const std::vector<QueueHandle>& queues, const Job& job) {
  if (job.window > kWindowMax) throw std::runtime_error("the window is too large");
  OnGpu<QueueHandle> handles(queues.size());
  handles.fill(queues);
  OnGpu<InFlight> fifos(std::size_t{job.producers} * kWindowMax);
  OnGpu<Outcome> outcomes(job.producers);
  outcomes.fill(std::vector<Outcome>(job.producers));
  const bool one_block = job.sharing == Sharing::kBlock;
  const std::uint32_t blocks = one_block ? 1 : job.producers;
  const std::uint32_t threads = one_block ? job.producers : 1;
  switch (job.sharing) {
    case Sharing::kExclusive:
      produce<Sharing::kExclusive>
          <<<blocks, threads>>>(handles.data(), job, fifos.data(), outcomes.data());
      break;
    case Sharing::kBlock:
      produce<Sharing::kBlock>
          <<<blocks, threads>>>(handles.data(), job, fifos.data(), outcomes.data());
      break;
    case Sharing::kDevice:
      produce<Sharing::kDevice>
          <<<blocks, threads>>>(handles.data(), job, fifos.data(), outcomes.data());
      break;
  }
  check(cudaGetLastError(), "launching producers");
  check(cudaDeviceSynchronize(), "waiting for the producers");
  return outcomes.read();
}

Pinned::Pinned(std::size_t bytes) : bytes_(bytes) {
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped), "cudaHostAlloc");
  std::memset(memory, 0, bytes);
  data_ = static_cast<std::byte*>(memory);
}

Pinned::~Pinned() {
  cudaFreeHost(data_);
}

}  // namespace peal::test
