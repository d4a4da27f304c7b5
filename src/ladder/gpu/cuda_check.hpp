// What every call of CUDA here needs: its error as an exception, and the GPU it is meant for.
#pragma once

#include <cuda_runtime_api.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "peal/host/error.hpp"

namespace peal::ladder::gpu {

// Throws peal::Error that says what could not be done.
inline void must(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return;
  throw Error(error == cudaErrorMemoryAllocation ? ENOMEM : EIO,
              what + ": " + cudaGetErrorString(error));
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
  explicit OnGpu(int gpu) {
    cudaGetDevice(&before_);
    cudaSetDevice(gpu);
  }
  ~OnGpu() { cudaSetDevice(before_); }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

 private:
  int before_ = 0;
};

}  // namespace peal::ladder::gpu
