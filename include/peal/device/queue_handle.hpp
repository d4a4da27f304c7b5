// One send queue with its completion queue, as plain data: what the control path exports and the
// data path works on. Copied freely; it owns nothing, and the memory it names must outlive its use.
#pragma once

#include <cstddef>
#include <cstdint>

#include "peal/core/config.hpp"
#include "peal/core/types.hpp"
#include "peal/device/nic_handler.hpp"
#include "peal/memory/scope.hpp"
#include "peal/mlx5/cqe.hpp"
#include "peal/mlx5/wqe.hpp"

namespace peal {

// In which order a submission rings and records. It must fit the queue: kRingOnly where it has no
// doorbell record, one of the others where it has. Under a proxy the producers do neither; the
// proxy keeps the canonical order, or rings only.
enum class DoorbellOrder : std::uint8_t {
  kRingRecordRing,  // the original: an early ring, the record, a second ring
  kRecordRing,      // the canonical order
  kRingOnly,        // no record: the NIC trusts the register alone
};

// How several producers make a contiguous prefix of written WQEs.
enum class PublishOrder : std::uint8_t {
  kInOrder,  // the original: each waits for its predecessor, then rings under a lock
  kCombine,  // each leaves a mark; one of them rings for all
};

PEAL_HOST_DEVICE constexpr const char* doorbell_order_name(DoorbellOrder d) {
  return d == DoorbellOrder::kRingRecordRing ? "ring_record_ring"
         : d == DoorbellOrder::kRecordRing   ? "record_ring"
                                             : "ring_only";
}
PEAL_HOST_DEVICE constexpr const char* publish_order_name(PublishOrder p) {
  return p == PublishOrder::kInOrder ? "in_order" : "combine";
}

// How the completions of a queue are asked for and found. It belongs to the queue: its CQ is made
// for the one or the other.
enum class CompletionMode : std::uint8_t {
  kEvery,  // a CQE for each WQE, in a ring with owner bits
  kTail,   // a CQE for the last WQE of each reservation, over the one before it: a collapsed CQ
};

PEAL_HOST_DEVICE constexpr const char* completion_mode_name(CompletionMode c) {
  return c == CompletionMode::kEvery ? "every" : "tail";
}

// Both default to the original.
struct SubmitOptions {
  DoorbellOrder doorbell = DoorbellOrder::kRingRecordRing;
  PublishOrder publish = PublishOrder::kInOrder;
};

// The counters that the producers of one queue share. All are 64-bit and free-running; each lies on
// a line of its own. Writers and readers are producers only: the NIC sees none of this.
struct QueueState {
  alignas(64) std::uint64_t reserved = 0;  // slots handed out; compare-swap by each reserver
  alignas(64) std::uint64_t ready = 0;  // end of the written prefix; the publisher whose turn it is
  alignas(64) std::uint64_t pending = 0;    // publishers not yet combined; added to by all
  alignas(64) std::uint64_t rung = 0;       // announced to the NIC so far; the ringer
  std::uint64_t doorbells = 0;              // the producers' own doorbell stores; the ringer
  alignas(64) std::uint64_t completed = 0;  // every WQE below succeeded; forward only, any poller
  alignas(64) std::uint64_t error = 0;      // LatchedError; the first poller to see one
  alignas(64) std::uint32_t ring_lock = 0;  // in_order publishing only
};

// Between the producers of one queue and the proxy that rings for them. Each side has a line of its
// own. Where producers are of another processor, the CPU must reach this memory and the record too.
struct ProxyWord {
  alignas(64) std::uint64_t pi = 0;         // the ringer writes, forward only; the proxy reads
  alignas(64) std::uint64_t doorbells = 0;  // doorbell stores so far; the proxy writes
};

// The layout of QueueHandle and of what its pointers name. Device code is often built by itself,
// from another version than the library that made the handle: the host refuses to hand one out to
// it, and a SendQueue made of one refuses every post with kInvalid. The upper half is nothing that
// lies in a handle by chance. The last digits change with the asserts below.
inline constexpr std::uint32_t kQueueHandleLayout = 0x50450001;

struct QueueHandle {
  std::uint32_t layout = kQueueHandleLayout;  // at offset 0 in every version
  std::uint32_t depth = 0;                    // slots of the SQ, a power of two, at most 32768
  mlx5::Slot* sq = nullptr;                   // `depth` slots; producers write, the NIC reads
  std::uint32_t* dbrec = nullptr;     // the send word of the doorbell record, where it has one
  std::uint64_t* doorbell = nullptr;  // the UAR register, or what stands for it; null under proxy
  const mlx5::Cqe* nic_cq = nullptr;  // `cq_depth` entries, or with kTail one; the NIC writes
  QueueState* state = nullptr;
  std::uint64_t* marks = nullptr;       // `depth` end counters, by first slot; combine only
  ProxyWord* proxy = nullptr;           // null under direct
  const std::uint32_t* stop = nullptr;  // optional: non-zero ends every wait with kStopped
  std::uint64_t cq_base = 0;            // kEvery: CQE number = WQE index + cq_base, modulo 2^64
  std::uint64_t max_message_bytes = 0;  // the NIC's limit for one WQE, at most 2^30
  std::uint32_t cq_depth = 0;           // kEvery: entries of the CQ, a power of two, >= depth
  Qpn qpn;
  CompletionMode completion = CompletionMode::kEvery;
  bool has_record = true;                        // else only kRingOnly posts
  FenceScope fence_scope = FenceScope::kSystem;  // that the NIC's place asks for
  HandlerChoice handler;                         // that of the queue's context
};

// Whether this build can use the handle. Reads nothing else of it.
PEAL_HOST_DEVICE constexpr bool is_compatible(const QueueHandle& handle) {
  return handle.layout == kQueueHandleLayout;
}

static_assert(offsetof(QueueHandle, layout) == 0 && offsetof(QueueHandle, depth) == 4 &&
              offsetof(QueueHandle, sq) == 8 && offsetof(QueueHandle, dbrec) == 16 &&
              offsetof(QueueHandle, doorbell) == 24 && offsetof(QueueHandle, nic_cq) == 32 &&
              offsetof(QueueHandle, state) == 40 && offsetof(QueueHandle, marks) == 48 &&
              offsetof(QueueHandle, proxy) == 56 && offsetof(QueueHandle, stop) == 64 &&
              offsetof(QueueHandle, cq_base) == 72 &&
              offsetof(QueueHandle, max_message_bytes) == 80 &&
              offsetof(QueueHandle, cq_depth) == 88 && offsetof(QueueHandle, qpn) == 92 &&
              offsetof(QueueHandle, completion) == 96 && offsetof(QueueHandle, has_record) == 97 &&
              offsetof(QueueHandle, fence_scope) == 98 && offsetof(QueueHandle, handler) == 99 &&
              sizeof(QueueHandle) == 104);
static_assert(offsetof(QueueState, reserved) == 0 && offsetof(QueueState, ready) == 64 &&
              offsetof(QueueState, pending) == 128 && offsetof(QueueState, rung) == 192 &&
              offsetof(QueueState, doorbells) == 200 && offsetof(QueueState, completed) == 256 &&
              offsetof(QueueState, error) == 320 && offsetof(QueueState, ring_lock) == 384 &&
              sizeof(QueueState) == 448);
static_assert(offsetof(ProxyWord, pi) == 0 && offsetof(ProxyWord, doorbells) == 64 &&
              sizeof(ProxyWord) == 128);

}  // namespace peal
