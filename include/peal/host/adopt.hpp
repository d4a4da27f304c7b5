// Queues that another control path made, for Peal's data path alone: NVSHMEM's, NCCL's or a
// program's own. See docs/ADOPTING.md. For the structs of libmlx5 there is adopt_mlx5dv.hpp.
#pragma once

#include <cstdint>
#include <memory>

#include "peal/device/queue_handle.hpp"
#include "peal/host/error.hpp"
#include "peal/host/provider.hpp"

namespace peal {

// A send queue and its completion queue, of a reliable-connected QP. Addresses are those by which
// the producers reach the memory.
struct ForeignQueue {
  void* sq = nullptr;        // `depth` slots of 64 bytes, aligned to 64
  std::uint32_t depth = 0;   // a power of two, 1 to 32768
  const void* cq = nullptr;  // `cq_depth` entries of 64 bytes, aligned to 64
  // A power of two, with kEvery at least `depth`; with kTail entry 0 alone is used.
  std::uint32_t cq_depth = 0;
  // The send word of the doorbell record, which is its second one. Null with doorbell_record =
  // false, and not else: such a queue takes DoorbellOrder::kRingOnly alone.
  std::uint32_t* dbrec = nullptr;
  bool doorbell_record = true;
  // Where the doorbell is stored, 8 bytes at once, aligned to 8. How large a BlueFlame buffer lies
  // there does not matter: Peal writes no WQE into it.
  void* doorbell = nullptr;
  Qpn qpn;  // 24 bits, not 0
  // kEvery: the CQ is a ring with owner bits, and is this queue's alone. kTail: a collapsed CQ.
  CompletionMode completion = CompletionMode::kEvery;
  // Index of the next WQE, in slots: 0 unless the queue has been used before. Hardware knows 16
  // bits of it.
  std::uint64_t first_index = 0;
  // kEvery: what to add to a WQE's index for the number of its CQE, modulo 2^64: CQEs so far minus
  // first_index.
  std::uint64_t cq_base = 0;
  std::uint64_t max_message_bytes = std::uint64_t{1} << 30;  // the port's limit, 1 to 2^30
  // kDirect: the producers ring. kProxy: one CPU thread of the caller's does, by
  // AdoptedQueue::ring(); then `dbrec` and `doorbell` are as the CPU reaches them.
  NicHandler handler = NicHandler::kDirect;
  FenceScope fence_scope = FenceScope::kBus;  // kSystem, where the NIC is software in this process
};

// Where another data path goes on.
struct HandedBack {
  std::uint64_t next_index = 0;  // of the next WQE
  std::uint64_t next_cqe = 0;    // kEvery: CQEs so far; Peal wrote no consumer record
};

// Move-only. Owns the producers' counters and nothing of the queue, which must outlive it and all
// use of its handles. Any one thread at a time; the data path needs no lock against it. One that
// was moved from or handed back may only be assigned to and destroyed.
class AdoptedQueue {
 public:
  AdoptedQueue(AdoptedQueue&&) noexcept;
  AdoptedQueue& operator=(AdoptedQueue&&) noexcept;
  ~AdoptedQueue();

  // For the data path; valid as long as this object and until hand_back(). `stop` may be set by the
  // caller. `layout` is left as it is: that of the caller's build. Throws Error when it is not this
  // library's.
  QueueHandle handle(std::uint32_t layout = kQueueHandleLayout) const;

  // Under kProxy: rings for what the producers published since the last time; true if it rang. By
  // one CPU thread at a time, beside handle() and counters() of another, and again and again while
  // any producer is on the queue. Never blocks.
  bool ring();

  // A copy of what the producers count, for when none is on the queue. Throws Error.
  QueueState counters() const;

  // Once no producer is on the queue, for good: all handles are void. Throws Error: with EBUSY
  // while what was posted has not been seen to complete (flush first), with EIO after an error,
  // when the QP must be reset first and both count anew.
  HandedBack hand_back();

 private:
  struct Impl;
  explicit AdoptedQueue(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
  friend AdoptedQueue adopt(const ForeignQueue& queue, std::shared_ptr<verbs::DeviceMemory> memory);
};

// Checks the queue, reads its record and its CQ, and makes counters for its producers in `memory`
// (see cuda.hpp; null: ordinary memory, for CPU threads), whose copies must reach the queue's
// memory too. Writes nothing to the queue. Throws Error: with EINVAL and one sentence for what is
// wrong.
//
// The caller sees to what no check can:
// - The QP is in RTS. Nothing that was posted to it is incomplete, and from now on nobody but
//   Peal's producers posts to it or polls its CQ: no ibv_post_send, no ibv_poll_cq.
// - Its CQ gets the CQEs of no other QP, nor of its own receive queue; ignores overruns, as nobody
//   writes the CQ's record (IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN); and has never been resized.
// - Entries of the CQ that were never written have the opcode 0xf, as libmlx5 leaves them.
// - The sizes are those that the device was told: a ring that is said to be longer than it is gets
//   its neighbours overwritten.
AdoptedQueue adopt(const ForeignQueue& queue,
                   std::shared_ptr<verbs::DeviceMemory> memory = nullptr);

}  // namespace peal
