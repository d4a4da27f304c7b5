#include "verbs/cuda_memory.hpp"

#include <cuda_runtime.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "peal/mlx5/doorbell.hpp"
#include "verbs/software.hpp"

namespace peal::verbs {
namespace {

int errno_of(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return 0;
    case cudaErrorMemoryAllocation: return ENOMEM;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver: return ENODEV;
    case cudaErrorNotSupported: return ENOTSUP;
    default: return EIO;
  }
}

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

}  // namespace peal::verbs
