// How the front hands payload on: in pieces, to the copying warps of its block, and where there is
// enough of it to those of its helpers.
#pragma once

#include "engine/gpu/block.cuh"

namespace peal::engine::gpu {

// A lane makes so many at once: while the front fills the one half of the ring, the copying warps
// have the other.
inline constexpr std::uint32_t kInstalment = kPieces / kLanes / 2;

// What the front's lanes agree on.
struct Front {
  const Mirror* mirror = nullptr;
  std::uint64_t epoch = 0;
  std::uint32_t queues = 0;  // a bit for each lane that serves one
  std::uint32_t cursor = 0;
  std::uint32_t head = 0;
  std::uint32_t pieces = 0;
  std::uint32_t taken = 0;  // of them, as seen last
  std::uint32_t group = 0;
  bool stop = false;
  bool last = false;  // no producer rings any more
};

// Piece `number` of a step.
__device__ inline Piece piece_of(const Step& s, std::uint32_t slot, std::uint32_t number) {
  if (s.operation == nic::Operation::kAtomic) {
    return {s.from, s.to, s.bytes, slot | kAtomicPiece};
  }
  const std::uint32_t from = number * kPieceBytes;
  const std::uint32_t left = s.bytes - from;
  const std::uint32_t bytes = left < kPieceBytes ? left : kPieceBytes;
  const std::uint32_t middle = s.bytes / 2 - from;  // far off where it is of another piece
  if (s.corrupt && middle < bytes) slot |= kCorruptPiece | middle << kCorruptShift;
  return {s.from + from, s.to + from, bytes, slot};
}

// Pieces are dealt in turn: the `number`-th of the step in `slot` goes to block (slot + number) %
// blocks of the group, of which 0 is this one. Of `pieces` of them, from number 0 on, the first for
// block `to`, and how many.
__device__ inline std::uint32_t first_for(std::uint32_t to, std::uint32_t slot,
                                          std::uint32_t blocks) {
  return (to + blocks - slot % blocks) % blocks;
}
__device__ inline std::uint32_t count_for(std::uint32_t to, std::uint32_t slot,
                                          std::uint32_t pieces, std::uint32_t blocks) {
  const std::uint32_t first = first_for(to, slot, blocks);
  return pieces > first ? (pieces - 1 - first) / blocks + 1 : 0;
}

// Room for `n` pieces more.
__device__ inline void wait_for_room(const Shared& sh, Front& f, std::uint32_t n,
                                     std::uint32_t lane) {
  while (f.pieces + n - f.taken > kPieces) f.taken = taken_acquire(sh.claimed, lane);
}
__device__ inline void wait_for_room(Fed& fed, const Feed& feed, std::uint32_t n,
                                     std::uint32_t lane) {
  std::uint32_t taken = fed.taken;
  __syncwarp();
  if (fed.made + n - taken <= kFedPieces) return;
  while (fed.made + n - taken > kFedPieces) {
    taken =
        __shfl_sync(kAllLanes, GpuMemory::load_count_acquire(&feed.taken, FenceScope::kDevice), 0);
  }
  if (lane == 0) fed.taken = taken;
  __syncwarp();
}

// Hands the pieces of each lane's step to the copying warps of the first `blocks` blocks of the
// group: in instalments of what a ring has room for; most steps have one piece.
__device__ inline void hand_pieces(const Nic& nic, Shared& sh, Front& f, const Step& s,
                                   std::uint32_t lane, std::uint32_t slot, std::uint32_t pieces,
                                   std::uint32_t blocks) {
  Feed* feeds = nic.feeds + f.group * nic.blocks_a_queue;
  for (std::uint32_t given = 0; __any_sync(kAllLanes, given < pieces);) {
    std::uint32_t now = pieces - given;
    if (now > kInstalment) now = kInstalment;
    for (std::uint32_t to = 0; to < blocks; ++to) {
      const std::uint32_t first = first_for(to, slot + given, blocks);
      const std::uint32_t mine = count_for(to, slot + given, now, blocks);
      std::uint32_t before = mine;
      for (std::uint32_t d = 1; d < kLanes; d *= 2) {
        const std::uint32_t lower = __shfl_up_sync(kAllLanes, before, d);
        if (lane >= d) before += lower;
      }
      const std::uint32_t all = __shfl_sync(kAllLanes, before, kLanes - 1);
      before -= mine;
      if (all == 0) continue;
      if (to == 0) {
        wait_for_room(sh, f, all, lane);
      } else {
        wait_for_room(sh.fed[to - 1], feeds[to], all, lane);
      }
      Piece* ring = to == 0 ? sh.piece : feeds[to].piece;
      const std::uint32_t places = to == 0 ? kPieces : kFedPieces;
      const std::uint32_t at = (to == 0 ? f.pieces : sh.fed[to - 1].made) + before;
      for (std::uint32_t i = 0; i < mine; ++i) {
        ring[(at + i) % places] = piece_of(s, slot, given + first + i * blocks);
      }
      __syncwarp();
      if (to == 0) {
        f.pieces += all;
        if (lane == 0) store_release(&sh.pieces, f.pieces);
      } else if (lane == 0) {
        sh.fed[to - 1].made += all;
      }
    }
    given += now;
    // To all helpers at once, so that they cost one fence.
    __syncwarp();
    if (lane + 1 < blocks && sh.fed[lane].told != sh.fed[lane].made) {
      sh.fed[lane].told = sh.fed[lane].made;
      GpuMemory::store_count_release(&feeds[lane + 1].made, sh.fed[lane].made, FenceScope::kDevice);
    }
    __syncwarp();
  }
}

// How many blocks of the group copy what is to be handed on, of which this lane's step has `bytes`:
// the front's own, unless that is more than its warps can begin at once.
__device__ inline std::uint32_t blocks_for(const Nic& nic, const Shared& sh, const Front& f,
                                           std::uint32_t bytes, std::uint32_t lane) {
  if (nic.blocks_a_queue == 1) return 1;
  constexpr std::uint32_t kMost = kCopiers * kPieceBytes;
  const std::uint32_t of_lane = bytes < kMost ? bytes : kMost + 1;
  // Of the pieces of a copying warp, a lane each; what it takes next is less than a round ahead.
  const std::uint32_t waiting =
      lane < kCopiers ? (f.pieces + kCopiers - 1 - load_relaxed(&sh.claimed.next[lane])) / kCopiers
                      : 0;
  const std::uint32_t all = __reduce_add_sync(kAllLanes, of_lane + waiting * kPieceBytes);
  return __shfl_sync(kAllLanes, all > kMost ? nic.blocks_a_queue : 1, 0);
}

}  // namespace peal::engine::gpu
