// Queue pairs that come and go beside others that stay.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/host_fixture.hpp"
#include "support/manual_fabric.hpp"
#include "support/scale.hpp"

namespace peal {
namespace {

using test::HostFixture;
using test::ManualFabric;
using test::ManualMemory;
using test::scaled;

// As many clients, one after the other, as would fill any table that forgets to be emptied: the
// server's objects and memory are the same after each.
TEST(ManyConnections, AgainstOneServerLeaveItAsItWas) {
  HostFixture client_side;
  const auto memory = std::make_shared<test::CountingMemory>();
  Provider server_provider = client_side.peer_provider();
  server_provider.memory = memory;
  const Context server = Context::open(server_provider, {.handler = NicHandler::kDirect});
  std::vector<std::byte> destination(64);
  const MemoryRegion to =
      MemoryRegion::create(server, destination.data(), destination.size(), Access::kRemoteAll);
  std::vector<std::byte> source(64, std::byte{0x5a});
  ManualMemory::hooks() = {};
  ManualMemory::hooks().on_pause = [&] {
    client_side.nic.core().step(ManualMemory::hooks().now_ns);
    client_side.peer_nic.core().step(ManualMemory::hooks().now_ns);
  };
  const auto server_objects = client_side.peer_nic.core().commands().objects();
  for (std::uint64_t i = 0; i < scaled(2500); ++i) {
    {
      const Context client =
          Context::open(client_side.provider(), {.handler = NicHandler::kDirect});
      const MemoryRegion from =
          MemoryRegion::create(client, source.data(), source.size(), Access::kLocalOnly);
      QueuePair qp = QueuePair::create(client, {.depth = 2});
      QueuePair peer = QueuePair::create(server, {.depth = 1});
      qp.connect(peer.address());
      peer.connect(qp.address());
      SendQueue<ManualMemory, Sharing::kExclusive> queue(qp.handle());
      Posted posted;
      std::memset(destination.data(), 0, destination.size());
      ASSERT_EQ(put(queue, {from.address(), from.lkey(), to.address(), to.rkey(), 64}, &posted),
                Status::kOk);
      ASSERT_EQ(wait(queue, posted.ticket), Status::kOk) << i;
      ASSERT_EQ(destination, source) << i;
    }
    ASSERT_EQ(client_side.objects(), nic::Commands::Objects{}) << i;
    ASSERT_EQ(client_side.peer_nic.core().commands().objects(), server_objects) << i;
    ASSERT_EQ(memory->live, 0) << i;
    ASSERT_EQ(memory->mapped_uars, 0) << i;
  }
  ManualMemory::hooks() = {};
}

// Companions come, work and go at any moment, with their work unrung, held or on the link. The one
// whose UAR page they share loses none of its own.
TEST(ManyConnections, OnTheUarPageOfAnotherDisturbNothingOfIt) {
  for (const NicHandler handler : {NicHandler::kDirect, NicHandler::kProxy}) {
    SCOPED_TRACE(nic_handler_name(handler));
    test::FabricOptions options;
    options.depth = 8;
    options.handler = handler;
    ManualFabric fabric(options);
    fabric.fill_source(1);
    auto queue = fabric.queue();
    std::optional<QueuePair> companion, peer;
    std::optional<SendQueue<ManualMemory, Sharing::kExclusive>> beside;
    Posted posted;
    const std::uint64_t puts = scaled(1000);
    for (std::uint64_t i = 0; i < puts; ++i) {
      if (i % 5 == 0) {
        companion.emplace(QueuePair::create_companion(fabric.sender_qps[0], {.depth = 4}));
        peer.emplace(QueuePair::create(fabric.receiver, {.depth = 1}));
        companion->connect(peer->address());
        peer->connect(companion->address());
        beside.emplace(companion->handle());
      }
      ASSERT_EQ(put(queue, fabric.put(i * 8, i * 8, 8), &posted), Status::kOk);
      if (companion) {
        Posted other;
        const std::uint64_t at = (1 << 19) + i % 4 * 8;
        ASSERT_EQ(put(*beside, fabric.put(at, at, 8), &other), Status::kOk);
      }
      if (i % 3 == 0) fabric.step();
      // With both rung and neither looked at, now and then.
      if (i % 5 == 2) {
        companion.reset();
        if (i % 2 == 0) peer.reset();
      }
    }
    ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
    EXPECT_EQ(std::memcmp(fabric.source.data(), fabric.destination.data(), puts * 8), 0);
    EXPECT_EQ(fabric.counters().writes, puts);
    EXPECT_EQ(fabric.counters().reasons.refused, nic::ReasonCounts{}.refused);
  }
}

// A deregistration that fails keeps no other from being done.
TEST(ManyConnections, OneOfFiveRegionsThatIsNotLetGoKeepsNoOther) {
  struct Keeping : test::ForwardingVerbs {
    using ForwardingVerbs::ForwardingVerbs;
    int calls = 0;
    ibv_mr* kept = nullptr;
    int dereg_mr(ibv_mr* mr) override {
      if (++calls != 2) return ForwardingVerbs::dereg_mr(mr);
      kept = mr;
      return EBUSY;
    }
  };
  HostFixture host;
  Provider provider = host.provider();
  const auto verbs = std::make_shared<Keeping>(provider.verbs);
  provider.verbs = verbs;
  const Context context = Context::open(provider, {.handler = NicHandler::kDirect});
  std::vector<std::byte> memory(5 * 64);
  {
    std::vector<MemoryRegion> regions;
    for (std::size_t i = 0; i < 5; ++i) {
      regions.push_back(MemoryRegion::create(context, &memory[i * 64], 64, Access::kRemoteAll));
    }
    EXPECT_EQ(host.objects().regions, 5u);
  }
  EXPECT_EQ(verbs->calls, 5);
  EXPECT_EQ(host.objects().regions, 1u);
  verbs->ForwardingVerbs::dereg_mr(verbs->kept);
  EXPECT_EQ(host.objects().regions, 0u);
}

}  // namespace
}  // namespace peal
