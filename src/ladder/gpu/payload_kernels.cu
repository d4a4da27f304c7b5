#include <cuda_runtime.h>

#include "ladder/gpu/payload_kernels.hpp"
#include "ladder/pattern.hpp"

namespace peal::ladder::gpu {
namespace {

using namespace pattern;

constexpr std::uint32_t kLanes = 32;
constexpr std::uint32_t kBlockThreads = 256;
constexpr std::uint32_t kBlocks = 1024;

// A run of bytes of a pattern, which starts with byte `offset` of it.
struct Run {
  std::byte* at;
  std::uint64_t bytes;
  std::uint64_t base;
  std::uint64_t offset;
  std::uint64_t flip;
};

// By the lanes of a warp: calls word(address, value) for each whole word, which lie at multiples of
// a word, and byte(address, value) for what is left at the ends.
template <class Word, class Byte>
__device__ void for_each_word(const Run& r, std::uint32_t lane, Word word, Byte byte) {
  const std::uint64_t skipped = (kWordBytes - r.offset % kWordBytes) % kWordBytes;
  const std::uint64_t before = skipped < r.bytes ? skipped : r.bytes;
  const std::uint64_t words = (r.bytes - before) / kWordBytes;
  const auto flip = static_cast<std::uint8_t>(r.flip);
  const auto single = [&](std::uint64_t i) {
    byte(r.at + i, static_cast<std::uint8_t>(byte_at(r.base, r.offset + i) ^ flip));
  };
  if (lane < before) single(lane);
  for (std::uint64_t w = lane; w < words; w += kLanes) {
    const std::uint64_t index = (r.offset + before) / kWordBytes + w;
    word(reinterpret_cast<std::uint64_t*>(r.at + before + w * kWordBytes),
         word_at(r.base, index) ^ r.flip);
  }
  const std::uint64_t tail = before + words * kWordBytes;
  if (tail + lane < r.bytes) single(tail + lane);
}

__device__ void write(const Run& r, std::uint32_t lane) {
  for_each_word(
      r, lane, [](std::uint64_t* p, std::uint64_t v) { *p = v; },
      [](std::byte* p, std::uint8_t v) { *p = std::byte{v}; });
}

__device__ bool matches(const Run& r, std::uint32_t lane) {
  bool same = true;
  for_each_word(
      r, lane, [&](const std::uint64_t* p, std::uint64_t v) { same &= __ldcg(p) == v; },
      [&](const std::byte* p, std::uint8_t v) {
        same &= __ldcg(reinterpret_cast<const std::uint8_t*>(p)) == v;
      });
  return __all_sync(0xffffffff, same);
}

// The bytes between `begin` and `end` of a region, which belong to a guard.
__device__ Run guard(const std::byte* region, const Slots& s, std::uint64_t begin,
                     std::uint64_t end, std::uint64_t flip) {
  return {const_cast<std::byte*>(region) + begin, end - begin, guard_base(s.seed), begin, flip};
}
__device__ Run leading_guard(const std::byte* region, const Slots& s, std::uint64_t flip) {
  return guard(region, s, 0, s.align_bytes, flip);
}
__device__ std::uint64_t offset_of(const Slots& s, std::uint64_t slot) {
  return s.align_bytes + slot * s.stride_bytes;
}
__device__ Run guard_after(const std::byte* region, const Slots& s, std::uint64_t slot,
                           std::uint64_t flip) {
  return guard(region, s, offset_of(s, slot) + s.payload_bytes, offset_of(s, slot + 1), flip);
}
__device__ Run payload(const std::byte* region, const Slots& s, std::uint64_t slot,
                       std::uint64_t flip) {
  const auto producer = static_cast<std::uint32_t>(slot / s.puts_per_producer);
  const std::uint64_t sequence = s.first_sequence + slot % s.puts_per_producer;
  return {const_cast<std::byte*>(region) + offset_of(s, slot), s.payload_bytes,
          put_base(producer_base(s.seed, producer), sequence), 0, flip};
}

__device__ std::uint64_t warp_of_grid() {
  return (std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kLanes;
}
__device__ std::uint64_t warps_of_grid() {
  return std::uint64_t{gridDim.x} * blockDim.x / kLanes;
}

__global__ void write_all(std::byte* region, Slots s, std::uint64_t payload_flip,
                          std::uint64_t guard_flip) {
  const std::uint32_t lane = threadIdx.x % kLanes;
  if (warp_of_grid() == 0) write(leading_guard(region, s, guard_flip), lane);
  const std::uint64_t slots = s.producers * s.puts_per_producer;
  for (std::uint64_t slot = warp_of_grid(); slot < slots; slot += warps_of_grid()) {
    write(payload(region, s, slot, payload_flip), lane);
    write(guard_after(region, s, slot, guard_flip), lane);
  }
}

__global__ void check_all(const std::byte* region, Slots s, const std::uint64_t* acknowledged,
                          unsigned long long* wrong) {
  const std::uint32_t lane = threadIdx.x % kLanes;
  std::uint32_t found = 0;
  if (warp_of_grid() == 0) found += matches(leading_guard(region, s, 0), lane) ? 0 : 1;
  const std::uint64_t slots = s.producers * s.puts_per_producer;
  for (std::uint64_t slot = warp_of_grid(); slot < slots; slot += warps_of_grid()) {
    if (slot % s.puts_per_producer >= acknowledged[slot / s.puts_per_producer]) continue;
    const bool right = matches(payload(region, s, slot, 0), lane);
    const bool guarded = matches(guard_after(region, s, slot, 0), lane);
    found += right && guarded ? 0 : 1;
  }
  if (lane == 0 && found != 0) atomicAdd(wrong, static_cast<unsigned long long>(found));
}

}  // namespace

int write_slots(std::byte* region, const Slots& slots, bool flip_payload, bool flip_guards,
                void* stream) {
  write_all<<<kBlocks, kBlockThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      region, slots, flip_payload ? ~std::uint64_t{0} : 0, flip_guards ? ~std::uint64_t{0} : 0);
  return cudaGetLastError();
}

int count_wrong(const std::byte* region, const Slots& slots, const std::uint64_t* acknowledged,
                unsigned long long* wrong, void* stream) {
  check_all<<<kBlocks, kBlockThreads, 0, static_cast<cudaStream_t>(stream)>>>(region, slots,
                                                                              acknowledged, wrong);
  return cudaGetLastError();
}

}  // namespace peal::ladder::gpu
