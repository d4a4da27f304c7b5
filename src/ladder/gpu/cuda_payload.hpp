// Payload in GPU memory, filled and checked by kernels there, or in pinned host memory, by the CPU.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "ladder/payload_memory.hpp"
#include "verbs/cuda_memory.hpp"

namespace peal::ladder::gpu {

// All of it is taken by the constructor: a kernel that runs for ever would deadlock with memory
// that is taken or freed later.
class CudaPayload final : public PayloadMemory {
 public:
  // On that GPU, or pinned. Throws MachineError with both numbers when there is not as much, and
  // peal::Error.
  CudaPayload(std::optional<std::uint32_t> gpu, std::uint64_t bytes);
  ~CudaPayload() override;
  CudaPayload(const CudaPayload&) = delete;
  CudaPayload& operator=(const CudaPayload&) = delete;

  void* memory() const { return memory_; }
  std::uint64_t bytes() const { return bytes_; }
  // Null where it is pinned.
  const std::shared_ptr<verbs::CudaDeviceMemory>& device_memory() const { return device_; }

  std::uint64_t default_region_bytes() const override { return bytes_; }
  // It was taken for all rows.
  void require(std::uint64_t, const std::string&) const override {}
  void* take(std::uint64_t bytes) override;
  void give_back() override {}

  void fill(const SegmentPlan& plan) override;
  void poison(const SegmentPlan& plan) override;
  Verdict check(const SegmentPlan& plan, std::span<const std::uint64_t> acknowledged) override;

 private:
  void require_free(std::uint64_t bytes) const;
  void release() noexcept;
  void write(const SegmentPlan& plan, bool flip_payload, bool flip_guards);
  std::span<std::byte> region() const { return {static_cast<std::byte*>(memory_), region_bytes_}; }

  std::optional<std::uint32_t> gpu_;
  std::uint64_t bytes_ = 0;
  std::uint64_t region_bytes_ = 0;
  std::shared_ptr<verbs::CudaDeviceMemory> device_;
  void* memory_ = nullptr;
  void* stream_ = nullptr;
  std::uint64_t* acknowledged_ = nullptr;  // pinned, a word a producer
  unsigned long long* wrong_ = nullptr;    // pinned
};

}  // namespace peal::ladder::gpu
