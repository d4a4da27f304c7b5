// CQE and error CQE against the structs and getters of rdma-core's mlx5dv.h.
#include "peal/mlx5/cqe.hpp"

#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>

#include "peal/mlx5/wqe.hpp"

namespace peal::mlx5 {
namespace {

constexpr int kCqeCases = 20000;

template <class To, class From>
To same_bytes(const From& from) {
  return std::bit_cast<To>(from);
}

CqeFields random_fields(std::mt19937_64& random, CqeOpcode opcode) {
  CqeFields f;
  f.opcode = opcode;
  f.owner = static_cast<std::uint8_t>(random() & 1);
  f.wqe_counter = static_cast<std::uint16_t>(random());
  f.qpn = Qpn(static_cast<std::uint32_t>(random() & 0xffffff));
  f.wqe_opcode = static_cast<std::uint8_t>(random());
  f.byte_count = static_cast<std::uint32_t>(random());
  if (opcode != CqeOpcode::kRequester) {
    f.syndrome = static_cast<std::uint8_t>(random());
    f.vendor_syndrome = static_cast<std::uint8_t>(random());
  }
  return f;
}

// The dump of a CQE that drivers print: words as big-endian numbers. Only the last four are given.
Cqe from_dump(const std::array<std::uint32_t, 4>& last_words) {
  Cqe c;
  for (std::size_t i = 0; i < 4; ++i) c.word[12 + i] = htobe32(last_words[i]);
  return c;
}

void expect_same(const CqeFields& a, const CqeFields& b) {
  EXPECT_EQ(a.opcode, b.opcode);
  EXPECT_EQ(a.owner, b.owner);
  EXPECT_EQ(a.wqe_counter, b.wqe_counter);
  EXPECT_EQ(a.qpn, b.qpn);
  EXPECT_EQ(a.wqe_opcode, b.wqe_opcode);
  EXPECT_EQ(a.byte_count, b.byte_count);
  EXPECT_EQ(a.syndrome, b.syndrome);
  EXPECT_EQ(a.vendor_syndrome, b.vendor_syndrome);
}

TEST(Cqe, SuccessReadsInRdmaCoreAsItWasEncoded) {
  std::mt19937_64 random(0x5eed0020);
  for (int i = 0; i < kCqeCases; ++i) {
    const CqeFields f = random_fields(random, CqeOpcode::kRequester);
    auto theirs = same_bytes<mlx5_cqe64>(encode(f));
    ASSERT_EQ(mlx5dv_get_cqe_opcode(&theirs), MLX5_CQE_REQ);
    ASSERT_EQ(mlx5dv_get_cqe_owner(&theirs), f.owner);
    ASSERT_EQ(mlx5dv_get_cqe_format(&theirs), 0);
    ASSERT_EQ(mlx5dv_get_cqe_se(&theirs), 0);
    ASSERT_EQ(be16toh(theirs.wqe_counter), f.wqe_counter);
    ASSERT_EQ(be32toh(theirs.byte_cnt), f.byte_count);
    ASSERT_EQ(be32toh(theirs.sop_drop_qpn), (std::uint32_t{f.wqe_opcode} << 24) | f.qpn.value);
    ASSERT_EQ(theirs.timestamp, 0u);
  }
}

TEST(Cqe, DecodesASuccessThatRdmaCoreStructsHold) {
  std::mt19937_64 random(0x5eed0021);
  for (int i = 0; i < kCqeCases; ++i) {
    const CqeFields f = random_fields(random, CqeOpcode::kRequester);
    mlx5_cqe64 theirs;
    std::memset(&theirs, static_cast<int>(random() & 0xff), sizeof theirs);
    theirs.byte_cnt = htobe32(f.byte_count);
    theirs.timestamp = random();  // shares bytes with an error's syndrome
    theirs.sop_drop_qpn = htobe32((std::uint32_t{f.wqe_opcode} << 24) | f.qpn.value);
    theirs.wqe_counter = htobe16(f.wqe_counter);
    theirs.op_own = static_cast<std::uint8_t>(random() & 0x0e);
    mlx5dv_set_cqe_owner(&theirs, f.owner);
    expect_same(decode(same_bytes<Cqe>(theirs)), f);
    if (HasFailure()) return;
  }
}

TEST(ErrorCqe, ReadsInRdmaCoreAsItWasEncoded) {
  std::mt19937_64 random(0x5eed0022);
  for (int i = 0; i < kCqeCases; ++i) {
    const bool requester = random() % 2 == 0;
    const CqeFields f =
        random_fields(random, requester ? CqeOpcode::kRequesterError : CqeOpcode::kResponderError);
    const Cqe ours = encode(f);
    const auto theirs = same_bytes<mlx5_err_cqe>(ours);
    auto common = same_bytes<mlx5_cqe64>(ours);
    ASSERT_EQ(mlx5dv_get_cqe_opcode(&common), requester ? MLX5_CQE_REQ_ERR : MLX5_CQE_RESP_ERR);
    ASSERT_EQ(mlx5dv_get_cqe_owner(&common), f.owner);
    ASSERT_EQ(theirs.vendor_err_synd, f.vendor_syndrome);
    ASSERT_EQ(theirs.syndrome, f.syndrome);
    ASSERT_EQ(be32toh(theirs.s_wqe_opcode_qpn), (std::uint32_t{f.wqe_opcode} << 24) | f.qpn.value);
    ASSERT_EQ(be16toh(theirs.wqe_counter), f.wqe_counter);
  }
}

TEST(ErrorCqe, DecodesWhatRdmaCoreStructsHold) {
  std::mt19937_64 random(0x5eed0023);
  for (int i = 0; i < kCqeCases; ++i) {
    CqeFields f = random_fields(random, CqeOpcode::kRequesterError);
    f.byte_count = 0;
    mlx5_err_cqe theirs{};
    theirs.rsvd1[16] = static_cast<std::uint8_t>(random());  // hw_err_synd, not decoded
    theirs.vendor_err_synd = f.vendor_syndrome;
    theirs.syndrome = f.syndrome;
    theirs.s_wqe_opcode_qpn = htobe32((std::uint32_t{f.wqe_opcode} << 24) | f.qpn.value);
    theirs.wqe_counter = htobe16(f.wqe_counter);
    theirs.signature = static_cast<std::uint8_t>(random());
    theirs.op_own =
        static_cast<std::uint8_t>((MLX5_CQE_REQ_ERR << 4) | (random() & 0x0e) | f.owner);
    expect_same(decode(same_bytes<Cqe>(theirs)), f);
    if (HasFailure()) return;
  }
}

TEST(Cqe, RoundTripKeepsEveryField) {
  std::mt19937_64 random(0x5eed0024);
  for (int i = 0; i < kCqeCases; ++i) {
    const CqeOpcode opcode = random() % 2 ? CqeOpcode::kRequester : CqeOpcode::kResponderError;
    const CqeFields f = random_fields(random, opcode);
    expect_same(decode(encode(f)), f);
    if (HasFailure()) return;
  }
}

TEST(Cqe, GoldenBytesOfTheOwnerWord) {
  const std::uint32_t word = encode_cqe_owner_word(CqeOpcode::kRequesterError, 1, 0x1234);
  std::array<std::uint8_t, 4> bytes;
  std::memcpy(bytes.data(), &word, 4);
  EXPECT_EQ(bytes, (std::array<std::uint8_t, 4>{0x12, 0x34, 0x00, 0xd1}));
}

TEST(Cqe, IsNotYetWrittenOnTheFirstLapWhenTheRingIsFresh) {
  for (const std::uint8_t op_own : {kInitialOpOwn, std::uint8_t{0xff}}) {
    mlx5_cqe64 theirs;
    std::memset(&theirs, 0xff, sizeof theirs);
    theirs.op_own = op_own;
    const CqeFields f = decode(same_bytes<Cqe>(theirs));
    EXPECT_EQ(f.opcode, CqeOpcode::kInvalid);
    EXPECT_EQ(f.owner, 1);
  }
  EXPECT_EQ(int(CqeOpcode::kInvalid), MLX5_CQE_INVALID);
}

// A zeroed ring would read as a success of lap 0; hence kInitialOpOwn.
TEST(Cqe, LooksLikeASuccessWhenTheRingIsZeroed) {
  const CqeFields f = decode(Cqe{});
  EXPECT_EQ(f.opcode, CqeOpcode::kRequester);
  EXPECT_EQ(f.owner, 0);
}

// The owner bit is the parity of the lap: divide by the depth first, mask then.
TEST(Cqe, OwnerBitFollowsTheLapWhenARingOfEightWrapsTwice) {
  constexpr std::uint32_t kDepth = 8;
  std::array<Cqe, kDepth> ring;
  for (Cqe& c : ring) c.word[kCqeOwnerWord] = htobe32(0xffff0000u | kInitialOpOwn);
  const std::string expected =
      "00000000"
      "11111111"
      "0000000";
  ASSERT_EQ(expected.size(), 23u);
  for (std::uint32_t number = 0; number < expected.size(); ++number) {
    const auto owner = static_cast<std::uint8_t>(expected[number] - '0');
    EXPECT_EQ((number / kDepth) & 1, owner) << "completion " << number;
    Cqe& entry = ring[number % kDepth];
    EXPECT_NE(decode(entry).owner, owner) << "stale entry passes for completion " << number;
    CqeFields f;
    f.opcode = CqeOpcode::kRequester;
    f.owner = owner;
    f.wqe_counter = static_cast<std::uint16_t>(number);
    entry = encode(f);
    auto theirs = same_bytes<mlx5_cqe64>(entry);
    EXPECT_EQ(mlx5dv_get_cqe_owner(&theirs), owner) << "completion " << number;
    EXPECT_EQ(be16toh(theirs.wqe_counter), number);
  }
}

TEST(ErrorCqe, DumpOfALocalProtectionErrorIsReadable) {
  const CqeFields f = decode(from_dump({0x00000000, 0x02005104, 0x09000ac5, 0x0000bfd2}));
  EXPECT_EQ(f.opcode, CqeOpcode::kRequesterError);
  EXPECT_EQ(f.wqe_opcode, 9);
  EXPECT_STREQ(opcode_name(f.wqe_opcode), "RDMA_WRITE_IMM");
  EXPECT_EQ(f.qpn, Qpn(0xac5));
  EXPECT_EQ(f.wqe_counter, 0);
  EXPECT_EQ(f.owner, 0);
  EXPECT_EQ(f.syndrome, 0x04);
  EXPECT_EQ(f.vendor_syndrome, 0x51);
  EXPECT_STREQ(syndrome_name(f.syndrome), "local protection error");
}

TEST(ErrorCqe, DumpOfALocalProtectionErrorOfASendIsReadable) {
  const CqeFields f = decode(from_dump({0x00000000, 0x04005104, 0x0a0002fe, 0x00028ad2}));
  EXPECT_EQ(f.opcode, CqeOpcode::kRequesterError);
  EXPECT_EQ(f.wqe_opcode, 0x0a);
  EXPECT_EQ(f.qpn, Qpn(0x2fe));
  EXPECT_EQ(f.wqe_counter, 2);
  EXPECT_EQ(f.owner, 0);
  EXPECT_EQ(f.syndrome, 0x04);
  EXPECT_EQ(f.vendor_syndrome, 0x51);
}

TEST(Syndrome, NumbersAreThoseOfRdmaCore) {
  EXPECT_EQ(int(Syndrome::kLocalLength), MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
  EXPECT_EQ(int(Syndrome::kLocalQpOperation), MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
  EXPECT_EQ(int(Syndrome::kLocalProtection), MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
  EXPECT_EQ(int(Syndrome::kFlushed), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
  EXPECT_EQ(int(Syndrome::kMemoryWindowBind), MLX5_CQE_SYNDROME_MW_BIND_ERR);
  EXPECT_EQ(int(Syndrome::kBadResponse), MLX5_CQE_SYNDROME_BAD_RESP_ERR);
  EXPECT_EQ(int(Syndrome::kLocalAccess), MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR);
  EXPECT_EQ(int(Syndrome::kRemoteInvalidRequest), MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
  EXPECT_EQ(int(Syndrome::kRemoteAccess), MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
  EXPECT_EQ(int(Syndrome::kRemoteOperation), MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
  EXPECT_EQ(int(Syndrome::kTransportRetryExceeded), MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
  EXPECT_EQ(int(Syndrome::kRnrRetryExceeded), MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(int(Syndrome::kRemoteAborted), MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR);
}

TEST(Syndrome, UnknownOneHasANameThatSaysSo) {
  EXPECT_STREQ(syndrome_name(0x7f), "unknown syndrome");
}

TEST(CqeOpcode, NumbersAreThoseOfRdmaCore) {
  EXPECT_EQ(int(CqeOpcode::kRequester), MLX5_CQE_REQ);
  EXPECT_EQ(int(CqeOpcode::kResponderWriteImm), MLX5_CQE_RESP_WR_IMM);
  EXPECT_EQ(int(CqeOpcode::kResponderSend), MLX5_CQE_RESP_SEND);
  EXPECT_EQ(int(CqeOpcode::kResponderSendImm), MLX5_CQE_RESP_SEND_IMM);
  EXPECT_EQ(int(CqeOpcode::kResponderSendInvalidate), MLX5_CQE_RESP_SEND_INV);
  EXPECT_EQ(int(CqeOpcode::kResizeCq), MLX5_CQE_RESIZE_CQ);
  EXPECT_EQ(int(CqeOpcode::kSignatureError), MLX5_CQE_SIG_ERR);
}

}  // namespace
}  // namespace peal::mlx5
