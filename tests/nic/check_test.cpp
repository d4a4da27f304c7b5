#include "nic/check.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "nic/raw_client.hpp"

namespace peal::nic {
namespace {

using mlx5::Syndrome;
using test::Wqe;

// A QP, a region of its PD, and a WQE about them in which nothing is wrong.
struct Scene {
  static constexpr std::uint64_t kStart = 0x7000'0000'1000;
  static constexpr std::uint64_t kBytes = 8192;
  static constexpr std::uint64_t kIndex = 0x1'0007;
  static constexpr std::uint32_t kKeyIndex = 9;

  Scene() {
    tables->key_base = 2 * kMaxKeys;
    key = (tables->key_base + kKeyIndex) << 8 | 0x5a;
    tables->keys[kKeyIndex] = {key,    key,          3, kLocalWrite | kRemoteWrite, kStart,
                               kBytes, memory.data()};
    qp.qpn = Qpn(0xabcdef);
    qp.log_sq_size = 6;
    qp.log_msg_max = 30;
    qp.mtu = 5;
    qp.pd = 3;
    qp.remote_write_enabled = true;
    wqe.ctrl.opcode = static_cast<std::uint8_t>(mlx5::Opcode::kRdmaWrite);
    wqe.ctrl.wqe_index = static_cast<std::uint16_t>(kIndex);
    wqe.ctrl.qpn = qp.qpn;
    wqe.ctrl.ds = 3;
    wqe.ctrl.fm_ce_se = mlx5::kCompletionAlways;
    wqe.raddr = {0x1234567890, Rkey(0x77777701)};
    wqe.data = {64, Lkey(key), kStart + 128};
  }

  CheckResult run() const {
    const mlx5::Slot slot = test::slot_of(wqe);
    return check(slot.segment, kIndex, posted, qp, *tables);
  }
  Refusal remote(std::uint64_t address, Rkey rkey, std::uint64_t bytes) {
    return check_remote(address, rkey, bytes, kRemoteWrite, qp, *tables, &target);
  }
  KeyEntry& region() { return tables->keys[kKeyIndex]; }

  std::unique_ptr<Tables> tables = std::make_unique<Tables>();
  std::vector<std::byte> memory = std::vector<std::byte>(kBytes);
  QpEntry qp;
  std::uint32_t key = 0;
  Wqe wqe;
  std::uint64_t posted = 1;
  std::byte* target = nullptr;
};

TEST(Check, ResolvesAWriteOfWhichNothingIsWrong) {
  Scene scene;
  const CheckResult r = scene.run();
  EXPECT_EQ(r.refusal, Refusal::kNone);
  EXPECT_EQ(r.syndrome, Syndrome::kNone);
  EXPECT_EQ(r.move.local, scene.memory.data() + 128);
  EXPECT_EQ(r.move.remote_address, 0x1234567890u);
  EXPECT_EQ(r.move.rkey, Rkey(0x77777701));
  EXPECT_EQ(r.move.bytes, 64u);
  EXPECT_EQ(r.move.slots, 1u);
  EXPECT_EQ(r.move.fm_ce_se, mlx5::kCompletionAlways);
}

struct WrongWqe {
  const char* name;
  Refusal refusal;
  Syndrome syndrome;
  std::function<void(Scene&)> spoil;
};

const WrongWqe kWrongWqes[] = {
    {"index of the slot before", Refusal::kWqeIndex, Syndrome::kLocalQpOperation,
     [](Scene& s) { s.wqe.ctrl.wqe_index = static_cast<std::uint16_t>(Scene::kIndex - 1); }},
    {"index of the lap before", Refusal::kWqeIndex, Syndrome::kLocalQpOperation,
     [](Scene& s) { s.wqe.ctrl.wqe_index = static_cast<std::uint16_t>(Scene::kIndex - 64); }},
    {"another QP", Refusal::kWqeQpn, Syndrome::kLocalQpOperation,
     [](Scene& s) { s.wqe.ctrl.qpn = Qpn(0xabcdee); }},
    {"QPN 0", Refusal::kWqeQpn, Syndrome::kLocalQpOperation,
     [](Scene& s) { s.wqe.ctrl.qpn = Qpn(0); }},
    {"ds 0", Refusal::kWqeSize, Syndrome::kLocalQpOperation, [](Scene& s) { s.wqe.ctrl.ds = 0; }},
    {"two slots of which one is posted", Refusal::kWqeCrossesProducerIndex,
     Syndrome::kLocalQpOperation, [](Scene& s) { s.wqe.ctrl.ds = 5; }},
    {"the largest WQE, one slot short", Refusal::kWqeCrossesProducerIndex,
     Syndrome::kLocalQpOperation,
     [](Scene& s) {
       s.wqe.ctrl.ds = 63;
       s.posted = 15;
     }},
    {"an opcode that nobody knows", Refusal::kOpcode, Syndrome::kLocalQpOperation,
     [](Scene& s) { s.wqe.ctrl.opcode = 0x7f; }},
    {"an opcode that this NIC does not execute", Refusal::kOpcode, Syndrome::kLocalQpOperation,
     [](Scene& s) { s.wqe.ctrl.opcode = static_cast<std::uint8_t>(mlx5::Opcode::kSend); }},
    {"a write without data segment", Refusal::kWqeSegments, Syndrome::kLocalQpOperation,
     [](Scene& s) { s.wqe.ctrl.ds = 2; }},
    {"a write with a segment too many", Refusal::kWqeSegments, Syndrome::kLocalQpOperation,
     [](Scene& s) { s.wqe.ctrl.ds = 4; }},
    {"more inline data than ds says", Refusal::kInlineLength, Syndrome::kLocalQpOperation,
     [](Scene& s) { s.wqe.data.byte_count = 0x80000000u | 13; }},
    {"lkey 0", Refusal::kLkeyUnknown, Syndrome::kLocalProtection,
     [](Scene& s) { s.wqe.data.lkey = Lkey(0); }},
    {"lkey of no region", Refusal::kLkeyUnknown, Syndrome::kLocalProtection,
     [](Scene& s) { s.wqe.data.lkey = Lkey(s.key + 0x100); }},
    {"lkey of another NIC", Refusal::kLkeyUnknown, Syndrome::kLocalProtection,
     [](Scene& s) { s.wqe.data.lkey = Lkey(s.key - (kMaxKeys << 8)); }},
    {"lkey swapped", Refusal::kLkeySwapped, Syndrome::kLocalProtection,
     [](Scene& s) { s.wqe.data.lkey = Lkey(swap_bytes(s.key)); }},
    {"lkey of a deregistered region", Refusal::kLkeyStale, Syndrome::kLocalProtection,
     [](Scene& s) { s.region().key = 0; }},
    {"lkey of a region registered anew", Refusal::kLkeyStale, Syndrome::kLocalProtection,
     [](Scene& s) { s.region().key = s.region().last_key = s.key + 1; }},
    {"lkey of another PD", Refusal::kLkeyOtherPd, Syndrome::kLocalProtection,
     [](Scene& s) { s.region().pd = 4; }},
    {"one byte before the region", Refusal::kLocalRange, Syndrome::kLocalProtection,
     [](Scene& s) { s.wqe.data.address = Scene::kStart - 1; }},
    {"one byte beyond the region", Refusal::kLocalRange, Syndrome::kLocalProtection,
     [](Scene& s) { s.wqe.data.address = Scene::kStart + Scene::kBytes - 63; }},
    {"starting at the region's end", Refusal::kLocalRange, Syndrome::kLocalProtection,
     [](Scene& s) { s.wqe.data.address = Scene::kStart + Scene::kBytes; }},
    {"address and length that wrap", Refusal::kLocalRange, Syndrome::kLocalProtection,
     [](Scene& s) { s.wqe.data.address = ~std::uint64_t{0} - 7; }},
    {"wrapping out of a region that ends where addresses do", Refusal::kLocalRange,
     Syndrome::kLocalProtection,
     [](Scene& s) {
       s.region().start = ~std::uint64_t{0} - Scene::kBytes;
       s.wqe.data.address = ~std::uint64_t{0} - 7;
     }},
    {"longer than log_msg_max", Refusal::kMessageTooLong, Syndrome::kLocalLength,
     [](Scene& s) {
       s.qp.log_msg_max = 5;
       s.wqe.data.byte_count = 33;
     }},
};

TEST(Check, RefusesEachWrongWqeWithItsReasonAndSyndrome) {
  for (const WrongWqe& wrong : kWrongWqes) {
    Scene scene;
    wrong.spoil(scene);
    const CheckResult r = scene.run();
    EXPECT_EQ(r.refusal, wrong.refusal) << wrong.name << ": " << refusal_text(r.refusal);
    EXPECT_EQ(r.syndrome, wrong.syndrome) << wrong.name;
    EXPECT_EQ(r.move.local, nullptr) << wrong.name;
    EXPECT_EQ(r.move.opcode, scene.wqe.ctrl.opcode) << wrong.name;
  }
}

TEST(Check, AcceptsTheLastThatFits) {
  Scene scene;
  scene.wqe.data.address = Scene::kStart + Scene::kBytes - 64;
  EXPECT_EQ(scene.run().refusal, Refusal::kNone);
  scene.wqe.data = {Scene::kBytes, Lkey(scene.key), Scene::kStart};
  EXPECT_EQ(scene.run().refusal, Refusal::kNone);
  scene.qp.log_msg_max = 13;  // 8192 bytes
  EXPECT_EQ(scene.run().refusal, Refusal::kNone);
  // The region's last byte is the last address but one.
  scene.region().start = ~std::uint64_t{0} - Scene::kBytes;
  scene.wqe.data.address = scene.region().start;
  EXPECT_EQ(scene.run().refusal, Refusal::kNone);
}

TEST(Check, LooksAtNoKeyAndNoAddressOfAWriteOfLengthZero) {
  Scene scene;
  scene.wqe.raddr = {0, Rkey(0)};
  scene.wqe.data = {0, Lkey(0xdeadbeef), ~std::uint64_t{0}};
  const CheckResult r = scene.run();
  EXPECT_EQ(r.refusal, Refusal::kNone);
  EXPECT_EQ(r.move.bytes, 0u);
  EXPECT_EQ(r.move.local, nullptr);
}

TEST(Check, AcceptsANopOfAnySizeThatIsPosted) {
  for (std::uint8_t ds = 1; ds < 64; ++ds) {
    Scene scene;
    scene.wqe = test::nop(ds);
    scene.wqe.ctrl.wqe_index = static_cast<std::uint16_t>(Scene::kIndex);
    scene.wqe.ctrl.qpn = scene.qp.qpn;
    scene.wqe.data.lkey = Lkey(0xffffffff);
    scene.posted = (ds + 3u) / 4u;
    const CheckResult r = scene.run();
    EXPECT_EQ(r.refusal, Refusal::kNone) << int{ds};
    EXPECT_EQ(r.move.slots, scene.posted) << int{ds};
  }
}

TEST(CheckRemoteWrite, ResolvesARangeInsideTheRegion) {
  Scene scene;
  EXPECT_EQ(scene.remote(Scene::kStart, Rkey(scene.key), Scene::kBytes), Refusal::kNone);
  EXPECT_EQ(scene.target, scene.memory.data());
  EXPECT_EQ(scene.remote(Scene::kStart + Scene::kBytes - 1, Rkey(scene.key), 1), Refusal::kNone);
  EXPECT_EQ(scene.target, scene.memory.data() + Scene::kBytes - 1);
}

TEST(CheckRemoteWrite, RefusesEachWrongRequestWithItsReason) {
  struct Wrong {
    const char* name;
    Refusal refusal;
    std::function<Refusal(Scene&)> ask;
  };
  const Wrong wrongs[] = {
      {"rkey 0", Refusal::kRkeyUnknown,
       [](Scene& s) { return s.remote(Scene::kStart, Rkey(0), 8); }},
      {"rkey of another NIC", Refusal::kRkeyUnknown,
       [](Scene& s) { return s.remote(Scene::kStart, Rkey(s.key + (kMaxKeys << 8)), 8); }},
      {"rkey swapped", Refusal::kRkeySwapped,
       [](Scene& s) { return s.remote(Scene::kStart, Rkey(swap_bytes(s.key)), 8); }},
      {"rkey stale", Refusal::kRkeyStale,
       [](Scene& s) {
         s.region().key = 0;
         return s.remote(Scene::kStart, Rkey(s.key), 8);
       }},
      {"other PD", Refusal::kRkeyOtherPd,
       [](Scene& s) {
         s.region().pd = 4;
         return s.remote(Scene::kStart, Rkey(s.key), 8);
       }},
      {"no remote access", Refusal::kRemoteAccess,
       [](Scene& s) {
         s.region().access = kLocalWrite | kRemoteRead | kRemoteAtomic;
         return s.remote(Scene::kStart, Rkey(s.key), 8);
       }},
      {"before", Refusal::kRemoteRange,
       [](Scene& s) { return s.remote(Scene::kStart - 1, Rkey(s.key), 8); }},
      {"across the end", Refusal::kRemoteRange,
       [](Scene& s) { return s.remote(Scene::kStart + Scene::kBytes - 7, Rkey(s.key), 8); }},
      {"longer than the region", Refusal::kRemoteRange,
       [](Scene& s) { return s.remote(Scene::kStart, Rkey(s.key), Scene::kBytes + 1); }},
      {"address wraps", Refusal::kRemoteRange,
       [](Scene& s) { return s.remote(~std::uint64_t{0} - 3, Rkey(s.key), 8); }},
      {"length wraps", Refusal::kRemoteRange,
       [](Scene& s) { return s.remote(Scene::kStart + 8, Rkey(s.key), ~std::uint64_t{0} - 7); }},
  };
  for (const Wrong& wrong : wrongs) {
    Scene scene;
    const Refusal why = wrong.ask(scene);
    EXPECT_EQ(why, wrong.refusal) << wrong.name << ": " << refusal_text(why);
    EXPECT_EQ(scene.target, nullptr) << wrong.name;
  }
}

TEST(CheckRemoteWrite, LooksAtNoKeyOfLengthZero) {
  Scene scene;
  EXPECT_EQ(scene.remote(0, Rkey(0), 0), Refusal::kNone);
  EXPECT_EQ(scene.target, nullptr);
}

TEST(RefusalText, IsASentenceOfItsOwnForEachReason) {
  std::set<std::string> seen;
  for (int i = 0; i < static_cast<int>(Refusal::kCount); ++i) {
    const std::string text = refusal_text(static_cast<Refusal>(i));
    EXPECT_FALSE(text.empty()) << i;
    EXPECT_NE(text, "unknown refusal") << i;
    EXPECT_TRUE(seen.insert(text).second) << text;
  }
  EXPECT_STREQ(refusal_text(Refusal::kCount), "unknown refusal");
}

TEST(Complete, EncodesSuccessAndErrorWithTheLapsOwnerBit) {
  Completion c;
  c.index = 0x1'0003;
  c.opcode = 8;
  c.bytes = 4097;
  mlx5::CqeFields f = mlx5::decode(complete(c, Qpn(0x123456), 15, 4));
  EXPECT_EQ(f.opcode, mlx5::CqeOpcode::kRequester);
  EXPECT_EQ(f.owner, 0);
  EXPECT_EQ(f.wqe_counter, 3);
  EXPECT_EQ(f.qpn, Qpn(0x123456));
  EXPECT_EQ(f.byte_count, 4097u);
  c.syndrome = Syndrome::kRemoteAccess;
  c.vendor_syndrome = kVendorRemoteAccess;
  f = mlx5::decode(complete(c, Qpn(0x123456), 16, 4));
  EXPECT_EQ(f.opcode, mlx5::CqeOpcode::kRequesterError);
  EXPECT_EQ(f.owner, 1);
  EXPECT_EQ(f.syndrome, 0x13);
  EXPECT_EQ(f.vendor_syndrome, kVendorRemoteAccess);
  EXPECT_EQ(f.wqe_opcode, 8);
}

}  // namespace
}  // namespace peal::nic
