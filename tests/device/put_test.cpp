// PUT: sizes, chunks, and what it writes into its slots.
#include "peal/device/put.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "support/manual_fabric.hpp"
#include "support/scale.hpp"

namespace peal {
namespace {

using test::FabricOptions;
using test::ManualFabric;
using test::ManualMemory;
using test::of_depth;
using test::scaled;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

// The destination holds `bytes` of the source at `to`, and what it held before elsewhere.
void expect_placed(const ManualFabric& fabric, std::vector<std::byte> before, std::uint64_t from,
                   std::uint64_t to, std::uint64_t bytes) {
  std::copy_n(fabric.source.begin() + static_cast<std::ptrdiff_t>(from), bytes,
              before.begin() + static_cast<std::ptrdiff_t>(to));
  EXPECT_TRUE(fabric.destination == before);
}

TEST(Put, PlacesItsBytesAndNothingElse) {
  ManualFabric fabric;
  for (std::size_t i = 0; i < fabric.source.size(); ++i) fabric.source[i] = std::byte(i * 7);
  auto queue = fabric.queue();
  Posted posted;
  ASSERT_EQ(put(queue, fabric.put(100, 5000, 4097), &posted), Status::kOk);
  ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
  for (std::size_t i = 0; i < fabric.destination.size(); ++i) {
    const bool inside = i >= 5000 && i < 5000 + 4097;
    ASSERT_EQ(fabric.destination[i], inside ? fabric.source[100 + i - 5000] : std::byte{0}) << i;
  }
}

TEST(Put, PlacesEverySizeAroundThePowersOfTwo) {
  ManualFabric fabric;
  fabric.fill_source(7);
  auto queue = fabric.queue();
  std::uint64_t index = 0;
  for (const std::uint64_t bytes : {0u, 1u, 2u, 7u, 8u, 255u, 256u, 257u, 4095u, 4096u, 4097u,
                                    65535u, 65536u, 65537u, 131073u, (1u << 20) - 9001u}) {
    SCOPED_TRACE(bytes);
    std::fill(fabric.destination.begin(), fabric.destination.end(), std::byte{0xa5});
    const auto before = fabric.destination;
    const auto counters = fabric.counters();
    Posted posted;
    ASSERT_EQ(put(queue, fabric.put(3, 9001, bytes), &posted), Status::kOk);
    EXPECT_EQ(posted.ticket, index);
    EXPECT_EQ(posted.wqes, 1u);
    ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
    expect_placed(fabric, before, 3, 9001, bytes);
    EXPECT_EQ(fabric.counters().bytes_moved - counters.bytes_moved, bytes);
    EXPECT_EQ(fabric.counters().noops - counters.noops, bytes == 0 ? 1u : 0u);
    EXPECT_EQ(fabric.counters().writes - counters.writes, bytes == 0 ? 0u : 1u);
    ++index;
  }
}

TEST(Put, OfZeroBytesNeedsNoKeys) {
  ManualFabric fabric;
  auto queue = fabric.queue();
  Posted posted;
  ASSERT_EQ(put(queue, Put{}, &posted), Status::kOk);
  EXPECT_EQ(posted.wqes, 1u);
  EXPECT_EQ(wait(queue, posted.ticket), Status::kOk);
}

TEST(Put, IsCutIntoChunksOfTheLargestMessage) {
  for (const std::uint64_t bytes :
       {1u, 99u, 100u, 101u, 199u, 200u, 201u, 399u, 400u, 401u, 4097u}) {
    SCOPED_TRACE(bytes);
    ManualFabric fabric(of_depth(4));  // up to ten times fewer slots than chunks
    fabric.fill_source(bytes);
    QueueHandle handle = fabric.sender_qps[0].handle();
    handle.max_message_bytes = 100;
    SendQueue<ManualMemory, Sharing::kDevice> queue(handle);
    const std::uint64_t chunks = (bytes + 99) / 100;
    EXPECT_EQ(wqes_of(handle, bytes), chunks);
    const auto before = fabric.destination;
    Posted posted;
    ASSERT_EQ(put(queue, fabric.put(11, 77, bytes), &posted), Status::kOk);
    EXPECT_EQ(posted.wqes, chunks);
    EXPECT_EQ(posted.ticket, chunks - 1);
    ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
    expect_placed(fabric, before, 11, 77, bytes);
    EXPECT_EQ(fabric.counters().writes, chunks);
    EXPECT_EQ(fabric.counters().bytes_moved, bytes);
    EXPECT_EQ(queue.completions().completed(), chunks);
  }
}

TEST(Put, IsPendingUntilItsLastChunkIsDone) {
  ManualFabric fabric(of_depth(8));
  QueueHandle handle = fabric.sender_qps[0].handle();
  handle.max_message_bytes = 100;
  SendQueue<ManualMemory, Sharing::kDevice> queue(handle);
  fabric.arm({{nic::FaultKind::kCqe, 0x13, 3}});
  Posted posted;
  ASSERT_EQ(put(queue, fabric.put(0, 0, 350), &posted), Status::kOk);
  EXPECT_EQ(wait(queue, posted.ticket - 1), Status::kOk);
  EXPECT_EQ(wait(queue, posted.ticket), Status::kCompletionError);
}

TEST(Put, TakesAsManyWqesAsTheLargestMessageAsks) {
  QueueHandle q;
  q.max_message_bytes = kGiB;
  EXPECT_EQ(wqes_of(q, 0), 1u);
  EXPECT_EQ(wqes_of(q, 1), 1u);
  EXPECT_EQ(wqes_of(q, kGiB - 1), 1u);
  EXPECT_EQ(wqes_of(q, kGiB), 1u);
  EXPECT_EQ(wqes_of(q, kGiB + 1), 2u);
  EXPECT_EQ(wqes_of(q, (std::uint64_t{1} << 31) + 5), 3u);
  EXPECT_EQ(wqes_of(q, (std::uint64_t{1} << 32) + 3), 5u);
  EXPECT_EQ(wqes_of(q, std::uint64_t{1} << 40), 1024u);
}

TEST(Put, TakesNoFewerWqesWhenItsSizeIsTheLargestNumber) {
  QueueHandle q;
  q.max_message_bytes = kGiB;
  EXPECT_EQ(wqes_of(q, std::numeric_limits<std::uint64_t>::max()), std::uint64_t{1} << 34);
}

// No byte moves; the NIC checks every WQE, and the test reads them.
TEST(Put, WritesEachChunkOfAHugePutInFull) {
  FabricOptions options = of_depth(8);
  options.sender.null_payload = true;
  ManualFabric fabric(options);
  const std::uint64_t region_bytes = (std::uint64_t{1} << 32) + 4096;
  void* memory =
      mmap(nullptr, region_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no 4 GiB of address space";
  {
    const MemoryRegion region =
        MemoryRegion::create(fabric.sender, memory, region_bytes, Access::kLocalOnly);
    auto queue = fabric.queue();
    const QueueHandle& q = queue.handle();
    EXPECT_EQ(q.max_message_bytes, kGiB);
    std::uint64_t index = 0;
    for (const std::uint64_t bytes : {(std::uint64_t{1} << 31) + 5, (std::uint64_t{1} << 32) + 3}) {
      SCOPED_TRACE(bytes);
      const std::uint64_t remote = 0x7000'0000'0000;
      Posted posted;
      ASSERT_EQ(
          put(queue, {region.address() + 7, region.lkey(), remote, Rkey(0x1234), bytes}, &posted),
          Status::kOk);
      EXPECT_EQ(posted.wqes, bytes / kGiB + 1);
      ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
      std::uint64_t covered = 0;
      for (; index <= posted.ticket; ++index) {
        const mlx5::Slot& slot = q.sq[index % q.depth];
        const mlx5::DataSeg data = mlx5::decode_data(slot.segment[2]);
        EXPECT_EQ(data.byte_count, std::min(bytes - covered, kGiB));
        EXPECT_EQ(data.address, region.address() + 7 + covered);
        EXPECT_EQ(mlx5::decode_raddr(slot.segment[1]).address, remote + covered);
        covered += data.byte_count;
      }
      EXPECT_EQ(covered, bytes);
    }
  }
  munmap(memory, region_bytes);
}

// What an earlier lap left in a slot has no say in the next: every field is written.
TEST(Put, RewritesEveryFieldOfAReusedSlot) {
  ManualFabric fabric(of_depth(4));
  fabric.fill_source(4);
  auto queue = fabric.queue();
  const QueueHandle& q = queue.handle();
  std::mt19937_64 random(4);
  const std::uint64_t rounds = scaled(1000);
  for (std::uint64_t i = 0; i < rounds; ++i) {
    // Five a cycle of four slots, so that each slot sees both kinds in turn.
    const std::uint64_t bytes = i % 5 % 2 == 0 ? 4096 : 0;
    mlx5::Slot& slot = q.sq[i % 4];
    if (i % 3 == 0) std::memset(static_cast<void*>(&slot), 0xff, sizeof slot);
    const std::uint64_t from = random() % 10000;
    const std::uint64_t to = random() % 10000;
    const auto before =
        std::vector<std::byte>(fabric.destination.begin(), fabric.destination.begin() + 20000);
    const Put p = fabric.put(from, to, bytes);
    Posted posted;
    ASSERT_EQ(put(queue, p, &posted), Status::kOk);
    const mlx5::CtrlSeg ctrl = mlx5::decode_ctrl(slot.segment[0]);
    EXPECT_EQ(ctrl.opmod, 0);
    EXPECT_EQ(ctrl.wqe_index, i & 0xffff);
    EXPECT_EQ(ctrl.opcode, bytes == 0 ? 0x00 : 0x08);
    EXPECT_EQ(ctrl.qpn, q.qpn);
    EXPECT_EQ(ctrl.ds, bytes == 0 ? 1 : 3);
    EXPECT_EQ(ctrl.fm_ce_se, 0x08);
    EXPECT_EQ(ctrl.imm, 0u);
    if (bytes != 0) {
      EXPECT_EQ(mlx5::decode_raddr(slot.segment[1]).address, p.remote_address);
      EXPECT_EQ(mlx5::decode_raddr(slot.segment[1]).rkey, p.rkey);
      EXPECT_EQ(slot.segment[1].hi >> 32, 0u) << "the reserved word";
      const mlx5::DataSeg data = mlx5::decode_data(slot.segment[2]);
      EXPECT_EQ(data.byte_count, bytes);
      EXPECT_EQ(data.lkey, p.lkey);
      EXPECT_EQ(data.address, p.local_address);
    }
    ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
    auto expected = before;
    std::copy_n(fabric.source.begin() + static_cast<std::ptrdiff_t>(from), bytes,
                expected.begin() + static_cast<std::ptrdiff_t>(to));
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), fabric.destination.begin())) << i;
    if (HasFailure()) return;
  }
}

// Without a single explicit wait, reserve alone keeps every slot until its WQE is done.
TEST(Put, NeverOverwritesAPendingSlotWhenNobodyWaits) {
  ManualFabric fabric(of_depth(64));
  auto queue = fabric.queue<Sharing::kDevice>();
  const std::uint64_t puts = scaled(10000);
  std::vector<std::uint64_t> copy(fabric.source.size() / 8);
  const std::uint64_t places = copy.size();
  for (std::uint64_t i = 0; i < puts; ++i) {
    const std::uint64_t stamp = i * 0x9e3779b97f4a7c15u;
    std::memcpy(&fabric.source[i % places * 8], &stamp, 8);
    Posted posted;
    ASSERT_EQ(put(queue, fabric.put(i % places * 8, i % places * 8, 8), &posted), Status::kOk);
    const nic::QpCounters c = fabric.counters();
    ASSERT_LE(posted.ticket + 1 - c.cqes, 64u) << "a slot was reused before its CQE";
  }
  ASSERT_EQ(wait(queue, puts - 1), Status::kOk);
  EXPECT_EQ(
      std::memcmp(fabric.destination.data(), fabric.source.data(), std::min(puts, places) * 8), 0);
  EXPECT_EQ(fabric.counters().writes, puts);
}

TEST(Put, GoesRoundTheRingWithADoorbellEachOrOnePerLap) {
  for (const std::uint32_t batch : {1u, 16u}) {
    ManualFabric fabric(of_depth(16));
    fabric.fill_source(batch);
    auto queue = fabric.queue();
    for (std::uint32_t i = 0; i < 3 * 16 + 1;) {
      const std::uint32_t n = std::min(batch, 3 * 16 + 1 - i);
      Reservation r;
      ASSERT_EQ(queue.reserve(n, &r), Status::kOk);
      for (; i < r.end(); ++i) write_wqe(queue, i, fabric.put(i * 8, i * 8, 8));
      ASSERT_EQ(queue.publish(r), Status::kOk);
    }
    ASSERT_EQ(wait(queue, 48), Status::kOk);
    EXPECT_EQ(std::memcmp(fabric.destination.data(), fabric.source.data(), 49 * 8), 0);
  }
}

}  // namespace
}  // namespace peal
