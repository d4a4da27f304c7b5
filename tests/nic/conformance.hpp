// What a client sees of a software NIC whatever engine runs it, and wherever its memory is. An
// engine brings a harness: its memory policy, a way to run the two NICs, and where queues and
// payload lie. No test here looks at a clock.
//
//   struct Harness : PlainMemory {
//     using Memory = ...;
//     using Nic = verbs::SoftwareNicOf<...>;
//     engine::Engine& run(Nic& a, Nic& b);  // until destroyed
//   };
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <span>
#include <vector>

#include "link/loopback.hpp"
#include "peal/device/put.hpp"
#include "peal/host/context.hpp"
#include "peal/host/memory_region.hpp"
#include "peal/host/queue_pair.hpp"
#include "support/scale.hpp"
#include "verbs/software_nic.hpp"

namespace peal::test {

// Long enough for any machine: a test that hangs is ended by its runner, which says so.
inline constexpr std::uint64_t kAnyWaitNs = 600'000'000'000;

// Of harnesses: where queues and payload lie. Here the NIC, the producer and the test all use the
// same addresses.
struct PlainMemory {
  template <class Nic>
  Provider provider(Nic& nic, engine::Engine& engine) {
    return nic.provider(engine);
  }
  // As the test reaches it.
  std::span<std::byte> payload(std::size_t bytes) { return payloads.emplace_back(bytes); }
  // Where the NIC finds it.
  static std::byte* registered(std::span<std::byte> payload) { return payload.data(); }
  // As the producer reaches the queue.
  static QueueHandle opened(const QueueHandle& handle) { return handle; }

  std::deque<std::vector<std::byte>> payloads;
};

struct ConformanceOptions {
  std::uint32_t depth = 64;
  std::uint64_t first_wqe_index = 0;
  std::size_t memory_bytes = 1 << 20;
  bool doorbell_record = true;
};

template <class Harness>
class ConformanceFabric {
 public:
  using Memory = typename Harness::Memory;
  using Nic = typename Harness::Nic;
  using Queue = SendQueue<Memory, Sharing::kExclusive>;

  explicit ConformanceFabric(const ConformanceOptions& o = {})
      : sender_nic({.nic_number = 1, .first_wqe_index = o.first_wqe_index}, loopback.a()),
        receiver_nic({.nic_number = 2}, loopback.b()),
        engine(harness.run(sender_nic, receiver_nic)),
        sender(Context::open(harness.provider(sender_nic, engine))),
        receiver(Context::open(harness.provider(receiver_nic, engine))),
        source(harness.payload(o.memory_bytes)),
        destination(harness.payload(o.memory_bytes)),
        from(MemoryRegion::create(sender, harness.registered(source), source.size(),
                                  Access::kLocalOnly)),
        to(MemoryRegion::create(receiver, harness.registered(destination), destination.size(),
                                Access::kRemoteWrite)),
        qp(QueuePair::create(sender, {.depth = o.depth,
                                      .first_wqe_index = o.first_wqe_index,
                                      .doorbell_record = o.doorbell_record})),
        peer(QueuePair::create(receiver, {.depth = 1})) {
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = std::byte((i * 13 + 7) & 0xff);
    qp.connect(peer.address());
    peer.connect(qp.address());
  }

  Queue queue() const {
    const QueueHandle q = harness.opened(qp.handle());
    return Queue(q, {q.has_record ? DoorbellOrder::kRingRecordRing : DoorbellOrder::kRingOnly, {}});
  }
  Put put_of(std::uint64_t at, std::uint64_t bytes) const {
    return {from.address() + at, from.lkey(), to.address() + at, to.rkey(), bytes};
  }
  // The counters, read between two steps.
  nic::QpCounters counters() {
    nic::QpCounters c;
    engine.call([&] { c = sender_nic.core().counters(qp.address().qpn); });
    return c;
  }

  link::Loopback loopback;
  Nic sender_nic;
  Nic receiver_nic;
  Harness harness;
  engine::Engine& engine;
  Context sender;
  Context receiver;
  std::span<std::byte> source;
  std::span<std::byte> destination;
  MemoryRegion from;
  MemoryRegion to;
  QueuePair qp;
  QueuePair peer;
};

template <class Harness>
class Conformance : public testing::Test {};
TYPED_TEST_SUITE_P(Conformance);

TYPED_TEST_P(Conformance, PlacesEverySizeExactly) {
  ConformanceFabric<TypeParam> fabric;
  auto queue = fabric.queue();
  for (const std::uint32_t bytes : {0u, 1u, 63u, 64u, 4095u, 4096u, 4097u, 65536u, 1'000'000u}) {
    std::memset(fabric.destination.data(), 0xee, fabric.destination.size());
    Posted posted;
    ASSERT_EQ(put(queue, fabric.put_of(100, bytes), &posted, kAnyWaitNs), Status::kOk);
    ASSERT_EQ(wait(queue, posted.ticket, kAnyWaitNs), Status::kOk) << bytes;
    ASSERT_EQ(std::memcmp(fabric.source.data() + 100, fabric.destination.data() + 100, bytes), 0)
        << bytes;
    ASSERT_EQ(fabric.destination[99], std::byte{0xee}) << bytes;
    ASSERT_EQ(fabric.destination[100 + bytes], std::byte{0xee}) << bytes;
  }
}

TYPED_TEST_P(Conformance, CompletesAWindowInOrderWithItsPayload) {
  ConformanceFabric<TypeParam> fabric;
  auto queue = fabric.queue();
  const std::uint64_t rounds = scaled(50);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    std::memset(fabric.destination.data(), 0, fabric.destination.size());
    std::vector<std::uint64_t> tickets;
    for (std::uint64_t i = 0; i < 64; ++i) {
      Posted posted;
      ASSERT_EQ(put(queue, fabric.put_of(i * 1000, 1000), &posted, kAnyWaitNs), Status::kOk);
      tickets.push_back(posted.ticket);
    }
    for (std::uint64_t i = 0; i < 64; ++i) {
      ASSERT_EQ(wait(queue, tickets[i], kAnyWaitNs), Status::kOk);
      ASSERT_EQ(
          std::memcmp(fabric.source.data() + i * 1000, fabric.destination.data() + i * 1000, 1000),
          0)
          << i;
    }
  }
  const nic::QpCounters c = fabric.counters();
  EXPECT_EQ(c.writes, rounds * 64);
  EXPECT_EQ(c.cqes, rounds * 64);
  EXPECT_EQ(c.bytes_moved, rounds * 64'000);
}

template <class Harness>
void expect_laps(const ConformanceOptions& options) {
  ConformanceFabric<Harness> fabric(options);
  auto queue = fabric.queue();
  Posted posted;
  for (std::uint64_t i = 0; i < 100; ++i) {
    ASSERT_EQ(put(queue, fabric.put_of(i * 64, 64), &posted, kAnyWaitNs), Status::kOk) << i;
  }
  ASSERT_EQ(posted.ticket, options.first_wqe_index + 99);
  ASSERT_EQ(wait(queue, posted.ticket, kAnyWaitNs), Status::kOk);
  EXPECT_EQ(std::memcmp(fabric.source.data(), fabric.destination.data(), 6400), 0);
}

TYPED_TEST_P(Conformance, GoesRoundTheRingAndThroughTheIndexWrap) {
  for (const std::uint64_t wrap : {std::uint64_t{1} << 16, std::uint64_t{1} << 32}) {
    expect_laps<TypeParam>({.depth = 8, .first_wqe_index = wrap - 20});
  }
}

TYPED_TEST_P(Conformance, NeedsNoDoorbellRecordWhereTheQueueHasNone) {
  for (const std::uint64_t first : {std::uint64_t{0}, (std::uint64_t{1} << 16) - 20}) {
    expect_laps<TypeParam>({.depth = 8, .first_wqe_index = first, .doorbell_record = false});
  }
}

TYPED_TEST_P(Conformance, EndsEveryTicketAfterAnErrorAndKeepsTheCause) {
  ConformanceFabric<TypeParam> fabric;
  auto queue = fabric.queue();
  Posted good;
  ASSERT_EQ(put(queue, fabric.put_of(0, 64), &good, kAnyWaitNs), Status::kOk);
  ASSERT_EQ(wait(queue, good.ticket, kAnyWaitNs), Status::kOk);
  Put wrong = fabric.put_of(64, 64);
  wrong.rkey = Rkey(wrong.rkey.value ^ 0xff00);
  Posted bad;
  ASSERT_EQ(put(queue, wrong, &bad, kAnyWaitNs), Status::kOk);
  std::vector<std::uint64_t> behind;
  for (std::uint64_t i = 2; i < 10; ++i) {
    Posted posted;
    const Status status = put(queue, fabric.put_of(i * 64, 64), &posted, kAnyWaitNs);
    if (status == Status::kCompletionError) break;  // the error may be known by now
    ASSERT_EQ(status, Status::kOk);
    behind.push_back(posted.ticket);
  }
  EXPECT_EQ(wait(queue, bad.ticket, kAnyWaitNs), Status::kCompletionError);
  for (const std::uint64_t ticket : behind) {
    EXPECT_EQ(wait(queue, ticket, kAnyWaitNs), Status::kCompletionError);
  }
  EXPECT_EQ(wait(queue, good.ticket, kAnyWaitNs), Status::kOk) << "a success stays one";
  LatchedError e;
  ASSERT_TRUE(queue.completions().error(&e));
  EXPECT_EQ(e.syndrome, 0x13);
  EXPECT_EQ(e.index, static_cast<std::uint32_t>(bad.ticket));
  EXPECT_EQ(fabric.qp.state(), QueuePairState::kError);
  EXPECT_EQ(fabric.peer.state(), QueuePairState::kError);
  EXPECT_EQ(fabric.destination[64], std::byte{0});
}

TYPED_TEST_P(Conformance, FlushesWhatIsPostedAfterTheErrorStateIsAskedFor) {
  ConformanceFabric<TypeParam> fabric;
  auto queue = fabric.queue();
  fabric.qp.to_error();
  Posted posted;
  ASSERT_EQ(put(queue, fabric.put_of(0, 64), &posted, kAnyWaitNs), Status::kOk);
  EXPECT_EQ(wait(queue, posted.ticket, kAnyWaitNs), Status::kCompletionError);
  LatchedError e;
  ASSERT_TRUE(queue.completions().error(&e));
  EXPECT_EQ(e.syndrome, static_cast<std::uint8_t>(mlx5::Syndrome::kFlushed));
}

TYPED_TEST_P(Conformance, RefusesALocalKeyThatIsSwapped) {
  ConformanceFabric<TypeParam> fabric;
  auto queue = fabric.queue();
  Put wrong = fabric.put_of(0, 64);
  wrong.lkey = Lkey(swap_bytes(wrong.lkey.value));
  Posted posted;
  ASSERT_EQ(put(queue, wrong, &posted, kAnyWaitNs), Status::kOk);
  EXPECT_EQ(wait(queue, posted.ticket, kAnyWaitNs), Status::kCompletionError);
  LatchedError e;
  ASSERT_TRUE(queue.completions().error(&e));
  EXPECT_EQ(e.syndrome, 0x04);
  EXPECT_EQ(fabric.counters().reasons.refusals(nic::Refusal::kLkeySwapped), 1u);
}

TYPED_TEST_P(Conformance, CommitsTheFaultsItIsToldTo) {
  ConformanceFabric<TypeParam> fabric;
  auto queue = fabric.queue();
  const Qpn qpn = fabric.qp.address().qpn;
  fabric.engine.call([&] {
    fabric.sender_nic.core().arm_faults(qpn, {{nic::FaultKind::kCorrupt, 0, 1},
                                              {nic::FaultKind::kNoop, 0, 2},
                                              {nic::FaultKind::kCqe, 0x14, 3}});
  });
  Status last = Status::kOk;
  for (std::uint64_t i = 0; i < 4; ++i) {
    Posted posted;
    ASSERT_EQ(put(queue, fabric.put_of(1 + i * 64, 64), &posted, kAnyWaitNs), Status::kOk);
    last = wait(queue, posted.ticket, kAnyWaitNs);
    if (i < 3) {
      ASSERT_EQ(last, Status::kOk);
    }
  }
  EXPECT_EQ(last, Status::kCompletionError);
  LatchedError e;
  ASSERT_TRUE(queue.completions().error(&e));
  EXPECT_EQ(e.syndrome, 0x14);
  const auto equal = [&](std::size_t i) {
    return std::memcmp(fabric.source.data() + 1 + i * 64, fabric.destination.data() + 1 + i * 64,
                       64) == 0;
  };
  EXPECT_TRUE(equal(0));
  EXPECT_FALSE(equal(1));
  EXPECT_FALSE(equal(2));
  EXPECT_EQ(fabric.destination[1 + 2 * 64], std::byte{0});
  EXPECT_EQ(fabric.destination[1 + 3 * 64], std::byte{0});
}

TYPED_TEST_P(Conformance, ClosesWithWorkInFlight) {
  const std::uint64_t rounds = scaled(30);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    ConformanceFabric<TypeParam> fabric({.memory_bytes = 1 << 16});
    auto queue = fabric.queue();
    Posted posted;
    for (std::uint64_t i = 0; i < 1 + round; ++i) {
      ASSERT_EQ(put(queue, fabric.put_of(i * 64, 64), &posted, kAnyWaitNs), Status::kOk);
    }
    if (round % 2 == 0) fabric.qp.to_error();
  }
}

REGISTER_TYPED_TEST_SUITE_P(
    Conformance, PlacesEverySizeExactly, CompletesAWindowInOrderWithItsPayload,
    GoesRoundTheRingAndThroughTheIndexWrap, NeedsNoDoorbellRecordWhereTheQueueHasNone,
    EndsEveryTicketAfterAnErrorAndKeepsTheCause, FlushesWhatIsPostedAfterTheErrorStateIsAskedFor,
    RefusesALocalKeyThatIsSwapped, CommitsTheFaultsItIsToldTo, ClosesWithWorkInFlight);

}  // namespace peal::test
