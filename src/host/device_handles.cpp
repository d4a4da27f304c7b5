#include "peal/host/device_handles.hpp"

#include <algorithm>
#include <cerrno>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "host/context_impl.hpp"
#include "host/layout.hpp"

namespace peal {
namespace {

static_assert(std::is_trivially_copyable_v<QueueHandle>, "it is copied to the device as bytes");

using QueuePairs = std::span<const QueuePair* const>;

void check_entry(QueuePairs queue_pairs, std::size_t i) {
  const auto refuse = [&](const std::string& why) {
    throw Error(EINVAL, "entry " + std::to_string(i) + " of " + std::to_string(queue_pairs.size()) +
                            " queue pairs " + why);
  };
  const QueuePair* qp = queue_pairs[i];
  if (qp == nullptr) refuse("is null");
  if (!qp->valid()) refuse("has been moved from");
  const auto earlier = queue_pairs.first(i);
  const auto same = std::find(earlier.begin(), earlier.end(), qp);
  if (same != earlier.end())
    refuse("is entry " + std::to_string(same - earlier.begin()) + " again");
  if (&qp->context().impl() != &queue_pairs[0]->context().impl()) {
    refuse("is of another context than entry 0");
  }
}

}  // namespace

DeviceHandles DeviceHandles::create(QueuePairs queue_pairs, const std::uint32_t* stop,
                                    std::uint32_t layout) {
  host::require_layout(layout);
  if (queue_pairs.empty()) throw Error(EINVAL, "there is no queue pair to make device handles of");
  for (std::size_t i = 0; i < queue_pairs.size(); ++i) check_entry(queue_pairs, i);

  std::vector<QueueHandle> handles;
  for (const QueuePair* qp : queue_pairs) {
    handles.push_back(qp->handle());
    handles.back().stop = stop;
  }
  const std::size_t bytes = handles.size() * sizeof(QueueHandle);
  const std::string what =
      std::to_string(bytes) + " bytes of " + std::to_string(handles.size()) + " device handles";
  DeviceHandles made(queue_pairs[0]->context());
  verbs::DeviceMemory& memory = made.context_.impl().memory();
  made.data_ = static_cast<QueueHandle*>(memory.allocate(bytes));
  if (made.data_ == nullptr) throw system_error(errno, "allocating " + what);
  made.size_ = handles.size();
  if (const int error = memory.copy_to_device(made.data_, handles.data(), bytes)) {
    throw system_error(error, "copying " + what + " to the device");
  }
  return made;
}

DeviceHandles::DeviceHandles(DeviceHandles&& other) noexcept
    : context_(other.context_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

DeviceHandles& DeviceHandles::operator=(DeviceHandles&& other) noexcept {
  std::swap(context_, other.context_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

DeviceHandles::~DeviceHandles() {
  if (data_ != nullptr) context_.impl().memory().release(data_, size_ * sizeof(QueueHandle));
}

}  // namespace peal
