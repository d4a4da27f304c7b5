// The faults that a queue was told to commit, as nic::ArmedFaults does it on the CPU.
#pragma once

#include "engine/gpu/block.cuh"

namespace peal::engine::gpu {

// By a lane a queue, as the new tables have them.
__device__ inline void take_faults(const Mirror& m, Served& s) {
  s.first_fault = s.faults = s.holds = 0;
  for (std::uint32_t i = 0; i < m.faults; ++i) {
    const MirroredFault& f = m.fault[i];
    if (f.queue != s.index) continue;
    if (s.faults == 0) s.first_fault = i;
    if (f.kind == nic::FaultKind::kHold) s.holds |= 1u << s.faults;
    ++s.faults;
    if (s.front.arming == f.arming) continue;
    s.front.arming = f.arming;
    s.front.reached = 0;
  }
}

// By a lane a queue that has something to fetch: the first time starts the hold.
__device__ inline bool is_held(const Nic& nic, const Mirror& m, Served& s) {
  if (s.holds == 0) return false;
  FrontState& q = s.front;
  const std::uint64_t now_ns = GpuMemory::now_ns();
  const std::uint32_t starting = s.holds & ~q.reached;
  for (std::uint32_t i = 0; i < s.faults; ++i) {
    if ((starting >> i & 1) != 0) q.hold_until_ns = now_ns + m.fault[s.first_fault + i].value;
  }
  const std::uint32_t held = now_ns < q.hold_until_ns ? 1 : 0;
  if (starting != 0 || held != q.held) {
    q.reached |= starting;
    q.held = held;
    FrontState& told = nic.queues[s.index].front;
    told.reached = q.reached;
    told.held = held;
  }
  return held != 0;
}

struct Committed {
  std::uint32_t reached = 0;  // a bit for each fault, should the WQE be handed on
  bool moves = true;
  bool corrupts = false;
};

// Applies what was armed for the WQE `index` to what checking it has said.
__device__ inline Committed commit(const Mirror& m, const Served& s, std::uint64_t index,
                                   nic::CheckResult& c) {
  Committed out;
  for (std::uint32_t i = 0; i < s.faults; ++i) {
    const MirroredFault& f = m.fault[s.first_fault + i];
    if ((s.front.reached >> i & 1) != 0 || f.index != index) continue;
    switch (f.kind) {
      case nic::FaultKind::kCorrupt:
        if (c.refusal != nic::Refusal::kNone || c.move.bytes == 0) break;
        if (c.move.operation != nic::Operation::kWrite) break;
        out.corrupts = true;
        out.reached |= 1u << i;
        break;
      case nic::FaultKind::kNoop:
        out.moves = false;
        out.reached |= 1u << i;
        break;
      case nic::FaultKind::kCqe:
        c.refusal = nic::Refusal::kInjected;
        c.syndrome = static_cast<mlx5::Syndrome>(f.value);
        c.vendor_syndrome = 0;
        out.reached |= 1u << i;
        break;
      default: break;  // of no WQE
    }
  }
  return out;
}

}  // namespace peal::engine::gpu
