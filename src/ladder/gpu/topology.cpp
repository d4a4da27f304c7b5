#include "ladder/gpu/topology.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "ladder/gpu/produce.hpp"
#include "ladder/outcome.hpp"
#include "verbs/cuda_check.hpp"

namespace peal::ladder::gpu {

using namespace cuda;

std::uint32_t gpus() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? static_cast<std::uint32_t>(count) : 0;
}

std::string gpu_name(std::uint32_t gpu) {
  cudaDeviceProp properties{};
  must(cudaGetDeviceProperties(&properties, static_cast<int>(gpu)), "asking for a GPU's name");
  return properties.name;
}

std::string driver_version() {
  // "NVRM version: NVIDIA UNIX ... Kernel Module for x86_64  580.159.04  Release Build ..."
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const auto dots = std::count(word.begin(), word.end(), '.');
    const bool number = word.find_first_not_of("0123456789.") == std::string::npos;
    if (number && dots >= 1) return word;
  }
  int version = 0;
  must(cudaDriverGetVersion(&version), "asking for the driver's version");
  return fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10);
}

void require_gpu(std::uint32_t gpu, const std::string& option) {
  const std::uint32_t count = gpus();
  if (gpu < count) return;
  throw MachineError(fmt::format("{} names GPU {}, and this machine has {} GPU{}, counted from 0",
                                 option, gpu, count, count == 1 ? "" : "s"));
}

void require_peer_access(std::uint32_t gpu, std::uint32_t other) {
  if (gpu == other) return;
  int can = 0;
  must(cudaDeviceCanAccessPeer(&can, static_cast<int>(gpu), static_cast<int>(other)),
       "asking for peer access");
  if (can == 0) {
    throw MachineError(fmt::format(
        "kernels on GPU {} cannot reach memory of GPU {}: there is no peer access between them",
        gpu, other));
  }
  const OnGpu on(static_cast<int>(gpu));
  const cudaError_t error = cudaDeviceEnablePeerAccess(static_cast<int>(other), 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();  // which keeps it
    return;
  }
  must(error, fmt::format("enabling access of GPU {} to GPU {}", gpu, other));
}

// Only NVLink carries atomics of a GPU to its peer.
std::string path_between(std::uint32_t gpu, std::uint32_t other) {
  if (gpu == other) return "its own memory";
  int atomics = 0;
  must(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported,
                                 static_cast<int>(gpu), static_cast<int>(other)),
       "asking for the path between GPUs");
  return atomics != 0 ? "NVLink" : "PCIe";
}

double copy_gbps(std::uint32_t gpu, void* to, const void* from, std::uint64_t bytes) {
  constexpr int kCopies = 5;
  const OnGpu on(static_cast<int>(gpu));
  cudaStream_t stream = nullptr;
  cudaEvent_t before = nullptr;
  cudaEvent_t after = nullptr;
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  cudaEventCreate(&before);
  cudaEventCreate(&after);
  float best_ms = 0;
  cudaError_t error = cudaSuccess;
  for (int i = 0; i < kCopies && error == cudaSuccess; ++i) {
    cudaEventRecord(before, stream);
    error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
    cudaEventRecord(after, stream);
    if (error == cudaSuccess) error = cudaEventSynchronize(after);
    float ms = 0;
    cudaEventElapsedTime(&ms, before, after);
    if (i == 0 || ms < best_ms) best_ms = ms;
  }
  cudaEventDestroy(before);
  cudaEventDestroy(after);
  cudaStreamDestroy(stream);
  must(error, "copying for the ceiling");
  return static_cast<double>(bytes) * 8 / (static_cast<double>(best_ms) * 1e6);
}

}  // namespace peal::ladder::gpu
