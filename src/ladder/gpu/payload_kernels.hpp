// Fills, poisons and checks a region of slots in GPU memory, as payload.hpp does in the CPU's.
#pragma once

#include <cstddef>
#include <cstdint>

namespace peal::ladder::gpu {

// A segment plan and its layout as plain data.
struct Slots {
  std::uint64_t seed = 0;
  std::uint32_t producers = 0;
  std::uint64_t first_sequence = 0;
  std::uint64_t puts_per_producer = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t stride_bytes = 0;
  std::uint64_t align_bytes = 0;
};

// Each flips payload and guards where told to; 0, or a cudaError_t. They return before the kernel
// has run, which `stream` orders.
int write_slots(std::byte* region, const Slots& slots, bool flip_payload, bool flip_guards,
                void* stream);

// Counts into *wrong (GPU memory) the PUTs and guards that are not as write_slots writes them
// without flips: of producer p the first acknowledged[p] PUTs (GPU memory), and the leading guard.
int count_wrong(const std::byte* region, const Slots& slots, const std::uint64_t* acknowledged,
                unsigned long long* wrong, void* stream);

}  // namespace peal::ladder::gpu
