// The kernel of the GPU engine: blocks that serve until they are told to stop.
#include <cuda_runtime.h>

#include "engine/gpu/nic_kernel.hpp"
#include "engine/gpu/serve.cuh"

namespace peal::engine::gpu {
namespace {

__global__ void __launch_bounds__(kThreads, 1) serve(Nic nic) {
  serve_block(nic, shared_memory(), blockIdx.x);
}

}  // namespace

int launch(const Nic& nic, void* stream) {
  const cudaError_t error =
      cudaFuncSetAttribute(serve, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  if (error != cudaSuccess) return error;
  serve<<<nic.blocks, kThreads, sizeof(Shared), static_cast<cudaStream_t>(stream)>>>(nic);
  return cudaGetLastError();
}

}  // namespace peal::engine::gpu
