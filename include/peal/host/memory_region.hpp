// Memory that a NIC may read or write.
#pragma once

#include <cstddef>
#include <cstdint>

#include "peal/core/types.hpp"
#include "peal/host/context.hpp"

namespace peal {

// May be combined. This side may always write to it, as answers of reads and atomics do.
enum class Access : std::uint32_t {
  kLocalOnly = 1,     // source of PUTs, where gets and old values land
  kRemoteWrite = 2,   // destination of PUTs too
  kRemoteRead = 4,    // source of the peer's gets too
  kRemoteAtomic = 8,  // target of the peer's atomics too
  kRemoteAll = 14,
};
constexpr Access operator|(Access a, Access b) {
  return static_cast<Access>(static_cast<std::uint32_t>(a) | static_cast<std::uint32_t>(b));
}
constexpr bool allows(Access a, Access what) {
  return (static_cast<std::uint32_t>(a) & static_cast<std::uint32_t>(what)) != 0;
}

// Move-only; deregisters when destroyed. The memory is the caller's and must outlive it. No WQE may
// name the region after its destruction has begun.
class MemoryRegion {
 public:
  // Registers [memory, memory + bytes), named by its own address. Throws Error with the address,
  // the size and the reason.
  static MemoryRegion create(const Context& context, void* memory, std::size_t bytes,
                             Access access);
  MemoryRegion(MemoryRegion&& other) noexcept;
  MemoryRegion& operator=(MemoryRegion&& other) noexcept;
  ~MemoryRegion();

  std::uint64_t address() const { return address_; }
  std::size_t bytes() const { return bytes_; }
  Lkey lkey() const { return lkey_; }
  Rkey rkey() const { return rkey_; }

 private:
  explicit MemoryRegion(const Context& context) : context_(context) {}

  Context context_;
  void* mr_ = nullptr;
  std::uint64_t address_ = 0;
  std::size_t bytes_ = 0;
  Lkey lkey_;
  Rkey rkey_;
};

}  // namespace peal
