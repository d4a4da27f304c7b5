#include "decode/cqe.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <string>

#include "decode/decoded_text.hpp"
#include "decode/dump.hpp"
#include "peal/mlx5/cqe.hpp"
#include "support/scale.hpp"

namespace peal::decode {
namespace {

using mlx5::CqeOpcode;
using test::meaning;
using test::notes;
using test::wrongs;

constexpr std::uint8_t kRdmaWrite = 0x08;

Bytes bytes_of(const mlx5::Cqe& cqe) {
  Bytes bytes(sizeof cqe);
  std::memcpy(bytes.data(), &cqe, sizeof cqe);
  return bytes;
}

mlx5::CqeFields success(std::uint16_t counter = 511, std::uint8_t owner = 0) {
  mlx5::CqeFields f;
  f.opcode = CqeOpcode::kRequester;
  f.owner = owner;
  f.wqe_counter = counter;
  f.qpn = Qpn(0xac5);
  f.wqe_opcode = kRdmaWrite;
  f.byte_count = 4096;
  return f;
}

mlx5::CqeFields error(std::uint8_t syndrome) {
  mlx5::CqeFields f = success();
  f.opcode = CqeOpcode::kRequesterError;
  f.syndrome = syndrome;
  f.vendor_syndrome = 0x51;
  return f;
}

Decoded decoded(const mlx5::CqeFields& f, const CqeExpectations& expected = {}) {
  return decode_cqe(bytes_of(mlx5::encode(f)), expected);
}

Decoded dumped(const std::string& text, Words words = Words::kMemoryOrder,
               const CqeExpectations& expected = {}) {
  Dump dump = parse_dump(text);
  EXPECT_EQ(dump.error, "");
  reorder(dump.bytes, words);
  return decode_cqe(dump.bytes, expected);
}

CqeExpectations awaited(std::uint64_t number, std::uint64_t entries) {
  CqeExpectations e;
  e.number = number;
  e.entries = entries;
  return e;
}

TEST(DecodeCqe, SaysAllFieldsOfASuccess) {
  Bytes bytes = bytes_of(mlx5::encode(success()));
  bytes[35] = 7;   // user index
  bytes[55] = 99;  // timestamp
  bytes[62] = 0xbf;
  EXPECT_EQ(to_text(decode_cqe(bytes)),
            "CQE: requester, a send WQE is done, WQE counter 511, QPN 0xac5\n"
            "   32  00000007          srqn_user_index  0x7 (7)\n"
            "   36  00000000          imm_inval_pkey   not used by this opcode\n"
            "   44  00001000          byte_cnt         4096 bytes, which means something for reads "
            "and atomics only\n"
            "   48  0000000000000063  timestamp        99\n"
            "   56  08                wqe_opcode       0x08, RDMA_WRITE\n"
            "   57  000ac5            qpn              0xac5 (2757)\n"
            "   60  01ff              wqe_counter      511 (65281 where it is printed without "
            "swapping its bytes)\n"
            "   62  bf                signature        0xbf\n"
            "   63  00                op_own           opcode 0x0 (requester, a send WQE is done), "
            "format 0 (nothing inline), solicited 0, owner 0\n"
            "nothing wrong found\n");
}

// Error CQEs from public reports.
TEST(DecodeCqe, ReadsPublishedDumps) {
  const Decoded a = dumped("00000000 02005104 09000ac5 0000bfd2");
  EXPECT_EQ(a.title, "CQE: requester error, local protection error, WQE counter 0, QPN 0xac5");
  EXPECT_EQ(meaning(a, "wqe_opcode"), "0x09, RDMA_WRITE_IMM");
  EXPECT_EQ(meaning(a, "vendor_err_synd"), "0x51, the vendor's");
  EXPECT_EQ(meaning(a, "hw_err_synd"), "0x02, the vendor's");
  EXPECT_EQ(meaning(a, "syndrome"), "0x04, local protection error");
  EXPECT_TRUE(a.wrong());
  EXPECT_EQ(notes(a), "the 16 bytes were taken as the last of the CQE, from byte 48 on");

  const Decoded b = dumped("00000000 04005104 0a0002fe 00028ad2");
  EXPECT_EQ(b.title, "CQE: requester error, local protection error, WQE counter 2, QPN 0x2fe");
  EXPECT_EQ(meaning(b, "wqe_opcode"), "0x0a, SEND");

  // Whole, as DPDK prints it.
  const Decoded c = dumped(
      "00000000: 00 73 65 65 6E 00 00 00 00 00 00 00 00 00 00 00 | .seen...........\n"
      "00000010: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 | ................\n"
      "00000020: 00 00 00 13 00 00 00 00 00 00 00 00 00 00 00 00 | ................\n"
      "00000030: 00 00 00 00 9D 00 53 04 0A 00 15 42 00 19 B0 D2 | ......S....B....\n");
  EXPECT_EQ(c.title, "CQE: requester error, local protection error, WQE counter 25, QPN 0x1542");
  EXPECT_EQ(meaning(c, "srqn_user_index"), "0x13 (19)");
  EXPECT_EQ(notes(c), "");

  // Whole, as rdma-core prints it.
  const Decoded d = dumped(
      "00000000 00000000 00000000 00000000\n00000000 00000000 00000000 00000000\n"
      "00000002 00000000 00000000 00000000\n00000000 00008813 10012abe 0dd0c1d3\n");
  EXPECT_EQ(d.title, "CQE: requester error, remote access error, WQE counter 3536, QPN 0x12abe");
  EXPECT_EQ(meaning(d, "wqe_opcode"), "0x10, RDMA_READ");
}

TEST(DecodeCqe, SuggestsTheOrderInWhichADumpMakesSense) {
  const std::string said =
      " swapped this is requester error, local protection error, WQE counter 0, QPN 0xac5";
  const std::string words = "00000000 04510002 c50a0009 d2bf0000";
  EXPECT_EQ(wrongs(dumped(words)), "with the bytes of each 4-byte word" + said);
  EXPECT_EQ(dumped(words).findings.back().mend,
            "decode with --words le if these are words that a little-endian host printed");
  EXPECT_EQ(dumped(words, Words::kLittle32).title,
            dumped("00000000 02005104 09000ac5 0000bfd2").title);
  const std::string long_words = "0451000200000000 d2bf0000c50a0009";
  EXPECT_EQ(wrongs(dumped(long_words)), "with the bytes of each 8-byte word" + said);
  EXPECT_EQ(wrongs(dumped(long_words, Words::kLittle64)), wrongs(dumped(words, Words::kLittle32)));
}

TEST(DecodeCqe, SuggestsTheOrderInWhichTheQpnIsTheExpectedOne) {
  CqeExpectations expected;
  expected.qpn = 0xac5;
  // A success of a NOP: in either order a CQE.
  const std::string words = "00000000 00000000 c50a0000 00000500";
  EXPECT_FALSE(dumped("00000000 00000000 00000ac5 00050000", {}, expected).wrong());
  EXPECT_EQ(wrongs(dumped(words, {}, expected)),
            "with the bytes of each 4-byte word swapped this is requester, a send WQE is done, WQE "
            "counter 5, QPN 0xac5");
}

TEST(DecodeCqe, SaysTheCauseOfEachSyndromeAndAMend) {
  const struct {
    std::uint8_t syndrome;
    std::string name;
    std::string mend;  // a part of it
  } cases[] = {
      {0x01, "local length error", "log_msg_max"},
      {0x02, "local QP operation error", "peal decode wqe"},
      {0x04, "local protection error", "swapped exactly once"},
      {0x05, "work request flushed error", "first error CQE"},
      {0x06, "memory window bind error", "window"},
      {0x10, "bad response error", "PSN"},
      {0x11, "local access error", "receive"},
      {0x12, "remote invalid request error", "rwe, rre, rae"},
      {0x13, "remote access error", "rkey is swapped exactly once"},
      {0x14, "remote operation error", "peer's"},
      {0x15, "transport retry counter exceeded", "PSN"},
      {0x16, "RNR retry counter exceeded", "post receives"},
      {0x22, "remote aborted error", "peer's QP"},
      {0x77, "unknown syndrome", "memory order"},
  };
  for (const auto& c : cases) {
    const Decoded d = decoded(error(c.syndrome));
    ASSERT_EQ(d.findings.size(), 1u) << c.name;
    EXPECT_EQ(d.findings[0].what.find(c.name), 0u) << d.findings[0].what;
    EXPECT_NE(d.findings[0].mend.find(c.mend), std::string::npos) << d.findings[0].mend;
    EXPECT_NE(d.title.find(c.name), std::string::npos) << d.title;
  }
}

TEST(DecodeCqe, NamesEveryOpcode) {
  const struct {
    unsigned opcode;
    std::string text;
    bool wrong;
  } cases[] = {
      {0x0, "requester, a send WQE is done", false},
      {0x1, "responder, an RDMA write with immediate arrived", false},
      {0x2, "responder, a send arrived", false},
      {0x3, "responder, a send with immediate arrived", false},
      {0x4, "responder, a send with invalidate arrived", false},
      {0x5, "the CQ was resized", false},
      {0x6, "unknown opcode", true},
      {0xb, "unknown opcode", true},
      {0xc, "signature error", true},
      {0xd, "requester error", true},
      {0xe, "responder error", true},
      {0xf, "invalid, not written yet", false},
  };
  for (const auto& c : cases) {
    mlx5::CqeFields f = error(0x04);
    f.opcode = static_cast<CqeOpcode>(c.opcode);
    const Decoded d = decoded(f);
    EXPECT_NE(meaning(d, "op_own").find("(" + c.text + ")"), std::string::npos)
        << meaning(d, "op_own");
    EXPECT_EQ(d.wrong(), c.wrong) << c.text;
  }
}

TEST(DecodeCqe, SaysTheFormat) {
  const char* formats[] = {"nothing inline", "32 bytes of data inline", "64 bytes of data inline",
                           "compressed: mini CQEs follow"};
  for (unsigned format = 0; format < 4; ++format) {
    Bytes bytes = bytes_of(mlx5::encode(success()));
    bytes[63] = static_cast<std::uint8_t>(format << 2);
    EXPECT_NE(meaning(decode_cqe(bytes), "op_own").find(formats[format]), std::string::npos);
  }
}

TEST(DecodeCqe, KnowsAnEntryThatWasNeverWritten) {
  Bytes all_ones(64, 0xff);
  Bytes initial(64, 0);
  initial[63] = mlx5::kInitialOpOwn;
  for (const Bytes& bytes : {all_ones, initial}) {
    const Decoded d = decode_cqe(bytes);
    EXPECT_EQ(d.title, "CQE: invalid, not written yet");
    EXPECT_FALSE(d.wrong());
    EXPECT_EQ(notes(d), "this entry was not written since the ring was set up or last handed back");
    const Decoded odd = decode_cqe(bytes, awaited(300, 256));
    EXPECT_NE(notes(odd).find("CQE number 300 lies in entry 44 on lap 1, with owner 1: not written "
                              "yet\nthe owner bit alone says that it is written"),
              std::string::npos)
        << notes(odd);
  }
}

TEST(DecodeCqe, SaysWhetherTheAwaitedOneIsWritten) {
  EXPECT_EQ(notes(decoded(success(511, 1), awaited(511, 256))),
            "CQE number 511 lies in entry 255 on lap 1, with owner 1: written");
  const Decoded stale = decoded(success(255, 0), awaited(511, 256));
  EXPECT_EQ(notes(stale),
            "CQE number 511 lies in entry 255 on lap 1, with owner 1, but owner is 0: not written "
            "yet, what lies there is of a stale lap\n"
            "in a collapsed CQ the owner bit says nothing: entry 0 is overwritten each time, and "
            "wqe_counter says how far the queue is");
  EXPECT_FALSE(stale.wrong());
}

TEST(DecodeCqe, SaysThatTheQpnIsAnother) {
  CqeExpectations expected;
  expected.qpn = 0xac5;
  EXPECT_FALSE(decoded(success(), expected).wrong());
  expected.qpn = 0xac6;
  EXPECT_EQ(wrongs(decoded(success(), expected)), "qpn is 0xac5, not 0xac6");
}

TEST(DecodeCqe, SaysTheFieldsThatWereEncoded) {
  std::mt19937_64 random(0x5eed0120);
  for (std::uint64_t i = 0; i < test::scaled(20000); ++i) {
    mlx5::CqeFields f = error(static_cast<std::uint8_t>(random()));
    if (random() % 2 == 0) {
      f = success();
      f.byte_count = static_cast<std::uint32_t>(random());
    }
    f.owner = static_cast<std::uint8_t>(random() & 1);
    f.wqe_counter = static_cast<std::uint16_t>(random());
    f.qpn = Qpn(static_cast<std::uint32_t>(random() & 0xffffff));
    CqeExpectations expected;
    expected.qpn = f.qpn.value;
    const Decoded d = decoded(f, expected);
    const auto is = [&d](const std::string& name, std::uint64_t value) {
      return meaning(d, name).find(std::to_string(value)) != std::string::npos;
    };
    ASSERT_TRUE(is("wqe_counter", f.wqe_counter)) << to_text(d);
    ASSERT_TRUE(is("qpn", f.qpn.value)) << to_text(d);
    ASSERT_EQ(d.wrong(), f.opcode != CqeOpcode::kRequester) << to_text(d);
    // The last 16 bytes say the same.
    const Bytes bytes = bytes_of(mlx5::encode(f));
    ASSERT_EQ(decode_cqe(std::span(bytes).last(16), expected).title, d.title);
  }
}

TEST(DecodeCqe, EndsOnAnyBytes) {
  std::mt19937_64 random(0x5eed0121);
  for (std::uint64_t i = 0; i < test::scaled(20000); ++i) {
    Bytes bytes(random() % 2 == 0 ? 64 : 16);
    for (std::uint8_t& b : bytes) b = static_cast<std::uint8_t>(random());
    CqeExpectations expected;
    if (random() % 2 == 0) expected = awaited(random(), 1ull << random() % 32);
    if (random() % 2 == 0) expected.qpn = static_cast<std::uint32_t>(random() % 0xffffff);
    ASSERT_FALSE(to_text(decode_cqe(bytes, expected)).empty());
  }
}

TEST(DecodeCqe, RefusesSizesThatAreNone) {
  EXPECT_FALSE(refuse_cqe_size(16).has_value());
  EXPECT_FALSE(refuse_cqe_size(64).has_value());
  for (const std::size_t bytes : {0u, 1u, 15u, 17u, 32u, 63u, 65u, 5000000u}) {
    EXPECT_EQ(*refuse_cqe_size(bytes),
              "a CQE is given as its 64 bytes or its last 16, and not as " + std::to_string(bytes));
  }
  EXPECT_EQ(*refuse_cqe_size(128),
            "a CQE of 128 bytes holds its fields in its last 64: give those alone");
}

}  // namespace
}  // namespace peal::decode
