#include "peal/host/memory_region.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "host/host_fixture.hpp"

namespace peal {
namespace {

using test::error_of;
using test::HostFixture;
using test::says;

TEST(MemoryRegion, IsNamedByItsOwnAddressAndHasItsAccess) {
  HostFixture host;
  const Context context = Context::open(host.provider());
  std::vector<std::byte> memory(1000);
  const MemoryRegion local =
      MemoryRegion::create(context, memory.data(), memory.size(), Access::kLocalOnly);
  const MemoryRegion remote =
      MemoryRegion::create(context, memory.data() + 8, 16, Access::kRemoteWrite);
  EXPECT_EQ(local.address(), reinterpret_cast<std::uint64_t>(memory.data()));
  EXPECT_EQ(local.bytes(), 1000u);
  EXPECT_NE(local.lkey().value, 0u);
  EXPECT_NE(local.lkey().value, remote.lkey().value);
  const nic::Tables& tables = host.nic.core().tables();
  EXPECT_EQ(tables.find_key(local.rkey().value)->access & nic::kRemoteWrite, 0u);
  EXPECT_NE(tables.find_key(remote.rkey().value)->access & nic::kRemoteWrite, 0u);
  EXPECT_EQ(tables.find_key(remote.rkey().value)->start, remote.address());
  EXPECT_EQ(tables.find_key(remote.rkey().value)->bytes, 16u);
}

TEST(MemoryRegion, RefusedForWantOfMemoryNamesAddressSizeAndTheLimitOnLockedMemory) {
  HostFixture host;
  const Context context = Context::open(
      host.provider([](std::string_view operation) { return operation == "reg_mr" ? ENOMEM : 0; }));
  std::vector<std::byte> memory(12345);
  char address[32];
  std::snprintf(address, sizeof address, "%p", static_cast<void*>(memory.data()));
  const Error e = error_of(
      [&] { MemoryRegion::create(context, memory.data(), memory.size(), Access::kLocalOnly); });
  EXPECT_EQ(e.code(), ENOMEM);
  for (const char* text :
       {"12345", static_cast<const char*>(address), "RLIMIT_MEMLOCK", "Cannot allocate memory"}) {
    EXPECT_TRUE(says(e, text)) << e.what();
  }
}

TEST(MemoryRegion, OfNothingIsRefused) {
  HostFixture host;
  const Context context = Context::open(host.provider());
  std::byte memory[8];
  EXPECT_EQ(error_of([&] { MemoryRegion::create(context, nullptr, 8, Access::kLocalOnly); }).code(),
            EINVAL);
  EXPECT_EQ(error_of([&] { MemoryRegion::create(context, memory, 0, Access::kLocalOnly); }).code(),
            EINVAL);
  EXPECT_EQ(host.objects().regions, 0u);
}

TEST(MemoryRegion, MovesAndIsDeregisteredOnce) {
  HostFixture host;
  const Context context = Context::open(host.provider());
  std::vector<std::byte> memory(64);
  {
    MemoryRegion a = MemoryRegion::create(context, memory.data(), 32, Access::kLocalOnly);
    const Lkey key = a.lkey();
    MemoryRegion b = std::move(a);
    EXPECT_EQ(b.lkey(), key);
    EXPECT_EQ(b.bytes(), 32u);
    EXPECT_EQ(host.objects().regions, 1u);
    MemoryRegion c = MemoryRegion::create(context, memory.data() + 32, 32, Access::kRemoteWrite);
    EXPECT_EQ(host.objects().regions, 2u);
    c = std::move(b);
    EXPECT_EQ(c.lkey(), key);
    // Assigning from a temporary ends the region that was there.
    c = MemoryRegion::create(context, memory.data(), 8, Access::kLocalOnly);
    EXPECT_EQ(c.bytes(), 8u);
    EXPECT_EQ(host.nic.core().tables().find_key(key.value), nullptr);
  }
  EXPECT_EQ(host.objects().regions, 0u);
}

}  // namespace
}  // namespace peal
