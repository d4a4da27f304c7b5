// The back: one warp of a block, which waits for the oldest WQEs to be done and writes their CQEs
// in order.
#pragma once

#include "engine/gpu/block.cuh"

namespace peal::engine::gpu {

__device__ inline bool is_signalled(const Step& s) {
  return s.syndrome != mlx5::Syndrome::kNone ||
         (s.fm_ce_se & mlx5::kCompletionAlways) == mlx5::kCompletionAlways;
}

// MO-4: the release at the end covers the copies, which this warp has acquired, and its report.
__device__ inline void write_cqe(const Served& served, const Step& s, std::uint64_t number) {
  nic::Completion c;
  c.index = s.index;
  c.opcode = s.opcode;
  c.bytes = s.syndrome == mlx5::Syndrome::kNone ? s.bytes : 0;
  c.syndrome = s.syndrome;
  c.vendor_syndrome = s.vendor;
  const mlx5::Cqe cqe = nic::complete(c, served.qp.qpn, number, served.cq.log_size);
  GpuMemory::store_cqe(served.cq.entry(number), cqe);
}

// Takes note of `n` steps, a lane each, and tells the host, before their CQEs are there: whoever
// has seen those finds here what they stand for.
__device__ inline void report(const Nic& nic, Served& served, const Step& s, std::uint32_t n,
                              std::uint32_t signalled, std::uint32_t lane) {
  const auto of = [&](bool holds) {
    return static_cast<std::uint32_t>(__popc(__ballot_sync(kAllLanes, lane < n && holds)));
  };
  const bool good = s.syndrome == mlx5::Syndrome::kNone;
  const std::uint32_t writes = of(good && s.operation == nic::Operation::kWrite);
  const std::uint32_t reads = of(good && s.operation == nic::Operation::kRead);
  const std::uint32_t atomics = of(good && s.operation == nic::Operation::kAtomic);
  const std::uint32_t all_good = of(good);
  // A sum of 32 bits would not hold 32 of 1 GiB.
  const bool moved = lane < n && good && s.operation != nic::Operation::kAtomic;
  const std::uint32_t part = moved ? s.bytes : 0;
  const std::uint64_t bytes = (std::uint64_t{__reduce_add_sync(kAllLanes, part >> 16)} << 16) +
                              __reduce_add_sync(kAllLanes, part & 0xffff);
  BackState& q = served.back;
  std::uint64_t more = 0;
  switch (lane) {
    case kWqes: more = n; break;
    case kWrites: more = writes; break;
    case kReads: more = reads; break;
    case kAtomics: more = atomics; break;
    case kNoops: more = all_good - writes - reads - atomics; break;
    case kCqes: more = static_cast<std::uint32_t>(__popc(signalled)); break;
    case kErrorCqes: more = n - all_good; break;
    case kBytes: more = bytes; break;
    default: break;
  }
  if (lane < kCounts) q.count[lane] += more;
  if (lane == 0) {
    store_relaxed(&q.completed, q.completed + n);
    q.produced += static_cast<std::uint32_t>(__popc(signalled));
  }
  if (lane < n && s.refusal != nic::Refusal::kNone) {  // one at most
    q.error_index = s.index;
    q.opcode = s.opcode;
    q.syndrome = static_cast<std::uint8_t>(s.syndrome);
    q.vendor_syndrome = s.vendor;
    q.reason = s.refusal;
  }
  __syncwarp();
  static_assert(sizeof(BackState) % 8 == 0 && sizeof(BackState) / 8 <= kLanes);
  if (lane < sizeof(BackState) / 8) {
    reinterpret_cast<std::uint64_t*>(&nic.queues[served.index].back)[lane] =
        reinterpret_cast<const std::uint64_t*>(&q)[lane];
  }
  __syncwarp();
}

// MO-14, from this block's copying warps and from helpers'.
__device__ inline bool is_copied(const Shared& sh, const std::uint32_t* far_done, const Step& s,
                                 std::uint32_t slot) {
  if (load_acquire(&sh.done[slot]) != s.pieces) return false;
  return s.far_pieces == 0 ||
         GpuMemory::load_count_acquire(&far_done[slot], FenceScope::kDevice) == sh.far_due[slot];
}

// Completes the steps from `tail` on that are done and of one queue; how many.
__device__ inline std::uint32_t complete(const Nic& nic, Shared& sh, const std::uint32_t* far_done,
                                         std::uint32_t tail, std::uint32_t made,
                                         std::uint32_t lane) {
  const std::uint32_t slot = (tail + lane) % kSteps;
  const std::uint32_t queue = sh.step[tail % kSteps].queue;
  const bool here = lane < made;
  Step s = {};
  if (here) s = sh.step[slot];
  const bool done = here && s.queue == queue && is_copied(sh, far_done, s, slot);
  const std::uint32_t not_done = ~__ballot_sync(kAllLanes, done);
  const std::uint32_t n =
      not_done == 0 ? kLanes : static_cast<std::uint32_t>(__ffs(static_cast<int>(not_done))) - 1;
  if (n == 0) return 0;
  // What each lane has acquired is before what any lane releases: a CQE stands for all before it.
  __syncwarp();

  Served& served = sh.served[queue];
  const std::uint64_t number = served.back.produced;
  __syncwarp();  // every lane has it before it changes
  const std::uint32_t signalled = __ballot_sync(kAllLanes, lane < n && is_signalled(s));
  report(nic, served, s, n, signalled, lane);
  const std::uint32_t below = signalled & ((1u << lane) - 1);
  // A collapsed CQ shows the last one only.
  const bool shown = !served.cq.collapsed || (signalled >> lane >> 1) == 0;
  if ((signalled >> lane & 1) != 0 && shown) {
    write_cqe(served, s, number + static_cast<std::uint32_t>(__popc(below)));
  }
  __syncwarp();
  if (lane == 0) store_release(&sh.tail, tail + n);
  __syncwarp();
  return n;
}

__device__ inline void run_back(const Nic& nic, Shared& sh, const std::uint32_t* far_done,
                                std::uint32_t lane) {
  std::uint32_t tail = 0;
  for (;;) {
    const std::uint32_t made = __shfl_sync(kAllLanes, load_acquire(&sh.head), 0) - tail;
    if (made != 0) {
      tail += complete(nic, sh, far_done, tail, made, lane);
    } else if (__shfl_sync(kAllLanes, load_acquire(&sh.stop), 0) != 0) {
      return;
    }
  }
}

}  // namespace peal::engine::gpu
