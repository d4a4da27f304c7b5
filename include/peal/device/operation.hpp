// One-sided operations as WQEs: what a caller asks for, and the words it becomes. Nothing here
// reserves, rings or waits.
#pragma once

#include <cstdint>

#include "peal/core/types.hpp"
#include "peal/device/send_queue.hpp"
#include "peal/mlx5/wqe.hpp"

namespace peal {

// Addresses are those by which the regions were registered; keys are host order.

// From a registered local buffer into the peer's memory.
struct Put {
  std::uint64_t local_address = 0;
  Lkey lkey;
  std::uint64_t remote_address = 0;
  Rkey rkey;
  std::uint64_t bytes = 0;
};

// From the peer's memory, which must allow remote reads, into a local buffer that allows local
// writes.
struct Get {
  std::uint64_t local_address = 0;
  Lkey lkey;
  std::uint64_t remote_address = 0;
  Rkey rkey;
  std::uint64_t bytes = 0;
};

// Registered local memory, 8 bytes, where the old value of an atomic lands. It may be shared by
// operations whose old value nobody wants; one for each producer keeps their stores apart.
struct Sink {
  std::uint64_t address = 0;
  Lkey lkey;
};

// Memory of the peer on which an atomic acts, little-endian as both ends have it; it must allow
// remote atomics and lie at a multiple of the operand's size.
struct AtomicTarget {
  std::uint64_t remote_address = 0;
  Rkey rkey;
  Sink old_value;
};

// Whether an operation starts before those posted before it on its queue are done. An RC queue
// executes writes, atomics and reads in the order of posting even so; the fence is for what must
// also see the answers of earlier reads and atomics, and for NICs or keys that reorder writes.
enum class Fence : std::uint8_t { kNone = 0, kBefore = mlx5::kFence };

// One WQE to write. The forms of `operation` that need more say what they put where.
struct WqeOptions {
  bool signalled = true;
  Fence fence = Fence::kNone;
};

namespace detail {

PEAL_HOST_DEVICE constexpr std::uint8_t fm_ce_se(const WqeOptions& o) {
  return static_cast<std::uint8_t>(
      static_cast<std::uint8_t>(o.fence) |
      (o.signalled ? mlx5::kCompletionAlways : mlx5::kCompletionOnError));
}

template <class M, Sharing S>
PEAL_HOST_DEVICE void write_ctrl(SendQueue<M, S>& queue, std::uint64_t index, mlx5::Opcode opcode,
                                 std::uint32_t ds, const WqeOptions& o, std::uint8_t opmod = 0) {
  mlx5::CtrlSeg ctrl;
  ctrl.opmod = opmod;
  ctrl.wqe_index = static_cast<std::uint16_t>(index);
  ctrl.opcode = static_cast<std::uint8_t>(opcode);
  ctrl.qpn = queue.handle().qpn;
  ctrl.ds = static_cast<std::uint8_t>(ds);
  ctrl.fm_ce_se = fm_ce_se(o);
  queue.write_segment(index, 0, mlx5::encode(ctrl));
}

template <class M, Sharing S>
PEAL_HOST_DEVICE void write_raddr(SendQueue<M, S>& queue, std::uint64_t index,
                                  std::uint64_t address, Rkey rkey) {
  mlx5::RaddrSeg raddr;
  raddr.address = address;
  raddr.rkey = rkey;
  queue.write_segment(index, 1, mlx5::encode(raddr));
}

template <class M, Sharing S>
PEAL_HOST_DEVICE void write_data(SendQueue<M, S>& queue, std::uint64_t index, std::uint32_t segment,
                                 std::uint64_t address, Lkey lkey, std::uint32_t bytes) {
  mlx5::DataSeg data;
  data.byte_count = bytes;
  data.lkey = lkey;
  data.address = address;
  queue.write_segment(index, segment, mlx5::encode(data));
}

// A write or a read of at most the NIC's largest message.
template <class M, Sharing S, class Transfer>
PEAL_HOST_DEVICE void write_transfer(SendQueue<M, S>& queue, std::uint64_t index,
                                     mlx5::Opcode opcode, const Transfer& t, const WqeOptions& o) {
  write_ctrl(queue, index, opcode, 3, o);
  write_raddr(queue, index, t.remote_address, t.rkey);
  write_data(queue, index, 2, t.local_address, t.lkey, static_cast<std::uint32_t>(t.bytes));
}

template <class M, Sharing S>
PEAL_HOST_DEVICE void write_atomic(SendQueue<M, S>& queue, std::uint64_t index, mlx5::Opcode opcode,
                                   std::uint8_t opmod, mlx5::Words16 operands,
                                   const AtomicTarget& t, std::uint32_t bytes,
                                   const WqeOptions& o) {
  write_ctrl(queue, index, opcode, 4, o, opmod);
  write_raddr(queue, index, t.remote_address, t.rkey);
  queue.write_segment(index, 2, operands);
  write_data(queue, index, 3, t.old_value.address, t.old_value.lkey, bytes);
}

}  // namespace detail

// Each of the following writes one WQE into a reserved slot.

// Completes and touches no memory.
template <class M, Sharing S>
PEAL_HOST_DEVICE void write_nop_wqe(SendQueue<M, S>& queue, std::uint64_t index,
                                    const WqeOptions& o = {}) {
  detail::write_ctrl(queue, index, mlx5::Opcode::kNop, 1, o);
}

// At most the NIC's largest message; 0 bytes are a no-op.
template <class M, Sharing S>
PEAL_HOST_DEVICE void write_wqe(SendQueue<M, S>& queue, std::uint64_t index, const Put& put,
                                const WqeOptions& o = {}) {
  if (put.bytes == 0) return write_nop_wqe(queue, index, o);
  detail::write_transfer(queue, index, mlx5::Opcode::kRdmaWrite, put, o);
}
template <class M, Sharing S>
PEAL_HOST_DEVICE void write_wqe(SendQueue<M, S>& queue, std::uint64_t index, const Get& get,
                                const WqeOptions& o = {}) {
  if (get.bytes == 0) return write_nop_wqe(queue, index, o);
  detail::write_transfer(queue, index, mlx5::Opcode::kRdmaRead, get, o);
}

// The data lie in the WQE: at most mlx5::kMaxInlineBytes, which are read before this returns.
struct PutInline {
  const void* data = nullptr;
  std::uint32_t bytes = 0;
  std::uint64_t remote_address = 0;
  Rkey rkey;
};
template <class M, Sharing S>
PEAL_HOST_DEVICE void write_wqe(SendQueue<M, S>& queue, std::uint64_t index, const PutInline& put,
                                const WqeOptions& o = {}) {
  if (put.bytes == 0) return write_nop_wqe(queue, index, o);
  const std::uint32_t ds = mlx5::ds_of_inline(put.bytes);
  detail::write_ctrl(queue, index, mlx5::Opcode::kRdmaWrite, ds, o);
  detail::write_raddr(queue, index, put.remote_address, put.rkey);
  // The bytes begin in the middle of a segment: the first 12 with the header, then 16.
  const auto* from = static_cast<const unsigned char*>(put.data);
  std::uint32_t words[7] = {};
  for (std::uint32_t i = 0; i < put.bytes; ++i) {
    words[i / 4] |= std::uint32_t{from[i]} << (i % 4 * 8);
  }
  mlx5::InlineSeg head;
  head.bytes = put.bytes;
  for (int i = 0; i < 3; ++i) head.first[i] = words[i];
  queue.write_segment(index, 2, mlx5::encode(head));
  if (ds == 3) return;
  queue.write_segment(
      index, 3,
      {words[3] | (std::uint64_t{words[4]} << 32), words[5] | (std::uint64_t{words[6]} << 32)});
}

// target += add
struct FetchAdd {
  AtomicTarget target;
  std::uint64_t add = 0;
};
template <class M, Sharing S>
PEAL_HOST_DEVICE void write_wqe(SendQueue<M, S>& queue, std::uint64_t index, const FetchAdd& a,
                                const WqeOptions& o = {}) {
  // Some NICs look at the second operand too.
  detail::write_atomic(queue, index, mlx5::Opcode::kFetchAdd, 0,
                       mlx5::encode(mlx5::AtomicSeg{a.add, a.add}), a.target, 8, o);
}

// target = swap, if target == compare
struct CompareSwap {
  AtomicTarget target;
  std::uint64_t compare = 0;
  std::uint64_t swap = 0;
};
template <class M, Sharing S>
PEAL_HOST_DEVICE void write_wqe(SendQueue<M, S>& queue, std::uint64_t index, const CompareSwap& a,
                                const WqeOptions& o = {}) {
  detail::write_atomic(queue, index, mlx5::Opcode::kCompareSwap, 0,
                       mlx5::encode(mlx5::AtomicSeg{a.swap, a.compare}), a.target, 8, o);
}

// A sum of fields: a set bit of `boundary` is the highest of a field, and hands on no carry. Of 8
// bytes, or with `T` = std::uint32_t of 4, whose target and old value are 4 bytes.
template <class T>
struct MaskedFetchAdd {
  AtomicTarget target;
  T add = 0;
  T boundary = 0;
};
template <class M, Sharing S>
PEAL_HOST_DEVICE void write_wqe(SendQueue<M, S>& queue, std::uint64_t index,
                                const MaskedFetchAdd<std::uint32_t>& a, const WqeOptions& o = {}) {
  detail::write_atomic(queue, index, mlx5::Opcode::kMaskedFetchAdd, mlx5::kMaskedAtomic4Bytes,
                       mlx5::encode(mlx5::MaskedAtomic4Seg{a.add, a.boundary, 0, 0}), a.target, 4,
                       o);
}
template <class M, Sharing S>
PEAL_HOST_DEVICE void write_wqe(SendQueue<M, S>& queue, std::uint64_t index,
                                const MaskedFetchAdd<std::uint64_t>& a, const WqeOptions& o = {}) {
  detail::write_atomic(queue, index, mlx5::Opcode::kMaskedFetchAdd, mlx5::kMaskedAtomic8Bytes,
                       mlx5::encode(mlx5::AtomicSeg{a.add, a.boundary}), a.target, 8, o);
}

// The bits of swap_mask become those of swap, if those of compare_mask equal compare's.
template <class T>
struct MaskedCompareSwap {
  AtomicTarget target;
  T compare = 0;
  T swap = 0;
  T compare_mask = static_cast<T>(~T{0});
  T swap_mask = static_cast<T>(~T{0});
};
template <class M, Sharing S>
PEAL_HOST_DEVICE void write_wqe(SendQueue<M, S>& queue, std::uint64_t index,
                                const MaskedCompareSwap<std::uint32_t>& a,
                                const WqeOptions& o = {}) {
  detail::write_atomic(
      queue, index, mlx5::Opcode::kMaskedCompareSwap, mlx5::kMaskedAtomic4Bytes,
      mlx5::encode(mlx5::MaskedAtomic4Seg{a.swap, a.compare, a.swap_mask, a.compare_mask}),
      a.target, 4, o);
}
// Takes two slots: `index` and the next.
template <class M, Sharing S>
PEAL_HOST_DEVICE void write_wqe(SendQueue<M, S>& queue, std::uint64_t index,
                                const MaskedCompareSwap<std::uint64_t>& a,
                                const WqeOptions& o = {}) {
  detail::write_ctrl(queue, index, mlx5::Opcode::kMaskedCompareSwap, 5, o,
                     mlx5::kMaskedAtomic8Bytes);
  detail::write_raddr(queue, index, a.target.remote_address, a.target.rkey);
  queue.write_segment(index, 2, mlx5::encode(mlx5::AtomicSeg{a.swap, a.compare}));
  queue.write_segment(index, 3, mlx5::encode(mlx5::AtomicSeg{a.swap_mask, a.compare_mask}));
  detail::write_data(queue, index + 1, 0, a.target.old_value.address, a.target.old_value.lkey, 8);
}

}  // namespace peal
