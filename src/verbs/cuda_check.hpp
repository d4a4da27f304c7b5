// What every use of CUDA here needs: its errors as exceptions, the GPU that it is meant for, pinned
// memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include "peal/host/error.hpp"

namespace peal::cuda {

inline int errno_of(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return 0;
    case cudaErrorMemoryAllocation: return ENOMEM;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver: return ENODEV;
    case cudaErrorNotSupported: return ENOTSUP;
    case cudaErrorNotPermitted: return EPERM;
    case cudaErrorInvalidValue: return EINVAL;
    case cudaErrorHostMemoryAlreadyRegistered: return EEXIST;
    default: return EIO;
  }
}

// Throws peal::Error that says what could not be done.
inline void must(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return;
  throw Error(errno_of(error), what + ": " + cudaGetErrorString(error));
}

// Empty where a GPU can be used; otherwise why not. To be called before anything else of CUDA, so
// that all kernels are loaded before one of them runs for ever.
inline std::string why_no_gpu() {
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  int gpus = 0;
  const cudaError_t error = cudaGetDeviceCount(&gpus);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  return gpus == 0 ? "there is no GPU" : "";
}

// Makes a GPU the current one of this thread, for as long as it lives.
class OnGpu {
 public:
  explicit OnGpu(int gpu) noexcept {
    cudaGetDevice(&before_);
    error_ = cudaSetDevice(gpu);
  }
  ~OnGpu() { cudaSetDevice(before_); }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

  cudaError_t error() const { return error_; }  // of making it so

 private:
  int before_ = 0;
  cudaError_t error_ = cudaSuccess;
};

// Zeroed, for every GPU. Throws peal::Error.
template <class T>
T* pinned(std::size_t count) {
  void* memory = nullptr;
  must(cudaHostAlloc(&memory, count * sizeof(T), cudaHostAllocPortable),
       "allocating pinned memory");
  std::memset(memory, 0, count * sizeof(T));
  return static_cast<T*>(memory);
}

}  // namespace peal::cuda
