// From open to close with work in flight, many times over: every ticket ends, nothing is left.
#include <dirent.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "support/manual_fabric.hpp"
#include "support/scale.hpp"

namespace peal {
namespace {

using test::ManualFabric;
using test::ManualMemory;

int open_descriptors() {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return -1;
  int n = 0;
  while (readdir(folder) != nullptr) ++n;
  closedir(folder);
  return n;
}

struct Side {
  Side(verbs::SoftwareNic& nic, engine::Engine& engine, Access access)
      : context(Context::open(nic.provider(engine))),
        memory(std::make_unique<std::byte[]>(kBytes)),
        region(MemoryRegion::create(context, memory.get(), kBytes, access)),
        qp(QueuePair::create(context, {.depth = 32})) {}
  static constexpr std::size_t kBytes = 1 << 16;
  Context context;
  std::unique_ptr<std::byte[]> memory;  // freed after its region and its queue
  MemoryRegion region;
  QueuePair qp;
};

TEST(Lifecycle, CyclesWithWorkInFlightEndEveryTicketAndLeaveNothing) {
  const int descriptors = open_descriptors();
  link::Loopback loopback;
  engine::ManualEngine engine;
  verbs::SoftwareNic a({.nic_number = 1}, loopback.a());
  verbs::SoftwareNic b({.nic_number = 2}, loopback.b());
  ManualMemory::hooks() = {};
  ManualMemory::hooks().ns_per_pause = 1'000'000;  // a ticket that never ends, ends soon
  const auto step = [&] {
    const std::uint64_t now_ns = ManualMemory::hooks().now_ns;
    a.core().step(now_ns);
    b.core().step(now_ns);
  };
  std::mt19937 random(5);
  for (std::uint64_t cycle = 0; cycle < test::scaled(100); ++cycle) {
    auto sender = std::make_unique<Side>(a, engine, Access::kLocalOnly);
    auto receiver = std::make_unique<Side>(b, engine, Access::kRemoteWrite);
    sender->qp.connect(receiver->qp.address());
    receiver->qp.connect(sender->qp.address());
    ManualMemory::hooks().on_pause = step;
    if (random() % 3 == 0) {
      a.core().arm_faults(sender->qp.address().qpn, {{nic::FaultKind::kHold, 1'000'000'000, 0}});
    }
    SendQueue<ManualMemory, Sharing::kExclusive> queue(sender->qp.handle());
    std::vector<std::uint64_t> tickets;
    for (std::uint32_t i = 0; i < 16; ++i) {
      Posted posted;
      ASSERT_EQ(put(queue,
                    {sender->region.address() + i * 1000, sender->region.lkey(),
                     receiver->region.address() + i * 1000, receiver->region.rkey(), 1000},
                    &posted),
                Status::kOk);
      tickets.push_back(posted.ticket);
      if (random() % 4 == 0) a.core().step(0);
      if (random() % 8 == 0) b.core().step(0);
    }
    if (random() % 4 != 0) {
      // Properly: to error, then wait for the last ticket.
      sender->qp.to_error();
      bool failed = false;
      for (const std::uint64_t ticket : tickets) {
        const Status status = wait(queue, ticket);
        ASSERT_TRUE(status == Status::kOk || status == Status::kCompletionError)
            << status_name(status);
        ASSERT_FALSE(failed && status == Status::kOk) << "a success behind an error";
        failed = status != Status::kOk;
      }
      ASSERT_TRUE(a.core().quiet(sender->qp.address().qpn));
    }
    // In either order, with whatever is still on the link.
    if (random() % 2 == 0) {
      sender.reset();
      step();
      receiver.reset();
    } else {
      receiver.reset();
      step();
      sender.reset();
    }
    for (int i = 0; i < 8; ++i) step();
    ASSERT_EQ(a.core().commands().objects(), nic::Commands::Objects{}) << cycle;
    ASSERT_EQ(b.core().commands().objects(), nic::Commands::Objects{}) << cycle;
  }
  ManualMemory::hooks() = {};
  EXPECT_EQ(open_descriptors(), descriptors);
}

TEST(Lifecycle, ConnectionsFollowEachOtherOnOneQpNumber) {
  link::Loopback loopback;
  engine::ManualEngine engine;
  verbs::SoftwareNic a({.nic_number = 1}, loopback.a());
  verbs::SoftwareNic b({.nic_number = 2}, loopback.b());
  const Context sender = Context::open(a.provider(engine));
  const Context receiver = Context::open(b.provider(engine));
  std::vector<std::byte> source(64, std::byte{0x5a});
  std::vector<std::byte> destination(64);
  const MemoryRegion from =
      MemoryRegion::create(sender, source.data(), source.size(), Access::kLocalOnly);
  const MemoryRegion to =
      MemoryRegion::create(receiver, destination.data(), destination.size(), Access::kRemoteWrite);
  ManualMemory::hooks() = {};
  ManualMemory::hooks().on_pause = [&] {
    a.core().step(0);
    b.core().step(0);
  };
  for (std::uint64_t i = 0; i < test::scaled(50); ++i) {
    QueuePair qp = QueuePair::create(sender, {.depth = 2});
    QueuePair peer = QueuePair::create(receiver, {.depth = 1});
    qp.connect(peer.address());
    peer.connect(qp.address());
    SendQueue<ManualMemory, Sharing::kExclusive> queue(qp.handle());
    Posted posted;
    std::fill(destination.begin(), destination.end(), std::byte{0});
    ASSERT_EQ(put(queue, {from.address(), from.lkey(), to.address(), to.rkey(), 64}, &posted),
              Status::kOk);
    ASSERT_EQ(wait(queue, posted.ticket), Status::kOk) << i;
    ASSERT_EQ(destination, source) << i;
  }
  ManualMemory::hooks() = {};
}

TEST(Lifecycle, AWholeFabricLeavesNothing) {
  test::FabricOptions options;
  options.qps = 3;
  ManualFabric fabric(options);
  const auto objects = fabric.sender_nic.core().commands().objects();
  EXPECT_EQ(objects.qps, 3u);
  EXPECT_EQ(objects.cqs, 3u);
  EXPECT_EQ(objects.uars, 3u);
  EXPECT_EQ(objects.umems, 9u);
  fabric.sender_qps.clear();
  fabric.receiver_qps.clear();
  const auto after = fabric.sender_nic.core().commands().objects();
  EXPECT_EQ(after.qps + after.cqs + after.uars + after.umems, 0u);
  EXPECT_EQ(after.regions, 2u);  // the source and the sinks
  EXPECT_EQ(after.pds, 1u);
}

}  // namespace
}  // namespace peal
