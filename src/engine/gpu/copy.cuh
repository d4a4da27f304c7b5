// The copying warps of a block: each claims pieces, copies them, and counts each as done when it
// lies whole in its place. Larger pieces go through shared memory, so that one is loaded while the
// one before it is stored.
#pragma once

#include "engine/gpu/block.cuh"
#include "peal/memory/gpu_bulk.hpp"

namespace peal::engine::gpu {

inline constexpr std::uint32_t kIdleNs = 100;
inline constexpr std::uint32_t kInFlight = 8;      // loads of a lane
inline constexpr std::uint32_t kBulkBytes = 1024;  // below it a warp's own loads are as quick

__device__ inline bool is_atomic(const Piece& p) {
  return (p.slot & kAtomicPiece) != 0;
}
__device__ inline bool goes_in_bulk(const Piece& p) {
  const auto mixed =
      reinterpret_cast<std::uintptr_t>(p.to) | reinterpret_cast<std::uintptr_t>(p.from) | p.bytes;
  return mixed % 16 == 0 && p.bytes >= kBulkBytes && (p.slot & ~kSlotMask) == 0;
}

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
__device__ inline void execute_atomic(const Shared& sh, const Piece& p) {
  GpuMemory::fence_before_atomic();
  auto* target = const_cast<std::byte*>(p.from);
  if (p.bytes == 8) {
    *reinterpret_cast<std::uint64_t*>(p.to) =
        execute(reinterpret_cast<unsigned long long*>(target), sh.operands, sh.swaps);
  } else {
    *reinterpret_cast<std::uint32_t*>(p.to) =
        execute(reinterpret_cast<unsigned int*>(target), sh.operands, sh.swaps);
  }
}

enum class Claim : std::uint32_t { kNone, kPiece, kEnd };

// What a copying warp's first lane knows of the pieces.
struct Copier {
  std::uint32_t next;       // the number of the one it takes next
  std::uint32_t known = 0;  // so many were made, at least
};

// Claims the warp's next piece; waits for it where `waits`, until there will be none any more.
__device__ inline Claim claim(Shared& sh, Copier& c, std::uint32_t copier, std::uint32_t lane,
                              bool waits, Piece* piece) {
  auto got = Claim::kPiece;
  Piece p{};
  if (lane == 0) {
    while (static_cast<int>(c.known - c.next) <= 0) {
      c.known = load_acquire(&sh.pieces);
      if (static_cast<int>(c.known - c.next) > 0) break;
      got = !waits ? Claim::kNone : load_acquire(&sh.stop) != 0 ? Claim::kEnd : Claim::kPiece;
      if (got != Claim::kPiece) break;
      // Those whose piece is not the very next slow down the front less when they sleep.
      if (c.known != c.next) __nanosleep(kIdleNs);
    }
    if (got == Claim::kPiece) {
      p = sh.piece[c.next % kPieces];
      c.next += kCopiers;
      store_release(&sh.claimed.next[copier], c.next);
    }
  }
  piece->from = reinterpret_cast<const std::byte*>(
      __shfl_sync(kAllLanes, reinterpret_cast<std::uintptr_t>(p.from), 0));
  piece->to = reinterpret_cast<std::byte*>(
      __shfl_sync(kAllLanes, reinterpret_cast<std::uintptr_t>(p.to), 0));
  piece->bytes = __shfl_sync(kAllLanes, p.bytes, 0);
  piece->slot = __shfl_sync(kAllLanes, p.slot, 0);
  return static_cast<Claim>(__shfl_sync(kAllLanes, static_cast<std::uint32_t>(got), 0));
}

// MO-14. To the back of this block, or of a helper's group.
__device__ inline void tell_done(Shared& sh, std::uint32_t* far_done, const Piece& p) {
  const std::uint32_t slot = p.slot & kSlotMask;
  if (far_done == nullptr) {
    add_release(&sh.done[slot], 1);
  } else {
    GpuMemory::add_count_release(&far_done[slot], 1, FenceScope::kDevice);
  }
}

// A piece that was stored in bulk is told of when its store is complete, which is looked for once
// the next load is on its way, or there is none to be had. `far_done`: null, or in a helper that of
// its group.
__device__ inline void run_copying(Shared& sh, std::uint32_t* far_done, std::uint32_t copier,
                                   std::uint32_t lane) {
  std::uint64_t* barrier = &sh.loaded[copier];
  if (lane == 0) GpuBulk::begin(barrier);
  __syncwarp();
  Copier c{copier};
  std::uint32_t loads = 0;
  Piece stored{};
  bool storing = false;
  for (;;) {
    Piece p;
    const Claim got = claim(sh, c, copier, lane, !storing, &p);
    const bool in_bulk = got == Claim::kPiece && goes_in_bulk(p);
    std::byte* buffer = sh.buffer[copier][loads % 2];
    if (lane == 0) {
      if (in_bulk) GpuBulk::load_after_acquire(buffer, p.from, p.bytes, barrier);
      if (storing) {
        GpuBulk::wait_stores();
        tell_done(sh, far_done, stored);
      }
      if (in_bulk) {
        GpuBulk::wait_load(barrier, loads % 2);
        GpuBulk::store(p.to, buffer, p.bytes);
      }
    }
    __syncwarp();
    storing = in_bulk;
    if (in_bulk) {
      stored = p;
      ++loads;
    } else if (got == Claim::kPiece) {
      if (is_atomic(p)) {
        if (lane == 0) execute_atomic(sh, p);
      } else {
        copy(p.to, p.from, p.bytes, lane);
        __syncwarp();
        if (lane == 0 && (p.slot & kCorruptPiece) != 0) {
          const std::uint32_t at = p.slot >> kCorruptShift;
          const auto* from = reinterpret_cast<const unsigned char*>(p.from + at);
          __stcg(reinterpret_cast<unsigned char*>(p.to + at),
                 static_cast<unsigned char>(__ldcg(from) ^ 0x01));
        }
      }
      __syncwarp();
      if (lane == 0) tell_done(sh, far_done, p);
    } else if (got == Claim::kEnd) {
      return;
    }
  }
}

}  // namespace peal::engine::gpu
