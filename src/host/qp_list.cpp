#include "peal/host/qp_list.hpp"

#include <cerrno>
#include <string>

#include "host/layout.hpp"

namespace peal {
namespace {

std::string entry_name(std::size_t i, std::size_t of) {
  return "entry " + std::to_string(i) + " of " + std::to_string(of);
}

// What `f` returns; its Error gets `where` in front.
template <class F>
auto named(const std::string& where, const F& f) {
  try {
    return f();
  } catch (const Error& e) {
    throw e.in(where);
  }
}

}  // namespace

QpList QpList::create(const Context& context, std::span<const QueuePairOptions> entries,
                      const QpListOptions& options) {
  const std::size_t n = entries.size();
  if (n == 0) throw Error(EINVAL, "a list of queue pairs needs at least one entry");
  for (std::size_t i = 0; i < n; ++i) {
    const auto check = options.companions ? QueuePair::check_companion : QueuePair::check;
    named(entry_name(i, n), [&] { check(context, entries[i]); });
  }
  std::vector<QueuePair> queue_pairs;
  std::vector<QueuePair> companions;
  for (std::size_t i = 0; i < n; ++i) {
    queue_pairs.push_back(
        named(entry_name(i, n), [&] { return QueuePair::create(context, entries[i]); }));
    if (!options.companions) continue;
    companions.push_back(named("companion of " + entry_name(i, n), [&] {
      return QueuePair::create_companion(queue_pairs[i], entries[i]);
    }));
  }
  std::vector<const QueuePair*> all;
  for (const QueuePair& qp : queue_pairs) all.push_back(&qp);
  for (const QueuePair& qp : companions) all.push_back(&qp);
  DeviceHandles handles = named("a list of " + std::to_string(n) + " queue pairs",
                                [&] { return DeviceHandles::create(all, options.stop); });
  return QpList(context, std::move(queue_pairs), std::move(companions), std::move(handles));
}

void QpList::connect(std::span<const QueuePairAddress> peers) {
  if (peers.size() != size()) {
    throw Error(EINVAL, "a list of " + std::to_string(size()) + " queue pairs cannot connect to " +
                            std::to_string(peers.size()) + " addresses");
  }
  for (std::size_t i = 0; i < size(); ++i) {
    named("connecting " + entry_name(i, size()), [&] { queue_pairs_[i].connect(peers[i]); });
  }
}

const DeviceHandles& QpList::handles(std::uint32_t layout) const {
  host::require_layout(layout);
  return handles_;
}

}  // namespace peal
