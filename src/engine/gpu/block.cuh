// What the warps of a block of the GPU engine's kernel share: a ring of steps, a WQE each, and a
// ring of pieces, as much as a warp copies at once, with counts that they release and acquire.
#pragma once

#include <cstdint>

#include "engine/gpu/nic_kernel.hpp"
#include "nic/atomic.hpp"
#include "nic/check.hpp"
#include "peal/memory/gpu_memory.hpp"

namespace peal::engine::gpu {

inline constexpr std::uint32_t kLanes = 32;
inline constexpr std::uint32_t kAllLanes = 0xffffffff;
inline constexpr std::uint32_t kFrontWarp = 0;
inline constexpr std::uint32_t kBackWarp = 1;
inline constexpr std::uint32_t kFirstCopier = 2;
inline constexpr std::uint32_t kCopiers = 24;  // warps; their buffers fill the shared memory
inline constexpr std::uint32_t kThreads = (kFirstCopier + kCopiers) * kLanes;
inline constexpr std::uint32_t kPieces = 256;  // between the front and the copying warps
inline constexpr std::uint32_t kPieceBytes = 4096;
inline constexpr std::uint32_t kMostSharedBytes = 227 << 10;  // that a block of sm_90 may have
static_assert(kQueuesABlock < kLanes, "a lane a queue, and one for the epoch");

// Of words in shared memory; these order nothing.
__device__ inline std::uint32_t load_relaxed(const std::uint32_t* p) {
  std::uint32_t v = 0;
  asm volatile("ld.relaxed.cta.b32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ inline std::uint64_t load_relaxed(const std::uint64_t* p) {
  std::uint64_t v = 0;
  asm volatile("ld.relaxed.cta.b64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
__device__ inline void store_relaxed(std::uint64_t* p, std::uint64_t v) {
  asm volatile("st.relaxed.cta.b64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

// MO-14, between the warps of a block: free-running counts in shared memory.
__device__ inline std::uint32_t load_acquire(const std::uint32_t* p) {
  return GpuMemory::load_count_acquire(p, FenceScope::kBlock);
}
__device__ inline void store_release(std::uint32_t* p, std::uint32_t v) {
  GpuMemory::store_count_release(p, v, FenceScope::kBlock);
}
__device__ inline void add_release(std::uint32_t* p, std::uint32_t v) {
  GpuMemory::add_count_release(p, v, FenceScope::kBlock);
}

// Each copying warp takes every kCopiers-th piece, so that none contends with another for them.
struct Claimed {
  std::uint32_t next[kCopiers];  // the number of the piece that the warp takes next
};
static_assert(kCopiers <= kLanes, "a lane a copying warp");

// By a whole warp: so many pieces, from the first on, have been taken. No more than were made: the
// one that is made next is among those that are taken next.
__device__ inline std::uint32_t taken_acquire(const Claimed& c, std::uint32_t lane) {
  const std::uint32_t next = load_acquire(&c.next[lane < kCopiers ? lane : 0]);
  const std::uint32_t first = __shfl_sync(kAllLanes, next, 0);
  const int least = __reduce_min_sync(kAllLanes, static_cast<int>(next - first));
  __syncwarp();  // what a lane has acquired is for all
  return first + static_cast<std::uint32_t>(least);
}

// A WQE that was fetched and has no CQE yet.
struct Step {
  const std::byte* from;
  std::byte* to;
  std::uint64_t index;
  std::uint32_t bytes;
  std::uint32_t pieces;      // that this block copies it in
  std::uint32_t far_pieces;  // and its helpers
  std::uint32_t queue;       // which of the block's
  nic::Operation operation;
  std::uint8_t opcode;
  std::uint8_t fm_ce_se;
  std::uint8_t vendor;
  mlx5::Syndrome syndrome;
  nic::Refusal refusal;
  bool corrupt;  // a fault
};

// As a front sees a helper.
struct Fed {
  std::uint32_t made;
  std::uint32_t told;   // of them, the helper knows
  std::uint32_t taken;  // at least
};

// A queue that the block serves, with what it needs of the tables at hand. The front writes the
// front's state, the back the back's; while nothing is between them, the front may write both.
struct Served {
  nic::QpEntry qp;
  nic::QpEntry peer;  // without a number where there is none
  nic::CqEntry cq;
  std::uint64_t* doorbell;
  std::uint32_t index;
  std::uint32_t first_fault;  // in the mirror
  std::uint32_t faults;
  std::uint32_t holds;  // a bit for each that is a hold
  FrontState front;
  BackState back;
};

// Dynamic shared memory: more than a block has otherwise.
struct Shared {
  alignas(128) std::byte buffer[kCopiers][2][kPieceBytes];
  std::uint64_t loaded[kCopiers][2];  // barriers of loads into the buffers
  Step step[kSteps];
  std::uint32_t done[kSteps];  // pieces of the step that are copied
  Piece piece[kPieces];
  std::uint32_t pieces;  // made by the front
  Claimed claimed;       // by the copying warps
  std::uint32_t head;    // steps made by the front
  std::uint32_t tail;    // steps done with by the back
  std::uint32_t stop;
  Fed fed[kMaxBlocksAQueue - 1];
  std::uint32_t far_due[kSteps];  // what far_done will be when helpers have copied the step
  nic::AtomicOperands operands;   // of an atomic, which is alone between front and back
  bool swaps;
  Served served[kQueuesABlock];
};
static_assert(kPieces % kLanes == 0 && kFedPieces >= 2 * kPieces);
static_assert(sizeof(Shared) + alignof(Shared) <= kMostSharedBytes, "and a word of the producers'");

}  // namespace peal::engine::gpu
