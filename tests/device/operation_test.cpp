// Every one-sided operation, from the call to the last byte, in both completion modes.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "peal/device/producer.hpp"
#include "peal/device/put.hpp"
#include "support/manual_fabric.hpp"

namespace peal {
namespace {

using test::FabricOptions;
using test::ManualFabric;
using test::ManualMemory;

class OperationTest : public testing::TestWithParam<CompletionMode> {
 protected:
  FabricOptions options() const {
    FabricOptions o;
    o.completion = GetParam();
    return o;
  }
};
INSTANTIATE_TEST_SUITE_P(Modes, OperationTest,
                         testing::Values(CompletionMode::kEvery, CompletionMode::kTail),
                         [](const auto& mode) {
                           return std::string(completion_mode_name(mode.param));
                         });

TEST_P(OperationTest, InlinePutPlacesEverySizeAndNothingElse) {
  ManualFabric fabric(options());
  auto queue = fabric.queue();
  unsigned char data[mlx5::kMaxInlineBytes];
  for (std::uint32_t i = 0; i < sizeof data; ++i) data[i] = static_cast<unsigned char>(0xa0 + i);
  for (std::uint32_t bytes = 0; bytes <= mlx5::kMaxInlineBytes; ++bytes) {
    std::fill(fabric.destination.begin(), fabric.destination.end(), std::byte{0x11});
    Posted posted;
    const PutInline p{data, bytes, fabric.destination_region.address() + 101,
                      fabric.destination_region.rkey()};
    ASSERT_EQ(put_inline(queue, p, &posted), Status::kOk);
    std::memset(data, 0xee, sizeof data);  // the caller's again
    ASSERT_EQ(wait(queue, posted.ticket), Status::kOk) << bytes;
    for (std::uint32_t i = 0; i < sizeof data; ++i) {
      data[i] = static_cast<unsigned char>(0xa0 + i);
    }
    ASSERT_EQ(std::memcmp(&fabric.destination[101], data, bytes), 0) << bytes;
    ASSERT_EQ(fabric.destination[100], std::byte{0x11}) << bytes;
    ASSERT_EQ(fabric.destination[101 + bytes], std::byte{0x11}) << bytes;
  }
  Posted posted;
  const PutInline p{data, mlx5::kMaxInlineBytes + 1, fabric.destination_region.address(),
                    fabric.destination_region.rkey()};
  EXPECT_EQ(put_inline(queue, p, &posted), Status::kInvalid);
  EXPECT_EQ(queue.reserved(), mlx5::kMaxInlineBytes + 1u) << "a refused call has reserved";
}

TEST_P(OperationTest, AnInlineSlotLeavesNothingBehindForTheNextWqe) {
  FabricOptions o = options();
  o.depth = 4;
  ManualFabric fabric(o);
  fabric.fill_source(7);
  auto queue = fabric.queue();
  for (int round = 0; round < 1000; ++round) {
    Posted posted;
    const std::uint64_t value = 0x0102030405060708u * static_cast<unsigned>(round + 1);
    ASSERT_EQ(put_inline(queue,
                         PutInline{&value, 8, fabric.destination_region.address(),
                                   fabric.destination_region.rkey()},
                         &posted),
              Status::kOk);
    ASSERT_EQ(put(queue, fabric.put(0, 4096, 4096), &posted), Status::kOk);
    ASSERT_EQ(wait(queue, posted.ticket), Status::kOk) << round;
    ASSERT_EQ(fabric.word(0), value);
  }
  EXPECT_EQ(std::memcmp(&fabric.destination[4096], fabric.source.data(), 4096), 0);
  EXPECT_EQ(fabric.counters().writes, 2000u);
}

TEST_P(OperationTest, GetBringsEverySize) {
  ManualFabric fabric(options());
  auto queue = fabric.queue();
  for (std::size_t i = 0; i < fabric.destination.size(); ++i) {
    fabric.destination[i] = static_cast<std::byte>(i * 29 + 3);
  }
  for (const std::uint64_t bytes : {0ull, 1ull, 8ull, 4095ull, 4096ull, 4097ull, 300'000ull}) {
    std::fill(fabric.source.begin(), fabric.source.end(), std::byte{0x22});
    Posted posted;
    ASSERT_EQ(get(queue, fabric.get(1000, 500, bytes), &posted), Status::kOk);
    ASSERT_EQ(wait(queue, posted.ticket), Status::kOk) << bytes;
    ASSERT_EQ(std::memcmp(&fabric.source[500], &fabric.destination[1000], bytes), 0) << bytes;
    ASSERT_EQ(fabric.source[499], std::byte{0x22});
    ASSERT_EQ(fabric.source[500 + bytes], std::byte{0x22});
  }
  EXPECT_EQ(fabric.counters().reads, 6u);  // a get of 0 bytes is a no-op
  EXPECT_EQ(fabric.receiver_counters().served_reads, 6u);
  EXPECT_EQ(fabric.counters().bytes_moved, 1u + 8 + 4095 + 4096 + 4097 + 300'000);
}

TEST_P(OperationTest, AGetSeesThePutsBeforeIt) {
  ManualFabric fabric(options());
  fabric.fill_source(3);
  auto queue = fabric.queue();
  const std::vector<std::byte> sent(fabric.source.begin(), fabric.source.begin() + 8192);
  Posted posted;
  ASSERT_EQ(put(queue, fabric.put(0, 0, 8192), &posted), Status::kOk);
  ASSERT_EQ(get(queue, fabric.get(0, 100'000, 8192), &posted), Status::kOk);
  ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
  EXPECT_EQ(std::memcmp(sent.data(), &fabric.source[100'000], 8192), 0);
}

TEST_P(OperationTest, ChunksGetsAboveTheLargestMessage) {
  FabricOptions o = options();
  o.depth = 4;
  ManualFabric fabric(o);
  for (std::size_t i = 0; i < fabric.destination.size(); ++i) {
    fabric.destination[i] = static_cast<std::byte>(i * 31 + (i >> 9));
  }
  QueueHandle handle = fabric.sender_qps[0].handle();
  handle.max_message_bytes = 1000;
  SendQueue<ManualMemory, Sharing::kExclusive> queue(handle);
  Posted posted;
  ASSERT_EQ(get(queue, fabric.get(0, 0, 6001), &posted), Status::kOk);
  ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
  EXPECT_EQ(posted.wqes, 7u);
  EXPECT_EQ(fabric.counters().reads, 7u);
  EXPECT_EQ(std::memcmp(fabric.source.data(), fabric.destination.data(), 6001), 0);
}

TEST_P(OperationTest, FetchAddAddsAndBringsTheOldValue) {
  ManualFabric fabric(options());
  auto queue = fabric.queue();
  fabric.set_word(64, 40);
  for (const std::uint64_t add : {2ull, 0ull, ~0ull, 1ull << 63}) {
    const std::uint64_t before = fabric.word(64);
    Posted posted;
    ASSERT_EQ(fetch_add(queue, {fabric.target(64), add}, &posted), Status::kOk);
    ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
    EXPECT_EQ(*fabric.sinks.value(0), before);
    EXPECT_EQ(fabric.word(64), before + add);
  }
  EXPECT_EQ(fabric.counters().atomics, 4u);
  EXPECT_EQ(fabric.receiver_counters().served_atomics, 4u);
}

TEST_P(OperationTest, CompareSwapSwapsOnlyWhatIsEqual) {
  ManualFabric fabric(options());
  auto queue = fabric.queue();
  fabric.set_word(8, 5);
  const auto swap = [&](std::uint64_t compare, std::uint64_t with) {
    Posted posted;
    EXPECT_EQ(compare_swap(queue, {fabric.target(8), compare, with}, &posted), Status::kOk);
    EXPECT_EQ(wait(queue, posted.ticket), Status::kOk);
    return *fabric.sinks.value(0);
  };
  EXPECT_EQ(swap(4, 9), 5u);
  EXPECT_EQ(fabric.word(8), 5u);
  EXPECT_EQ(swap(5, 0x1122334455667788), 5u);
  EXPECT_EQ(fabric.word(8), 0x1122334455667788u);
  EXPECT_EQ(swap(0x1122334455667788, 0), 0x1122334455667788u);
  EXPECT_EQ(fabric.word(8), 0u);
}

// Bit by bit, which is how the documents describe it.
std::uint64_t added_bit_by_bit(std::uint64_t a, std::uint64_t b, std::uint64_t boundary, int bits) {
  std::uint64_t sum = 0;
  std::uint64_t carry = 0;
  for (int i = 0; i < bits; ++i) {
    const std::uint64_t s = (a >> i & 1) + (b >> i & 1) + carry;
    sum |= (s & 1) << i;
    carry = (boundary >> i & 1) != 0 ? 0 : s >> 1;
  }
  return sum;
}

TEST_P(OperationTest, MaskedFetchAddKeepsItsFieldsApart) {
  ManualFabric fabric(options());
  auto queue = fabric.queue();
  std::mt19937_64 random(11);
  for (int i = 0; i < 200; ++i) {
    const std::uint64_t old = random();
    const std::uint64_t add = random();
    const std::uint64_t boundary = i == 0 ? 0 : random() & random();
    fabric.set_word(16, old);
    Posted posted;
    ASSERT_EQ(masked_fetch_add(
                  queue, MaskedFetchAdd<std::uint64_t>{fabric.target(16), add, boundary}, &posted),
              Status::kOk);
    ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
    ASSERT_EQ(*fabric.sinks.value(0), old);
    ASSERT_EQ(fabric.word(16), added_bit_by_bit(old, add, boundary, 64));

    fabric.set_word(16, old);
    const auto add4 = static_cast<std::uint32_t>(add);
    const auto boundary4 = static_cast<std::uint32_t>(boundary);
    ASSERT_EQ(
        masked_fetch_add(queue, MaskedFetchAdd<std::uint32_t>{fabric.target(20), add4, boundary4},
                         &posted),
        Status::kOk);
    ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
    ASSERT_EQ(static_cast<std::uint32_t>(*fabric.sinks.value(0)), old >> 32);
    ASSERT_EQ(fabric.word(16) & 0xffffffff, old & 0xffffffff);
    ASSERT_EQ(fabric.word(16) >> 32, added_bit_by_bit(old >> 32, add4, boundary4, 32));
  }
}

TEST_P(OperationTest, MaskedCompareSwapOf4Bytes) {
  ManualFabric fabric(options());
  auto queue = fabric.queue();
  fabric.set_word(0, 0xaabbccdd'11223344);
  Posted posted;
  MaskedCompareSwap<std::uint32_t> a{fabric.target(0), 0x00003300, 0xffff0055, 0x0000ff00,
                                     0x0000ffff};
  ASSERT_EQ(masked_compare_swap(queue, a, &posted), Status::kOk);
  ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
  EXPECT_EQ(static_cast<std::uint32_t>(*fabric.sinks.value(0)), 0x11223344u);
  EXPECT_EQ(fabric.word(0), 0xaabbccdd'11220055u);
  a.compare = 0x00007700;
  ASSERT_EQ(masked_compare_swap(queue, a, &posted), Status::kOk);
  ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
  EXPECT_EQ(fabric.word(0), 0xaabbccdd'11220055u);
}

// Two slots, of which one has no CQE: only where CQEs are not counted.
TEST_P(OperationTest, MaskedCompareSwapOf8BytesNeedsTailSignalling) {
  FabricOptions o = options();
  o.depth = 4;
  ManualFabric fabric(o);
  auto queue = fabric.queue();
  fabric.set_word(24, 0x1111222233334444);
  const MaskedCompareSwap<std::uint64_t> a{fabric.target(24), 0x0000222200000000,
                                           0xaaaa0000bbbb0000, 0x0000ffff00000000,
                                           0xffff0000ffff0000};
  Posted posted;
  if (GetParam() == CompletionMode::kEvery) {
    EXPECT_EQ(masked_compare_swap(queue, a, &posted), Status::kInvalid);
    EXPECT_EQ(queue.reserved(), 0u);
    return;
  }
  for (int i = 0; i < 100; ++i) {  // many laps, with the WQE over the ring's end
    fabric.set_word(24, 0x1111222233334444);
    ASSERT_EQ(masked_compare_swap(queue, a, &posted), Status::kOk);
    ASSERT_EQ(wait(queue, posted.ticket), Status::kOk) << i;
    ASSERT_EQ(*fabric.sinks.value(0), 0x1111222233334444u);
    ASSERT_EQ(fabric.word(24), 0xaaaa2222bbbb4444u);
    ASSERT_EQ(nop(queue, &posted), Status::kOk);
  }
  ASSERT_EQ(flush(queue), Status::kOk);
}

TEST_P(OperationTest, RefusesAMisalignedTargetBeforeAnythingIsPosted) {
  ManualFabric fabric(options());
  auto queue = fabric.queue();
  Posted posted;
  EXPECT_EQ(fetch_add(queue, {fabric.target(4), 1}, &posted), Status::kInvalid);
  EXPECT_EQ(compare_swap(queue, {fabric.target(12), 1, 2}, &posted), Status::kInvalid);
  EXPECT_EQ(put_signal(queue, fabric.put(0, 0, 8), {fabric.target(20), 1}, &posted),
            Status::kInvalid);
  EXPECT_EQ(masked_fetch_add(queue, MaskedFetchAdd<std::uint32_t>{fabric.target(2), 1, 0}, &posted),
            Status::kInvalid);
  EXPECT_EQ(queue.reserved(), 0u);
}

TEST_P(OperationTest, ASignalComesOnceAndBehindItsPayload) {
  ManualFabric fabric(options());
  fabric.fill_source(5);
  auto queue = fabric.queue();
  std::uint64_t signals = 0;
  for (const std::uint64_t bytes : {0ull, 1ull, 64ull, 65536ull}) {
    const std::uint64_t doorbells = fabric.counters().doorbells;
    Posted posted;
    ASSERT_EQ(put_signal(queue, fabric.put(0, 4096, bytes), {fabric.target(0), 1}, &posted),
              Status::kOk);
    EXPECT_EQ(posted.wqes, 2u);
    ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
    EXPECT_EQ(fabric.word(0), ++signals) << bytes;
    EXPECT_EQ(std::memcmp(&fabric.destination[4096], fabric.source.data(), bytes), 0);
    EXPECT_EQ(fabric.counters().doorbells, doorbells + 1);
  }
}

TEST_P(OperationTest, ChunksOfAPutStandBeforeItsSignal) {
  FabricOptions o = options();
  o.depth = 4;
  ManualFabric fabric(o);
  fabric.fill_source(6);
  QueueHandle handle = fabric.sender_qps[0].handle();
  handle.max_message_bytes = 100;
  SendQueue<ManualMemory, Sharing::kExclusive> queue(handle);
  for (const std::uint64_t bytes : {300ull, 301ull, 1000ull, 2050ull}) {
    Posted posted;
    ASSERT_EQ(put_signal(queue, fabric.put(0, 4096, bytes), {fabric.target(0), 1}, &posted),
              Status::kOk);
    ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
    EXPECT_EQ(posted.wqes, (bytes + 99) / 100 + 1);
    EXPECT_EQ(std::memcmp(&fabric.destination[4096], fabric.source.data(), bytes), 0);
  }
  EXPECT_EQ(fabric.word(0), 4u);
}

TEST_P(OperationTest, EachTicketReportsItsOwnKind) {
  ManualFabric fabric(options());
  fabric.fill_source(8);
  auto queue = fabric.queue();
  std::uint64_t adds = 0;
  for (int round = 0; round < 300; ++round) {
    Posted posted;
    const std::uint64_t value = 0xabcdef0000000000u + static_cast<unsigned>(round);
    ASSERT_EQ(put(queue, fabric.put(0, 4096, 256), &posted), Status::kOk);
    ASSERT_EQ(put_inline(queue,
                         PutInline{&value, 8, fabric.destination_region.address() + 8192,
                                   fabric.destination_region.rkey()},
                         &posted),
              Status::kOk);
    ASSERT_EQ(nop(queue, &posted), Status::kOk);
    ASSERT_EQ(fetch_add(queue, {fabric.target(0), 1}, &posted), Status::kOk);
    ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
    EXPECT_EQ(*fabric.sinks.value(0), adds++);
    ASSERT_EQ(get(queue, fabric.get(8192, 65536, 8), &posted), Status::kOk);
    ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
    std::uint64_t there = 0;
    std::memcpy(&there, &fabric.source[65536], 8);
    ASSERT_EQ(there, value);
  }
  const nic::QpCounters c = fabric.counters();
  EXPECT_EQ(c.writes, 600u);
  EXPECT_EQ(c.noops, 300u);
  EXPECT_EQ(c.atomics, 300u);
  EXPECT_EQ(c.reads, 300u);
}

TEST_P(OperationTest, AProducerKeepsItsWindowOverEveryKind) {
  FabricOptions o = options();
  o.depth = 16;
  ManualFabric fabric(o);
  fabric.fill_source(9);
  InFlight fifo[5];
  Producer<ManualMemory, Sharing::kExclusive> producer(
      fabric.sender_qps[0].handle(), {.submit = {}, .window = 5, .batch = 4}, fifo);
  for (int round = 0; round < 100; ++round) {
    const std::uint64_t value = 77u + static_cast<unsigned>(round);
    ASSERT_EQ(producer.put(fabric.put(0, 4096, 64)), Status::kOk);
    ASSERT_EQ(producer.put_inline(PutInline{&value, 8, fabric.destination_region.address() + 8,
                                            fabric.destination_region.rkey()}),
              Status::kOk);
    ASSERT_EQ(producer.put_signal(fabric.put(64, 8192, 64), {fabric.target(0), 1}), Status::kOk);
    ASSERT_EQ(producer.get(fabric.get(8, 65536, 8)), Status::kOk);
    ASSERT_EQ(producer.fetch_add({fabric.target(16), 2}), Status::kOk);
    ASSERT_EQ(producer.compare_swap({fabric.target(24), static_cast<unsigned>(round),
                                     static_cast<unsigned>(round) + 1u}),
              Status::kOk);
    ASSERT_LE(producer.posted_puts() - producer.completed_puts(), 5u);
  }
  ASSERT_EQ(producer.flush(), Status::kOk);
  EXPECT_EQ(producer.completed_puts(), 600u);
  EXPECT_EQ(producer.posted_wqes(), 700u);
  EXPECT_EQ(fabric.word(0), 100u);
  EXPECT_EQ(fabric.word(8), 176u);
  EXPECT_EQ(fabric.word(16), 200u);
  EXPECT_EQ(fabric.word(24), 100u);
}

TEST_P(OperationTest, FlushWaitsForEverythingOnTheQueue) {
  ManualFabric fabric(options());
  auto queue = fabric.queue();
  EXPECT_EQ(flush(queue), Status::kOk) << "nothing was posted";
  Posted posted;
  for (int i = 0; i < 40; ++i) {
    ASSERT_EQ(put(queue, fabric.put(0, 0, 8), &posted), Status::kOk);
  }
  ASSERT_EQ(flush(queue), Status::kOk);
  EXPECT_EQ(queue.completions().completed(), 40u);
  fabric.hold();
  ASSERT_EQ(put(queue, fabric.put(0, 0, 8), &posted), Status::kOk);
  EXPECT_EQ(flush(queue, 1'000'000), Status::kDeadline);
  fabric.release();
  EXPECT_EQ(flush(queue), Status::kOk);
}

// Queues are not ordered among themselves: whoever signals on one for what went over another
// flushes first.
TEST_P(OperationTest, FlushOverQueuesComesBeforeASignalOnAnother) {
  FabricOptions o = options();
  o.qps = 3;
  ManualFabric fabric(o);
  fabric.fill_source(10);
  fabric.arm({{nic::FaultKind::kHold, 200'000'000, 0}}, 0);
  std::vector<SendQueue<ManualMemory, Sharing::kExclusive>> queues;
  for (std::uint32_t i = 0; i < 3; ++i) queues.push_back(fabric.queue(i));
  Posted posted;
  ASSERT_EQ(put(queues[0], fabric.put(0, 4096, 4096), &posted), Status::kOk);
  ASSERT_EQ(put(queues[2], fabric.put(0, 0, 0), &posted), Status::kOk);
  const std::uint64_t start = ManualMemory::now_ns();
  ASSERT_EQ(flush(queues.data(), 3), Status::kOk);
  EXPECT_GE(ManualMemory::now_ns() - start, 200'000'000u);
  EXPECT_EQ(std::memcmp(&fabric.destination[4096], fabric.source.data(), 4096), 0);
  ASSERT_EQ(fetch_add(queues[1], {fabric.target(0), 1}, &posted), Status::kOk);
  ASSERT_EQ(wait(queues[1], posted.ticket), Status::kOk);
  EXPECT_EQ(fabric.word(0), 1u);
}

TEST_P(OperationTest, FlushOverQueuesHasOneDeadlineAndNamesTheQueue) {
  FabricOptions o = options();
  o.qps = 4;
  ManualFabric fabric(o);
  std::vector<SendQueue<ManualMemory, Sharing::kExclusive>> queues;
  Posted posted;
  for (std::uint32_t i = 0; i < 4; ++i) {
    queues.push_back(fabric.queue(i));
    fabric.arm({{nic::FaultKind::kHold, i == 0 ? 800'000ull : 5'000'000'000ull, 0}}, i);
    ASSERT_EQ(put(queues[i], fabric.put(0, 0, 8), &posted), Status::kOk);
  }
  const std::uint64_t start = ManualMemory::now_ns();
  std::uint32_t failed = 99;
  EXPECT_EQ(flush(queues.data(), 4, 1'000'000, &failed), Status::kDeadline);
  EXPECT_EQ(failed, 1u);
  EXPECT_LT(ManualMemory::now_ns() - start, 1'100'000u) << "each queue had a deadline of its own";
}

}  // namespace
}  // namespace peal
