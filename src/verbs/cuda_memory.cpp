#include "verbs/cuda_memory.hpp"

#include <cuda_runtime.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "peal/host/cuda.hpp"
#include "peal/host/error.hpp"
#include "peal/mlx5/doorbell.hpp"
#include "verbs/cuda_check.hpp"
#include "verbs/software.hpp"

namespace peal::verbs {
namespace {

using cuda::errno_of;
using cuda::must;

void* page_of(void* address) {
  const auto a = reinterpret_cast<std::uintptr_t>(address);
  return reinterpret_cast<void*>(a - a % mlx5::kUarPageBytes);
}

}  // namespace

void* CudaHostMemory::allocate(std::size_t bytes) {
  void* memory = nullptr;
  errno = errno_of(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable));
  if (errno != 0) return nullptr;
  std::memset(memory, 0, bytes);
  return memory;
}

void CudaHostMemory::release(void* memory, std::size_t) {
  cudaFreeHost(memory);
}

// The whole page is registered: CUDA knows no smaller piece.
void* CudaHostMemory::map_uar(void* reg_addr) {
  void* page = page_of(reg_addr);
  errno = errno_of(cudaHostRegister(page, mlx5::kUarPageBytes, cudaHostRegisterMapped));
  if (errno != 0) return nullptr;
  void* mapped = nullptr;
  errno = errno_of(cudaHostGetDevicePointer(&mapped, reg_addr, 0));
  if (errno == 0 && mapped == reg_addr) return mapped;
  cudaHostUnregister(page);
  if (errno == 0) errno = ENOTSUP;  // unmap_uar would not find the page again
  return nullptr;
}

void CudaHostMemory::unmap_uar(void* mapped) {
  cudaHostUnregister(page_of(mapped));
}

int CudaHostMemory::copy_to_device(void* to, const void* from, std::size_t bytes) {
  return HostMemory().copy_to_device(to, from, bytes);
}

int CudaHostMemory::copy_from_device(void* to, const void* from, std::size_t bytes) {
  return HostMemory().copy_from_device(to, from, bytes);
}

namespace {

constexpr std::size_t kPageBytes = 4096;

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace

CudaDeviceMemory::CudaDeviceMemory(std::size_t bytes) : bytes_(whole_pages(bytes)) {
  void* arena = nullptr;
  must(cudaMalloc(&arena, bytes_), "allocating " + std::to_string(bytes_) + " bytes of GPU memory");
  arena_ = static_cast<std::byte*>(arena);
  cudaStream_t stream = nullptr;
  const cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) cudaFree(arena_);
  must(error, "making a stream for copies");
  stream_ = stream;
  free_[arena_] = bytes_;
}

CudaDeviceMemory::~CudaDeviceMemory() {
  cudaStreamDestroy(static_cast<cudaStream_t>(stream_));
  cudaFree(arena_);
}

void* CudaDeviceMemory::allocate(std::size_t bytes) {
  const std::size_t wanted = whole_pages(bytes);
  std::byte* memory = nullptr;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [at, size] : free_) {
      if (size < wanted) continue;
      memory = at;
      const std::size_t left = size - wanted;
      free_.erase(at);
      if (left != 0) free_[memory + wanted] = left;
      break;
    }
  }
  if (memory == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  const std::vector<std::byte> zeros(wanted);
  errno = copy_payload(memory, zeros.data(), wanted);
  if (errno == 0) return memory;
  const int error = errno;
  release(memory, bytes);
  errno = error;
  return nullptr;
}

void CudaDeviceMemory::release(void* memory, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto at = free_.emplace(static_cast<std::byte*>(memory), whole_pages(bytes)).first;
  const auto next = std::next(at);
  if (next != free_.end() && at->first + at->second == next->first) {
    at->second += next->second;
    free_.erase(next);
  }
  if (at == free_.begin()) return;
  const auto before = std::prev(at);
  if (before->first + before->second != at->first) return;
  before->second += at->second;
  free_.erase(at);
}

int CudaDeviceMemory::copy_payload(void* to, const void* from, std::size_t bytes) {
  const auto stream = static_cast<cudaStream_t>(stream_);
  if (const int error = errno_of(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream))) {
    return error;
  }
  return errno_of(cudaStreamSynchronize(stream));
}

int CudaDeviceMemory::copy_to_device(void* to, const void* from, std::size_t bytes) {
  return copy_payload(to, from, bytes);
}

int CudaDeviceMemory::copy_from_device(void* to, const void* from, std::size_t bytes) {
  return copy_payload(to, from, bytes);
}

CudaUarPages::CudaUarPages(std::size_t pages, bool on_gpu) : on_gpu_(on_gpu) {
  const std::size_t bytes = pages * mlx5::kUarPageBytes;
  void* arena = nullptr;
  must(on_gpu ? cudaMalloc(&arena, bytes) : cudaHostAlloc(&arena, bytes, cudaHostAllocPortable),
       on_gpu ? "allocating GPU memory for doorbells" : "allocating pinned memory for doorbells");
  arena_ = static_cast<std::byte*>(arena);
  cudaStream_t stream = nullptr;
  const cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  stream_ = stream;
  if (error != cudaSuccess) release();
  must(error, "making a stream for doorbells");
  for (std::size_t i = pages; i > 0; --i) free_.push_back(arena_ + (i - 1) * mlx5::kUarPageBytes);
}

CudaUarPages::~CudaUarPages() {
  release();
}

void CudaUarPages::release() noexcept {
  if (stream_ != nullptr) cudaStreamDestroy(static_cast<cudaStream_t>(stream_));
  if (on_gpu_) {
    cudaFree(arena_);
  } else {
    cudaFreeHost(arena_);
  }
}

void* CudaUarPages::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return nullptr;
  void* page = free_.back();
  const auto stream = static_cast<cudaStream_t>(stream_);
  if (cudaMemsetAsync(page, 0, mlx5::kUarPageBytes, stream) != cudaSuccess ||
      cudaStreamSynchronize(stream) != cudaSuccess) {
    return nullptr;
  }
  free_.pop_back();
  return page;
}

void CudaUarPages::give_back(void* page) {
  const std::lock_guard lock(mutex_);
  free_.push_back(page);
}

}  // namespace peal::verbs

namespace peal {
namespace {

void require_gpu() {
  int devices = 0;
  cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess && devices == 0) error = cudaErrorNoDevice;
  cuda::must(error, "there is no GPU that CUDA can use");
}

}  // namespace

std::shared_ptr<verbs::DeviceMemory> cuda_host_memory() {
  require_gpu();
  return std::make_shared<verbs::CudaHostMemory>();
}

std::shared_ptr<verbs::DeviceMemory> cuda_device_memory(std::size_t bytes) {
  require_gpu();
  return std::make_shared<verbs::CudaDeviceMemory>(bytes);
}

}  // namespace peal
