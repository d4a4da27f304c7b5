// The first warp of a helper, a block without front and back: it takes the pieces that the front of
// its group hands it through GPU memory, for the copying warps beside it.
#pragma once

#include "engine/gpu/block.cuh"

namespace peal::engine::gpu {

// From L2: another multiprocessor has written it.
__device__ inline Piece fed_piece(const Piece* p) {
  static_assert(sizeof(Piece) == 24 && alignof(Piece) == 8);
  const auto* words = reinterpret_cast<const unsigned long long*>(p);
  const unsigned long long rest = __ldcg(words + 2);
  return {reinterpret_cast<const std::byte*>(__ldcg(words)),
          reinterpret_cast<std::byte*>(__ldcg(words + 1)), static_cast<std::uint32_t>(rest),
          static_cast<std::uint32_t>(rest >> 32)};
}

inline constexpr std::uint32_t kTakenATelling = 128;
static_assert(kTakenATelling + kPieces <= kFedPieces, "a front that waits for room is told");

// MO-14, at device scope.
__device__ inline void run_helper(Feed& feed, Shared& sh, std::uint32_t lane) {
  std::uint32_t taken = __ldcg(&feed.taken);
  std::uint32_t told = taken;
  std::uint32_t pieces = 0;
  std::uint32_t begun = 0;  // of them, taken by the copying warps as seen last
  for (;;) {
    const std::uint32_t made = GpuMemory::load_count_acquire(&feed.made, FenceScope::kDevice);
    std::uint32_t n = __shfl_sync(kAllLanes, made, 0) - taken;
    __syncwarp();  // what lane 0 has acquired is for all
    if (n == 0) {
      const std::uint32_t stop = GpuMemory::load_count_acquire(&feed.stop, FenceScope::kDevice);
      if (__shfl_sync(kAllLanes, stop, 0) != 0) break;
      __nanosleep(100);
      continue;
    }
    if (n > kLanes) n = kLanes;
    while (pieces + n - begun > kPieces) begun = taken_acquire(sh.claimed, lane);
    if (lane < n) {
      sh.piece[(pieces + lane) % kPieces] = fed_piece(&feed.piece[(taken + lane) % kFedPieces]);
    }
    pieces += n;
    taken += n;
    __syncwarp();
    if (lane == 0) store_release(&sh.pieces, pieces);
    if (taken - told < kTakenATelling) continue;
    told = taken;
    if (lane == 0) GpuMemory::store_count_release(&feed.taken, taken, FenceScope::kDevice);
  }
  __syncwarp();
  if (lane != 0) return;
  // For the next launch.
  GpuMemory::store_count_release(&feed.taken, taken, FenceScope::kDevice);
  feed.stop = 0;
  store_release(&sh.stop, 1);
}

}  // namespace peal::engine::gpu
