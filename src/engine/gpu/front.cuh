// The front: one warp of a block, which looks at doorbells, fetches WQEs, checks them, a lane each,
// and hands their payload on in pieces.
#pragma once

#include "engine/gpu/deal.cuh"
#include "engine/gpu/faults.cuh"
#include "peal/mlx5/doorbell.hpp"

namespace peal::engine::gpu {

// The front looks at the doorbells at least once in so many turns, though it has work.
inline constexpr std::uint32_t kTurnsALook = 4;

__device__ inline bool serves(const Front& f, std::uint32_t lane) {
  return (f.queues >> lane & 1) != 0;
}

__device__ inline std::uint16_t ahead(const FrontState& q, std::uint16_t pi) {
  return static_cast<std::uint16_t>(pi - static_cast<std::uint16_t>(q.posted));
}

// By a lane a queue: takes what was rung since the last look; `value` is what the register holds.
__device__ inline void look(const Nic& nic, Served& s, std::uint64_t value) {
  FrontState& q = s.front;
  if (value == q.doorbell) return;
  q.doorbell = value;
  GpuMemory::acquire_doorbell();  // MO-2, MO-3
  const mlx5::Doorbell rung = mlx5::decode_doorbell(value);
  std::uint16_t pi = rung.pi();
  if (rung.qpn != s.qp.qpn) {
    if (!s.qp.has_record()) return;
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

// An empty ring, whose doorbell the host has cleared. What counts goes on over resets, as does the
// CQ, which serves one queue here.
__device__ inline void start_over(Served& s) {
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
}

__device__ inline void drain(const Shared& sh, const Front& f) {
  while (load_acquire(&sh.tail) != f.head) {
  }
}

// By a lane a queue, while nothing is between front and back: to memory, for the host, and for
// whoever goes on from there.
__device__ inline void write_back(const Nic& nic, const Shared& sh, const Front& f,
                                  std::uint32_t lane) {
  if (!serves(f, lane)) return;
  const Served& s = sh.served[lane];
  nic.queues[s.index] = {s.front, s.back};
}

// By a lane a queue, while nothing is between front and back: the block's queues as the new tables
// have them.
__device__ inline void take_queues(const Nic& nic, Shared& sh, Front& f, std::uint32_t lane) {
  const Mirror& m = *f.mirror;
  const std::uint32_t index =
      lane < kQueuesABlock ? m.queue[f.group + lane * (nic.blocks / nic.blocks_a_queue)] : 0;
  f.queues = __ballot_sync(kAllLanes, index != 0);
  if (index == 0) return;
  Served& s = sh.served[lane];
  s.index = index;
  s.qp = m.sender.qps[index];
  s.cq = m.sender.cqs[s.qp.cq];
  s.doorbell = m.sender.uars[s.qp.uar].doorbell(s.qp.has_record());
  const nic::QpEntry* peer = m.receiver.find_qp(s.qp.remote_qpn);
  s.peer = peer == nullptr ? nic::QpEntry{} : *peer;
  s.front = nic.queues[index].front;
  s.back = nic.queues[index].back;
  if (s.front.generation != s.qp.ring_generation) start_over(s);
  take_faults(m, s);
  // What was rung before the tables changed is known before the change is answered.
  look(nic, s, GpuMemory::look_at_doorbell(s.doorbell));
  nic.queues[index] = {s.front, s.back};
}

// MO-16
__device__ inline void take_tables(const Nic& nic, Shared& sh, Front& f, std::uint32_t lane) {
  drain(sh, f);
  write_back(nic, sh, f, lane);
  for (std::uint64_t said = 0; said != f.epoch && f.epoch != kStopEpoch;) {
    said = f.epoch;
    if (lane == 0) {
      GpuMemory::say_epoch_before_look(&nic.seen[f.group], word_of(said, false));
      f.epoch = GpuMemory::look_at_epoch(nic.epoch);
    }
    f.epoch = __shfl_sync(kAllLanes, f.epoch, 0);
  }
  f.stop = f.epoch == kStopEpoch;
  if (f.stop) return;
  GpuMemory::acquire_tables();
  __syncwarp();
  f.mirror = nic.mirror[f.epoch & 1];
  take_queues(nic, sh, f, lane);
  f.cursor = 0;
  __syncwarp();
  if (lane == 0) GpuMemory::answer_epoch_release(&nic.seen[f.group], word_of(f.epoch, true));
}

// All doorbells and the epoch at once: one way over PCIe and back, whatever their number.
__device__ inline void look_around(const Nic& nic, Shared& sh, Front& f, std::uint32_t lane) {
  if (nic.ended != nullptr) {  // MO-15: whoever has ended has rung before
    const std::uint32_t ended = GpuMemory::load_count_acquire(nic.ended, FenceScope::kSystem);
    f.last = __all_sync(kAllLanes, ended >= nic.producers);
  }
  std::uint64_t value = 0;
  if (serves(f, lane)) value = GpuMemory::look_at_doorbell(sh.served[lane].doorbell);
  if (lane == kLanes - 1) value = GpuMemory::look_at_epoch(nic.epoch);
  if (serves(f, lane)) look(nic, sh.served[lane], value);
  const std::uint64_t epoch = __shfl_sync(kAllLanes, value, kLanes - 1);
  if (epoch == f.epoch) return;
  f.epoch = epoch;
  take_tables(nic, sh, f, lane);
}

__device__ inline bool flushes(const Served& s) {
  return s.front.failed != 0 || s.qp.state == nic::QpState::kError;
}

// The next queue that has work that nothing holds, or kLanes.
__device__ inline std::uint32_t find_work(const Nic& nic, Shared& sh, Front& f,
                                          std::uint32_t lane) {
  bool has = false;
  if (serves(f, lane)) {
    Served& s = sh.served[lane];
    has = s.front.fetched != s.front.posted && (flushes(s) || s.qp.state == nic::QpState::kRts);
    if (has && !flushes(s)) has = !is_held(nic, *f.mirror, s);
  }
  const std::uint32_t all = __ballot_sync(kAllLanes, has);
  if (all == 0) return kLanes;
  const std::uint32_t later = all & (f.cursor >= 31 ? 0u : kAllLanes << (f.cursor + 1));
  f.cursor = static_cast<std::uint32_t>(__ffs(static_cast<int>(later != 0 ? later : all))) - 1;
  return f.cursor;
}

__device__ inline void fail(Step& s, nic::Refusal why, mlx5::Syndrome syndrome,
                            std::uint8_t vendor) {
  s.refusal = why;
  s.syndrome = syndrome;
  s.vendor = vendor;
}

// The receiver's side of it.
__device__ inline nic::Refusal find_remote(const Served& served, const Mirror& m,
                                           const nic::Move& move, std::byte** to) {
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

__device__ inline mlx5::Syndrome syndrome_of_remote(nic::Refusal why) {
  switch (why) {
    case nic::Refusal::kNoReceive: return mlx5::Syndrome::kRnrRetryExceeded;
    case nic::Refusal::kAtomicMisaligned: return mlx5::Syndrome::kRemoteInvalidRequest;
    case nic::Refusal::kWrongSource:
    case nic::Refusal::kResponderState: return mlx5::Syndrome::kTransportRetryExceeded;
    default: return mlx5::Syndrome::kRemoteAccess;
  }
}

// What the WQE at `index` asks for.
__device__ inline Step check_step(const Nic& nic, const Mirror& m, const Served& served,
                                  std::uint64_t index, nic::CheckResult& c, Committed& faults) {
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
  if (served.faults != 0) faults = commit(m, served, index, c);
  fail(s, c.refusal, c.syndrome, c.vendor_syndrome);
  const bool moves = faults.moves && (s.operation == nic::Operation::kWrite ||
                                      s.operation == nic::Operation::kRead ||
                                      s.operation == nic::Operation::kAtomic);
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
  s.corrupt = faults.corrupts;
  s.from = s.operation == nic::Operation::kWrite ? c.move.local : remote;
  s.to = s.operation == nic::Operation::kWrite ? remote : c.move.local;
  s.pieces = s.operation == nic::Operation::kAtomic ? 1 : (s.bytes + kPieceBytes - 1) / kPieceBytes;
  return s;
}

// Starts when all before it are done, and what follows when it is.
__device__ inline bool is_alone(const Step& s) {
  return s.operation == nic::Operation::kRead || s.operation == nic::Operation::kAtomic ||
         (s.fm_ce_se & mlx5::kFenceMask) != 0;
}

// Fetches, checks and hands on WQEs of one queue, a lane each.
__device__ inline void hand_on(const Nic& nic, Shared& sh, Front& f, std::uint32_t queue,
                               std::uint32_t lane) {
  Served& served = sh.served[queue];
  const std::uint64_t left = served.front.posted - served.front.fetched;
  std::uint32_t n = left < kLanes ? static_cast<std::uint32_t>(left) : kLanes;
  Step s = {};
  nic::CheckResult c;
  Committed faults;
  if (lane < n) s = check_step(nic, *f.mirror, served, served.front.fetched + lane, c, faults);
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
  const std::uint32_t pieces = lane < n ? s.pieces : 0;
  const std::uint32_t blocks = drains ? 1 : blocks_for(nic, sh, f, lane < n ? s.bytes : 0, lane);
  if (lane < n) {
    s.pieces = count_for(0, slot, pieces, blocks);
    s.far_pieces = pieces - s.pieces;
    sh.step[slot] = s;
    sh.done[slot] = 0;
    sh.far_due[slot] += s.far_pieces;
  }
  if (drains && lane == 0 && s.operation == nic::Operation::kAtomic) {
    const auto opcode = static_cast<mlx5::Opcode>(s.opcode);
    sh.operands = c.move.operands;
    sh.swaps = opcode == mlx5::Opcode::kCompareSwap || opcode == mlx5::Opcode::kMaskedCompareSwap;
  }
  const std::uint32_t reached = __reduce_or_sync(kAllLanes, lane < n ? faults.reached : 0);
  __syncwarp();
  f.head += n;
  if (lane == 0) {
    if (reached != 0) {
      served.front.reached |= reached;
      nic.queues[served.index].front.reached = served.front.reached;
    }
    served.front.fetched += n;
    nic.queues[served.index].front.fetched = served.front.fetched;
    if (failed != 0 && static_cast<std::uint32_t>(__ffs(static_cast<int>(failed))) == n) {
      served.front.failed = 1;
    }
    store_release(&sh.head, f.head);
  }
  __syncwarp();
  hand_pieces(nic, sh, f, s, lane, slot, pieces, blocks);
  if (drains) drain(sh, f);
}

__device__ inline void run_front(const Nic& nic, Shared& sh, std::uint32_t group,
                                 std::uint32_t lane) {
  Front f;
  f.group = group;
  std::uint32_t turns = 0;
  for (;;) {
    std::uint32_t queue = find_work(nic, sh, f, lane);
    if (queue == kLanes || ++turns == kTurnsALook) {
      turns = 0;
      look_around(nic, sh, f, lane);
      __syncwarp();
      if (f.stop) break;
      queue = find_work(nic, sh, f, lane);
      // A hold outlasts the kernel: whoever waited for what it holds has given up.
      if (queue == kLanes && f.last) break;
    }
    if (queue != kLanes) hand_on(nic, sh, f, queue, lane);
    __syncwarp();
  }
  drain(sh, f);
  write_back(nic, sh, f, lane);
  __syncwarp();
  if (lane == 0) {
    store_release(&sh.stop, 1);
    GpuMemory::answer_epoch_release(&nic.seen[group], kNotRunning);
  } else if (lane < nic.blocks_a_queue) {
    Feed& feed = nic.feeds[group * nic.blocks_a_queue + lane];
    GpuMemory::store_count_release(&feed.stop, 1, FenceScope::kDevice);
  }
}

}  // namespace peal::engine::gpu
