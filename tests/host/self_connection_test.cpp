// A queue pair whose peer is itself: it works where its link leads back, and elsewhere it ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <vector>

#include "host/host_fixture.hpp"
#include "peal/device/producer.hpp"
#include "support/manual_memory.hpp"

namespace peal {
namespace {

using test::HostFixture;
using test::ManualMemory;

// What is sent is received: a cable from a port to itself.
class Mirror final : public link::Link {
 public:
  std::uint32_t max_payload_bytes() const override { return 1u << 30; }
  bool try_send(const link::Segment& segment) override {
    if (segments_.size() == 3) return false;  // so that a full link is met too
    segments_.push_back(segment);
    return true;
  }
  bool try_receive(link::Segment* segment) override {
    if (segments_.empty()) return false;
    *segment = segments_.front();
    segments_.pop_front();
    return true;
  }
  bool payload_stays() const override { return true; }
  bool discard(Qpn source_qpn, link::SegmentRole role, Psn from, std::int32_t psns) override {
    return std::erase_if(segments_, [&](const link::Segment& s) {
             return s.source_qpn == source_qpn && link::role_of(s.kind) == role &&
                    s.payload != nullptr && s.psn.since(from) >= 0 && s.psn.since(from) < psns;
           }) != 0;
  }
  bool busy() const override { return !segments_.empty(); }
  bool closed() const override { return false; }

 private:
  std::deque<link::Segment> segments_;
};

// One context with a queue pair that is connected to itself, and memory to write from and to.
struct Self {
  Self(const Provider& provider, QueuePairOptions options)
      : context(Context::open(provider)),
        memory(1 << 16),
        region(MemoryRegion::create(context, memory.data(), memory.size(), Access::kRemoteWrite)),
        qp(QueuePair::create(context, options)) {
    for (std::size_t i = 0; i < kHalf; ++i) memory[i] = static_cast<std::byte>(i * 7 + 1);
    qp.connect(qp.address());
  }
  Put put(std::uint64_t at, std::uint64_t bytes) const {
    return {region.address() + at, region.lkey(), region.address() + kHalf + at, region.rkey(),
            bytes};
  }
  static constexpr std::size_t kHalf = 1 << 15;
  Context context;
  std::vector<std::byte> memory;
  MemoryRegion region;
  QueuePair qp;
};

TEST(SelfConnection, CarriesPutsWhereTheLinkLeadsBack) {
  for (const std::uint32_t window : {1u, 8u, 100u}) {
    Mirror mirror;
    engine::ManualEngine engine;
    verbs::SoftwareNic nic({.nic_number = 1}, mirror);
    Self self(nic.provider(engine), {.depth = 16});
    ManualMemory::hooks() = {};
    ManualMemory::hooks().on_pause = [&] { nic.core().step(ManualMemory::hooks().now_ns); };
    ProducerOptions options;
    options.window = window;
    options.batch = 3;
    std::vector<InFlight> fifo(window);
    Producer<ManualMemory, Sharing::kDevice> producer(self.qp.handle(), options, fifo.data());
    const auto make = [&](std::uint64_t i) { return self.put(i * 300, 300); };
    ASSERT_EQ(producer.put_many(100, make), Status::kOk);
    ASSERT_EQ(producer.flush(), Status::kOk);
    EXPECT_TRUE(std::equal(self.memory.begin(), self.memory.begin() + 100 * 300,
                           self.memory.begin() + Self::kHalf));
    ManualMemory::hooks() = {};
  }
}

// The link leads to another NIC, which knows no such queue pair, or one that expects another peer.
TEST(SelfConnection, EndsInRetriesExceededAtItsTimeoutWhereTheLinkLeadsElsewhere) {
  HostFixture host;
  Self self(host.provider(), {.depth = 16, .ack_timeout = 14, .retry_count = 7});
  ManualMemory::hooks() = {};
  ManualMemory::hooks().ns_per_pause = 1'000'000;
  ManualMemory::hooks().on_pause = [&] {
    host.nic.core().step(ManualMemory::hooks().now_ns);
    host.peer_nic.core().step(ManualMemory::hooks().now_ns);
  };
  SendQueue<ManualMemory, Sharing::kExclusive> queue(self.qp.handle());
  Posted posted;
  ASSERT_EQ(put(queue, self.put(0, 64), &posted), Status::kOk);
  EXPECT_EQ(wait(queue, posted.ticket), Status::kCompletionError);
  // 4.096 us * 2^14, eight times.
  EXPECT_GE(ManualMemory::now_ns(), 8 * (std::uint64_t{4096} << 14));
  EXPECT_LE(ManualMemory::now_ns(), 8 * (std::uint64_t{4096} << 14) + 10'000'000);
  LatchedError e;
  ASSERT_TRUE(queue.completions().error(&e));
  EXPECT_EQ(e.syndrome, static_cast<int>(mlx5::Syndrome::kTransportRetryExceeded));
  EXPECT_EQ(self.memory[Self::kHalf], std::byte{0});
  ManualMemory::hooks() = {};
}

}  // namespace
}  // namespace peal
