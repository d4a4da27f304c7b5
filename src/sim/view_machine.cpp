#include "sim/view_machine.hpp"

#include <cstring>

namespace peal::sim {
namespace {

std::uint64_t word_at(const std::byte* at, std::uint32_t bytes) {
  std::uint64_t v = 0;
  std::memcpy(&v, at, bytes);
  return v;
}

bool acquires(Order order) {
  return order == Order::kAcquire || order == Order::kAcqRel;
}
bool releases(Order order) {
  return order == Order::kRelease || order == Order::kAcqRel;
}

constexpr std::uint32_t kWordBytes = 8;

}  // namespace

// ---- Locations ----------------------------------------------------------------------------------

ViewMachine::Page* ViewMachine::page_of(std::uintptr_t address, bool make) {
  const std::uintptr_t number = address / kPageBytes;
  Cached& cached = cache_[number % cache_.size()];
  if (cached.number == number) return cached.page;
  const auto found = pages_.find(number);
  if (found == pages_.end() && !make) return nullptr;
  Page* page = found != pages_.end()
                   ? found->second.get()
                   : pages_.emplace(number, std::make_unique<Page>()).first->second.get();
  cached = {number, page};
  return page;
}

// The location that this byte's granule belongs to.
Location* ViewMachine::covering(const std::byte* at) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  const Page* page = page_of(address, false);
  return page == nullptr ? nullptr : page->location[address % kPageBytes / kGranuleBytes];
}

Location& ViewMachine::find(const void* at, std::uint32_t bytes) {
  auto* start = static_cast<std::byte*>(const_cast<void*>(at));
  Location* l = covering(start);
  if (l == nullptr || l->at != start || l->bytes != bytes) return make(start, bytes);
  refresh(*l);
  return *l;
}

// In place of all that it overlaps, whose history ends: only where widths are mixed.
Location& ViewMachine::make(std::byte* at, std::uint32_t bytes) {
  locations_.push_back(std::make_unique<Location>());
  Location& l = *locations_.back();
  l.at = at;
  l.bytes = bytes;
  const auto first = reinterpret_cast<std::uintptr_t>(at) / kGranuleBytes;
  const auto last = (reinterpret_cast<std::uintptr_t>(at) + bytes - 1) / kGranuleBytes;
  for (std::uintptr_t g = first; g <= last; ++g) {
    Page* page = page_of(g * kGranuleBytes, true);
    Location*& place = page->location[g % (kPageBytes / kGranuleBytes)];
    if (place != nullptr) drop(*place);
    place = &l;
  }
  start_over(l);
  return l;
}

void ViewMachine::drop(Location& l) {
  notify(l);
  const auto first = reinterpret_cast<std::uintptr_t>(l.at) / kGranuleBytes;
  const auto last = (reinterpret_cast<std::uintptr_t>(l.at) + l.bytes - 1) / kGranuleBytes;
  for (std::uintptr_t g = first; g <= last; ++g) {
    Location*& place = page_of(g * kGranuleBytes, true)->location[g % (kPageBytes / kGranuleBytes)];
    if (place == &l) place = nullptr;
  }
  l.bytes = 0;
}

// Somebody outside the simulation may have written.
void ViewMachine::refresh(Location& l) {
  const Location::Version& newest = l.newest();
  const bool same = l.bytes <= kWordBytes ? word_at(l.at, l.bytes) == newest.word
                                          : std::memcmp(l.at, newest.bytes.data(), l.bytes) == 0;
  if (l.generation != generation_ || !same) start_over(l);
}

void ViewMachine::start_over(Location& l) {
  for (std::uint32_t i = 0; i < l.count; ++i) free_releases(l.version(i).releases);
  l.generation = generation_;
  l.oldest = 0;
  l.count = 1;
  if (l.versions.empty()) l.versions.resize(1);
  Location::Version& v = l.versions[0];
  v.releases = 0;
  v.known = {};
  if (l.bytes <= kWordBytes) {
    v.word = word_at(l.at, l.bytes);
  } else {
    v.bytes.assign(l.at, l.at + l.bytes);
  }
}

// ---- Reading ------------------------------------------------------------------------------------

// The oldest store that the agent may still read.
std::uint32_t ViewMachine::floor_of(Agent agent, Location& l) {
  const Clock& clock = clocks_[agent];
  for (std::uint32_t i = l.count - 1; i > 0; --i) {
    const auto& known = l.version(i).known;
    if (*now_ns_ - l.version(i).made_ns >= visible_after_ns_) return i;
    for (Agent a = 0; a < kMaxAgents; ++a) {
      if (known[a] != 0 && known[a] <= clock[a]) return i;
    }
  }
  return 0;
}

std::uint32_t ViewMachine::choose(Agent agent, Location& l) {
  const std::uint32_t newest = l.count - 1;
  if (newest == 0 || l.newest().known[agent] != 0) return newest;
  if (!random_.chance(staleness_)) return newest;
  const std::uint32_t floor = floor_of(agent, l);
  return floor == newest ? newest : floor + random_.below(newest - floor + 1);
}

Seen ViewMachine::read(Agent agent, Location& l, std::uint32_t which, Order order,
                       FenceScope scope) {
  Location::Version& v = l.version(which);
  if (v.known[agent] == 0) v.known[agent] = clocks_[agent][agent];
  if (acquires(order)) {
    for (std::uint32_t r = v.releases; r != 0; r = releases_[r].next) {
      const Release& release = releases_[r];
      const FenceScope way = distance(release.agent, agent);
      if (release.scope >= way && scope >= way) join(clocks_[agent], release.clock);
    }
  }
  return {v.word, l.count - 1 - which, &l};
}

Seen ViewMachine::load(Agent agent, const void* word, std::uint32_t bytes, Order order,
                       FenceScope scope) {
  Location& l = find(word, bytes);
  return read(agent, l, choose(agent, l), order, scope);
}

void ViewMachine::read_range(Agent agent, const std::byte* from, std::byte* out,
                             std::uint32_t bytes) {
  for (std::uint32_t done = 0; done < bytes;) {
    const std::byte* at = from + done;
    Location* l = covering(at);
    if (l == nullptr || at < l->at || at >= l->at + l->bytes) {
      // Nobody has stored here; up to the next granule.
      const auto in_granule =
          static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(at) % kGranuleBytes);
      const std::uint32_t n = std::min(kGranuleBytes - in_granule, bytes - done);
      std::memcpy(out + done, at, n);
      done += n;
      continue;
    }
    refresh(*l);
    const std::uint32_t which = choose(agent, *l);
    read(agent, *l, which, Order::kRelaxed, FenceScope::kSystem);
    const Location::Version& v = l->version(which);
    const auto* value =
        l->bytes <= kWordBytes ? reinterpret_cast<const std::byte*>(&v.word) : v.bytes.data();
    const auto skip = static_cast<std::uint32_t>(at - l->at);
    const std::uint32_t n = std::min(l->bytes - skip, bytes - done);
    std::memcpy(out + done, value + skip, n);
    done += n;
  }
}

// ---- Storing ------------------------------------------------------------------------------------

Location::Version& ViewMachine::append(Agent agent, Location& l) {
  if (l.count == Location::kKept) {
    free_releases(l.version(0).releases);
    l.oldest = (l.oldest + 1) % Location::kKept;
  } else {
    ++l.count;
    if (l.versions.size() < l.count) l.versions.resize(l.count);
  }
  Location::Version& v = l.newest();
  v.known = {};
  v.known[agent] = clocks_[agent][agent];
  v.made_ns = *now_ns_;
  v.releases = 0;
  notify(l);
  return v;
}

std::uint32_t ViewMachine::new_release(const Release& r) {
  std::uint32_t i = free_release_;
  if (i != 0) {
    free_release_ = releases_[i].next;
    releases_[i] = r;
  } else {
    i = static_cast<std::uint32_t>(releases_.size());
    releases_.push_back(r);
  }
  return i;
}

void ViewMachine::free_releases(std::uint32_t chain) {
  while (chain != 0) {
    const std::uint32_t next = releases_[chain].next;
    releases_[chain].next = free_release_;
    free_release_ = chain;
    chain = next;
  }
}

// What the agent knows goes with the store; what it learns later does not.
void ViewMachine::add_release(Agent agent, Location::Version& v, FenceScope scope) {
  v.releases = new_release({agent, scope, clocks_[agent], v.releases});
  ++clocks_[agent][agent];
}

// A read-modify-write continues the releases of what it read.
void ViewMachine::append_word(Agent agent, Location& l, std::uint64_t value, Order order,
                              FenceScope scope, std::uint32_t continued) {
  std::uint32_t chain = 0;
  for (std::uint32_t r = continued; r != 0; r = releases_[r].next) {
    Release copy = releases_[r];
    if (releases(order) && copy.agent == agent && copy.scope <= scope)
      continue;  // known to the new
    copy.next = chain;
    chain = new_release(copy);
  }
  Location::Version& v = append(agent, l);
  v.word = value;
  v.releases = chain;
  if (releases(order)) add_release(agent, v, scope);
  std::memcpy(l.at, &value, l.bytes);
}

Location* ViewMachine::store(Agent agent, void* word, std::uint32_t bytes, std::uint64_t value,
                             Order order, FenceScope scope) {
  Location& l = find(word, bytes);
  append_word(agent, l, value, order, scope, 0);
  return &l;
}

Seen ViewMachine::compare_swap(Agent agent, void* word, std::uint32_t bytes, std::uint64_t expected,
                               std::uint64_t desired, Order order, FenceScope scope,
                               bool* swapped) {
  Location& l = find(word, bytes);
  *swapped = false;
  const std::uint32_t which = choose(agent, l);
  if (l.version(which).word != expected || l.newest().word != expected) {
    const bool fails_here = l.version(which).word != expected;
    return read(agent, l, fails_here ? which : l.count - 1, Order::kRelaxed, scope);
  }
  const Seen seen = read(agent, l, l.count - 1, order, scope);
  append_word(agent, l, desired, order, scope, l.newest().releases);
  *swapped = true;
  return seen;
}

Location* ViewMachine::write_range(Agent agent, std::byte* to, const std::byte* in,
                                   std::uint32_t bytes) {
  if (bytes == 0) return nullptr;
  Location& l = find(to, bytes);
  Location::Version& v = append(agent, l);
  if (bytes <= kWordBytes) {
    v.word = word_at(in, bytes);
  } else {
    v.bytes.assign(in, in + bytes);
  }
  std::memmove(to, in, bytes);
  return &l;
}

// ---- Beside memory ------------------------------------------------------------------------------

void ViewMachine::fence_seq_cst(Agent agent) {
  join(clocks_[agent], fenced_);
  fenced_ = tell(agent);
}

Clock ViewMachine::tell(Agent agent) {
  const Clock told = clocks_[agent];
  ++clocks_[agent][agent];
  return told;
}

}  // namespace peal::sim
