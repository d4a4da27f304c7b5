#include "sim/simulation.hpp"

#include <algorithm>

namespace peal::sim {

Simulation::Simulation(const SimulationOptions& options)
    : before_(current_),
      random_(options.seed),
      plant_(options.plant),
      scheduler_(random_, options.pace),
      machine_(random_, *this) {
  machine_.set_staleness(options.stale_per_mille);
  machine_.set_visible_after(kVisibleAfterNs, &scheduler_.now_ns());
  current_ = this;
}

Simulation::~Simulation() {
  current_ = before_;
}

void Simulation::changed(std::uint32_t agents) {
  for (Agent a = 0; agents != 0; ++a, agents >>= 1) {
    if ((agents & 1) != 0) scheduler_.wake(a);
  }
}

std::uint64_t Simulation::load_here(const char* operation, const void* word, std::uint32_t bytes,
                                    Order order, FenceScope scope) {
  const Agent self = scheduler_.running();
  const Seen seen = machine_.load(self, word, bytes, order, scope);
  remember(seen.location);
  note(operation, word, bytes, seen.value, seen.newer);
  return seen.value;
}

void Simulation::store_here(const char* operation, void* word, std::uint32_t bytes,
                            std::uint64_t value, Order order, FenceScope scope) {
  machine_.store(scheduler_.running(), word, bytes, value, order, scope);
  note(operation, word, bytes, value, 0);
}

bool Simulation::compare_swap(const char* operation, void* word, std::uint32_t bytes,
                              std::uint64_t* expected, std::uint64_t desired, Order order,
                              FenceScope scope) {
  scheduler_.point();
  bool swapped = false;
  const Seen seen = machine_.compare_swap(scheduler_.running(), word, bytes, *expected, desired,
                                          order, scope, &swapped);
  remember(seen.location);
  note(operation, word, bytes, swapped ? desired : seen.value, seen.newer);
  *expected = seen.value;
  return swapped;
}

void Simulation::copy(std::byte* to, const std::byte* from, std::uint32_t bytes) {
  scheduler_.point();
  if (bytes == 0) return;
  if (buffer_.size() < bytes) buffer_.resize(bytes);
  machine_.read_range(scheduler_.running(), from, buffer_.data(), bytes);
  machine_.write_range(scheduler_.running(), to, buffer_.data(), bytes);
  std::uint64_t head = 0;
  std::copy_n(buffer_.data(), std::min<std::uint32_t>(bytes, 8),
              reinterpret_cast<std::byte*>(&head));
  note("copy_payload", to, bytes, head, 0);
  if (at_copy_) at_copy_(to, bytes);
}

void Simulation::read(const std::byte* from, void* to, std::uint32_t bytes) {
  scheduler_.point();
  machine_.read_range(scheduler_.running(), from, static_cast<std::byte*>(to), bytes);
  note("read payload", from, bytes, 0, 0);
}

void Simulation::write(std::byte* to, const void* from, std::uint32_t bytes) {
  scheduler_.point();
  machine_.write_range(scheduler_.running(), to, static_cast<const std::byte*>(from), bytes);
  note("write payload", to, bytes, 0, 0);
}

void Simulation::pause(std::uint64_t until_ns) {
  const Agent self = scheduler_.running();
  const std::uint64_t now_ns = scheduler_.now_ns();
  if (now_ns > until_ns) overrun_ns_max_ = std::max(overrun_ns_max_, now_ns - until_ns);
  Watch& w = watches_[self];
  const bool moved = w.locations.empty() ||
                     std::any_of(w.locations.begin(), w.locations.end(),
                                 [&](Location* l) { return !machine_.knows_newest(self, *l); });
  if (moved) {
    until_ns = std::min(until_ns, now_ns + kStaleNs);
  } else {
    for (Location* l : w.locations) l->watchers |= 1u << self;
  }
  w.clear();
  scheduler_.park(until_ns);
}

}  // namespace peal::sim
