// The copying warps of a block: each takes its pieces in turn, copies them, and counts each as done
// when it lies whole in its place. Larger pieces go through shared memory, by one lane, which
// begins further loads and stores while those before are on their way.
#pragma once

#include "engine/gpu/block.cuh"
#include "peal/memory/gpu_bulk.hpp"

namespace peal::engine::gpu {

inline constexpr std::uint32_t kIdleNs = 100;
inline constexpr std::uint32_t kInFlight = 8;      // loads of a lane
inline constexpr std::uint32_t kBulkBytes = 1024;  // below it a warp's own loads are as quick
inline constexpr std::uint32_t kUntold = 3;        // bulk stores of a warp that are not waited for
static_assert(8 * (kUntold + 1) <= 32 && kSlotMask == 0xff, "Copier::slots");

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

// Of a copying warp's first lane.
struct Copier {
  std::uint32_t number;      // among the warps
  std::uint32_t* far_done;   // null, or in a helper that of its group
  std::uint32_t next;        // the number of the piece that it takes next
  std::uint32_t known = 0;   // so many were made, at least
  bool has_news = false;     // acquired since the last bulk load
  std::uint32_t loads = 0;   // in bulk, begun
  std::uint32_t stores = 0;  // of what was loaded, begun; two fewer than loads at most
  std::uint32_t told = 0;    // of them
  Piece older{};             // the last two that were loaded
  Piece newer{};
  std::uint32_t slots = 0;  // of the last four that were stored, a byte each; the newest is lowest
};

enum class Found : std::uint32_t { kNone, kPiece, kEnd };

// Looks for the warp's next piece; waits for it where `waits`, until there will be none any more.
__device__ inline Found find(const Shared& sh, Copier& c, bool waits, Piece* p) {
  while (static_cast<int>(c.known - c.next) <= 0) {
    c.known = load_acquire(&sh.pieces);
    if (static_cast<int>(c.known - c.next) > 0) {
      c.has_news = true;
      break;
    }
    if (!waits) return Found::kNone;
    if (load_acquire(&sh.stop) != 0) return Found::kEnd;
    // Those whose piece is not the very next slow down the front less when they sleep.
    if (c.known != c.next) __nanosleep(kIdleNs);
  }
  *p = sh.piece[c.next % kPieces];
  return Found::kPiece;
}

// What was found has been read: its place may be used again.
__device__ inline void take(Shared& sh, Copier& c) {
  c.next += kCopiers;
  store_release(&sh.claimed.next[c.number], c.next);
}

// MO-14. To the back of this block, or of a helper's group.
__device__ inline void tell_done(Shared& sh, const Copier& c, std::uint32_t slot) {
  if (c.far_done == nullptr) {
    add_release(&sh.done[slot], 1);
  } else {
    GpuMemory::add_count_release(&c.far_done[slot], 1, FenceScope::kDevice);
  }
}

// MO-17. Of the oldest bulk store that is untold, and whole.
__device__ inline void tell_stored(Shared& sh, Copier& c) {
  const std::uint32_t newer = c.stores - c.told - 1;
  tell_done(sh, c, c.slots >> 8 * newer & kSlotMask);
  ++c.told;
}

__device__ inline void begin_load(Shared& sh, Copier& c, const Piece& p) {
  if (c.has_news) GpuBulk::fence_after_acquire();
  c.has_news = false;
  // The buffer's last store is the newest, where the other buffer is still being loaded.
  if (c.loads != c.stores) {
    GpuBulk::wait_stores_read<0>();
  } else {
    GpuBulk::wait_stores_read<1>();
  }
  const std::uint32_t at = c.loads++ % 2;
  GpuBulk::load(sh.buffer[c.number][at], p.from, p.bytes, &sh.loaded[c.number][at]);
  c.older = c.newer;
  c.newer = p;
}

// Of the oldest that was loaded.
__device__ inline void begin_store(Shared& sh, Copier& c) {
  const bool two = c.loads - c.stores == 2;
  std::byte* to = two ? c.older.to : c.newer.to;
  const std::uint32_t bytes = two ? c.older.bytes : c.newer.bytes;
  const std::uint32_t at = c.stores % 2;
  GpuBulk::wait_load(&sh.loaded[c.number][at], c.stores / 2 % 2);
  GpuBulk::store(to, sh.buffer[c.number][at], bytes);
  c.slots = c.slots << 8 | (two ? c.older.slot : c.newer.slot);
  ++c.stores;
}

// By one lane, until it finds a piece that goes another way, which it takes too, or the end. What
// is on its way is waited for when there is nothing else to begin; nothing is when it returns.
__device__ inline Found copy_in_bulk(Shared& sh, Copier& c, Piece* p) {
  // They are so already; said here, they need no registers while the warp copies otherwise.
  c.stores = c.told = c.loads;
  c.older = c.newer = {};
  c.slots = 0;
  for (;;) {
    const Found found = find(sh, c, c.told == c.loads, p);
    if (found == Found::kPiece && goes_in_bulk(*p)) {
      take(sh, c);
      begin_load(sh, c, *p);
      if (c.loads - c.stores == 2) begin_store(sh, c);
      if (c.stores - c.told > kUntold) {
        GpuBulk::wait_stores<kUntold>();
        tell_stored(sh, c);
      }
    } else if (c.stores != c.loads) {
      begin_store(sh, c);
    } else if (c.told != c.stores) {
      GpuBulk::wait_stores<0>();
      while (c.told != c.stores) tell_stored(sh, c);
    } else {
      if (found == Found::kPiece) take(sh, c);
      return found;
    }
  }
}

// By a whole warp: loads and stores of its own.
__device__ inline void copy_piece(const Piece& p, std::uint32_t lane) {
  copy(p.to, p.from, p.bytes, lane);
  __syncwarp();
  if (lane != 0 || (p.slot & kCorruptPiece) == 0) return;
  const std::uint32_t at = p.slot >> kCorruptShift;
  const auto* from = reinterpret_cast<const unsigned char*>(p.from + at);
  __stcg(reinterpret_cast<unsigned char*>(p.to + at),
         static_cast<unsigned char>(__ldcg(from) ^ 0x01));
}

__device__ inline void run_copying(Shared& sh, std::uint32_t* far_done, std::uint32_t copier,
                                   std::uint32_t lane) {
  if (lane == 0) {
    GpuBulk::begin(&sh.loaded[copier][0]);
    GpuBulk::begin(&sh.loaded[copier][1]);
  }
  Copier c{copier, far_done, copier};
  for (;;) {
    Piece p{};
    auto found = Found::kNone;
    if (lane == 0) found = copy_in_bulk(sh, c, &p);
    __syncwarp();  // what lane 0 has acquired is for all
    found = static_cast<Found>(__shfl_sync(kAllLanes, static_cast<std::uint32_t>(found), 0));
    if (found == Found::kEnd) return;
    p.from = reinterpret_cast<const std::byte*>(
        __shfl_sync(kAllLanes, reinterpret_cast<std::uintptr_t>(p.from), 0));
    p.to = reinterpret_cast<std::byte*>(
        __shfl_sync(kAllLanes, reinterpret_cast<std::uintptr_t>(p.to), 0));
    p.bytes = __shfl_sync(kAllLanes, p.bytes, 0);
    p.slot = __shfl_sync(kAllLanes, p.slot, 0);
    if (!is_atomic(p)) {
      copy_piece(p, lane);
    } else if (lane == 0) {
      execute_atomic(sh, p);
    }
    __syncwarp();
    if (lane == 0) tell_done(sh, c, p.slot & kSlotMask);
  }
}

}  // namespace peal::engine::gpu
