// A CPU thread PUTs a buffer into the receiver's memory. Both ends are software ConnectXs of this
// process; a GPU thread would run the same data path over GpuMemory.
// Exits with 0 when every byte arrived, 1 when one did not, 3 when the PUT failed, 5 without NICs.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "peal/device/put.hpp"
#include "peal/host/memory_region.hpp"
#include "peal/host/queue_pair.hpp"
#include "peal/host/software.hpp"
#include "peal/memory/cpu_memory.hpp"

int main() try {
  std::vector<std::uint8_t> source(1 << 20);
  std::vector<std::uint8_t> target(source.size());
  for (std::size_t i = 0; i < source.size(); ++i)
    source[i] = static_cast<std::uint8_t>(1 + i % 251);

  // The control path, once: open, register, create, connect.
  const auto fabric = peal::SoftwareFabric::create();
  const auto sender = peal::Context::open(fabric.provider(0));
  const auto receiver = peal::Context::open(fabric.provider(1));
  const auto from =
      peal::MemoryRegion::create(sender, source.data(), source.size(), peal::Access::kLocalOnly);
  const auto to = peal::MemoryRegion::create(receiver, target.data(), target.size(),
                                             peal::Access::kRemoteWrite);
  auto qp = peal::QueuePair::create(sender, {.depth = 64});
  auto peer = peal::QueuePair::create(receiver, {.depth = 1});
  qp.connect(peer.address());
  peer.connect(qp.address());

  // The data path: plain data in, a status out.
  peal::SendQueue<peal::CpuMemory, peal::Sharing::kExclusive> queue(qp.handle());
  const peal::Put put{from.address(), from.lkey(), to.address(), to.rkey(), from.bytes()};
  peal::Posted posted;
  peal::Status status = peal::put(queue, put, &posted);
  if (status == peal::Status::kOk) status = peal::wait(queue, posted.ticket);

  if (status != peal::Status::kOk) {
    std::fprintf(stderr, "cpu_put: the PUT failed: %s\n", peal::status_name(status));
    return 3;
  }
  if (target != source) {
    std::fprintf(stderr, "cpu_put: what arrived is not what was sent\n");
    return 1;
  }
  std::printf("%zu bytes arrived, moved by software\n", target.size());
  return 0;
} catch (const peal::Error& e) {
  std::fprintf(stderr, "cpu_put: %s\n", e.what());
  return 5;
}
