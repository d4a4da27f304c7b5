// The kernel of the GPU engine. One block works on one round at a time: thread 0 finds a queue with
// work, a thread a WQE checks, all copy, a thread a WQE completes.
#include <cuda_runtime.h>

#include "engine/gpu/nic_kernel.hpp"
#include "nic/atomic.hpp"
#include "nic/check.hpp"
#include "peal/memory/gpu_memory.hpp"
#include "peal/mlx5/doorbell.hpp"

namespace peal::engine::gpu {
namespace {

constexpr std::uint32_t kThreads = 1024;
constexpr std::uint32_t kWarps = kThreads / 32;
constexpr std::uint32_t kRun = 64;  // WQEs a round
// From this many bytes a WQE on, the whole block copies each WQE; below, a warp does.
constexpr std::uint32_t kBlockCopyBytes = 32 << 10;

// What became of a WQE of the round.
struct Step {
  const std::byte* from;
  std::byte* to;
  std::uint32_t bytes;
  nic::Operation operation;
  std::uint8_t opcode;
  std::uint8_t fm_ce_se;
  std::uint8_t vendor;
  mlx5::Syndrome syndrome;
  nic::Refusal refusal;
};

// A queue that the block serves, with what its rounds need of the tables at hand.
struct Served {
  nic::QpEntry qp;
  nic::QpEntry peer;  // without a number where there is none
  nic::CqEntry cq;
  std::uint64_t* doorbell;
  std::uint32_t index;
  Queue queue;
};

struct Round {
  Step step[kRun];
  nic::AtomicOperands operands;  // of an atomic, which has its round to itself
  bool masked_swap;
  const Mirror* mirror;
  Served* served;
  std::uint32_t wqes;    // fetched, then done
  std::uint32_t failed;  // the first that failed, or kRun
  std::uint32_t cut;     // the first that must wait for those before it, or kRun
  std::uint32_t large;   // whether any is large
  std::uint64_t signalled;
  std::uint64_t moved;
  bool flush;
  bool stop;
};

// ---- Finding work -------------------------------------------------------------------------------

__device__ std::uint16_t ahead(const Queue& q, std::uint16_t pi) {
  return static_cast<std::uint16_t>(pi - static_cast<std::uint16_t>(q.posted));
}

// Takes what has been rung for this queue since the last look.
__device__ void look(Served& s) {
  Queue& q = s.queue;
  const std::uint64_t value = GpuMemory::load_relaxed(s.doorbell);
  if (value == q.doorbell) return;
  q.doorbell = value;
  // MO-2, MO-3: the other end of the ringer's fence.
  asm volatile("fence.acq_rel.sys;" ::: "memory");
  const mlx5::Doorbell rung = mlx5::decode_doorbell(value);
  std::uint16_t pi = rung.pi();
  if (rung.qpn != s.qp.qpn) {
    // Of another queue of the page: it may have overwritten a ring of this one.
    std::uint32_t record = 0;
    asm volatile("ld.acquire.sys.b32 %0, [%1];"
                 : "=r"(record)
                 : "l"(s.qp.dbrec)
                 : "memory");  // MO-1
    pi = mlx5::decode_dbrec(record);
    if (static_cast<std::int16_t>(ahead(q, pi)) <= 0) return;
  }
  const std::uint64_t end = q.posted + ahead(q, pi);
  if (end - q.fetched <= s.qp.depth()) q.posted = end;
}

__device__ void start_over(Served& s) {
  Queue fresh;
  fresh.generation = s.qp.ring_generation;
  fresh.made = s.qp.made_generation;
  fresh.posted = fresh.fetched = s.qp.first_index;
  // A CQ serves one queue here, and goes on counting over its resets.
  if (s.queue.made == fresh.made) fresh.produced = s.queue.produced;
  s.queue = fresh;
  // So that a ring of the value that is there is news.
  GpuMemory::store_relaxed(s.doorbell, 0);
}

// The block's queues as the new tables have them.
__device__ std::uint32_t take_tables(const Nic& nic, const Mirror& m, Served* served) {
  std::uint32_t n = 0;
  for (std::uint32_t i = blockIdx.x; i < m.queues && n != kQueuesABlock; i += nic.blocks, ++n) {
    Served& s = served[n];
    s.index = m.queue[i];
    s.qp = m.sender.qps[s.index];
    s.cq = m.sender.cqs[s.qp.cq];
    s.doorbell =
        reinterpret_cast<std::uint64_t*>(m.sender.uars[s.qp.uar].page + mlx5::kUarDoorbellOffset);
    const nic::QpEntry* peer = m.receiver.find_qp(s.qp.remote_qpn);
    s.peer = peer == nullptr ? nic::QpEntry{} : *peer;
    s.queue = nic.queues[s.index];
    if (s.queue.generation != s.qp.ring_generation) start_over(s);
    nic.queues[s.index] = s.queue;
  }
  return n;
}

// What thread 0 keeps between rounds.
struct Finder {
  std::uint64_t epoch = 0;
  std::uint32_t queues = 0;
  std::uint32_t cursor = 0;
};

// By thread 0. False when there was nothing to do.
__device__ bool find_round(const Nic& nic, Round& r, Served* served, Finder& f) {
  const std::uint64_t now = GpuMemory::load_relaxed(nic.epoch);
  if (now != f.epoch) {
    asm volatile("fence.acq_rel.sys;" ::: "memory");
    f.epoch = now;
    r.stop = now == kStopEpoch;
    if (r.stop) return false;
    r.mirror = nic.mirror[now & 1];
    f.queues = take_tables(nic, *r.mirror, served);
    asm volatile("st.release.sys.b64 [%0], %1;" ::"l"(&nic.seen[blockIdx.x]), "l"(now) : "memory");
  }
  for (std::uint32_t i = 0; i != f.queues; ++i) {
    if (++f.cursor >= f.queues) f.cursor = 0;
    Served& s = served[f.cursor];
    Queue& q = s.queue;
    look(s);
    const bool flush = q.failed || s.qp.state == nic::QpState::kError;
    if (q.fetched == q.posted || (!flush && s.qp.state != nic::QpState::kRts)) continue;
    const std::uint64_t left = q.posted - q.fetched;
    r.served = &s;
    r.wqes = left < kRun ? static_cast<std::uint32_t>(left) : kRun;
    r.flush = flush;
    r.failed = r.cut = kRun;
    r.large = 0;
    r.signalled = r.moved = 0;
    return true;
  }
  return false;
}

// ---- Checking -----------------------------------------------------------------------------------

__device__ void fail(Step& s, nic::Refusal why, mlx5::Syndrome syndrome, std::uint8_t vendor) {
  s.refusal = why;
  s.syndrome = syndrome;
  s.vendor = vendor;
}

// The receiver's side of it.
__device__ nic::Refusal find_remote(const Served& served, const Mirror& m, const nic::Move& move,
                                    std::byte** to) {
  const nic::QpEntry* peer = &served.peer;
  if (peer->qpn.value == 0 || peer->remote_qpn != served.qp.qpn) return nic::Refusal::kWrongSource;
  if (peer->state != nic::QpState::kRtr && peer->state != nic::QpState::kRts) {
    return nic::Refusal::kResponderState;
  }
  std::uint32_t access = nic::kRemoteWrite;
  if (move.operation == nic::Operation::kRead) access = nic::kRemoteRead;
  if (move.operation == nic::Operation::kAtomic) access = nic::kRemoteAtomic;
  if (move.has_immediate) return nic::Refusal::kNoReceive;
  const nic::Refusal why =
      nic::check_remote(move.remote_address, move.rkey, move.bytes, access, *peer, m.receiver, to);
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

// By a thread a WQE: what the `t`-th of the round asks for.
__device__ void check_step(const Nic& nic, Round& r, std::uint32_t t) {
  const Mirror& m = *r.mirror;
  const nic::QpEntry& qp = r.served->qp;
  const Queue& q = r.served->queue;
  const std::uint64_t index = q.fetched + t;
  const mlx5::Slot* slot = &qp.sq[index & (qp.depth() - 1)];
  mlx5::Words16 wqe[4];
  for (int i = 0; i < 4; ++i) {
    // From L2: another multiprocessor has written it.
    const ulonglong2 v = __ldcg(reinterpret_cast<const ulonglong2*>(&slot->segment[i]));
    wqe[i] = {v.x, v.y};
  }
  Step& s = r.step[t];
  s = Step{};
  nic::CheckResult c;
  nic::check(wqe, index, q.posted - index, qp, m.sender, &c);
  s.operation = c.move.operation;
  s.opcode = c.move.opcode;
  s.fm_ce_se = c.move.fm_ce_se;
  if (r.flush) {
    fail(s, nic::Refusal::kNone, mlx5::Syndrome::kFlushed, nic::kVendorFlushed);
    return;
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
  if (s.refusal == nic::Refusal::kNone && moves && !nic.null_payload) {
    std::byte* remote = nullptr;
    const nic::Refusal why = find_remote(*r.served, m, c.move, &remote);
    if (why != nic::Refusal::kNone) fail(s, why, syndrome_of_remote(why), nic::kVendorRemoteAccess);
    s.bytes = c.move.bytes;
    if (c.move.inlined) {
      const auto offset = c.move.local - reinterpret_cast<std::byte*>(wqe);
      c.move.local = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(slot)) + offset;
    }
    s.from = s.operation == nic::Operation::kWrite ? c.move.local : remote;
    s.to = s.operation == nic::Operation::kWrite ? remote : c.move.local;
    if (s.operation == nic::Operation::kAtomic && t == 0) {
      r.operands = c.move.operands;
      const auto opcode = static_cast<mlx5::Opcode>(s.opcode);
      r.masked_swap =
          opcode == mlx5::Opcode::kCompareSwap || opcode == mlx5::Opcode::kMaskedCompareSwap;
    }
  }
  if (s.refusal != nic::Refusal::kNone) atomicMin(&r.failed, t);
  const bool alone = s.operation == nic::Operation::kRead ||
                     s.operation == nic::Operation::kAtomic || (s.fm_ce_se & mlx5::kFenceMask) != 0;
  // What comes after a read or an atomic waits for it too.
  if (alone) atomicMin(&r.cut, t == 0 ? 1u : t);
  if (s.bytes >= kBlockCopyBytes) r.large = 1;
}

// ---- Moving -------------------------------------------------------------------------------------

constexpr std::uint32_t kInFlight = 8;  // loads of a thread

// By `threads` threads, of which this is number `t`.
__device__ void copy(std::byte* to, const std::byte* from, std::uint32_t bytes, std::uint32_t t,
                     std::uint32_t threads) {
  const auto mixed = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  std::uint32_t done = 0;
  if (mixed % 16 == 0) {
    const auto* f = reinterpret_cast<const uint4*>(from);
    auto* d = reinterpret_cast<uint4*>(to);
    const std::uint32_t vectors = bytes / 16;
    std::uint32_t i = t;
    for (; i + (kInFlight - 1) * threads < vectors; i += kInFlight * threads) {
      uint4 v[kInFlight];
#pragma unroll
      for (std::uint32_t k = 0; k < kInFlight; ++k) v[k] = __ldcg(f + i + k * threads);
#pragma unroll
      for (std::uint32_t k = 0; k < kInFlight; ++k) __stcg(d + i + k * threads, v[k]);
    }
    for (; i < vectors; i += threads) __stcg(d + i, __ldcg(f + i));
    done = vectors * 16;
  } else if (mixed % 4 == 0) {
    const auto* f = reinterpret_cast<const std::uint32_t*>(from);
    auto* d = reinterpret_cast<std::uint32_t*>(to);
    for (std::uint32_t i = t; i < bytes / 4; i += threads) __stcg(d + i, __ldcg(f + i));
    done = bytes / 4 * 4;
  }
  const auto* f = reinterpret_cast<const unsigned char*>(from);
  auto* d = reinterpret_cast<unsigned char*>(to);
  for (std::uint32_t i = done + t; i < bytes; i += threads) __stcg(d + i, __ldcg(f + i));
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

// By thread 0. MO-12: the rounds before were fenced, and the answer is stored before its CQE.
__device__ void execute_atomic(const Round& r) {
  const Step& s = r.step[0];
  asm volatile("fence.acq_rel.sys;" ::: "memory");
  auto* target = const_cast<std::byte*>(s.from);
  if (s.bytes == 8) {
    *reinterpret_cast<std::uint64_t*>(s.to) =
        execute(reinterpret_cast<unsigned long long*>(target), r.operands, r.masked_swap);
  } else {
    *reinterpret_cast<std::uint32_t*>(s.to) =
        execute(reinterpret_cast<unsigned int*>(target), r.operands, r.masked_swap);
  }
}

__device__ void move(const Round& r) {
  if (r.wqes == 1 && r.step[0].operation == nic::Operation::kAtomic) {
    if (threadIdx.x == 0 && r.step[0].to != nullptr && r.step[0].refusal == nic::Refusal::kNone) {
      execute_atomic(r);
    }
    return;
  }
  const std::uint32_t first = r.large != 0 ? 0 : threadIdx.x / 32;
  const std::uint32_t step = r.large != 0 ? 1 : kWarps;
  const std::uint32_t t = r.large != 0 ? threadIdx.x : threadIdx.x % 32;
  const std::uint32_t threads = r.large != 0 ? kThreads : 32;
  for (std::uint32_t i = first; i < r.wqes; i += step) {
    const Step& s = r.step[i];
    if (s.to != nullptr && s.syndrome == mlx5::Syndrome::kNone)
      copy(s.to, s.from, s.bytes, t, threads);
  }
}

// ---- Completing ---------------------------------------------------------------------------------

__device__ bool is_signalled(const Step& s) {
  return s.syndrome != mlx5::Syndrome::kNone ||
         (s.fm_ce_se & mlx5::kCompletionAlways) == mlx5::kCompletionAlways;
}

// By a thread a WQE. MO-4: the barrier before has gathered the block's copies.
__device__ void complete_step(const Round& r, std::uint32_t t) {
  const Step& s = r.step[t];
  if ((r.signalled >> t & 1) == 0) return;
  const Queue& q = r.served->queue;
  const nic::CqEntry& cq = r.served->cq;
  // A collapsed CQ shows the last one only.
  if (cq.collapsed && r.signalled >> t >> 1 != 0) return;
  const std::uint64_t number =
      q.produced + static_cast<std::uint32_t>(__popcll(r.signalled & ((1ull << t) - 1)));
  nic::Completion c;
  c.index = q.fetched + t;
  c.opcode = s.opcode;
  c.bytes = s.syndrome == mlx5::Syndrome::kNone ? s.bytes : 0;
  c.syndrome = s.syndrome;
  c.vendor_syndrome = s.vendor;
  const mlx5::Cqe cqe = nic::complete(c, r.served->qp.qpn, number, cq.log_size);
  mlx5::Cqe* entry = cq.entry(number);
  auto* d = reinterpret_cast<uint4*>(entry);
  for (int i = 0; i < 3; ++i) {
    __stcg(d + i, make_uint4(cqe.word[4 * i], cqe.word[4 * i + 1], cqe.word[4 * i + 2],
                             cqe.word[4 * i + 3]));
  }
  __stcg(reinterpret_cast<uint2*>(&entry->word[12]), make_uint2(cqe.word[12], cqe.word[13]));
  __stcg(&entry->word[14], cqe.word[14]);
  asm volatile("st.release.sys.b32 [%0], %1;" ::"l"(&entry->word[mlx5::kCqeOwnerWord]),
               "r"(cqe.word[mlx5::kCqeOwnerWord])
               : "memory");
}

// By thread 0, when all of that is done.
__device__ void finish_round(const Nic& nic, const Round& r) {
  Queue& q = r.served->queue;
  const auto cqes = static_cast<std::uint32_t>(__popcll(r.signalled));
  q.fetched += r.wqes;
  q.wqes += r.wqes;
  q.cqes += cqes;
  q.produced += cqes;
  q.bytes += r.moved;
  if (r.failed < r.wqes) {
    q.failed = true;
    q.reason = r.step[r.failed].refusal;
  }
  nic.queues[r.served->index] = q;
}

__global__ void __launch_bounds__(kThreads, 1) serve(Nic nic) {
  __shared__ Round r;
  __shared__ Served served[kQueuesABlock];
  __shared__ bool found;
  Finder finder;
  if (threadIdx.x == 0) {
    r.stop = false;
    r.mirror = nic.mirror[0];
  }
  for (;;) {
    __syncthreads();
    if (threadIdx.x == 0) found = find_round(nic, r, served, finder);
    __syncthreads();
    if (r.stop) return;
    if (!found) continue;
    if (threadIdx.x < r.wqes) check_step(nic, r, threadIdx.x);
    __syncthreads();
    if (threadIdx.x == 0) {
      // Up to the first that waits for those before it, and up to the first that failed.
      if (r.cut < r.wqes) r.wqes = r.cut;
      if (r.failed + 1 < r.wqes) r.wqes = r.failed + 1;
    }
    __syncthreads();
    if (threadIdx.x < r.wqes) {
      const Step& s = r.step[threadIdx.x];
      if (is_signalled(s)) {
        atomicOr(reinterpret_cast<unsigned long long*>(&r.signalled), 1ull << threadIdx.x);
      }
      if (s.syndrome == mlx5::Syndrome::kNone && s.bytes != 0) {
        atomicAdd(reinterpret_cast<unsigned long long*>(&r.moved), 1ull * s.bytes);
      }
    }
    move(r);
    __syncthreads();
    if (threadIdx.x < r.wqes) complete_step(r, threadIdx.x);
    __syncthreads();
    if (threadIdx.x == 0) finish_round(nic, r);
  }
}

}  // namespace

int launch(const Nic& nic, void* stream) {
  serve<<<nic.blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(nic);
  return cudaGetLastError();
}

}  // namespace peal::engine::gpu
