// What a block of the NIC does, in a kernel of its own (nic_kernel.cu) or as a part of its
// producers' kernel. One warp, the front, looks at doorbells, fetches and checks; one, the back,
// writes CQEs in order; the others copy in between. They meet in a ring of steps, a WQE each, and a
// ring of pieces, as much as a warp copies at once. Other blocks may help one to copy.
#pragma once

#include "engine/gpu/back.cuh"
#include "engine/gpu/copy.cuh"
#include "engine/gpu/front.cuh"
#include "engine/gpu/helper.cuh"

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
  const std::uint32_t group = block / nic.blocks_a_queue;
  const bool leads = block % nic.blocks_a_queue == 0;
  std::uint32_t* far_done = nic.far_done + group * kSteps;
  if (threadIdx.x == 0) sh.pieces = sh.head = sh.tail = sh.stop = 0;
  if (threadIdx.x < kCopiers) sh.claimed.next[threadIdx.x] = threadIdx.x;
  // Counts of GPU memory go on from the last launch.
  for (std::uint32_t i = threadIdx.x; leads && i < kSteps; i += kThreads) {
    sh.far_due[i] = __ldcg(&far_done[i]);
  }
  if (leads && threadIdx.x + 1 < nic.blocks_a_queue) {
    const std::uint32_t made = __ldcg(&nic.feeds[block + 1 + threadIdx.x].made);
    sh.fed[threadIdx.x] = {made, made, made};
  }
  __syncthreads();
  const std::uint32_t lane = threadIdx.x % kLanes;
  const std::uint32_t warp = threadIdx.x / kLanes;
  if (warp >= kFirstCopier) {
    run_copying(sh, leads ? nullptr : far_done, warp - kFirstCopier, lane);
  } else if (!leads) {
    if (warp == kFrontWarp) run_helper(nic.feeds[block], sh, lane);
  } else if (warp == kFrontWarp) {
    run_front(nic, sh, group, lane);
  } else {
    run_back(nic, sh, far_done, lane);
  }
}

}  // namespace peal::engine::gpu
