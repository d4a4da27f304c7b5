// What a simulated run runs on: two NICs on a link, memory at both ends, connected queues. Each
// producer has a part of the memory to itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/sim.hpp"
#include "explore/configuration.hpp"
#include "host/proxy_ring.hpp"
#include "peal/device/put.hpp"
#include "peal/host/context.hpp"
#include "peal/host/memory_region.hpp"
#include "peal/host/queue_pair.hpp"
#include "sim/link.hpp"
#include "sim/sim_nic.hpp"

namespace peal::explore {

// Offsets of what belongs to a producer, from the start of its part.
struct Layout {
  explicit Layout(const Configuration& c);

  static constexpr std::uint32_t kSignals = 8;  // PUTs with a signal of each producer at most

  std::uint32_t stride = 0;  // of a slot: payload, and bytes that nobody may write
  std::uint32_t slots = 0;
  // At the sender: what PUTs are made of, the same of those with a signal, where reads land, where
  // old values land.
  std::size_t source_of(std::uint32_t slot) const { return std::size_t{slot} * stride; }
  std::size_t signal_source_of(std::uint32_t n) const { return std::size_t{slots + n} * stride; }
  std::size_t landing_of(std::uint32_t slot) const {
    return std::size_t{slots + kSignals + slot} * stride;
  }
  std::size_t sink = 0;
  std::size_t source_bytes = 0;
  // At the receiver: where PUTs go, those with a signal, the signal, a counter, what reads read.
  std::size_t target_of(std::uint32_t slot) const { return std::size_t{slot} * stride; }
  std::size_t signal_target_of(std::uint32_t n) const { return std::size_t{slots + n} * stride; }
  std::size_t signal = 0;
  std::size_t counter = 0;
  std::size_t constant = 0;
  std::size_t target_bytes = 0;
};

// Zeroed, and aligned for atomics.
class Bytes {
 public:
  explicit Bytes(std::size_t bytes) : words_((bytes + 7) / 8), bytes_(bytes) {}
  std::byte* data() { return reinterpret_cast<std::byte*>(words_.data()); }
  std::size_t size() const { return bytes_; }

 private:
  std::vector<std::uint64_t> words_;
  std::size_t bytes_;
};

class World {
 public:
  World(sim::Simulation& simulation, const Configuration& configuration, std::uint64_t seed);
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // For the trace.
  void name_memory();
  // Destroys queues, regions and contexts; true if no object is left in the NICs.
  bool close();

  std::byte* source_of(std::uint32_t producer) {
    return source.data() + producer * layout.source_bytes;
  }
  std::byte* target_of(std::uint32_t producer) {
    return target.data() + producer * layout.target_bytes;
  }
  // The words of a payload: different for each operation of a run.
  std::uint32_t pattern(std::uint32_t producer, std::uint64_t sequence, std::uint32_t word) const {
    std::uint64_t x = seed * 0x9e3779b97f4a7c15u + producer * 0xbf58476d1ce4e5b9u +
                      sequence * 0x94d049bb133111ebu + word;
    x ^= x >> 29;
    x *= 0xd6e8feb86659fd93u;
    return static_cast<std::uint32_t>(x >> 32);
  }

  struct Client {
    Context sender;
    Context receiver;
    MemoryRegion from;
    MemoryRegion to;
    std::vector<QueuePair> qps;
    std::vector<QueuePair> peers;
  };

  sim::Simulation& sim;
  const Configuration& c;
  const std::uint64_t seed;
  const Layout layout;
  std::set<std::string> refusals;  // what the NICs said
  sim::SimLink link;
  sim::SimNic sender_nic;
  sim::SimNic receiver_nic;
  engine::SimEngine engine;
  Bytes source;
  Bytes target;
  std::optional<Client> client;
  // As producers have them; under a proxy, with its words.
  std::vector<QueueHandle> queues;
  std::vector<std::unique_ptr<ProxyWord>> proxy_words;
  std::vector<host::ProxyQueue> proxied;

 private:
  void make_queues();
  bool ring();  // as a proxy does; true if there was something
  void arm_fault();
};

}  // namespace peal::explore
