// The send WQE segments against the structs and setters of rdma-core's mlx5dv.h.
#include "peal/mlx5/wqe.hpp"

#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <utility>

namespace peal::mlx5 {
namespace {

using Bytes16 = std::array<std::uint8_t, 16>;
constexpr int kWqeCases = 20000;

template <class Segment>
Bytes16 bytes_of(const Segment& segment) {
  static_assert(sizeof(Segment) == sizeof(Bytes16));
  Bytes16 b;
  std::memcpy(b.data(), &segment, sizeof b);
  return b;
}

Words16 words_of(const Bytes16& bytes) {
  Words16 w;
  std::memcpy(&w, bytes.data(), sizeof w);
  return w;
}

CtrlSeg random_ctrl(std::mt19937_64& random) {
  CtrlSeg s;
  s.opmod = static_cast<std::uint8_t>(random());
  s.wqe_index = static_cast<std::uint16_t>(random());
  s.opcode = static_cast<std::uint8_t>(random());
  s.qpn = Qpn(static_cast<std::uint32_t>(random() & 0xffffff));
  s.ds = static_cast<std::uint8_t>(random() & 0x3f);
  s.fm_ce_se = static_cast<std::uint8_t>(random());
  s.imm = static_cast<std::uint32_t>(random());
  return s;
}

TEST(CtrlSeg, EncodesAsRdmaCoreDoes) {
  std::mt19937_64 random(0x5eed0010);
  for (int i = 0; i < kWqeCases; ++i) {
    const CtrlSeg s = random_ctrl(random);
    mlx5_wqe_ctrl_seg theirs{};
    mlx5dv_set_ctrl_seg(&theirs, s.wqe_index, s.opcode, s.opmod, s.qpn.value, s.fm_ce_se, s.ds, 0,
                        htobe32(s.imm));
    ASSERT_EQ(bytes_of(encode(s)), bytes_of(theirs)) << "case " << i;
  }
}

TEST(CtrlSeg, DecodesWhatRdmaCoreEncodes) {
  std::mt19937_64 random(0x5eed0011);
  for (int i = 0; i < kWqeCases; ++i) {
    const CtrlSeg s = random_ctrl(random);
    mlx5_wqe_ctrl_seg theirs{};
    // Signature and stream channel hold whatever the client's stack held.
    mlx5dv_set_ctrl_seg(&theirs, s.wqe_index, s.opcode, s.opmod, s.qpn.value, s.fm_ce_se, s.ds,
                        static_cast<std::uint8_t>(random()), htobe32(s.imm));
    theirs.dci_stream_channel_id = static_cast<__be16>(random());
    const CtrlSeg d = decode_ctrl(words_of(bytes_of(theirs)));
    ASSERT_EQ(d.opmod, s.opmod);
    ASSERT_EQ(d.wqe_index, s.wqe_index);
    ASSERT_EQ(d.opcode, s.opcode);
    ASSERT_EQ(d.qpn, s.qpn);
    ASSERT_EQ(d.ds, s.ds);
    ASSERT_EQ(d.fm_ce_se, s.fm_ce_se);
    ASSERT_EQ(d.imm, s.imm);
  }
}

TEST(CtrlSeg, GoldenBytesOfASignalledRdmaWrite) {
  CtrlSeg s;
  s.wqe_index = 0x1234;
  s.opcode = static_cast<std::uint8_t>(Opcode::kRdmaWrite);
  s.qpn = Qpn(0xabcdef);
  s.ds = 3;
  s.fm_ce_se = kCompletionAlways;
  const Bytes16 golden = {0x00, 0x12, 0x34, 0x08, 0xab, 0xcd, 0xef, 0x03,
                          0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x00};
  EXPECT_EQ(bytes_of(encode(s)), golden);
}

TEST(CtrlSeg, IgnoresTheUpperTwoBitsOfTheSegmentCountByte) {
  Bytes16 bytes{};
  bytes[7] = 0xc3;
  EXPECT_EQ(decode_ctrl(words_of(bytes)).ds, 3);
}

TEST(RaddrSeg, EncodesAsTheRdmaCoreStruct) {
  std::mt19937_64 random(0x5eed0012);
  for (int i = 0; i < kWqeCases; ++i) {
    const RaddrSeg s{random(), Rkey(static_cast<std::uint32_t>(random()))};
    mlx5_wqe_raddr_seg theirs{};
    theirs.raddr = htobe64(s.address);
    theirs.rkey = htobe32(s.rkey.value);
    ASSERT_EQ(bytes_of(encode(s)), bytes_of(theirs));
    theirs.reserved = static_cast<__be32>(random());
    const RaddrSeg d = decode_raddr(words_of(bytes_of(theirs)));
    ASSERT_EQ(d.address, s.address);
    ASSERT_EQ(d.rkey, s.rkey);
  }
}

TEST(DataSeg, EncodesAsRdmaCoreDoes) {
  std::mt19937_64 random(0x5eed0013);
  for (int i = 0; i < kWqeCases; ++i) {
    const DataSeg s{static_cast<std::uint32_t>(random()) & ~kInlineFlag,
                    Lkey(static_cast<std::uint32_t>(random())), random()};
    mlx5_wqe_data_seg theirs;
    mlx5dv_set_data_seg(&theirs, s.byte_count, s.lkey.value, s.address);
    ASSERT_EQ(bytes_of(encode(s)), bytes_of(theirs));
    const DataSeg d = decode_data(words_of(bytes_of(theirs)));
    ASSERT_EQ(d.byte_count, s.byte_count);
    ASSERT_EQ(d.lkey, s.lkey);
    ASSERT_EQ(d.address, s.address);
  }
}

TEST(DataSeg, GoldenBytes) {
  const Bytes16 golden = {0x00, 0x00, 0x10, 0x00, 0x00, 0x13, 0x01, 0x00,
                          0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef};
  EXPECT_EQ(bytes_of(encode(DataSeg{4096, Lkey(0x00130100), 0x0123456789abcdef})), golden);
}

TEST(AtomicSeg, EncodesAsRdmaCoreDoes) {
  std::mt19937_64 random(0x5eed0014);
  for (int i = 0; i < kWqeCases; ++i) {
    const AtomicSeg s{random(), random()};
    const mlx5_wqe_atomic_seg theirs{htobe64(s.swap_or_add), htobe64(s.compare)};
    ASSERT_EQ(bytes_of(encode(s)), bytes_of(theirs));
    const AtomicSeg d = decode_atomic(words_of(bytes_of(theirs)));
    ASSERT_EQ(d.swap_or_add, s.swap_or_add);
    ASSERT_EQ(d.compare, s.compare);
  }
}

TEST(MaskedAtomic4Seg, GoldenBytes) {
  const Bytes16 golden = {0x01, 0x02, 0x03, 0x04, 0x11, 0x12, 0x13, 0x14,
                          0x21, 0x22, 0x23, 0x24, 0x31, 0x32, 0x33, 0x34};
  EXPECT_EQ(bytes_of(encode(MaskedAtomic4Seg{0x01020304, 0x11121314, 0x21222324, 0x31323334})),
            golden);
  const MaskedAtomic4Seg d = decode_masked_atomic4(words_of(golden));
  EXPECT_EQ(d.swap_or_add, 0x01020304u);
  EXPECT_EQ(d.compare, 0x11121314u);
  EXPECT_EQ(d.swap_mask, 0x21222324u);
  EXPECT_EQ(d.compare_mask, 0x31323334u);
}

TEST(WaitSeg, GoldenBytes) {
  const Bytes16 golden = {0, 0, 0, 0, 0, 0, 0, 0, 0x01, 0x02, 0x03, 0x04, 0x00, 0x11, 0x12, 0x13};
  EXPECT_EQ(bytes_of(encode(WaitSeg{0x01020304, 0x111213})), golden);
  const WaitSeg d = decode_wait(words_of(golden));
  EXPECT_EQ(d.max_index, 0x01020304u);
  EXPECT_EQ(d.cqn, 0x111213u);
}

// The data are bytes: only the header is swapped.
TEST(InlineSeg, GoldenBytes) {
  const Bytes16 golden = {0x80, 0x00, 0x00, 0x0b, 'a', 'b', 'c', 'd',
                          'e',  'f',  'g',  'h',  'i', 'j', 'k', 0};
  InlineSeg s;
  s.bytes = 11;
  std::memcpy(s.first, "abcdefghijk", 11);
  EXPECT_EQ(bytes_of(encode(s)), golden);
  const InlineSeg d = decode_inline(words_of(golden));
  EXPECT_EQ(d.bytes, 11u);
  EXPECT_EQ(std::memcmp(d.first, "abcdefghijk", 12), 0);
}

TEST(InlineSeg, TakesOneSegmentUpTo12BytesAndTwoUpTo28) {
  for (const auto& [bytes, ds] : {std::pair{0u, 3u}, {1u, 3u}, {12u, 3u}, {13u, 4u}, {28u, 4u}}) {
    EXPECT_EQ(ds_of_inline(bytes), ds) << bytes;
  }
  EXPECT_EQ(ds_of_inline(29), 5u);  // a second slot
}

// Keys are host order in the interface and are swapped once, where a segment is encoded.
TEST(MemoryKey, IsBigEndianInTheWqeWhenGivenInHostOrder) {
  const std::array<std::uint8_t, 4> golden = {0x00, 0x13, 0x01, 0x00};
  const Bytes16 raddr = bytes_of(encode(RaddrSeg{0, Rkey(0x00130100)}));
  const Bytes16 data = bytes_of(encode(DataSeg{8, Lkey(0x00130100), 0}));
  EXPECT_EQ(std::memcmp(raddr.data() + 8, golden.data(), 4), 0);
  EXPECT_EQ(std::memcmp(data.data() + 4, golden.data(), 4), 0);
}

TEST(MemoryKey, SwappedTwiceDoesNotDecodeToTheKeyThatWasMeant) {
  const std::uint32_t key = 0x00130100;
  const std::uint32_t already_swapped = swap_bytes(key);
  const Words16 raddr = encode(RaddrSeg{0, Rkey(already_swapped)});
  const Words16 data = encode(DataSeg{8, Lkey(already_swapped), 0});
  EXPECT_EQ(bytes_of(raddr)[8], 0x00);
  EXPECT_EQ(bytes_of(raddr)[9], 0x01);
  EXPECT_EQ(bytes_of(raddr)[10], 0x13);
  EXPECT_EQ(bytes_of(raddr)[11], 0x00);
  EXPECT_NE(decode_raddr(raddr).rkey, Rkey(key));
  EXPECT_NE(decode_data(data).lkey, Lkey(key));
  EXPECT_EQ(swap_bytes(decode_raddr(raddr).rkey.value), key);
}

// A counter and an id printed without decoding: 65281 is index 511, ed020008 is an RDMA write of
// QP 0x2ed.
TEST(CtrlSeg, DecodesWhatLooksLikeNonsenseWhenPrintedRaw) {
  EXPECT_EQ(swap_bytes(static_cast<std::uint16_t>(65281)), 511);
  const std::uint32_t opcode_qpn = swap_bytes(0xed020008u);
  EXPECT_STREQ(opcode_name(static_cast<std::uint8_t>(opcode_qpn >> 24)), "RDMA_WRITE");
  EXPECT_EQ(opcode_qpn & 0xffffff, 0x2edu);
}

TEST(Opcode, NumbersAreThoseOfRdmaCore) {
  EXPECT_EQ(int(Opcode::kNop), MLX5_OPCODE_NOP);
  EXPECT_EQ(int(Opcode::kSendInvalidate), MLX5_OPCODE_SEND_INVAL);
  EXPECT_EQ(int(Opcode::kRdmaWrite), MLX5_OPCODE_RDMA_WRITE);
  EXPECT_EQ(int(Opcode::kRdmaWriteImm), MLX5_OPCODE_RDMA_WRITE_IMM);
  EXPECT_EQ(int(Opcode::kSend), MLX5_OPCODE_SEND);
  EXPECT_EQ(int(Opcode::kSendImm), MLX5_OPCODE_SEND_IMM);
  EXPECT_EQ(int(Opcode::kTso), MLX5_OPCODE_TSO);
  EXPECT_EQ(int(Opcode::kRdmaRead), MLX5_OPCODE_RDMA_READ);
  EXPECT_EQ(int(Opcode::kCompareSwap), MLX5_OPCODE_ATOMIC_CS);
  EXPECT_EQ(int(Opcode::kFetchAdd), MLX5_OPCODE_ATOMIC_FA);
  EXPECT_EQ(int(Opcode::kMaskedCompareSwap), MLX5_OPCODE_ATOMIC_MASKED_CS);
  EXPECT_EQ(int(Opcode::kMaskedFetchAdd), MLX5_OPCODE_ATOMIC_MASKED_FA);
  EXPECT_EQ(int(Opcode::kLocalInvalidate), MLX5_OPCODE_LOCAL_INVAL);
  EXPECT_EQ(int(Opcode::kSetPsv), MLX5_OPCODE_SET_PSV);
  EXPECT_EQ(int(Opcode::kUmr), MLX5_OPCODE_UMR);
  EXPECT_EQ(int(Opcode::kMmo), MLX5_OPCODE_MMO);
  EXPECT_EQ(int(kCompletionAlways), MLX5_WQE_CTRL_CQ_UPDATE);
  EXPECT_EQ(kInlineFlag, static_cast<std::uint32_t>(MLX5_INLINE_SEG));
  EXPECT_EQ(kSlotBytes, static_cast<std::uint32_t>(MLX5_SEND_WQE_BB));
}

TEST(Opcode, UnknownOneHasANameThatSaysSo) {
  EXPECT_STREQ(opcode_name(0x7f), "unknown opcode");
  EXPECT_STREQ(opcode_name(0x0a), "SEND");
}

}  // namespace
}  // namespace peal::mlx5
