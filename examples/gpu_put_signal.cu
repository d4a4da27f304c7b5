// GPU threads write a payload and PUT it, each with a signal behind it; a CPU thread counts the
// signals and reads the payload. The NICs are software ConnectXs, on another CPU thread.
// Exits with 0 when every byte arrived, 1 when not, 5 where there is no GPU.
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "peal/device/put.hpp"
#include "peal/host/cuda.hpp"
#include "peal/host/queue_pair.hpp"
#include "peal/host/sinks.hpp"
#include "peal/host/software.hpp"
#include "peal/memory/cpu_memory.hpp"
#include "peal/memory/gpu_memory.hpp"

constexpr unsigned kThreads = 32, kBytes = 4096, kAll = kThreads * kBytes;

__global__ void produce(peal::QueueHandle handle, peal::Put put, peal::FetchAdd signal) {
  peal::SendQueue<peal::GpuMemory, peal::Sharing::kBlock> queue(
      handle, {peal::DoorbellOrder::kRecordRing, peal::PublishOrder::kCombine});
  put.local_address += threadIdx.x * kBytes;
  put.remote_address += threadIdx.x * kBytes;
  memset(reinterpret_cast<void*>(put.local_address), threadIdx.x + 1, kBytes);
  peal::Posted posted;
  if (put_signal(queue, put, signal, &posted) == peal::Status::kOk) wait(queue, posted.ticket);
}

int main() try {
  const auto fabric = peal::SoftwareFabric::create(peal::cuda_host_memory());
  const auto sender = peal::Context::open(fabric.provider(0));
  const auto receiver = peal::Context::open(fabric.provider(1));
  unsigned char* source = nullptr;  // until the process ends
  const std::uint64_t bytes = 2 * kAll + 8;
  if (cudaMallocHost(&source, bytes) != cudaSuccess) throw peal::Error(ENOMEM, "no pinned memory");
  unsigned char* const target = source + kAll;  // and behind it the count of signals
  std::memset(target, 0, kAll + 8);
  const auto from = peal::MemoryRegion::create(sender, source, kAll, peal::Access::kLocalOnly);
  const auto to = peal::MemoryRegion::create(receiver, target, kAll + 8, peal::Access::kRemoteAll);
  const auto sinks = peal::Sinks::create(sender, 1);  // where the old values of the adds land
  auto qp = peal::QueuePair::create(sender), peer = peal::QueuePair::create(receiver);
  qp.connect(peer.address());
  peer.connect(qp.address());

  const peal::Put put{from.address(), from.lkey(), to.address(), to.rkey(), kBytes};
  produce<<<1, kThreads>>>(qp.handle(), put, {{to.address() + kAll, to.rkey(), sinks[0]}, 1});
  const auto* signals = reinterpret_cast<std::uint64_t*>(target + kAll);
  const std::uint64_t end_ns = peal::CpuMemory::now_ns() + peal::kDefaultTimeoutNs;
  while (peal::CpuMemory::load_signal_acquire(signals, peal::FenceScope::kSystem) < kThreads) {
    if (peal::CpuMemory::now_ns() > end_ns) break;
  }
  const bool right = *signals == kThreads && std::memcmp(target, source, kAll) == 0;
  cudaDeviceSynchronize();  // the queue pair outlives the kernel, whose waits end
  std::printf("%s (CUDA: %s)\n", right ? "all arrived, moved by software" : "not all arrived",
              cudaGetErrorString(cudaGetLastError()));
  return right ? 0 : 1;
} catch (const peal::Error& e) {
  std::fprintf(stderr, "gpu_put_signal: %s\n", e.what());
  return e.code() == ENODEV ? 5 : 1;
}
