// The tables behind the commands: their limits, their keys, and any bytes at all as a command.
#include "nic/tables.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "link/loopback.hpp"
#include "nic/command_device.hpp"
#include "peal/mlx5/doorbell.hpp"
#include "support/scale.hpp"

namespace peal::nic {
namespace {

namespace devx = mlx5::devx;
using devx::CommandOpcode;
using devx::CommandStatus;
using test::CommandDevice;
using test::execute;
using test::kCommandLengths;
using test::RawCommand;
using test::status_of;

TEST(Tables, ThatAreFullRefuseAndComeBackToTheStart) {
  CommandDevice nic;
  const Commands::Objects before = nic.commands.objects();

  std::vector<std::uint32_t> pds;
  while (const std::uint32_t pd = nic.commands.allocate_pd()) pds.push_back(pd);
  EXPECT_EQ(pds.size(), kMaxPds - 2);  // 0 names nothing, one is the device's
  std::vector<std::uint32_t> uars;
  alignas(mlx5::kUarPageBytes) std::byte page[mlx5::kUarPageBytes] = {};
  while (const std::uint32_t uar = nic.commands.allocate_uar(page)) uars.push_back(uar);
  EXPECT_EQ(uars.size(), kMaxUars - 2);
  std::vector<std::uint32_t> umems;
  while (const std::uint32_t umem = nic.commands.register_umem(nic.ring->bytes, 64)) {
    umems.push_back(umem);
  }
  EXPECT_EQ(umems.size(), kMaxUmems - 4);
  std::vector<std::uint32_t> keys;
  while (const std::uint32_t key =
             nic.commands.register_region(nic.pd, 0x1000, nic.ring->bytes, 64, 0)) {
    keys.push_back(key);
  }
  EXPECT_EQ(keys.size(), kMaxKeys - 1);
  std::vector<std::uint32_t> cqs;
  RawCommand cq = nic.create_cq();
  while (execute(nic.commands, cq)) {
    cqs.push_back(static_cast<std::uint32_t>(cq.get(devx::create_cq::cqn)));
  }
  EXPECT_EQ(cqs.size(), kMaxCqs - 1);
  EXPECT_EQ(status_of(cq), CommandStatus::kNoResources);
  std::vector<Qpn> qps;
  RawCommand qp = nic.create_qp(cqs.front());
  while (execute(nic.commands, qp)) {
    qps.push_back(Qpn(static_cast<std::uint32_t>(qp.get(devx::create_qp::qpn))));
  }
  EXPECT_EQ(qps.size(), kMaxQps - 1);
  EXPECT_EQ(status_of(qp), CommandStatus::kNoResources);

  for (const Qpn qpn : qps) {
    RawCommand c = nic.destroy_qp(qpn);
    ASSERT_TRUE(execute(nic.commands, c));
  }
  for (const std::uint32_t cqn : cqs) {
    RawCommand c = nic.destroy_cq(cqn);
    ASSERT_TRUE(execute(nic.commands, c));
  }
  for (const std::uint32_t key : keys) ASSERT_TRUE(nic.commands.deregister_region(key));
  for (const std::uint32_t umem : umems) ASSERT_TRUE(nic.commands.deregister_umem(umem));
  for (const std::uint32_t uar : uars) ASSERT_TRUE(nic.commands.free_uar(uar));
  for (const std::uint32_t pd : pds) ASSERT_TRUE(nic.commands.free_pd(pd));
  EXPECT_EQ(nic.commands.objects(), before);
}

TEST(Regions, RefuseWhatCannotBeRegistered) {
  CommandDevice nic;
  std::byte* memory = nic.ring->bytes;
  EXPECT_EQ(nic.commands.register_region(0, 0, memory, 64, 0), 0u);
  EXPECT_EQ(nic.commands.register_region(nic.pd + 1, 0, memory, 64, 0), 0u);
  EXPECT_EQ(nic.commands.register_region(kMaxPds, 0, memory, 64, 0), 0u);
  EXPECT_EQ(nic.commands.register_region(nic.pd, 0, nullptr, 64, 0), 0u);
  EXPECT_EQ(nic.commands.register_region(nic.pd, 0, memory, 0, 0), 0u);
  EXPECT_EQ(nic.commands.register_region(nic.pd, ~std::uint64_t{0} - 10, memory, 64, 0), 0u);
  EXPECT_EQ(nic.commands.register_umem(nullptr, 64), 0u);
  EXPECT_EQ(nic.commands.register_umem(memory, 0), 0u);
  EXPECT_EQ(nic.commands.objects().regions, 0u);
}

TEST(Regions, GiveNoKeyTwiceInARow) {
  CommandDevice nic;
  std::uint32_t last = 0;
  for (int i = 0; i < 600; ++i) {
    const std::uint32_t key =
        nic.commands.register_region(nic.pd, 0x1000, nic.ring->bytes, 64, kLocalWrite);
    ASSERT_NE(key, 0u);
    ASSERT_NE(key, last);
    ASSERT_NE(nic.core.tables().find_key(key), nullptr);
    if (last != 0) {
      ASSERT_TRUE(nic.core.tables().key_is_stale(last));
    }
    ASSERT_TRUE(nic.commands.deregister_region(key));
    ASSERT_EQ(nic.core.tables().find_key(key), nullptr);
    last = key;
  }
}

TEST(Regions, HaveKeysThatAreUniqueFoundAndHardToGuess) {
  link::Loopback loopback;
  std::set<std::uint32_t> distances;
  for (const std::uint64_t secret :
       {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{0x123456789}, random_secret(),
        random_secret()}) {
    Core<CpuMemory> core({.nic_number = 3, .key_secret = secret}, loopback.a());
    const std::uint32_t pd = core.commands().allocate_pd();
    std::byte memory[64];
    std::set<std::uint32_t> keys;
    std::vector<std::uint32_t> in_order;
    for (std::uint32_t i = 1; i <= 300; ++i) {
      const std::uint32_t key = core.commands().register_region(pd, i, memory, 64, kLocalWrite);
      ASSERT_TRUE(keys.insert(key).second) << secret;
      ASSERT_NE(core.tables().find_key(key), nullptr);
      EXPECT_EQ(core.tables().find_key(key)->start, i);
      EXPECT_EQ(key >> 20, 3u) << "never that of a NIC with another number";
      in_order.push_back(key);
    }
    if (secret != 0) distances.insert(in_order[1] - in_order[0]);
    for (const std::uint32_t key : in_order) {
      for (int i = 0; i < 3; ++i) EXPECT_EQ(core.tables().find_key(key ^ (1u << i)), nullptr);
      ASSERT_TRUE(core.commands().deregister_region(key));
      ASSERT_EQ(core.tables().find_key(key), nullptr) << "it dies with its region";
      ASSERT_TRUE(core.tables().key_is_stale(key));
    }
  }
  EXPECT_GT(distances.size(), 1u);
}

// A refused command changes nothing; one that is taken makes or ends at most one object.
TEST(Command, OfRandomBytesNeverDisturbsTheTables) {
  const std::uint64_t rounds = test::scaled(60'000);
  std::mt19937_64 random(2024);
  CommandDevice nic;
  const std::uint32_t cqn = nic.make_cq();
  const Qpn qpn = nic.make_qp(cqn);
  std::map<CommandOpcode, std::uint64_t> taken;
  const auto total = [](const Commands::Objects& o) {
    return static_cast<std::int64_t>(o.pds + o.uars + o.umems + o.regions + o.cqs + o.qps);
  };
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const test::CommandLength& length = kCommandLengths[random() % std::size(kCommandLengths)];
    RawCommand c = nic.modify(length.opcode, qpn);
    switch (random() % 4) {
      case 0:
        for (std::byte& b : c.in) b = std::byte(random() & 0xff);
        break;
      case 1: c = nic.create_cq(); break;
      case 2: c = nic.create_qp(static_cast<std::uint32_t>(1 + random() % 4)); break;
      default: break;
    }
    if (random() % 16 != 0) {
      c.set(devx::header::opcode, static_cast<std::uint16_t>(length.opcode));
    }
    for (std::uint64_t n = random() % 4; n > 0; --n) {
      c.in[random() % c.in.size()] ^= std::byte(1u << random() % 8);
    }
    const std::size_t in_bytes = random() % 8 == 0 ? random() % 273 : 272;
    const std::size_t out_bytes = random() % 8 == 0 ? 8 + random() % 300 : c.out.size();
    std::vector<std::byte> in(c.in.begin(), c.in.begin() + static_cast<std::ptrdiff_t>(in_bytes));
    std::vector<std::byte> out(out_bytes);
    const Commands::Objects before = nic.commands.objects();
    const bool ok = nic.commands.execute(in, out);
    const Commands::Objects after = nic.commands.objects();
    const auto status = devx::get(out.data(), devx::header::status);
    ASSERT_EQ(ok, status == 0) << round;
    if (!ok) {
      ASSERT_EQ(before, after) << round;
    } else {
      ++taken[static_cast<CommandOpcode>(devx::get(in.data(), devx::header::opcode))];
      ASSERT_LE(std::abs(total(after) - total(before)), 1) << round;
    }
    if (round % 16 == 0) nic.core.step(round);
  }
  // It has come through the checks, not only failed at the first.
  EXPECT_GE(taken.size(), rounds >= 20'000 ? 8u : 1u);
}

}  // namespace
}  // namespace peal::nic
