// What a block of the NIC does, in a kernel of its own (nic_kernel.cu) or as a part of its
// producers' kernel. One warp, the front, looks at doorbells, fetches and checks; one, the back,
// writes CQEs in order; the others copy in between. They meet in a ring of steps, a WQE each, and a
// ring of pieces, as much as a warp copies at once.
#pragma once

#include "engine/gpu/back.cuh"
#include "engine/gpu/copy.cuh"
#include "engine/gpu/front.cuh"

namespace peal::engine::gpu {

// Of a kernel that serves: its dynamic shared memory, and nothing but it.
__device__ inline Shared& shared_memory() {
  extern __shared__ __align__(128) unsigned char bytes[];
  return *reinterpret_cast<Shared*>(bytes);
}

// By all kThreads threads of block `block` of nic.blocks, all of which must be running. Returns at
// the stop epoch, or where nic.ended is given, when all producers have ended and what they have
// rung is done.
__device__ inline void serve_block(const Nic& nic, Shared& sh, std::uint32_t block) {
  static_assert(alignof(Shared) == 128);
  if (threadIdx.x == 0) sh.pieces = sh.claimed = sh.head = sh.tail = sh.stop = 0;
  __syncthreads();
  const std::uint32_t lane = threadIdx.x % kLanes;
  const std::uint32_t warp = threadIdx.x / kLanes;
  switch (warp) {
    case kFrontWarp: return run_front(nic, sh, block, lane);
    case kBackWarp: return run_back(nic, sh, lane);
    default: return run_copying(sh, warp - kFirstCopier, lane);
  }
}

}  // namespace peal::engine::gpu
