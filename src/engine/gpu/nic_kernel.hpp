// What the host and the kernel of the GPU engine share: plain data.
#pragma once

#include <cstdint>

#include "nic/tables.hpp"

namespace peal::engine::gpu {

inline constexpr std::uint32_t kMaxBlocks = 132;
inline constexpr std::uint32_t kQueuesABlock = 31;
inline constexpr std::uint64_t kStopEpoch = ~std::uint64_t{0};

// The tables of both NICs, as of one epoch, and which of the sender's queues there are.
struct Mirror {
  nic::Tables sender;
  nic::Tables receiver;
  std::uint32_t queues = 0;
  std::uint32_t queue[nic::kMaxQps] = {};
};

// What the kernel keeps of a queue from round to round. Its block works on a copy of its own, and
// writes it back after each round, for the host to read.
struct Queue {
  std::uint64_t generation = 0;
  std::uint64_t made = 0;
  std::uint64_t posted = 0;
  std::uint64_t fetched = 0;   // and completed, between rounds
  std::uint64_t doorbell = 0;  // as seen last
  std::uint64_t produced = 0;  // CQEs of its CQ, over resets
  std::uint64_t wqes = 0;
  std::uint64_t cqes = 0;
  std::uint64_t bytes = 0;
  nic::Refusal reason = nic::Refusal::kNone;
  bool failed = false;
};

struct Nic {
  Mirror* mirror[2];     // by the epoch's parity
  std::uint64_t* epoch;  // in GPU memory; the host writes
  std::uint64_t* seen;   // in pinned memory, a word a block
  Queue* queues;         // in GPU memory, by QP index
  std::uint32_t blocks;
  bool null_payload;
};

// Starts the kernel on a stream; 0, or a cudaError_t.
int launch(const Nic& nic, void* stream);

}  // namespace peal::engine::gpu
