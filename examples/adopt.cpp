// Peal's data path alone, on a queue that another control path made. Here a peal::QueuePair plays
// that other library, on a software ConnectX: only addresses and numbers of it are used.
// Exits with 0 when every byte arrived, 1 when one did not, 3 when the PUT failed, 5 otherwise.
#include "peal/host/adopt.hpp"

#include <cstdint>
#include <cstdio>
#include <vector>

#include "peal/device/put.hpp"
#include "peal/host/memory_region.hpp"
#include "peal/host/queue_pair.hpp"
#include "peal/host/software.hpp"
#include "peal/memory/cpu_memory.hpp"

int main() try {
  // The other library: it registers memory, makes a queue and connects it.
  std::vector<std::uint8_t> source{1, 2, 3, 4}, target(source.size());
  const auto fabric = peal::SoftwareFabric::create();
  const auto sender = peal::Context::open(fabric.provider(0));
  const auto receiver = peal::Context::open(fabric.provider(1));
  const auto from = peal::MemoryRegion::create(sender, source.data(), 4, peal::Access::kLocalOnly);
  const auto to =
      peal::MemoryRegion::create(receiver, target.data(), 4, peal::Access::kRemoteWrite);
  auto theirs = peal::QueuePair::create(sender, {.depth = 64});
  auto peer = peal::QueuePair::create(receiver, {.depth = 1});
  theirs.connect(peer.address());
  peer.connect(theirs.address());
  const auto rings = theirs.handle();

  // What it tells of its queue. With rdma-core, foreign_queue() of adopt_mlx5dv.hpp fills this in.
  peal::ForeignQueue foreign;
  foreign.sq = rings.sq;
  foreign.depth = 64;
  foreign.cq = rings.nic_cq;
  foreign.cq_depth = 64;
  foreign.dbrec = rings.dbrec;
  foreign.doorbell = rings.doorbell;
  foreign.qpn = theirs.address().qpn;
  auto adopted = peal::adopt(foreign);

  peal::SendQueue<peal::CpuMemory, peal::Sharing::kExclusive> queue(
      adopted.handle(), {.doorbell = peal::DoorbellOrder::kRecordRing});
  const peal::Put put{from.address(), from.lkey(), to.address(), to.rkey(), source.size()};
  peal::Posted posted;
  peal::Status status = peal::put(queue, put, &posted);
  if (status == peal::Status::kOk) status = peal::wait(queue, posted.ticket);
  if (status != peal::Status::kOk) {
    std::fprintf(stderr, "adopt: the PUT failed: %s\n", peal::status_name(status));
    return 3;
  }
  const auto next = static_cast<unsigned>(adopted.hand_back().next_index);  // theirs again
  std::printf("its owner goes on at WQE %u; the bytes were moved by software\n", next);
  return target == source && next == 1 ? 0 : 1;
} catch (const peal::Error& e) {
  std::fprintf(stderr, "adopt: %s\n", e.what());
  return 5;
}
