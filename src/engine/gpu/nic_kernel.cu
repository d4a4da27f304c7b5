// The kernel of the GPU engine: blocks that serve until they are told to stop.
#include <cuda_runtime.h>

#include "engine/gpu/nic_kernel.hpp"
#include "engine/gpu/serve.cuh"

namespace peal::engine::gpu {
namespace {

__global__ void __launch_bounds__(kThreads, 1) serve(Nic nic) {
  __shared__ Shared sh;
  serve_block(nic, sh, blockIdx.x);
}

}  // namespace

int launch(const Nic& nic, void* stream) {
  serve<<<nic.blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(nic);
  return cudaGetLastError();
}

}  // namespace peal::engine::gpu
