#include "engine/gpu/gpu_engine.hpp"

#include <cuda_runtime.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>

#include "engine/gpu/nic_kernel.hpp"
#include "peal/host/error.hpp"

namespace peal::engine {
namespace {

constexpr std::chrono::seconds kAnswerDeadline{10};

void require(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    throw Error(EIO, std::string(what) + ": " + cudaGetErrorString(error));
  }
}

template <class T>
T* on_gpu(std::size_t count) {
  void* memory = nullptr;
  require(cudaMalloc(&memory, count * sizeof(T)), "allocating GPU memory for the NIC");
  require(cudaMemset(memory, 0, count * sizeof(T)), "clearing GPU memory for the NIC");
  return static_cast<T*>(memory);
}
template <class T>
T* pinned(std::size_t count) {
  void* memory = nullptr;
  require(cudaHostAlloc(&memory, count * sizeof(T), cudaHostAllocPortable),
          "allocating pinned memory for the NIC");
  std::memset(memory, 0, count * sizeof(T));
  return static_cast<T*>(memory);
}

}  // namespace

struct GpuEngine::Impl {
  Impl(Core& a, Core& b, const GpuEngineOptions& o) : sender(a), receiver(b), options(o) {}

  void start();
  void stop() noexcept;
  void publish();
  void take_reports();
  gpu::Queue queue(std::uint32_t index) const;  // as after its last round
  // Sets the epoch behind what was copied before on this stream.
  void set_epoch(std::uint64_t e);
  bool answered(std::uint64_t e) const;

  Core& sender;
  Core& receiver;
  GpuEngineOptions options;
  std::mutex mutex;
  gpu::Nic nic{};
  gpu::Mirror* staging = nullptr;         // pinned
  std::uint64_t* staged_epoch = nullptr;  // pinned
  cudaStream_t copies = nullptr;
  cudaStream_t kernel = nullptr;
  std::uint64_t epoch = 0;
  bool running = false;
};

void GpuEngine::Impl::start() {
  if (options.blocks == 0 || options.blocks > gpu::kMaxBlocks) {
    throw Error(EINVAL, "a GPU engine has 1 to " + std::to_string(gpu::kMaxBlocks) + " blocks");
  }
  require(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking), "making a stream");
  require(cudaStreamCreateWithFlags(&kernel, cudaStreamNonBlocking), "making a stream");
  for (gpu::Mirror*& m : nic.mirror) m = on_gpu<gpu::Mirror>(1);
  nic.epoch = on_gpu<std::uint64_t>(1);
  nic.seen = pinned<std::uint64_t>(gpu::kMaxBlocks);
  nic.queues = on_gpu<gpu::Queue>(nic::kMaxQps);
  nic.blocks = options.blocks;
  nic.null_payload = options.null_payload;
  staging = pinned<gpu::Mirror>(1);
  staged_epoch = pinned<std::uint64_t>(1);
  require(static_cast<cudaError_t>(gpu::launch(nic, kernel)), "starting the NIC's kernel");
  running = true;
}

void GpuEngine::Impl::set_epoch(std::uint64_t e) {
  *staged_epoch = e;
  require(cudaMemcpyAsync(nic.epoch, staged_epoch, sizeof e, cudaMemcpyHostToDevice, copies),
          "telling the NIC's kernel");
  require(cudaStreamSynchronize(copies), "telling the NIC's kernel");
}

bool GpuEngine::Impl::answered(std::uint64_t e) const {
  for (std::uint32_t b = 0; b < options.blocks; ++b) {
    if (CpuMemory::load_ready_acquire(&nic.seen[b], FenceScope::kSystem) != e) return false;
  }
  return true;
}

void GpuEngine::Impl::publish() {
  // Objects that are members of the tables alone: plain data.
  std::memcpy(static_cast<void*>(&staging->sender), &sender.tables(), sizeof(nic::Tables));
  std::memcpy(static_cast<void*>(&staging->receiver), &receiver.tables(), sizeof(nic::Tables));
  staging->queues = 0;
  for (std::uint32_t i = 1; i < nic::kMaxQps; ++i) {
    if (staging->sender.qps[i].qpn.value != 0) staging->queue[staging->queues++] = i;
  }
  if (staging->queues > options.blocks * gpu::kQueuesABlock) {
    throw Error(ENOSPC, "a GPU engine of " + std::to_string(options.blocks) +
                            " blocks serves at most " +
                            std::to_string(options.blocks * gpu::kQueuesABlock) + " queues");
  }
  ++epoch;
  require(cudaMemcpyAsync(nic.mirror[epoch & 1], staging, sizeof(gpu::Mirror),
                          cudaMemcpyHostToDevice, copies),
          "copying tables to the NIC's kernel");
  set_epoch(epoch);
  const auto deadline = std::chrono::steady_clock::now() + kAnswerDeadline;
  while (!answered(epoch)) {
    if (std::chrono::steady_clock::now() > deadline) {
      throw Error(ETIMEDOUT, "the NIC's kernel did not take new tables within 10 s");
    }
    std::this_thread::yield();
  }
}

gpu::Queue GpuEngine::Impl::queue(std::uint32_t index) const {
  gpu::Queue q;
  require(cudaMemcpyAsync(&q, &nic.queues[index], sizeof q, cudaMemcpyDeviceToHost, copies),
          "asking the NIC's kernel");
  require(cudaStreamSynchronize(copies), "asking the NIC's kernel");
  return q;
}

// What the kernel has ended is ended at both ends.
void GpuEngine::Impl::take_reports() {
  const nic::Tables& tables = sender.tables();
  for (std::uint32_t i = 1; i < nic::kMaxQps; ++i) {
    const nic::QpEntry& qp = tables.qps[i];
    if (qp.qpn.value == 0 || qp.state != nic::QpState::kRts) continue;
    const gpu::Queue q = queue(i);
    if (q.generation != qp.ring_generation || !q.failed) continue;
    const Qpn peer = qp.remote_qpn;
    sender.end(qp.qpn);
    if (q.reason >= nic::Refusal::kRkeyUnknown && q.reason <= nic::Refusal::kWrongSource) {
      receiver.end(peer);
    }
  }
}

void GpuEngine::Impl::stop() noexcept {
  if (running) {
    try {
      set_epoch(gpu::kStopEpoch);
    } catch (const Error&) {
      // Then the context is lost, and the kernel with it.
    }
    cudaStreamSynchronize(kernel);
  }
  for (gpu::Mirror* m : nic.mirror) cudaFree(m);
  cudaFree(nic.epoch);
  cudaFreeHost(nic.seen);
  cudaFree(nic.queues);
  cudaFreeHost(staging);
  cudaFreeHost(staged_epoch);
  if (copies != nullptr) cudaStreamDestroy(copies);
  if (kernel != nullptr) cudaStreamDestroy(kernel);
}

GpuEngine::GpuEngine(Core& sender, Core& receiver, const GpuEngineOptions& options)
    : impl_(std::make_unique<Impl>(sender, receiver, options)) {
  try {
    impl_->start();
  } catch (...) {
    impl_->stop();
    throw;
  }
}

GpuEngine::~GpuEngine() {
  impl_->stop();
}

void GpuEngine::call(const std::function<void()>& f) {
  const std::lock_guard lock(impl_->mutex);
  impl_->take_reports();
  f();
  impl_->publish();
}

GpuQueueReport GpuEngine::report(Qpn sender_qpn) {
  const std::lock_guard lock(impl_->mutex);
  GpuQueueReport out;
  const nic::QpEntry* qp = impl_->sender.tables().find_qp(sender_qpn);
  if (qp == nullptr) return out;
  const gpu::Queue q = impl_->queue(impl_->sender.tables().index_of(*qp));
  if (q.generation == qp->ring_generation) out = {q.wqes, q.cqes, q.bytes, q.reason};
  return out;
}

}  // namespace peal::engine
