// The handles of several queue pairs as one flat array in device memory, for a kernel or threads
// that pick theirs by index.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "peal/device/queue_handle.hpp"
#include "peal/host/context.hpp"
#include "peal/host/queue_pair.hpp"

namespace peal {

// Move-only. The array must outlive its use, and the queue pairs must outlive that too. Any one
// thread at a time.
class DeviceHandles {
 public:
  // One allocation and one copy, in the order of `queue_pairs`, which are of one context, each
  // named once. `stop`, which may be null, is put into every handle and must outlive their use.
  // `layout` is left as it is: see QueuePair::handle.
  // Throws Error that names the entry, counted from 0, or the step; then nothing was left behind.
  static DeviceHandles create(std::span<const QueuePair* const> queue_pairs,
                              const std::uint32_t* stop = nullptr,
                              std::uint32_t layout = kQueueHandleLayout);
  DeviceHandles(DeviceHandles&& other) noexcept;
  DeviceHandles& operator=(DeviceHandles&& other) noexcept;
  ~DeviceHandles();

  // In device memory; null after a move from it.
  const QueueHandle* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  explicit DeviceHandles(const Context& context) : context_(context) {}

  Context context_;
  QueueHandle* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace peal
