// The kernel of the GPU engine. In each block one warp, the front, looks at doorbells, fetches and
// checks; one, the back, writes CQEs in order; the others copy in between. They meet in a ring of
// steps, a WQE each, and a ring of pieces, as much as a warp copies at once.
#include <cuda_runtime.h>

#include "engine/gpu/block.cuh"
#include "engine/gpu/nic_kernel.hpp"
#include "peal/memory/gpu_memory.hpp"
#include "peal/mlx5/doorbell.hpp"

namespace peal::engine::gpu {
namespace {

// The front looks at the doorbells at least once in so many turns, though it has work.
constexpr std::uint32_t kTurnsALook = 4;

// ---- The front ----------------------------------------------------------------------------------

// What the front's lanes agree on.
struct Front {
  const Mirror* mirror = nullptr;
  std::uint64_t epoch = 0;
  std::uint32_t queues = 0;  // a bit for each lane that serves one
  std::uint32_t cursor = 0;
  std::uint32_t head = 0;
  std::uint32_t pieces = 0;
  bool stop = false;
};

__device__ bool serves(const Front& f, std::uint32_t lane) {
  return (f.queues >> lane & 1) != 0;
}

__device__ std::uint16_t ahead(const FrontState& q, std::uint16_t pi) {
  return static_cast<std::uint16_t>(pi - static_cast<std::uint16_t>(q.posted));
}

// By a lane a queue: takes what was rung since the last look; `value` is what the register holds.
__device__ void look(const Nic& nic, Served& s, std::uint64_t value) {
  FrontState& q = s.front;
  if (value == q.doorbell) return;
  q.doorbell = value;
  GpuMemory::acquire_doorbell();  // MO-2, MO-3
  const mlx5::Doorbell rung = mlx5::decode_doorbell(value);
  std::uint16_t pi = rung.pi();
  if (rung.qpn != s.qp.qpn) {
    // Of another queue of the page: it may have overwritten a ring of this one.
    pi = mlx5::decode_dbrec(GpuMemory::load_dbrec_acquire(s.qp.dbrec));  // MO-1
    if (static_cast<std::int16_t>(ahead(q, pi)) <= 0) return;
  } else {
    ++q.doorbells;
  }
  const std::uint64_t end = q.posted + ahead(q, pi);
  if (end - load_relaxed(&s.back.completed) <= s.qp.depth()) q.posted = end;
  FrontState& told = nic.queues[s.index].front;
  told.posted = q.posted;
  told.doorbells = q.doorbells;
}

// An empty ring. What counts goes on over resets, as does the CQ, which serves one queue here.
__device__ void start_over(Served& s) {
  FrontState front;
  BackState back;
  front.generation = s.qp.ring_generation;
  front.made = s.qp.made_generation;
  front.posted = front.fetched = back.completed = s.qp.first_index;
  if (s.front.made == front.made) {
    front.doorbells = s.front.doorbells;
    for (std::uint32_t i = 0; i < kCounts; ++i) back.count[i] = s.back.count[i];
    back.produced = s.back.produced;
  } else {
    back.produced = s.cq.produced;
  }
  s.front = front;
  s.back = back;
  // So that a ring of the value that is there is news.
  GpuMemory::store_relaxed(s.doorbell, 0);
}

// By a lane a queue: the block's queues as the new tables have them. Nothing is between front and
// back.
__device__ void take_tables(const Nic& nic, Shared& sh, Front& f, std::uint32_t lane) {
  const Mirror& m = *f.mirror;
  Served& s = sh.served[lane < kQueuesABlock ? lane : 0];
  if (serves(f, lane)) nic.queues[s.index] = {s.front, s.back};
  const std::uint32_t index = lane < kQueuesABlock ? m.queue[blockIdx.x + lane * nic.blocks] : 0;
  if (index != 0) {
    s.index = index;
    s.qp = m.sender.qps[index];
    s.cq = m.sender.cqs[s.qp.cq];
    s.doorbell =
        reinterpret_cast<std::uint64_t*>(m.sender.uars[s.qp.uar].page + mlx5::kUarDoorbellOffset);
    const nic::QpEntry* peer = m.receiver.find_qp(s.qp.remote_qpn);
    s.peer = peer == nullptr ? nic::QpEntry{} : *peer;
    s.front = nic.queues[index].front;
    s.back = nic.queues[index].back;
    if (s.front.generation != s.qp.ring_generation) start_over(s);
    // What was rung before the tables changed is known before the change is answered.
    look(nic, s, GpuMemory::look_at_doorbell(s.doorbell));
    nic.queues[index] = {s.front, s.back};
  }
  f.queues = __ballot_sync(kAllLanes, index != 0);
}

__device__ void drain(const Shared& sh, const Front& f) {
  while (load_acquire(&sh.tail) != f.head) {
  }
}

// All doorbells and the epoch at once: one way over PCIe and back, whatever their number.
__device__ void look_around(const Nic& nic, Shared& sh, Front& f, std::uint32_t lane) {
  std::uint64_t value = 0;
  if (serves(f, lane)) value = GpuMemory::look_at_doorbell(sh.served[lane].doorbell);
  if (lane == kLanes - 1) value = GpuMemory::load_relaxed(nic.epoch);
  if (serves(f, lane)) look(nic, sh.served[lane], value);
  const std::uint64_t epoch = __shfl_sync(kAllLanes, value, kLanes - 1);
  if (epoch == f.epoch) return;
  f.epoch = epoch;
  f.stop = epoch == kStopEpoch;
  drain(sh, f);
  if (f.stop) return;
  asm volatile("fence.acq_rel.sys;" ::: "memory");
  f.mirror = nic.mirror[epoch & 1];
  take_tables(nic, sh, f, lane);
  f.cursor = 0;
  __syncwarp();
  if (lane == 0) {
    asm volatile("st.release.sys.b64 [%0], %1;" ::"l"(&nic.seen[blockIdx.x]), "l"(epoch)
                 : "memory");
  }
}

__device__ bool flushes(const Served& s) {
  return s.front.failed != 0 || s.qp.state == nic::QpState::kError;
}

// The next queue that has work, or kLanes.
__device__ std::uint32_t find_work(const Shared& sh, Front& f, std::uint32_t lane) {
  bool has = false;
  if (serves(f, lane)) {
    const Served& s = sh.served[lane];
    has = s.front.fetched != s.front.posted && (flushes(s) || s.qp.state == nic::QpState::kRts);
  }
  const std::uint32_t all = __ballot_sync(kAllLanes, has);
  if (all == 0) return kLanes;
  const std::uint32_t later = all & (f.cursor >= 31 ? 0u : kAllLanes << (f.cursor + 1));
  f.cursor = static_cast<std::uint32_t>(__ffs(static_cast<int>(later != 0 ? later : all))) - 1;
  return f.cursor;
}

__device__ void fail(Step& s, nic::Refusal why, mlx5::Syndrome syndrome, std::uint8_t vendor) {
  s.refusal = why;
  s.syndrome = syndrome;
  s.vendor = vendor;
}

// The receiver's side of it.
__device__ nic::Refusal find_remote(const Served& served, const Mirror& m, const nic::Move& move,
                                    std::byte** to) {
  const nic::QpEntry& peer = served.peer;
  if (peer.qpn.value == 0 || peer.remote_qpn != served.qp.qpn) return nic::Refusal::kWrongSource;
  if (peer.state != nic::QpState::kRtr && peer.state != nic::QpState::kRts) {
    return nic::Refusal::kResponderState;
  }
  if (move.has_immediate) return nic::Refusal::kNoReceive;
  std::uint32_t access = nic::kRemoteWrite;
  if (move.operation == nic::Operation::kRead) access = nic::kRemoteRead;
  if (move.operation == nic::Operation::kAtomic) access = nic::kRemoteAtomic;
  const nic::Refusal why =
      nic::check_remote(move.remote_address, move.rkey, move.bytes, access, peer, m.receiver, to);
  if (why != nic::Refusal::kNone || access != nic::kRemoteAtomic) return why;
  return reinterpret_cast<std::uintptr_t>(*to) % move.bytes == 0 ? why
                                                                 : nic::Refusal::kAtomicMisaligned;
}

__device__ mlx5::Syndrome syndrome_of_remote(nic::Refusal why) {
  switch (why) {
    case nic::Refusal::kNoReceive: return mlx5::Syndrome::kRnrRetryExceeded;
    case nic::Refusal::kAtomicMisaligned: return mlx5::Syndrome::kRemoteInvalidRequest;
    case nic::Refusal::kWrongSource:
    case nic::Refusal::kResponderState: return mlx5::Syndrome::kTransportRetryExceeded;
    default: return mlx5::Syndrome::kRemoteAccess;
  }
}

// What the WQE at `index` asks for.
__device__ Step check_step(const Nic& nic, const Mirror& m, const Served& served,
                           std::uint64_t index, nic::CheckResult& c) {
  const nic::QpEntry& qp = served.qp;
  const mlx5::Slot* slot = &qp.sq[index & (qp.depth() - 1)];
  mlx5::Words16 wqe[4];
  for (int i = 0; i < 4; ++i) {
    // From L2: another multiprocessor has written it.
    const ulonglong2 v = __ldcg(reinterpret_cast<const ulonglong2*>(&slot->segment[i]));
    wqe[i] = {v.x, v.y};
  }
  nic::check(wqe, index, served.front.posted - index, qp, m.sender, &c);
  Step s = {};
  s.index = index;
  s.operation = c.move.operation;
  s.opcode = c.move.opcode;
  s.fm_ce_se = c.move.fm_ce_se;
  if (flushes(served)) {
    fail(s, nic::Refusal::kNone, mlx5::Syndrome::kFlushed, nic::kVendorFlushed);
    return s;
  }
  if (c.refusal == nic::Refusal::kNone &&
      (c.move.slots > 1 || c.move.operation == nic::Operation::kWait)) {
    c.refusal = nic::Refusal::kOpcode;
    c.syndrome = mlx5::Syndrome::kLocalQpOperation;
    c.vendor_syndrome = nic::kVendorQpOperation;
  }
  fail(s, c.refusal, c.syndrome, c.vendor_syndrome);
  const bool moves = s.operation == nic::Operation::kWrite ||
                     s.operation == nic::Operation::kRead || s.operation == nic::Operation::kAtomic;
  if (s.refusal != nic::Refusal::kNone || !moves || nic.null_payload) return s;
  std::byte* remote = nullptr;
  const nic::Refusal why = find_remote(served, m, c.move, &remote);
  if (why != nic::Refusal::kNone) {
    const mlx5::Syndrome syndrome = syndrome_of_remote(why);
    const bool unanswered = syndrome == mlx5::Syndrome::kRnrRetryExceeded ||
                            syndrome == mlx5::Syndrome::kTransportRetryExceeded;
    fail(s, why, syndrome, unanswered ? nic::kVendorRetryExceeded : nic::kVendorRemoteAccess);
    return s;
  }
  if (c.move.inlined) {
    // It stays in the ring until its CQE.
    const auto offset = c.move.local - reinterpret_cast<std::byte*>(wqe);
    c.move.local = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(slot)) + offset;
  }
  s.bytes = c.move.bytes;
  s.from = s.operation == nic::Operation::kWrite ? c.move.local : remote;
  s.to = s.operation == nic::Operation::kWrite ? remote : c.move.local;
  s.pieces = s.operation == nic::Operation::kAtomic ? 1 : (s.bytes + kPieceBytes - 1) / kPieceBytes;
  return s;
}

// Starts when all before it are done, and what follows when it is.
__device__ bool is_alone(const Step& s) {
  return s.operation == nic::Operation::kRead || s.operation == nic::Operation::kAtomic ||
         (s.fm_ce_se & mlx5::kFenceMask) != 0;
}

// Hands `count` pieces of each lane's step to the copying warps, from piece `first` of it on.
__device__ void hand_pieces(Shared& sh, Front& f, std::uint32_t lane, std::uint32_t slot,
                            std::uint32_t pieces) {
  // In instalments of what the ring has room for; most steps have one piece.
  for (std::uint32_t given = 0; __any_sync(kAllLanes, given < pieces);) {
    std::uint32_t now = pieces - given;
    if (now > kPieces / kLanes) now = kPieces / kLanes;
    std::uint32_t before = now;
    for (std::uint32_t d = 1; d < kLanes; d *= 2) {
      const std::uint32_t lower = __shfl_up_sync(kAllLanes, before, d);
      if (lane >= d) before += lower;
    }
    const std::uint32_t all = __shfl_sync(kAllLanes, before, kLanes - 1);
    while (f.pieces + all - load_acquire(&sh.claimed) > kPieces) {
    }
    for (std::uint32_t i = 0; i < now; ++i) {
      sh.piece[(f.pieces + before - now + i) % kPieces] = slot | (given + i) << 8;
    }
    given += now;
    f.pieces += all;
    __syncwarp();
    if (lane == 0) store_release(&sh.pieces, f.pieces);
  }
}

// Fetches, checks and hands on WQEs of one queue, a lane each.
__device__ void hand_on(const Nic& nic, Shared& sh, Front& f, std::uint32_t queue,
                        std::uint32_t lane) {
  Served& served = sh.served[queue];
  const std::uint64_t left = served.front.posted - served.front.fetched;
  std::uint32_t n = left < kLanes ? static_cast<std::uint32_t>(left) : kLanes;
  Step s = {};
  nic::CheckResult c;
  if (lane < n) s = check_step(nic, *f.mirror, served, served.front.fetched + lane, c);
  s.queue = queue;
  // Up to the first that fails, which ends the queue; and up to the first that must be alone.
  const std::uint32_t failed =
      __ballot_sync(kAllLanes, lane < n && s.refusal != nic::Refusal::kNone);
  const std::uint32_t alone =
      __ballot_sync(kAllLanes, lane < n && is_alone(s) && s.syndrome == mlx5::Syndrome::kNone);
  if (failed != 0) n = static_cast<std::uint32_t>(__ffs(static_cast<int>(failed)));
  const std::uint32_t first_alone =
      alone == 0 ? kLanes : static_cast<std::uint32_t>(__ffs(static_cast<int>(alone))) - 1;
  const bool drains = first_alone == 0;
  if (first_alone < n) n = drains ? 1 : first_alone;
  if (drains) drain(sh, f);
  while (f.head + n - load_acquire(&sh.tail) > kSteps) {
  }
  const std::uint32_t slot = (f.head + lane) % kSteps;
  if (lane < n) {
    sh.step[slot] = s;
    sh.done[slot] = 0;
  }
  if (drains && lane == 0 && s.operation == nic::Operation::kAtomic) {
    const auto opcode = static_cast<mlx5::Opcode>(s.opcode);
    sh.operands = c.move.operands;
    sh.swaps = opcode == mlx5::Opcode::kCompareSwap || opcode == mlx5::Opcode::kMaskedCompareSwap;
  }
  __syncwarp();
  f.head += n;
  if (lane == 0) {
    served.front.fetched += n;
    nic.queues[served.index].front.fetched = served.front.fetched;
    if (failed != 0 && static_cast<std::uint32_t>(__ffs(static_cast<int>(failed))) == n) {
      served.front.failed = 1;
    }
    store_release(&sh.head, f.head);
  }
  __syncwarp();
  hand_pieces(sh, f, lane, slot, lane < n ? s.pieces : 0);
  if (drains) drain(sh, f);
}

__device__ void run_front(const Nic& nic, Shared& sh, std::uint32_t lane) {
  Front f;
  std::uint32_t turns = 0;
  for (;;) {
    std::uint32_t queue = find_work(sh, f, lane);
    if (queue == kLanes || ++turns == kTurnsALook) {
      turns = 0;
      look_around(nic, sh, f, lane);
      __syncwarp();
      if (f.stop) break;
      queue = find_work(sh, f, lane);
    }
    if (queue != kLanes) hand_on(nic, sh, f, queue, lane);
    __syncwarp();
  }
  if (lane == 0) store_release(&sh.stop, 1);
}

// ---- The copying warps --------------------------------------------------------------------------

constexpr std::uint32_t kInFlight = 8;  // loads of a lane

__device__ void copy(std::byte* to, const std::byte* from, std::uint32_t bytes,
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
__device__ void execute_atomic(const Shared& sh, const Step& s) {
  asm volatile("fence.acq_rel.sys;" ::: "memory");
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
__device__ bool claim(Shared& sh, std::uint32_t lane, std::uint32_t* piece) {
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
      if (atomicCAS(&sh.claimed, at, at + 1) != at) continue;
      got = 1;
      break;
    }
  }
  *piece = __shfl_sync(kAllLanes, *piece, 0);
  return __shfl_sync(kAllLanes, got, 0) != 0;
}

__device__ void run_copying(Shared& sh, std::uint32_t lane) {
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

// ---- The back -----------------------------------------------------------------------------------

__device__ bool is_signalled(const Step& s) {
  return s.syndrome != mlx5::Syndrome::kNone ||
         (s.fm_ce_se & mlx5::kCompletionAlways) == mlx5::kCompletionAlways;
}

// MO-4: the release at the end covers the copies, which this warp has acquired, and its report.
__device__ void write_cqe(const Served& served, const Step& s, std::uint64_t number) {
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
__device__ void report(const Nic& nic, Served& served, const Step& s, std::uint32_t n,
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

// Completes the steps from `tail` on that are done and of one queue; how many.
__device__ std::uint32_t complete(const Nic& nic, Shared& sh, std::uint32_t tail,
                                  std::uint32_t made, std::uint32_t lane) {
  const std::uint32_t slot = (tail + lane) % kSteps;
  const std::uint32_t queue = sh.step[tail % kSteps].queue;
  const bool here = lane < made;
  Step s = {};
  if (here) s = sh.step[slot];
  const bool done = here && s.queue == queue && load_acquire(&sh.done[slot]) == s.pieces;
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

__device__ void run_back(const Nic& nic, Shared& sh, std::uint32_t lane) {
  std::uint32_t tail = 0;
  for (;;) {
    const std::uint32_t made = __shfl_sync(kAllLanes, load_acquire(&sh.head), 0) - tail;
    if (made != 0) {
      tail += complete(nic, sh, tail, made, lane);
    } else if (__shfl_sync(kAllLanes, load_acquire(&sh.stop), 0) != 0) {
      return;
    }
  }
}

__global__ void __launch_bounds__(kThreads, 1) serve(Nic nic) {
  __shared__ Shared sh;
  if (threadIdx.x == 0) sh.pieces = sh.claimed = sh.head = sh.tail = sh.stop = 0;
  __syncthreads();
  const std::uint32_t lane = threadIdx.x % kLanes;
  switch (threadIdx.x / kLanes) {
    case kFrontWarp: return run_front(nic, sh, lane);
    case kBackWarp: return run_back(nic, sh, lane);
    default: return run_copying(sh, lane);
  }
}

}  // namespace

int launch(const Nic& nic, void* stream) {
  serve<<<nic.blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(nic);
  return cudaGetLastError();
}

}  // namespace peal::engine::gpu
