// The copying warps of a block: each claims a piece, copies it, and counts it as done.
#pragma once

#include "engine/gpu/block.cuh"

namespace peal::engine::gpu {

inline constexpr std::uint32_t kInFlight = 8;  // loads of a lane

__device__ inline void copy(std::byte* to, const std::byte* from, std::uint32_t bytes,
                            std::uint32_t lane) {
  const auto mixed = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  std::uint32_t done = 0;
  if (mixed % 16 == 0) {
    const auto* f = reinterpret_cast<const uint4*>(from);
    auto* d = reinterpret_cast<uint4*>(to);
    const std::uint32_t vectors = bytes / 16;
    std::uint32_t i = lane;
    for (; i + (kInFlight - 1) * kLanes < vectors; i += kInFlight * kLanes) {
      uint4 v[kInFlight];
#pragma unroll
      for (std::uint32_t k = 0; k < kInFlight; ++k) v[k] = __ldcg(f + i + k * kLanes);
#pragma unroll
      for (std::uint32_t k = 0; k < kInFlight; ++k) __stcg(d + i + k * kLanes, v[k]);
    }
    for (; i < vectors; i += kLanes) __stcg(d + i, __ldcg(f + i));
    done = vectors * 16;
  } else if (mixed % 4 == 0) {
    const auto* f = reinterpret_cast<const std::uint32_t*>(from);
    auto* d = reinterpret_cast<std::uint32_t*>(to);
    for (std::uint32_t i = lane; i < bytes / 4; i += kLanes) __stcg(d + i, __ldcg(f + i));
    done = bytes / 4 * 4;
  }
  const auto* f = reinterpret_cast<const unsigned char*>(from);
  auto* d = reinterpret_cast<unsigned char*>(to);
  for (std::uint32_t i = done + lane; i < bytes; i += kLanes) __stcg(d + i, __ldcg(f + i));
}

template <class T>
__device__ T execute(T* target, const nic::AtomicOperands& o, bool swaps) {
  T seen = *static_cast<volatile T*>(target);
  for (;;) {
    const auto next =
        static_cast<T>(swaps ? nic::compare_swapped(seen, o) : nic::fetch_added(seen, o));
    const T old = atomicCAS_system(target, seen, next);
    if (old == seen) return old;
    seen = old;
  }
}

// By one lane. MO-12: all before it has been completed, and the fence makes it visible first.
__device__ inline void execute_atomic(const Shared& sh, const Step& s) {
  GpuMemory::fence_before_atomic();
  auto* target = const_cast<std::byte*>(s.from);
  if (s.bytes == 8) {
    *reinterpret_cast<std::uint64_t*>(s.to) =
        execute(reinterpret_cast<unsigned long long*>(target), sh.operands, sh.swaps);
  } else {
    *reinterpret_cast<std::uint32_t*>(s.to) =
        execute(reinterpret_cast<unsigned int*>(target), sh.operands, sh.swaps);
  }
}

// Claims a piece; false when there will be none any more. What was read of the ring holds if the
// claim does: its place is not used again before.
__device__ inline bool claim(Shared& sh, std::uint32_t lane, std::uint32_t* piece) {
  std::uint32_t got = 0;
  if (lane == 0) {
    for (;;) {
      const std::uint32_t at = load_relaxed(&sh.claimed);
      if (load_acquire(&sh.pieces) == at) {
        if (load_acquire(&sh.stop) != 0) break;
        __nanosleep(20);
        continue;
      }
      *piece = sh.piece[at % kPieces];
      if (!GpuMemory::claim_count_release(&sh.claimed, at, FenceScope::kBlock)) continue;
      got = 1;
      break;
    }
  }
  *piece = __shfl_sync(kAllLanes, *piece, 0);
  return __shfl_sync(kAllLanes, got, 0) != 0;
}

__device__ inline void run_copying(Shared& sh, std::uint32_t lane) {
  std::uint32_t piece = 0;
  while (claim(sh, lane, &piece)) {
    const std::uint32_t slot = piece & 0xff;
    const Step& s = sh.step[slot];
    if (s.operation == nic::Operation::kAtomic) {
      if (lane == 0) execute_atomic(sh, s);
    } else {
      const std::uint32_t from = (piece >> 8) * kPieceBytes;
      const std::uint32_t left = s.bytes - from;
      copy(s.to + from, s.from + from, left < kPieceBytes ? left : kPieceBytes, lane);
    }
    __syncwarp();
    if (lane == 0) add_release(&sh.done[slot], 1);
  }
}

}  // namespace peal::engine::gpu
