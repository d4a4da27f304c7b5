// Where one end's payload lies, and who fills and checks it there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "ladder/memory.hpp"
#include "ladder/payload.hpp"

namespace peal::ladder {

inline constexpr std::uint64_t kDefaultRegionBytes = std::uint64_t{256} << 20;

class PayloadMemory {
 public:
  virtual ~PayloadMemory() = default;

  // Of a region, where nobody says how large it is to be.
  virtual std::uint64_t default_region_bytes() const = 0;
  // Throws MachineError with both numbers when `bytes` for `what` cannot be had, of all ends here
  // together.
  virtual void require(std::uint64_t bytes, const std::string& what) const = 0;
  // A region of `bytes`, in place of the one before. Throws MachineError with both numbers.
  virtual void* take(std::uint64_t bytes) = 0;
  virtual void give_back() = 0;

  // As the functions of payload.hpp, over the region.
  virtual void fill(const SegmentPlan& plan) = 0;
  virtual void poison(const SegmentPlan& plan) = 0;
  virtual Verdict check(const SegmentPlan& plan, std::span<const std::uint64_t> acknowledged) = 0;
};

// Memory of the process, where the CPU fills and checks.
class HostPayload final : public PayloadMemory {
 public:
  // Two ends, and room for everybody else.
  std::uint64_t default_region_bytes() const override {
    return std::min(kDefaultRegionBytes, available_memory_bytes() / 8);
  }
  void require(std::uint64_t bytes, const std::string& what) const override {
    require_memory(bytes, what);
  }
  void* take(std::uint64_t bytes) override {
    if (buffer_.bytes().size() < bytes) {
      buffer_ = Buffer();  // before the larger one is taken
      buffer_ = Buffer(bytes);
    }
    return buffer_.bytes().data();
  }
  void give_back() override { buffer_ = Buffer(); }

  void fill(const SegmentPlan& plan) override { fill_source(buffer_.bytes(), plan); }
  void poison(const SegmentPlan& plan) override { poison_destination(buffer_.bytes(), plan); }
  Verdict check(const SegmentPlan& plan, std::span<const std::uint64_t> acknowledged) override {
    return check_destination(buffer_.bytes(), plan, acknowledged);
  }

 private:
  Buffer buffer_;
};

}  // namespace peal::ladder
