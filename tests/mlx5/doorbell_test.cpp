// Doorbell record and doorbell: golden bytes, wraps, and the BlueFlame form, which is the start of
// a WQE as rdma-core encodes it.
#include "peal/mlx5/doorbell.hpp"

#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <random>

namespace peal::mlx5 {
namespace {

constexpr int kDoorbellCases = 20000;
using Bytes8 = std::array<std::uint8_t, 8>;

Bytes8 doorbell_bytes(std::uint64_t word) {
  Bytes8 b;
  std::memcpy(b.data(), &word, sizeof b);
  return b;
}

std::uint64_t word_of(const Bytes8& bytes) {
  std::uint64_t w;
  std::memcpy(&w, bytes.data(), sizeof w);
  return w;
}

TEST(Doorbell, GoldenBytes) {
  const Bytes8 golden = {0x00, 0x12, 0x34, 0x00, 0xab, 0xcd, 0xef, 0x00};
  EXPECT_EQ(doorbell_bytes(encode_doorbell(0x1234, Qpn(0xabcdef))), golden);
}

// Two halves exchanged, or one field in both, would be another QP's doorbell.
TEST(Doorbell, IndexComesFirstAndQueueNumberSecond) {
  const Doorbell d = decode_doorbell(word_of({0x00, 0x12, 0x34, 0x00, 0xab, 0xcd, 0xef, 0x00}));
  EXPECT_EQ(d.index, 0x1234);
  EXPECT_EQ(d.qpn, Qpn(0xabcdef));
  EXPECT_EQ(d.ds, 0);
  EXPECT_EQ(d.pi(), 0x1234);
}

TEST(Doorbell, CarriesSixteenBitsOfTheIndexWhenTheIndexIsLarger) {
  for (const std::uint64_t pi : {std::uint64_t{0x1'0000}, std::uint64_t{0xff'ffff},
                                 std::uint64_t{0x1'0000'0000}, ~std::uint64_t{0}}) {
    const Bytes8 bytes = doorbell_bytes(encode_doorbell(pi, Qpn(0x42)));
    EXPECT_EQ(bytes[0], 0) << "bits 23:16 of the index must not travel";
    EXPECT_EQ(bytes[3], 0);
    EXPECT_EQ(decode_doorbell(encode_doorbell(pi, Qpn(0x42))).pi(), static_cast<std::uint16_t>(pi));
  }
}

TEST(Doorbell, RoundTripKeepsIndexAndQueueNumber) {
  std::mt19937_64 random(0x5eed0030);
  for (int i = 0; i < kDoorbellCases; ++i) {
    const std::uint64_t pi = random() >> (random() % 64);
    const Qpn qpn(static_cast<std::uint32_t>(random() & 0xffffff));
    const std::uint64_t word = encode_doorbell(pi, qpn);
    std::array<std::uint32_t, 2> theirs = {htobe32(static_cast<std::uint32_t>(pi & 0xffff) << 8),
                                           htobe32(qpn.value << 8)};
    ASSERT_EQ(std::memcmp(&word, theirs.data(), sizeof word), 0);
    const Doorbell d = decode_doorbell(word);
    ASSERT_EQ(d.pi(), static_cast<std::uint16_t>(pi));
    ASSERT_EQ(d.qpn, qpn);
    ASSERT_EQ(d.ds, 0);
  }
}

TEST(Doorbell, AnnouncesTheSlotAfterTheWqeWhenItIsTheWqeItself) {
  std::mt19937_64 random(0x5eed0031);
  for (int i = 0; i < kDoorbellCases; ++i) {
    const auto index = static_cast<std::uint16_t>(random());
    const auto qpn = static_cast<std::uint32_t>(random() & 0xffffff);
    const auto ds = static_cast<std::uint8_t>(1 + random() % 63);
    mlx5_wqe_ctrl_seg ctrl{};
    mlx5dv_set_ctrl_seg(&ctrl, index, MLX5_OPCODE_RDMA_WRITE, static_cast<std::uint8_t>(random()),
                        qpn, MLX5_WQE_CTRL_CQ_UPDATE, ds, 0, 0);
    std::uint64_t word;
    std::memcpy(&word, &ctrl, sizeof word);
    const Doorbell d = decode_doorbell(word);
    std::uint32_t slots = 0;
    for (int left = ds; left > 0; left -= 4) ++slots;
    ASSERT_EQ(d.qpn, Qpn(qpn));
    ASSERT_EQ(d.ds, ds);
    ASSERT_EQ(d.pi(), static_cast<std::uint16_t>(index + slots));
  }
}

TEST(Doorbell, WrapsToZeroWhenTheWqeIsTheLastOfSixteenBits) {
  EXPECT_EQ((Doorbell{0xffff, Qpn(1), 3}).pi(), 0);
  EXPECT_EQ((Doorbell{0xffff, Qpn(1), 4}).pi(), 0);
  EXPECT_EQ((Doorbell{0xffff, Qpn(1), 5}).pi(), 1);
}

TEST(DoorbellRecord, GoldenBytes) {
  const std::uint32_t word = encode_dbrec(5);
  std::array<std::uint8_t, 4> bytes;
  std::memcpy(bytes.data(), &word, 4);
  EXPECT_EQ(bytes, (std::array<std::uint8_t, 4>{0x00, 0x00, 0x00, 0x05}));
}

TEST(DoorbellRecord, SendWordIsTheOneOfRdmaCore) {
  EXPECT_EQ(kDbrecReceiveWord, static_cast<std::uint32_t>(MLX5_RCV_DBR));
  EXPECT_EQ(kDbrecSendWord, static_cast<std::uint32_t>(MLX5_SND_DBR));
}

TEST(DoorbellRecord, CarriesSixteenBitsWhenTheIndexWraps) {
  std::mt19937_64 random(0x5eed0032);
  for (int i = 0; i < kDoorbellCases; ++i) {
    const std::uint64_t pi = random() >> (random() % 64);
    ASSERT_EQ(be32toh(encode_dbrec(pi)), pi & 0xffff);
    ASSERT_EQ(decode_dbrec(encode_dbrec(pi)), static_cast<std::uint16_t>(pi));
  }
  EXPECT_EQ(decode_dbrec(encode_dbrec(0xffff)), 0xffff);
  EXPECT_EQ(decode_dbrec(encode_dbrec(0x10000)), 0);
}

}  // namespace
}  // namespace peal::mlx5
