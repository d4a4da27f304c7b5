// Threads that act as one producer: CPU threads here, as the lanes of a warp do on a GPU.
#include "peal/device/group.hpp"

#include <gtest/gtest.h>

#include <barrier>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "peal/device/producer.hpp"
#include "support/scale.hpp"
#include "support/threads_fabric.hpp"

namespace peal::test {
namespace {

constexpr std::uint32_t kGroupThreads = 3;

struct Meeting {
  std::barrier<> barrier{kGroupThreads};
  std::uint64_t word = 0;
};

struct ThreadGroup {
  Meeting* meeting = nullptr;
  std::uint32_t me = 0;

  std::uint32_t rank() const { return me; }
  std::uint32_t size() const { return kGroupThreads; }
  void sync() const { meeting->barrier.arrive_and_wait(); }
  template <class T>
  T from_leader(T value) const {
    sync();  // the last value has been read
    if (me == 0) meeting->word = value;
    sync();
    return static_cast<T>(meeting->word);
  }
  template <class Pred>
  std::uint32_t leading(std::uint32_t n, Pred pred) const {
    return OneThread().leading(n, pred);
  }
};

struct GroupEnd {
  Status status = Status::kOk;
  std::uint64_t posted = 0;
  std::uint64_t completed = 0;
};

// The same calls by all threads of a group; what each of them was told.
template <Sharing S, class Calls>
std::vector<GroupEnd> run_group(const QueueHandle& queue, const ProducerOptions& options,
                                const Calls& calls) {
  Meeting meeting;
  std::vector<InFlight> fifo(options.window);
  std::vector<GroupEnd> ended(kGroupThreads);
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < kGroupThreads; ++t) {
    threads.emplace_back([&, t] {
      using GroupProducer = Producer<CpuMemory, S, NoLatencies, ThreadGroup>;
      GroupProducer producer(queue, options, fifo.data(), nullptr, ThreadGroup{&meeting, t});
      Status status = calls(producer);
      if (status == Status::kOk) status = producer.flush();
      if (status != Status::kOk) producer.settle();
      ended[t] = {status, producer.posted_puts(), producer.completed_puts()};
    });
  }
  for (std::thread& t : threads) t.join();
  return ended;
}

ProducerOptions group_options(std::uint32_t window, std::uint32_t batch) {
  ProducerOptions o;
  o.submit = {DoorbellOrder::kRecordRing, PublishOrder::kCombine};
  o.window = window;
  o.batch = batch;
  o.timeout_ns = kHangGuardNs;
  return o;
}

template <Sharing S>
void put_as_a_group(CompletionMode completion, std::uint32_t batch) {
  ThreadsFabric fabric({.depth = 64, .first_wqe_index = 65'500, .completion = completion});
  const std::uint64_t puts = (batch == 1 ? 20 : 100) + scaled(50);
  for (std::uint64_t i = 0; i < puts * 64; ++i) {
    fabric.source[i] = static_cast<std::byte>(i * 7 + i / 251);
  }
  const auto ended =
      run_group<S>(fabric.sender_qp.handle(), group_options(32, batch), [&](auto& p) {
        return p.put_many(puts, [&](std::uint64_t i) { return fabric.put(i * 64, i * 64, 64); });
      });
  for (const GroupEnd& e : ended) {
    EXPECT_EQ(e.status, Status::kOk);
    EXPECT_EQ(e.posted, puts);
    EXPECT_EQ(e.completed, puts);
  }
  EXPECT_EQ(std::memcmp(fabric.source.data(), fabric.destination.data(), puts * 64), 0);
  EXPECT_EQ(fabric.counters().writes, puts);
}

TEST(Group, WritesABatchTogetherAndTellsAllTheSame) {
  for (const CompletionMode completion : {CompletionMode::kEvery, CompletionMode::kTail}) {
    for (const std::uint32_t batch : {1u, 7u, 32u}) {
      put_as_a_group<Sharing::kExclusive>(completion, batch);
      put_as_a_group<Sharing::kDevice>(completion, batch);
    }
  }
}

TEST(Group, PostsSingleOperationsOnce) {
  ThreadsFabric fabric({.depth = 64});
  std::memset(fabric.source.data(), 0x5a, 4096);
  const auto ended =
      run_group<Sharing::kExclusive>(fabric.sender_qp.handle(), group_options(4, 1), [&](auto& p) {
        for (std::uint64_t i = 0; i < 20; ++i) {
          const Status status = p.put(fabric.put(i * 64, i * 64, 64));
          if (status != Status::kOk) return status;
        }
        return Status::kOk;
      });
  for (const GroupEnd& e : ended) EXPECT_EQ(e.completed, 20u);
  EXPECT_EQ(fabric.counters().writes, 20u);
}

TEST(Group, EndsAtAnErrorAsOne) {
  ThreadsFabric fabric({.depth = 64});
  fabric.arm({{nic::FaultKind::kCqe, 0x13, 20}});
  const auto ended =
      run_group<Sharing::kExclusive>(fabric.sender_qp.handle(), group_options(16, 8), [&](auto& p) {
        return p.put_many(100, [&](std::uint64_t i) { return fabric.put(i * 64, i * 64, 64); });
      });
  for (const GroupEnd& e : ended) {
    EXPECT_EQ(e.status, Status::kCompletionError);
    EXPECT_EQ(e.completed, 20u);
    EXPECT_EQ(e.posted, ended[0].posted);
  }
}

}  // namespace
}  // namespace peal::test
