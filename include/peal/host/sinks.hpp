// Registered memory where the old values of atomics land: 8 bytes for each producer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "peal/device/operation.hpp"
#include "peal/host/context.hpp"
#include "peal/host/memory_region.hpp"

namespace peal {

// Move-only. Must outlive every atomic that names it. Any one thread at a time; the data path needs
// no lock against it.
class Sinks {
 public:
  // One for each of `producers`, zeroed, each on a line of its own. Throws Error.
  static Sinks create(const Context& context, std::size_t producers);
  Sinks(Sinks&& other) noexcept;
  Sinks& operator=(Sinks&& other) noexcept;
  ~Sinks();

  std::size_t size() const { return size_; }
  // That of producer `p`, below size(); to be named in an AtomicTarget.
  Sink operator[](std::size_t p) const {
    return {region_->address() + p * kLineBytes, region_->lkey()};
  }
  // What lies there, in device memory: an atomic's old value, once its ticket has succeeded.
  const std::uint64_t* value(std::size_t p) const {
    return reinterpret_cast<const std::uint64_t*>(static_cast<std::byte*>(memory_) +
                                                  p * kLineBytes);
  }

 private:
  static constexpr std::size_t kLineBytes = 64;

  explicit Sinks(const Context& context) : context_(context) {}

  Context context_;
  void* memory_ = nullptr;
  std::size_t size_ = 0;
  std::optional<MemoryRegion> region_;
};

}  // namespace peal
