// Two software NICs on a loopback, stepped by an engine's own thread, and queues of CpuMemory: for
// tests in which producers are real threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "engine/threads.hpp"
#include "link/loopback.hpp"
#include "peal/device/put.hpp"
#include "peal/host/context.hpp"
#include "peal/host/memory_region.hpp"
#include "peal/host/queue_pair.hpp"
#include "peal/memory/cpu_memory.hpp"
#include "verbs/software_nic.hpp"

namespace peal::test {

struct ThreadsFabricOptions {
  std::uint32_t depth = 64;
  std::uint64_t memory_bytes = 1 << 20;
  std::uint64_t first_wqe_index = 0;
  NicHandler handler = NicHandler::kAutomatic;  // of the sender
  CompletionMode completion = CompletionMode::kEvery;
  nic::WriteOrder order = nic::WriteOrder::kRelaxed;
  nic::DoorbellSource doorbell_source = nic::DoorbellSource::kRegister;
  bool doorbell_record = true;  // of the sender's queue pair
};

class ThreadsFabric {
 public:
  explicit ThreadsFabric(const ThreadsFabricOptions& options = {})
      : sender_nic({.nic_number = 1,
                    .first_wqe_index = options.first_wqe_index,
                    .doorbell_source = options.doorbell_source},
                   loopback.a()),
        receiver_nic({.nic_number = 2, .order = options.order}, loopback.b()),
        engine({sender_nic.step(), receiver_nic.step()}),
        sender(Context::open(sender_nic.provider(engine), {.handler = options.handler})),
        receiver(Context::open(receiver_nic.provider(engine))),
        source(options.memory_bytes),
        destination(options.memory_bytes),
        source_region(
            MemoryRegion::create(sender, source.data(), source.size(), Access::kLocalOnly)),
        destination_region(MemoryRegion::create(receiver, destination.data(), destination.size(),
                                                Access::kRemoteAll)),
        sender_qp(QueuePair::create(sender, {.depth = options.depth,
                                             .first_wqe_index = options.first_wqe_index,
                                             .completion = options.completion,
                                             .doorbell_record = options.doorbell_record})),
        receiver_qp(QueuePair::create(receiver, {.depth = 1})) {
    sender_qp.connect(receiver_qp.address());
    receiver_qp.connect(sender_qp.address());
  }
  ThreadsFabric(const ThreadsFabric&) = delete;
  ThreadsFabric& operator=(const ThreadsFabric&) = delete;

  Put put(std::uint64_t from, std::uint64_t to, std::uint64_t bytes) const {
    return {source_region.address() + from, source_region.lkey(), destination_region.address() + to,
            destination_region.rkey(), bytes};
  }
  nic::QpCounters counters() {
    nic::QpCounters c;
    engine.call([&] { c = sender_nic.core().counters(sender_qp.address().qpn); });
    return c;
  }
  void arm(const std::vector<nic::Fault>& faults) {
    engine.call([&] { sender_nic.core().arm_faults(sender_qp.address().qpn, faults); });
  }

  link::Loopback loopback;
  verbs::SoftwareNic sender_nic;
  verbs::SoftwareNic receiver_nic;
  engine::ThreadsEngine engine;  // after what it steps, before what calls it
  Context sender;
  Context receiver;
  std::vector<std::byte> source;
  std::vector<std::byte> destination;
  MemoryRegion source_region;
  MemoryRegion destination_region;
  QueuePair sender_qp;
  QueuePair receiver_qp;
};

// Only so that a hang ends; nothing is expected to take long.
inline constexpr std::uint64_t kHangGuardNs = 240'000'000'000;

inline std::uint64_t stamp_of(std::uint64_t put_number) {
  return ~(put_number * 0x9e3779b97f4a7c15u);
}

// One PUT of 8 bytes of its own, stamped here just before, read there just after.
template <Sharing S>
Status put_and_check(ThreadsFabric& fabric, SendQueue<CpuMemory, S>& queue, std::uint64_t place,
                     std::uint64_t number, bool* landed) {
  const std::uint64_t stamp = stamp_of(number);
  std::memcpy(&fabric.source[place * 8], &stamp, 8);
  Posted posted;
  Status status = put(queue, fabric.put(place * 8, place * 8, 8), &posted, kHangGuardNs);
  if (status == Status::kOk) status = wait(queue, posted.ticket, kHangGuardNs);
  if (status != Status::kOk) return status;
  std::uint64_t there = 0;
  std::memcpy(&there, &fabric.destination[place * 8], 8);
  *landed = there == stamp;
  return status;
}

}  // namespace peal::test
