// Keys and addresses: their byte order, their regions, and whose they are.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "host/context_impl.hpp"
#include "support/manual_fabric.hpp"

namespace peal {
namespace {

using test::ManualFabric;
using test::ManualMemory;

std::uint64_t refused(const nic::QpCounters& c, nic::Refusal why) {
  return c.reasons.refusals(why);
}

// Posts one PUT that is to fail, and gives the error that ends it within a virtual second.
LatchedError error_of(ManualFabric& fabric, const Put& p) {
  auto queue = fabric.queue();
  LatchedError e;
  Posted posted;
  EXPECT_EQ(put(queue, p, &posted), Status::kOk);
  EXPECT_EQ(wait(queue, posted.ticket, 1'000'000'000), Status::kCompletionError);
  EXPECT_TRUE(queue.completions().error(&e));
  EXPECT_EQ(fabric.counters().bytes_moved, 0u);
  for (const std::byte b : fabric.destination) {
    if (b != std::byte{0}) {
      ADD_FAILURE() << "the refused PUT has written";
      break;
    }
  }
  return e;
}

TEST(Keys, AreHostOrderInTheApiAndBigEndianInTheWqe) {
  mlx5::Slot slots[2];
  QueueHandle q;
  q.sq = slots;
  q.depth = 2;
  q.qpn = Qpn(0x0002ed);
  SendQueue<ManualMemory, Sharing::kExclusive> queue(q);
  write_wqe(
      queue, 511,
      Put{0x0102030405060708, Lkey(0x00130100), 0x1112131415161718, Rkey(0x00240200), 0x00000809});
  const std::uint8_t expected[48] = {0x00, 0x01, 0xff, 0x08, 0x00, 0x02, 0xed, 0x03, 0x00, 0x00,
                                     0x00, 0x08, 0x00, 0x00, 0x00, 0x00, 0x11, 0x12, 0x13, 0x14,
                                     0x15, 0x16, 0x17, 0x18, 0x00, 0x24, 0x02, 0x00, 0x00, 0x00,
                                     0x00, 0x00, 0x00, 0x00, 0x08, 0x09, 0x00, 0x13, 0x01, 0x00,
                                     0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08};
  EXPECT_EQ(std::memcmp(&slots[1], expected, sizeof expected), 0);
}

TEST(Keys, EndInLocalProtectionErrorWhenTheLkeyIsSwapped) {
  ManualFabric fabric;
  fabric.fill_source(1);
  Put p = fabric.put(0, 0, 64);
  p.lkey = Lkey(swap_bytes(p.lkey.value));
  EXPECT_EQ(error_of(fabric, p).syndrome, 0x04);
  EXPECT_EQ(refused(fabric.counters(), nic::Refusal::kLkeySwapped), 1u);
  EXPECT_EQ(refused(fabric.counters(), nic::Refusal::kLkeyUnknown), 0u);
  EXPECT_NE(std::string(nic::refusal_text(nic::Refusal::kLkeySwapped)).find("swapped"),
            std::string::npos);
}

TEST(Keys, EndInRemoteAccessErrorWhenTheRkeyIsSwapped) {
  ManualFabric fabric;
  fabric.fill_source(2);
  Put p = fabric.put(0, 0, 64);
  p.rkey = Rkey(swap_bytes(p.rkey.value));
  EXPECT_EQ(error_of(fabric, p).syndrome, 0x13);
  EXPECT_EQ(refused(fabric.receiver_counters(), nic::Refusal::kRkeySwapped), 1u);
  EXPECT_EQ(refused(fabric.receiver_counters(), nic::Refusal::kRkeyUnknown), 0u);
  EXPECT_NE(std::string(nic::refusal_text(nic::Refusal::kRkeySwapped)).find("swapped"),
            std::string::npos);
}

TEST(Keys, EndInErrorWhenTheyAreZeroOrUnknown) {
  for (const std::uint32_t key : {0u, 0xffffffffu, 0x00100100u, 1u}) {
    SCOPED_TRACE(key);
    {
      ManualFabric fabric;
      fabric.fill_source(3);
      Put p = fabric.put(0, 0, 64);
      p.lkey = Lkey(key);
      EXPECT_EQ(error_of(fabric, p).syndrome, 0x04);
    }
    ManualFabric fabric;
    fabric.fill_source(3);
    Put p = fabric.put(0, 0, 64);
    p.rkey = Rkey(key);
    EXPECT_EQ(error_of(fabric, p).syndrome, 0x13);
    EXPECT_EQ(refused(fabric.receiver_counters(), nic::Refusal::kRkeyUnknown), 1u);
  }
}

TEST(Keys, AreRefusedOnAnotherNic) {
  {
    ManualFabric fabric;
    fabric.fill_source(4);
    // A region of the sender's NIC, named at the receiver's.
    std::vector<std::byte> here(4096);
    const MemoryRegion region =
        MemoryRegion::create(fabric.sender, here.data(), here.size(), Access::kRemoteWrite);
    Put p = fabric.put(0, 0, 64);
    p.remote_address = region.address();
    p.rkey = region.rkey();
    EXPECT_EQ(error_of(fabric, p).syndrome, 0x13);
    EXPECT_EQ(refused(fabric.receiver_counters(), nic::Refusal::kRkeyUnknown), 1u);
    EXPECT_EQ(here, std::vector<std::byte>(4096));
  }
  ManualFabric fabric;
  fabric.fill_source(4);
  Put p = fabric.put(0, 0, 64);
  p.local_address = fabric.destination_region.address();
  p.lkey = fabric.destination_region.lkey();
  EXPECT_EQ(error_of(fabric, p).syndrome, 0x04);
  EXPECT_EQ(refused(fabric.counters(), nic::Refusal::kLkeyUnknown), 1u);
}

TEST(Keys, AreRefusedWhenTheRegionAllowsNoRemoteWrite) {
  ManualFabric fabric;
  fabric.fill_source(5);
  std::vector<std::byte> local_only(4096);
  const MemoryRegion region = MemoryRegion::create(fabric.receiver, local_only.data(),
                                                   local_only.size(), Access::kLocalOnly);
  Put p = fabric.put(0, 0, 64);
  p.remote_address = region.address();
  p.rkey = region.rkey();
  EXPECT_EQ(error_of(fabric, p).syndrome, 0x13);
  EXPECT_EQ(refused(fabric.receiver_counters(), nic::Refusal::kRemoteAccess), 1u);
  EXPECT_EQ(local_only, std::vector<std::byte>(4096));
}

TEST(Keys, AreRefusedAfterTheirRegionIsGone) {
  ManualFabric fabric;
  fabric.fill_source(6);
  std::vector<std::byte> memory(4096);
  Put p = fabric.put(0, 0, 64);
  {
    const MemoryRegion region =
        MemoryRegion::create(fabric.receiver, memory.data(), memory.size(), Access::kRemoteWrite);
    p.remote_address = region.address();
    p.rkey = region.rkey();
  }
  // Another takes its place, so only the key's tag tells.
  const MemoryRegion next =
      MemoryRegion::create(fabric.receiver, memory.data(), memory.size(), Access::kRemoteWrite);
  ASSERT_NE(next.rkey(), p.rkey);
  EXPECT_EQ(error_of(fabric, p).syndrome, 0x13);
  EXPECT_EQ(refused(fabric.receiver_counters(), nic::Refusal::kRkeyStale), 1u);
  EXPECT_EQ(memory, std::vector<std::byte>(4096));
}

TEST(Regions, TakeEachPutAtItsOffsetInTheRightOne) {
  ManualFabric fabric;
  fabric.fill_source(7);
  auto queue = fabric.queue();
  struct Target {
    std::vector<std::byte> memory = std::vector<std::byte>(1000);
    std::vector<std::byte> image = std::vector<std::byte>(1000);
  };
  std::vector<Target> targets(64);
  std::vector<MemoryRegion> regions;
  std::set<std::uint32_t> keys;
  for (Target& t : targets) {
    regions.push_back(
        MemoryRegion::create(fabric.receiver, t.memory.data(), 1000, Access::kRemoteWrite));
    keys.insert(regions.back().rkey().value);
  }
  EXPECT_EQ(keys.size(), 64u);
  for (std::size_t i = 0; i < 64; ++i) {
    const std::size_t j = i * 37 % 64;
    const std::uint64_t offset = 13 * j % 900;
    Put p = fabric.put(i * 100, 0, 90 + j % 10);
    p.remote_address = regions[j].address() + offset;
    p.rkey = regions[j].rkey();
    Posted posted;
    ASSERT_EQ(put(queue, p, &posted), Status::kOk);
    ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
    std::memcpy(&targets[j].image[offset], &fabric.source[i * 100], p.bytes);
  }
  for (const Target& t : targets) EXPECT_EQ(t.memory, t.image);
}

// Pages 4 GiB apart: their addresses are equal in the low 32 bits.
TEST(Regions, AreToldApartWhenTheirAddressesAreEqualModulo4GiB) {
  constexpr std::size_t kRegions = 64;
  constexpr std::size_t kApart = std::size_t{1} << 32;
  constexpr std::size_t kPage = 4096;
  void* space = mmap(nullptr, kRegions * kApart, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) GTEST_SKIP() << "no 256 GiB of address space: " << std::strerror(errno);
  {
    ManualFabric fabric;
    fabric.fill_source(8);
    auto queue = fabric.queue();
    std::vector<MemoryRegion> regions;
    std::set<std::uint32_t> keys;
    const auto page = [space](std::size_t i) {
      return static_cast<std::byte*>(space) + i * kApart;
    };
    for (std::size_t i = 0; i < kRegions; ++i) {
      ASSERT_EQ(mprotect(page(i), kPage, PROT_READ | PROT_WRITE), 0);
      regions.push_back(
          MemoryRegion::create(fabric.receiver, page(i), kPage, Access::kRemoteWrite));
      keys.insert(regions.back().rkey().value);
    }
    EXPECT_EQ(keys.size(), kRegions);
    Posted posted;
    for (std::size_t i = 0; i < kRegions; ++i) {
      Put p = fabric.put(i * 64, 0, 64);
      p.remote_address = regions[i].address() + 128;
      p.rkey = regions[i].rkey();
      ASSERT_EQ(put(queue, p, &posted), Status::kOk);
    }
    ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
    for (std::size_t i = 0; i < kRegions; ++i) {
      EXPECT_EQ(std::memcmp(page(i) + 128, &fabric.source[i * 64], 64), 0) << i;
      EXPECT_EQ(page(i)[127], std::byte{0});
      EXPECT_EQ(page(i)[192], std::byte{0});
    }
  }
  munmap(space, kRegions * kApart);
}

// A registration in the middle of an allocation, neither page-aligned nor a whole page long.
struct Interior {
  static constexpr std::size_t kBefore = 3 * 4096 + 24;
  static constexpr std::size_t kBytes = 4096 + 104;
  std::vector<std::byte> memory =
      std::vector<std::byte>(kBefore + kBytes + 2 * 4096, std::byte{0x5a});
  std::vector<std::byte> untouched = memory;

  MemoryRegion region(const ManualFabric& fabric) {
    return MemoryRegion::create(fabric.receiver, memory.data() + kBefore, kBytes,
                                Access::kRemoteWrite);
  }
};

TEST(Regions, LeaveTheGuardBytesBesideAnInteriorOneAlone) {
  ManualFabric fabric;
  fabric.fill_source(9);
  Interior interior;
  const MemoryRegion region = interior.region(fabric);
  auto queue = fabric.queue();
  Put p = fabric.put(5, 0, Interior::kBytes);
  p.remote_address = region.address();
  p.rkey = region.rkey();
  Posted posted;
  ASSERT_EQ(put(queue, p, &posted), Status::kOk);
  ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
  std::memcpy(&interior.untouched[Interior::kBefore], &fabric.source[5], Interior::kBytes);
  EXPECT_EQ(interior.memory, interior.untouched);
}

TEST(Regions, RefuseOneByteMoreOnEitherSide) {
  struct Range {
    std::int64_t offset;
    std::uint64_t bytes;
  };
  const Range ranges[] = {{-1, 1},
                          {-1, 8},
                          {-1, Interior::kBytes},
                          {0, Interior::kBytes + 1},
                          {1, Interior::kBytes},
                          {Interior::kBytes, 1},
                          {Interior::kBytes - 1, 2},
                          {-4096, 8},
                          {Interior::kBytes + 4096, 8}};
  for (const Range& range : ranges) {
    SCOPED_TRACE(range.offset);
    ManualFabric fabric;
    fabric.fill_source(10);
    Interior interior;
    const MemoryRegion region = interior.region(fabric);
    Put p = fabric.put(0, 0, range.bytes);
    p.remote_address = region.address() + static_cast<std::uint64_t>(range.offset);
    p.rkey = region.rkey();
    const LatchedError e = error_of(fabric, p);
    EXPECT_EQ(e.syndrome, 0x13);
    EXPECT_EQ(refused(fabric.receiver_counters(), nic::Refusal::kRemoteRange), 1u);
    EXPECT_EQ(interior.memory, interior.untouched);
  }
}

// A zero-based region: its addresses are offsets, and the memory's own address is none of them.
TEST(Regions, NamedFromZeroAreWrittenByOffsetAndNotByAddress) {
  ManualFabric fabric;
  fabric.fill_source(5);
  const std::uint32_t pd = fabric.receiver.impl().pdn;
  const std::uint32_t key = fabric.receiver_nic.core().commands().register_region(
      pd, 0, fabric.destination.data(), 4096, nic::kLocalWrite | nic::kRemoteWrite);
  ASSERT_NE(key, 0u);
  auto queue = fabric.queue();
  Posted posted;
  Put p = fabric.put(0, 0, 64);
  p.rkey = Rkey(key);
  for (const std::uint64_t offset : {0u, 1u, 4096u - 64u}) {
    p.remote_address = offset;
    ASSERT_EQ(put(queue, p, &posted), Status::kOk);
    ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
    EXPECT_EQ(std::memcmp(&fabric.destination[offset], fabric.source.data(), 64), 0);
  }
  p.remote_address = reinterpret_cast<std::uint64_t>(fabric.destination.data());
  ASSERT_EQ(put(queue, p, &posted), Status::kOk);
  ASSERT_EQ(wait(queue, posted.ticket), Status::kCompletionError);
  LatchedError e;
  ASSERT_TRUE(queue.completions().error(&e));
  EXPECT_EQ(e.syndrome, 0x13);
  fabric.receiver_nic.core().commands().deregister_region(key);
}

TEST(Regions, RefuseALocalBufferOneByteOutside) {
  for (const std::uint64_t from : {std::uint64_t{4096 - 63}, ~std::uint64_t{0}}) {
    test::FabricOptions options;
    options.memory_bytes = 4096;
    ManualFabric fabric(options);
    EXPECT_EQ(error_of(fabric, fabric.put(from, 0, 64)).syndrome, 0x04);
    EXPECT_EQ(refused(fabric.counters(), nic::Refusal::kLocalRange), 1u);
  }
}

}  // namespace
}  // namespace peal
