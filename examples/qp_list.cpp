// A list of queue pairs, made all or none, with one flat array of handles for the device: here CPU
// threads produce, each on an entry of its own. A call that fails says where, and costs nothing.
// Exits with 0 when every byte arrived, else with 1.
#include "peal/host/qp_list.hpp"

#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <thread>
#include <vector>

#include "peal/device/put.hpp"
#include "peal/host/memory_region.hpp"
#include "peal/host/software.hpp"
#include "peal/memory/cpu_memory.hpp"

void expect_error(const auto& call) try {
  call();
  throw std::logic_error("what should have been refused was not");
} catch (const peal::Error& e) {
  std::printf("refused, as it should be: %s\n", e.what());
}

int main() try {
  std::vector<std::uint8_t> sent{11, 22, 33, 44}, target(sent.size());
  const auto fabric = peal::SoftwareFabric::create();
  const auto sender = peal::Context::open(fabric.provider(0));
  const auto receiver = peal::Context::open(fabric.provider(1));
  using Region = peal::MemoryRegion;
  const auto from = Region::create(sender, sent.data(), sent.size(), peal::Access::kLocalOnly);
  const auto to = Region::create(receiver, target.data(), 4, peal::Access::kRemoteWrite);

  std::vector<peal::QueuePairOptions> entries(sent.size(), {.depth = 64});
  entries[2].depth = 100;
  expect_error([&] { peal::QpList::create(sender, entries); });  // names entry 2; made nothing
  entries[2].depth = 128;
  auto list = peal::QpList::create(sender, entries),
       peers = peal::QpList::create(receiver, entries);
  std::vector<peal::QueuePairAddress> ours, theirs;  // what two processes would exchange
  for (std::size_t i = 0; i < list.size(); ++i) ours.push_back(list[i].address());
  for (std::size_t i = 0; i < list.size(); ++i) theirs.push_back(peers[i].address());
  list.connect(theirs);
  peers.connect(ours);
  expect_error([&] { list.connect(theirs); });  // names entry and step; all stay connected

  const auto produce = [&, queues = list.handles().data()](std::uint32_t p) {
    peal::SendQueue<peal::CpuMemory, peal::Sharing::kExclusive> queue(queues[p]);
    const peal::Put put{from.address() + p, from.lkey(), to.address() + p, to.rkey(), 1};
    peal::Posted posted;
    if (peal::put(queue, put, &posted) == peal::Status::kOk) peal::wait(queue, posted.ticket);
  };
  std::vector<std::thread> producers;
  for (std::uint32_t p = 0; p < list.size(); ++p) producers.emplace_back(produce, p);
  for (std::thread& t : producers) t.join();
  return target == sent ? 0 : 1;
} catch (const peal::Error& e) {
  std::fprintf(stderr, "qp_list: %s\n", e.what());
  return 1;
}
