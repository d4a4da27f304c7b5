// Two software NICs on a loopback, stepped by the test: a sender and a receiver, each with memory,
// and as many connected queue pairs as asked for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <stdexcept>
#include <vector>

#include "engine/manual.hpp"
#include "host/context_impl.hpp"
#include "link/loopback.hpp"
#include "peal/device/put.hpp"
#include "peal/host/context.hpp"
#include "peal/host/memory_region.hpp"
#include "peal/host/queue_pair.hpp"
#include "peal/host/sinks.hpp"
#include "support/manual_memory.hpp"
#include "verbs/software_nic.hpp"

namespace peal::test {

struct FabricOptions {
  std::uint32_t depth = 64;
  std::uint32_t qps = 1;
  std::uint64_t memory_bytes = 1 << 20;
  nic::CoreOptions sender = {.nic_number = 1, .record_grace_ns = 1'000'000};
  nic::CoreOptions receiver = {.nic_number = 2};
  verbs::RefuseHook refuse;
  NicHandler handler = NicHandler::kAutomatic;  // of the sender; a proxy is stepped like a NIC
  CompletionMode completion = CompletionMode::kEvery;
  bool doorbell_record = true;  // of the sender's queue pairs
};

inline FabricOptions of_depth(std::uint32_t depth, std::uint64_t first = 0) {
  FabricOptions options;
  options.depth = depth;
  options.sender.first_wqe_index = first;
  return options;
}

class ManualFabric {
 public:
  explicit ManualFabric(const FabricOptions& options = {})
      : sender_nic(options.sender, loopback.a()),
        receiver_nic(options.receiver, loopback.b()),
        sender(Context::open(open(sender_nic, options), {.handler = options.handler})),
        receiver(Context::open(open(receiver_nic, options))),
        source(options.memory_bytes),
        destination(options.memory_bytes),
        source_region(
            MemoryRegion::create(sender, source.data(), source.size(), Access::kLocalOnly)),
        destination_region(MemoryRegion::create(receiver, destination.data(), destination.size(),
                                                Access::kRemoteAll)),
        sinks(Sinks::create(sender, 4)) {
    if (proxy() != nullptr) proxy()->drive_by_hand();
    for (std::uint32_t i = 0; i < options.qps; ++i) {
      sender_qps.push_back(
          QueuePair::create(sender, {.depth = options.depth,
                                     .first_wqe_index = options.sender.first_wqe_index,
                                     .completion = options.completion,
                                     .doorbell_record = options.doorbell_record}));
      receiver_qps.push_back(QueuePair::create(receiver, {.depth = 1}));
      sender_qps[i].connect(receiver_qps[i].address());
      receiver_qps[i].connect(sender_qps[i].address());
    }
    ManualMemory::hooks() = {};
    ManualMemory::hooks().on_pause = [this] { step(); };
  }
  ~ManualFabric() { ManualMemory::hooks() = {}; }
  ManualFabric(const ManualFabric&) = delete;
  ManualFabric& operator=(const ManualFabric&) = delete;

  // The sender's; null when its handler is direct.
  host::Proxy* proxy() const { return sender.impl().proxy.get(); }
  bool step_proxy() { return proxy() != nullptr && proxy()->progress(); }

  // One step of the proxy and of both NICs at the test's time.
  void step() {
    step_proxy();
    const std::uint64_t now_ns = ManualMemory::hooks().now_ns;
    sender_nic.core().step(now_ns);
    receiver_nic.core().step(now_ns);
  }
  // Steps until neither NIC nor the proxy has anything left to do at this time.
  void settle() {
    const std::uint64_t now_ns = ManualMemory::hooks().now_ns;
    for (int i = 0; i < 1'000'000; ++i) {
      bool worked = step_proxy();
      worked |= sender_nic.core().step(now_ns);
      worked |= receiver_nic.core().step(now_ns);
      if (!worked) return;
    }
    throw std::runtime_error("the NICs never came to rest");
  }
  // From now on a pause only lets time pass.
  void hold() { ManualMemory::hooks().on_pause = {}; }
  void release() {
    ManualMemory::hooks().on_pause = [this] { step(); };
  }

  // A PUT of `bytes` from offset `from` of the source to offset `to` of the destination.
  Put put(std::uint64_t from, std::uint64_t to, std::uint64_t bytes) const {
    return {source_region.address() + from, source_region.lkey(), destination_region.address() + to,
            destination_region.rkey(), bytes};
  }
  Get get(std::uint64_t from, std::uint64_t to, std::uint64_t bytes) const {
    return {source_region.address() + to, source_region.lkey(), destination_region.address() + from,
            destination_region.rkey(), bytes};
  }
  // At offset `at` of the destination; the old value lands in sink `p`.
  AtomicTarget target(std::uint64_t at, std::size_t p = 0) const {
    return {destination_region.address() + at, destination_region.rkey(), sinks[p]};
  }
  std::uint64_t word(std::uint64_t at) const {
    std::uint64_t v = 0;
    std::memcpy(&v, &destination[at], sizeof v);
    return v;
  }
  void set_word(std::uint64_t at, std::uint64_t v) { std::memcpy(&destination[at], &v, sizeof v); }

  template <Sharing S = Sharing::kExclusive>
  SendQueue<ManualMemory, S> queue(std::uint32_t i = 0, SubmitOptions submit = {}) const {
    return SendQueue<ManualMemory, S>(sender_qps[i].handle(), submit);
  }
  nic::QpCounters counters(std::uint32_t i = 0) {
    return sender_nic.core().counters(sender_qps[i].address().qpn);
  }
  nic::QpCounters receiver_counters(std::uint32_t i = 0) {
    return receiver_nic.core().counters(receiver_qps[i].address().qpn);
  }
  void arm(const std::vector<nic::Fault>& faults, std::uint32_t i = 0) {
    sender_nic.core().arm_faults(sender_qps[i].address().qpn, faults);
  }
  void fill_source(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    for (std::size_t at = 0; at < source.size(); at += sizeof(std::uint64_t)) {
      const std::uint64_t word = random();
      std::memcpy(&source[at], &word, std::min(sizeof word, source.size() - at));
    }
  }

  link::Loopback loopback;
  engine::ManualEngine engine;
  verbs::SoftwareNic sender_nic;
  verbs::SoftwareNic receiver_nic;
  Context sender;
  Context receiver;
  std::vector<std::byte> source;
  std::vector<std::byte> destination;
  MemoryRegion source_region;
  MemoryRegion destination_region;
  Sinks sinks;
  std::vector<QueuePair> sender_qps;
  std::vector<QueuePair> receiver_qps;

 private:
  Provider open(verbs::SoftwareNic& nic, const FabricOptions& options) {
    return nic.provider(engine, &nic == &sender_nic ? options.refuse : verbs::RefuseHook{});
  }
};

}  // namespace peal::test
