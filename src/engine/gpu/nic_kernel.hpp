// What the host and the kernel of the GPU engine share: plain data.
#pragma once

#include <cstdint>

#include "nic/fault_kind.hpp"
#include "nic/tables.hpp"

namespace peal::engine::gpu {

inline constexpr std::uint32_t kMaxBlocks = 132;
inline constexpr std::uint32_t kMaxBlocksAQueue = 16;
inline constexpr std::uint32_t kQueuesABlock = 31;
inline constexpr std::uint32_t kMaxPlaces = kMaxBlocks * kQueuesABlock;
inline constexpr std::uint32_t kMaxFaults = 64;  // armed at a time
inline constexpr std::uint32_t kFaultsAQueue = 32;
inline constexpr std::uint32_t kSteps = 256;      // WQEs between a front and its back
inline constexpr std::uint32_t kFedPieces = 512;  // between a front and a helper
inline constexpr std::uint64_t kStopEpoch = ~std::uint64_t{0};

// One of the faults of a queue, which stand together and in their order.
struct MirroredFault {
  std::uint32_t queue = 0;   // QP index
  std::uint64_t arming = 0;  // nic::ArmedFaults::arming
  std::uint64_t value = 0;
  std::uint64_t index = 0;  // of the WQE
  nic::FaultKind kind = nic::FaultKind::kCorrupt;
};

// The tables of both NICs, as of one epoch, and who serves which of the sender's queues.
struct Mirror {
  nic::Tables sender;
  nic::Tables receiver;
  // By QP index, 0: none. Place p is lane p / groups of group p % groups. A queue keeps its place
  // for as long as it is there, so that it never passes from a block to another.
  std::uint32_t queue[kMaxPlaces] = {};
  std::uint32_t faults = 0;
  MirroredFault fault[kMaxFaults];
};

// Of what was done for a queue: since its QP was created, over resets.
enum Count : std::uint32_t {
  kWqes,
  kWrites,
  kReads,
  kAtomics,
  kNoops,
  kCqes,
  kErrorCqes,
  kBytes,  // moved
  kCounts,
};

// What the kernel keeps of a queue from round to round. Its block works on a copy of its own, each
// part of which has one writer there, and writes it to memory for the host to read.
struct FrontState {
  std::uint64_t generation = 0;
  std::uint64_t made = 0;
  std::uint64_t posted = 0;
  std::uint64_t fetched = 0;
  std::uint64_t doorbell = 0;       // as seen last
  std::uint64_t doorbells = 0;      // seen that named it, since its QP was created
  std::uint64_t failed = 0;         // a WQE has: what follows is flushed
  std::uint64_t arming = 0;         // of its faults
  std::uint64_t hold_until_ns = 0;  // by the GPU's timer
  std::uint32_t reached = 0;        // a bit for each of its faults
  std::uint32_t held = 0;
};
struct BackState {
  std::uint64_t count[kCounts] = {};
  std::uint64_t completed = 0;    // end of the WQEs that have their CQEs
  std::uint64_t produced = 0;     // CQEs of its CQ, ever
  std::uint64_t error_index = 0;  // of the WQE that was refused
  std::uint8_t opcode = 0;
  std::uint8_t syndrome = 0;  // 0: none was
  std::uint8_t vendor_syndrome = 0;
  nic::Refusal reason = nic::Refusal::kNone;
};
struct Queue {
  FrontState front;
  BackState back;
};

// What one warp copies at once; or an atomic, whose target is `from`.
struct Piece {
  const std::byte* from;
  std::byte* to;
  std::uint32_t bytes;
  std::uint32_t slot;  // of the step, and what is below
};
inline constexpr std::uint32_t kSlotMask = 0xff;
inline constexpr std::uint32_t kAtomicPiece = 1u << 8;
inline constexpr std::uint32_t kCorruptPiece = 1u << 9;  // a bit of one byte is flipped on its way,
inline constexpr std::uint32_t kCorruptShift = 16;       // whose offset is above this
static_assert(kSteps <= kSlotMask + 1);

// In GPU memory: what the front of a group hands one of its helpers. Free-running counts, which go
// on from launch to launch, in lines of their own.
struct Feed {
  Piece piece[kFedPieces];
  alignas(128) std::uint32_t made;   // by the front
  alignas(128) std::uint32_t taken;  // by the helper
  alignas(128) std::uint32_t stop;
};

// What a block says of itself: that it reads the tables of an epoch, or works with them by now. The
// host overwrites no tables that a block may be reading.
inline constexpr std::uint64_t kNotRunning = 0;
constexpr std::uint64_t word_of(std::uint64_t epoch, bool works_with_it) {
  return epoch << 1 | (works_with_it ? 1 : 0);
}

struct Nic {
  Mirror* mirror[2];     // by the epoch's parity
  std::uint64_t* epoch;  // in GPU memory; the host writes
  std::uint64_t* seen;   // in pinned memory, a word a group
  Queue* queues;         // in GPU memory, by QP index
  std::uint32_t blocks;
  // Blocks are in groups of so many: the first has the front and the back, the others help it copy.
  std::uint32_t blocks_a_queue;
  Feed* feeds;              // in GPU memory, a helper's by its block number
  std::uint32_t* far_done;  // in GPU memory, kSteps a group: pieces that helpers have copied, ever
  bool null_payload;
  // Where blocks serve in their producers' kernel: they end when `*ended`, in GPU memory, is
  // `producers`. Whoever launches says how many there are and begins with 0; each adds 1 when it
  // has ended (GpuMemory::add_count_release at system scope, MO-15). Null and 0 otherwise.
  std::uint32_t* ended;
  std::uint32_t producers;
};

// Starts the kernel on a stream; 0, or a cudaError_t.
int launch(const Nic& nic, void* stream);

}  // namespace peal::engine::gpu
