#include "peal/host/sinks.hpp"

#include <cerrno>
#include <utility>

#include "host/context_impl.hpp"

namespace peal {

Sinks Sinks::create(const Context& context, std::size_t producers) {
  if (producers == 0) throw Error(EINVAL, "sinks must be for one producer at least");
  Sinks sinks(context);
  const std::size_t bytes = producers * kLineBytes;
  sinks.memory_ = context.impl().memory().allocate(bytes);
  if (sinks.memory_ == nullptr) {
    throw system_error(errno, "allocating " + std::to_string(bytes) + " bytes for old values");
  }
  sinks.size_ = producers;
  sinks.region_ = MemoryRegion::create(context, sinks.memory_, bytes, Access::kLocalOnly);
  return sinks;
}

Sinks::Sinks(Sinks&& other) noexcept
    : context_(other.context_),
      memory_(std::exchange(other.memory_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      region_(std::exchange(other.region_, std::nullopt)) {}

Sinks& Sinks::operator=(Sinks&& other) noexcept {
  std::swap(context_, other.context_);
  std::swap(memory_, other.memory_);
  std::swap(size_, other.size_);
  std::swap(region_, other.region_);
  return *this;
}

Sinks::~Sinks() {
  region_.reset();  // before its memory
  if (memory_ != nullptr) context_.impl().memory().release(memory_, size_ * kLineBytes);
}

}  // namespace peal
