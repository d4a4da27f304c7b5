// The proxy driven by hand: what producers store for it, what it stores for them, and what it
// leaves alone.
#include "host/proxy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "host/host_fixture.hpp"
#include "peal/mlx5/doorbell.hpp"
#include "support/manual_fabric.hpp"
#include "support/recording_memory.hpp"

namespace peal {
namespace {

using test::FabricOptions;
using test::ManualFabric;
using test::ManualMemory;
using test::RecordedStore;
using test::RecordingMemory;

constexpr std::uint64_t k2To16 = std::uint64_t{1} << 16;
constexpr std::uint64_t k2To32 = std::uint64_t{1} << 32;
constexpr std::uint64_t k2To63 = std::uint64_t{1} << 63;

// One queue's words, as the proxy sees them.
struct Words {
  ProxyWord word;
  std::uint32_t dbrec = 0;
  std::uint64_t doorbell = 0;
  host::ProxyQueue queue(Qpn qpn, std::uint64_t rung = 0) {
    word.pi = rung;
    return {&word, &dbrec, &doorbell, qpn, rung};
  }
};

FabricOptions proxied(std::uint32_t depth = 64, std::uint64_t first = 0) {
  FabricOptions options;
  options.depth = depth;
  options.sender.first_wqe_index = first;
  options.handler = NicHandler::kProxy;
  return options;
}

// ---- The proxy alone ----------------------------------------------------------------------------

TEST(HandlerStageProxy, RingsEveryChangeOnceAndSaysSo) {
  host::Proxy proxy;
  proxy.drive_by_hand();
  EXPECT_FALSE(proxy.progress());
  Words a, b;
  proxy.add(a.queue(Qpn(0x123456), 7));
  proxy.add(b.queue(Qpn(0x000777)));
  EXPECT_FALSE(proxy.progress());
  EXPECT_EQ(a.dbrec, 0u) << "it rang for what the NIC knows";
  a.word.pi = 9;
  EXPECT_TRUE(proxy.progress());
  EXPECT_EQ(a.dbrec, mlx5::encode_dbrec(9));
  EXPECT_EQ(a.doorbell, mlx5::encode_doorbell(9, Qpn(0x123456)));
  EXPECT_EQ(a.word.doorbells, 1u);
  EXPECT_EQ(b.word.doorbells, 0u);
  EXPECT_FALSE(proxy.progress());
  EXPECT_EQ(a.word.doorbells, 1u);
  a.word.pi = 10;
  b.word.pi = 1;
  EXPECT_TRUE(proxy.progress());
  EXPECT_EQ(a.word.doorbells, 2u);
  EXPECT_EQ(b.word.doorbells, 1u);
  EXPECT_EQ(b.doorbell, mlx5::encode_doorbell(1, Qpn(0x000777)));
  EXPECT_EQ(a.word.pi, 10u);  // the producer's word
}

// A library is known whose proxy compares the low 32 bits.
TEST(HandlerStageProxy, ComparesAll64Bits) {
  for (const std::uint64_t from : {std::uint64_t{0}, k2To16 - 1, k2To32 - 1, k2To63 - 1}) {
    for (const std::uint64_t step : {std::uint64_t{1}, k2To16, k2To32, k2To63}) {
      host::Proxy proxy;
      proxy.drive_by_hand();
      Words w;
      proxy.add(w.queue(Qpn(3), from));
      w.word.pi = from + step;
      EXPECT_TRUE(proxy.progress()) << from << " + " << step;
      EXPECT_EQ(w.doorbell, mlx5::encode_doorbell(from + step, Qpn(3)));
      EXPECT_FALSE(proxy.progress());
    }
  }
}

// The record lies over the doorbell's first half: what is left there was stored last.
TEST(HandlerStageProxy, StoresTheRecordBeforeTheDoorbell) {
  host::Proxy proxy;
  proxy.drive_by_hand();
  Words w;
  host::ProxyQueue queue = w.queue(Qpn(0xabcdef));
  queue.dbrec = reinterpret_cast<std::uint32_t*>(&w.doorbell);
  proxy.add(queue);
  w.word.pi = 0x1234;
  EXPECT_TRUE(proxy.progress());
  EXPECT_EQ(w.doorbell, mlx5::encode_doorbell(0x1234, Qpn(0xabcdef)));
}

TEST(HandlerStageProxy, RingsOnlyWhereThereIsNoRecord) {
  host::Proxy proxy;
  proxy.drive_by_hand();
  Words w;
  host::ProxyQueue queue = w.queue(Qpn(0xabcdef));
  queue.dbrec = nullptr;
  proxy.add(queue);
  w.word.pi = 0x1234;
  EXPECT_TRUE(proxy.progress());
  EXPECT_EQ(w.doorbell, mlx5::encode_doorbell(0x1234, Qpn(0xabcdef)));
  EXPECT_EQ(w.word.doorbells, 1u);
  EXPECT_EQ(w.dbrec, 0u);
}

TEST(HandlerStageProxy, NeverTouchesAQueueThatWasRemoved) {
  host::Proxy proxy;
  proxy.drive_by_hand();
  Words a, b, c;
  proxy.add(a.queue(Qpn(1)));
  proxy.add(b.queue(Qpn(2)));
  proxy.add(c.queue(Qpn(3)));
  b.word.pi = 1;
  proxy.remove(&b.word);
  EXPECT_FALSE(proxy.progress());
  b.word.pi = 2;
  a.word.pi = c.word.pi = 5;
  EXPECT_TRUE(proxy.progress());
  EXPECT_EQ(a.word.doorbells, 1u);
  EXPECT_EQ(c.word.doorbells, 1u);
  EXPECT_EQ(b.dbrec, 0u);
  EXPECT_EQ(b.doorbell, 0u);
  EXPECT_EQ(b.word.doorbells, 0u);
  proxy.remove(&b.word);  // nothing is there
  proxy.remove(&a.word);
  proxy.add(b.queue(Qpn(4), 2));  // memory that is used again
  b.word.pi = 3;
  EXPECT_TRUE(proxy.progress());
  EXPECT_EQ(b.doorbell, mlx5::encode_doorbell(3, Qpn(4)));
}

// ---- With producers and a NIC -------------------------------------------------------------------

template <Sharing S>
void expect_one_store_a_ring(SubmitOptions submit) {
  ManualFabric fabric(proxied(8, k2To32 - 2));
  const QueueHandle q = fabric.sender_qps[0].handle();
  ASSERT_NE(q.proxy, nullptr);
  EXPECT_EQ(q.doorbell, nullptr);
  fabric.hold();
  SendQueue<RecordingMemory, S> queue(q, submit);
  RecordingMemory::log().clear();
  const std::uint32_t record = *q.dbrec;
  for (std::uint64_t i = 1; i <= 4; ++i) {
    Posted posted;
    ASSERT_EQ(put(queue, fabric.put(0, 0, 8), &posted), Status::kOk);
    const std::uint64_t pi = k2To32 - 2 + i;
    std::vector<RecordedStore> rings;
    for (const RecordedStore& s : RecordingMemory::log()) {
      if (s.kind != RecordedStore::kWqeSegment) rings.push_back(s);
    }
    // The WQE's three segments, then one store of the whole index.
    EXPECT_EQ(RecordingMemory::log().size(), 4u);
    EXPECT_TRUE(RecordingMemory::log().back() ==
                (RecordedStore{RecordedStore::kProxyPi, &q.proxy->pi, {pi, 0}}));
    EXPECT_EQ(rings.size(), 1u);
    EXPECT_EQ(q.proxy->pi, pi);
    EXPECT_EQ(q.state->rung, pi);
    RecordingMemory::log().clear();
  }
  EXPECT_EQ(*q.dbrec, record);
  fabric.sender_nic.core().step(1);
  EXPECT_EQ(fabric.counters().writes, 0u) << "nobody rang";
  EXPECT_EQ(q.state->doorbells, 0u) << "the producers rang nothing";
  EXPECT_EQ(q.proxy->doorbells, 0u);
  EXPECT_TRUE(fabric.step_proxy());
  EXPECT_EQ(*q.dbrec, mlx5::encode_dbrec(2));
  EXPECT_EQ(q.proxy->doorbells, 1u);
  EXPECT_EQ(q.state->doorbells, 0u);
  fabric.settle();
  EXPECT_EQ(queue.completions().try_wait(k2To32 + 1), Status::kOk);
  EXPECT_EQ(fabric.counters().writes, 4u);
}

TEST(HandlerStageProxy, TakesOneStoreOfTheProducersInEverySubmission) {
  for (const DoorbellOrder doorbell :
       {DoorbellOrder::kRingRecordRing, DoorbellOrder::kRecordRing}) {
    expect_one_store_a_ring<Sharing::kExclusive>({doorbell, PublishOrder::kInOrder});
    expect_one_store_a_ring<Sharing::kDevice>({doorbell, PublishOrder::kInOrder});
    expect_one_store_a_ring<Sharing::kDevice>({doorbell, PublishOrder::kCombine});
  }
}

template <Sharing S>
void run_proxied_laps(std::uint64_t first, SubmitOptions submit) {
  SCOPED_TRACE(std::to_string(first) + ", " + publish_order_name(submit.publish));
  constexpr std::uint64_t kPuts = 40;
  FabricOptions options = proxied(4, first);
  options.doorbell_record = submit.doorbell != DoorbellOrder::kRingOnly;
  ManualFabric fabric(options);
  EXPECT_FALSE(fabric.step_proxy()) << "it rang for an empty queue";
  auto queue = fabric.queue<S>(0, submit);
  fabric.fill_source(first);
  Posted posted;
  for (std::uint64_t i = 0; i < kPuts; ++i) {
    ASSERT_EQ(put(queue, fabric.put(i * 64, i * 64, 64), &posted), Status::kOk);
    ASSERT_EQ(posted.ticket, first + i);
    if (i % 3 == 0) {
      ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
      ASSERT_EQ(std::memcmp(&fabric.source[i * 64], &fabric.destination[i * 64], 64), 0) << i;
    }
  }
  ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
  EXPECT_EQ(std::memcmp(fabric.source.data(), fabric.destination.data(), kPuts * 64), 0);
  EXPECT_EQ(fabric.counters().writes, kPuts);
  const QueueHandle q = fabric.sender_qps[0].handle();
  EXPECT_EQ(q.proxy->pi, first + kPuts);
  EXPECT_GE(q.proxy->doorbells, kPuts / 4);  // no more than a ring of 4 at once
  EXPECT_LE(q.proxy->doorbells, kPuts);
}

TEST(HandlerStageProxy, CarriesPutsOverEveryWrap) {
  for (const std::uint64_t first :
       {std::uint64_t{0}, k2To16 - 7, k2To32 - 7, k2To32 + k2To16 - 7, k2To63 - 7}) {
    run_proxied_laps<Sharing::kExclusive>(first, {});
    run_proxied_laps<Sharing::kDevice>(first, {DoorbellOrder::kRecordRing, PublishOrder::kInOrder});
    run_proxied_laps<Sharing::kDevice>(first, {DoorbellOrder::kRecordRing, PublishOrder::kCombine});
    run_proxied_laps<Sharing::kDevice>(first, {DoorbellOrder::kRingOnly, PublishOrder::kInOrder});
    run_proxied_laps<Sharing::kDevice>(first, {DoorbellOrder::kRingOnly, PublishOrder::kCombine});
  }
}

// The producers are a lap ahead of it each time it looks: it rings once for all that it missed.
TEST(HandlerStageProxy, LooksOnlyOnceALapAndNothingIsLostOrDoneTwice) {
  constexpr std::uint64_t kPuts = 800;
  for (const std::uint64_t first : {std::uint64_t{0}, k2To16 - 100, k2To32 - 100, k2To63 - 100}) {
    ManualFabric fabric(proxied(8, first));
    fabric.fill_source(first);
    const QueueHandle q = fabric.sender_qps[0].handle();
    std::uint64_t pauses = 0;
    ManualMemory::hooks().on_pause = [&] {
      if (++pauses % 50 == 0) {
        EXPECT_EQ(q.proxy->pi - q.state->completed, 8u) << "less than a lap";
        fabric.step_proxy();
      }
      fabric.sender_nic.core().step(ManualMemory::hooks().now_ns);
      fabric.receiver_nic.core().step(ManualMemory::hooks().now_ns);
    };
    auto queue = fabric.queue<Sharing::kDevice>();
    Posted posted;
    for (std::uint64_t i = 0; i < kPuts; ++i) {
      ASSERT_EQ(put(queue, fabric.put(i * 64, i * 64, 64), &posted), Status::kOk);
      if (i % 8 == 7) {
        ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
      }
    }
    EXPECT_EQ(std::memcmp(fabric.source.data(), fabric.destination.data(), kPuts * 64), 0);
    EXPECT_EQ(q.proxy->doorbells, kPuts / 8);
    EXPECT_EQ(fabric.counters().writes, kPuts);
    for (const std::uint64_t refused : fabric.counters().reasons.refused) EXPECT_EQ(refused, 0u);
  }
}

TEST(HandlerStageProxy, CarriesPutsWhereTheUarPageCannotBeMapped) {
  FabricOptions options;
  options.refuse = [](std::string_view operation) { return operation == "map_uar" ? EPERM : 0; };
  ManualFabric fabric(options);
  EXPECT_TRUE(fabric.sender.handler() == (HandlerChoice{NicHandler::kAutomatic, NicHandler::kProxy,
                                                        HandlerReason::kUarNotMapped}));
  EXPECT_EQ(fabric.receiver.handler().resolved, NicHandler::kDirect);
  fabric.fill_source(1);
  auto queue = fabric.queue();
  Posted posted;
  ASSERT_EQ(put(queue, fabric.put(0, 0, 5000), &posted), Status::kOk);
  ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
  EXPECT_TRUE(
      std::equal(fabric.source.begin(), fabric.source.begin() + 5000, fabric.destination.begin()));
}

TEST(HandlerStageProxy, LetsAnErrorReachEveryWaiter) {
  ManualFabric fabric(proxied(16, k2To32 - 3));
  fabric.arm({{nic::FaultKind::kCqe, 0x13, 5}});
  auto queue = fabric.queue();
  for (std::uint64_t i = 0; i < 10; ++i) {
    Posted posted;
    ASSERT_EQ(put(queue, fabric.put(i * 8, i * 8, 8), &posted), Status::kOk);
  }
  for (std::uint64_t i = 10; i-- > 0;) {
    EXPECT_EQ(wait(queue, k2To32 - 3 + i), i < 5 ? Status::kOk : Status::kCompletionError) << i;
  }
  LatchedError e;
  ASSERT_TRUE(queue.completions().error(&e));
  EXPECT_EQ(e.syndrome, 0x13);
  EXPECT_EQ(e.index, static_cast<std::uint32_t>(k2To32 + 2));
  Posted posted;
  EXPECT_EQ(put(queue, fabric.put(0, 0, 8), &posted), Status::kCompletionError);
}

// The memory of the destroyed one is gone, so a proxy that still looked would crash.
TEST(HandlerStageProxy, ForgetsAQueuePairWithUnrungWorkWhenItIsDestroyed) {
  FabricOptions options = proxied();
  options.qps = 3;
  ManualFabric fabric(options);
  fabric.hold();
  Posted posted;
  for (std::uint32_t i = 0; i < 3; ++i) {
    auto queue = fabric.queue(i);
    ASSERT_EQ(put(queue, fabric.put(0, i * 8, 8), &posted), Status::kOk);
  }
  const Qpn gone = fabric.sender_qps[1].address().qpn;
  fabric.sender_qps.erase(fabric.sender_qps.begin() + 1);
  EXPECT_EQ(fabric.sender_nic.core().tables().find_qp(gone), nullptr);
  EXPECT_TRUE(fabric.step_proxy());
  fabric.settle();
  for (std::uint32_t i = 0; i < 2; ++i) {
    auto queue = fabric.queue(i);
    EXPECT_EQ(queue.completions().try_wait(0), Status::kOk);
    EXPECT_EQ(fabric.sender_qps[i].handle().proxy->doorbells, 1u);
  }
  fabric.sender_qps.clear();
  EXPECT_FALSE(fabric.step_proxy());
}

}  // namespace
}  // namespace peal
