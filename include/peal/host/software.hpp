// Software ConnectXs in this process, for machines without a NIC.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "peal/host/provider.hpp"

namespace peal {

// Two software ConnectXs on one link, and the thread that runs both. Cheap to copy. They live as
// long as the last copy, provider or context of theirs, in whatever order these go. Any thread.
class SoftwareFabric {
 public:
  // Queues will lie in `memory`, or where it is null in ordinary memory. Throws Error.
  static SoftwareFabric create(std::shared_ptr<verbs::DeviceMemory> memory = nullptr);

  // The NIC of end 0 or 1; any number of contexts may be opened on it. Throws Error for another.
  Provider provider(std::size_t end) const;

 private:
  struct Impl;
  explicit SoftwareFabric(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

}  // namespace peal
