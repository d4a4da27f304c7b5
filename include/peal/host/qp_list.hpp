// Several queue pairs made together, all or none, with their handles as one device array.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "peal/host/context.hpp"
#include "peal/host/device_handles.hpp"
#include "peal/host/queue_pair.hpp"

namespace peal {

struct QpListOptions {
  // One more queue pair for each entry, with the same options, on the UAR page of the first.
  bool companions = false;
  // Put into every handle of the device array; must outlive their use.
  const std::uint32_t* stop = nullptr;
};

// Move-only. Any one thread at a time; the data path works on handles() and needs no lock against
// it. Entries count from 0, in errors too.
class QpList {
 public:
  // Checks all options before it makes anything. Throws Error, with the entry, the step and the
  // cause; then everything made so far has been destroyed.
  static QpList create(const Context& context, std::span<const QueuePairOptions> entries,
                       const QpListOptions& options = {});

  std::size_t size() const { return queue_pairs_.size(); }
  bool has_companions() const { return !companions_.empty(); }

  // Entry `i`, below size(). Valid until the list is destroyed or assigned to. Nobody may move from
  // it: the device array names it.
  QueuePair& operator[](std::size_t i) { return queue_pairs_[i]; }
  const QueuePair& operator[](std::size_t i) const { return queue_pairs_[i]; }
  // The companion of entry `i`, likewise; only where has_companions().
  QueuePair& companion(std::size_t i) { return companions_[i]; }
  const QueuePair& companion(std::size_t i) const { return companions_[i]; }

  // Connects entry i to peers[i]; companions are connected each by itself. Throws Error before
  // anything is done when the number is not size(), and naming the entry when one fails: those
  // before it are connected then.
  void connect(std::span<const QueuePairAddress> peers);

  HandlerChoice handler() const { return context_.handler(); }

  // On the device: the entries in order, then their companions in the same order.
  // `layout` is left as it is: see QueuePair::handle. Throws Error.
  const DeviceHandles& handles(std::uint32_t layout = kQueueHandleLayout) const;

 private:
  QpList(const Context& context, std::vector<QueuePair> queue_pairs,
         std::vector<QueuePair> companions, DeviceHandles handles)
      : context_(context),
        queue_pairs_(std::move(queue_pairs)),
        companions_(std::move(companions)),
        handles_(std::move(handles)) {}

  Context context_;
  std::vector<QueuePair> queue_pairs_;
  std::vector<QueuePair> companions_;
  DeviceHandles handles_;
};

}  // namespace peal
