// Weak memory as a view machine: each location keeps its last stores, and each agent may read any
// of them that is not older than what it knows of. Knows no scheduler and no protocol.
//
// An agent knows of a store when it made or read it, or when it acquired a release made by an agent
// that knew of it. What is known is told by clocks: an agent's clock counts its own releases and
// the newest of every other agent's that it has acquired. Stores of one location are ordered as
// they were made, and a load never returns one that is still to come: load buffering and late
// placed stores (2+2W) are not modelled.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "peal/memory/scope.hpp"
#include "sim/random.hpp"

namespace peal::sim {

using Agent = std::uint32_t;
inline constexpr Agent kMaxAgents = 12;

using Clock = std::array<std::uint32_t, kMaxAgents>;

enum class Order : std::uint8_t { kRelaxed, kAcquire, kRelease, kAcqRel };

// Where an agent runs. An ordering whose scope is narrower than the way between two agents does not
// hold between them.
struct Place {
  std::uint32_t device = 0;
  std::uint32_t block = 0;
};

// A range that is stored to as one, and the stores that may still be read.
struct Location {
  struct Version {
    std::uint64_t word = 0;
    std::uint64_t made_ns = 0;
    std::vector<std::byte> bytes;  // of a location above 8 bytes, instead of `word`
    std::array<std::uint32_t, kMaxAgents> known = {};  // since which of its clocks; 0: never
    std::uint32_t releases = 0;                        // a chain in the machine's pool; 0: none
  };

  std::byte* at = nullptr;
  std::uint32_t bytes = 0;  // 0: another has taken its place
  std::uint32_t generation = 0;
  std::uint32_t oldest = 0;  // index into `versions`, a ring once it is full
  std::uint32_t count = 0;
  std::vector<Version> versions;
  std::uint32_t watchers = 0;                             // a bit an agent
  std::array<std::uint32_t, kMaxAgents> watched_at = {};  // so that each is noted once a turn

  static constexpr std::uint32_t kKept = 8;

  Version& version(std::uint32_t age_from_oldest) {
    return versions[(oldest + age_from_oldest) % kKept];
  }
  Version& newest() { return version(count - 1); }
};

// What a load found.
struct Seen {
  std::uint64_t value = 0;
  std::uint32_t newer = 0;  // stores that it passed over
  Location* location = nullptr;
};

// Called before the watchers of a location are forgotten, which has changed.
class Watchers {
 public:
  virtual void changed(std::uint32_t agents) = 0;

 protected:
  ~Watchers() = default;
};

class ViewMachine {
 public:
  ViewMachine(Random& random, Watchers& watchers) : random_(random), watchers_(watchers) {
    for (Agent a = 0; a < kMaxAgents; ++a) clocks_[a][a] = 1;
  }
  ViewMachine(const ViewMachine&) = delete;
  ViewMachine& operator=(const ViewMachine&) = delete;

  void place(Agent agent, Place where) { places_[agent] = where; }
  // In how many of 1000 cases a load is given its choice among what it may read; else it reads the
  // newest.
  void set_staleness(std::uint32_t per_mille) { staleness_ = per_mille; }
  // From so long after a store on, every agent knows of it: memory is weak, not deaf. `now_ns` must
  // outlive the machine.
  void set_visible_after(std::uint64_t ns, const std::uint64_t* now_ns) {
    visible_after_ns_ = ns;
    now_ns_ = now_ns;
  }

  // Words of 4 or 8 bytes, aligned. Memory itself always holds the newest store.
  Seen load(Agent agent, const void* word, std::uint32_t bytes, Order order, FenceScope scope);
  Location* store(Agent agent, void* word, std::uint32_t bytes, std::uint64_t value, Order order,
                  FenceScope scope);
  // Reads the newest and stores next(old).
  template <class Next>
  Seen update(Agent agent, void* word, std::uint32_t bytes, Order order, FenceScope scope,
              const Next& next) {
    Location& l = find(word, bytes);
    const Seen seen = read(agent, l, l.count - 1, order, scope);
    append_word(agent, l, next(seen.value), order, scope, l.newest().releases);
    return seen;
  }
  // Where it fails it is a relaxed load, which need not read the newest.
  Seen compare_swap(Agent agent, void* word, std::uint32_t bytes, std::uint64_t expected,
                    std::uint64_t desired, Order order, FenceScope scope, bool* swapped);

  // Ranges of any length, which order nothing. A range is stored as one; a read goes piece by
  // piece.
  void read_range(Agent agent, const std::byte* from, std::byte* out, std::uint32_t bytes);
  Location* write_range(Agent agent, std::byte* to, const std::byte* in, std::uint32_t bytes);

  // A sequentially consistent fence: whatever was known to an agent at an earlier one is known.
  void fence_seq_cst(Agent agent);

  // What an agent knows, to be handed over by other means than memory.
  Clock tell(Agent agent);
  void hear(Agent agent, const Clock& clock) { join(clocks_[agent], clock); }

  // From here on every agent knows the newest of everything.
  void settle() { ++generation_; }

  // Whether the agent has read the newest store of a location.
  bool knows_newest(Agent agent, Location& l) const {
    return l.bytes != 0 && (l.count < 2 || l.newest().known[agent] != 0);
  }

 private:
  struct Release {
    Agent agent = 0;
    FenceScope scope = FenceScope::kSystem;
    Clock clock = {};
    std::uint32_t next = 0;
  };
  static constexpr std::uint32_t kPageBytes = 4096;
  static constexpr std::uint32_t kGranuleBytes = 4;
  struct Page {
    std::array<Location*, kPageBytes / kGranuleBytes> location = {};
  };
  struct Cached {
    std::uintptr_t number = ~std::uintptr_t{0};
    Page* page = nullptr;
  };

  static void join(Clock& to, const Clock& from) {
    for (Agent a = 0; a < kMaxAgents; ++a) to[a] = std::max(to[a], from[a]);
  }
  FenceScope distance(Agent a, Agent b) const {
    if (places_[a].device != places_[b].device) return FenceScope::kSystem;
    return places_[a].block == places_[b].block ? FenceScope::kBlock : FenceScope::kDevice;
  }

  Page* page_of(std::uintptr_t address, bool make);
  Location* covering(const std::byte* at);
  Location& find(const void* at, std::uint32_t bytes);
  Location& make(std::byte* at, std::uint32_t bytes);
  void drop(Location& l);
  void refresh(Location& l);
  void start_over(Location& l);
  std::uint32_t floor_of(Agent agent, Location& l);
  std::uint32_t choose(Agent agent, Location& l);
  Seen read(Agent agent, Location& l, std::uint32_t which, Order order, FenceScope scope);
  Location::Version& append(Agent agent, Location& l);
  void append_word(Agent agent, Location& l, std::uint64_t value, Order order, FenceScope scope,
                   std::uint32_t continued);
  std::uint32_t new_release(const Release& r);
  void free_releases(std::uint32_t chain);
  void add_release(Agent agent, Location::Version& v, FenceScope scope);
  void notify(Location& l) {
    if (l.watchers == 0) return;
    watchers_.changed(l.watchers);
    l.watchers = 0;
  }

  Random& random_;
  Watchers& watchers_;
  std::uint32_t staleness_ = 1000;
  std::uint64_t visible_after_ns_ = ~std::uint64_t{0};
  std::uint64_t never_ = 0;
  const std::uint64_t* now_ns_ = &never_;
  std::array<Place, kMaxAgents> places_ = {};
  std::array<Clock, kMaxAgents> clocks_ = {};
  Clock fenced_ = {};
  std::uint32_t generation_ = 1;
  std::unordered_map<std::uintptr_t, std::unique_ptr<Page>> pages_;
  std::array<Cached, 64> cache_;
  std::vector<std::unique_ptr<Location>> locations_;
  std::vector<Release> releases_ = std::vector<Release>(1);
  std::uint32_t free_release_ = 0;
};

}  // namespace peal::sim
