#include "decode/wqe.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "decode/decoded_text.hpp"
#include "decode/dump.hpp"
#include "peal/device/put.hpp"
#include "peal/memory/cpu_memory.hpp"
#include "peal/mlx5/wqe.hpp"
#include "support/scale.hpp"

namespace peal::decode {
namespace {

using mlx5::Opcode;
using mlx5::Words16;
using test::meaning;
using test::notes;
using test::raw;
using test::wrongs;

constexpr std::uint32_t kQpn = 0xac5;
constexpr std::uint16_t kIndex = 511;
constexpr std::uint32_t kLkey = 0x00130100;
constexpr std::uint32_t kRkey = 0x00240200;
constexpr std::uint64_t kLocal = 0x7f0000001000;
constexpr std::uint64_t kRemote = 0x7f1234567000;

using Segments = std::vector<Words16>;

Bytes bytes_of(const Segments& segments) {
  Bytes bytes(segments.size() * sizeof(Words16));
  std::memcpy(bytes.data(), segments.data(), bytes.size());
  return bytes;
}

mlx5::CtrlSeg ctrl(Opcode opcode, std::uint8_t ds, std::uint8_t opmod = 0) {
  mlx5::CtrlSeg s;
  s.opmod = opmod;
  s.wqe_index = kIndex;
  s.opcode = static_cast<std::uint8_t>(opcode);
  s.qpn = Qpn(kQpn);
  s.ds = ds;
  s.fm_ce_se = mlx5::kCompletionAlways;
  return s;
}

Words16 raddr(std::uint64_t address = kRemote, std::uint32_t rkey = kRkey) {
  return mlx5::encode(mlx5::RaddrSeg{address, Rkey(rkey)});
}
Words16 data(std::uint32_t bytes = 4096, std::uint32_t lkey = kLkey,
             std::uint64_t address = kLocal) {
  return mlx5::encode(mlx5::DataSeg{bytes, Lkey(lkey), address});
}

Segments write_wqe() {
  return {mlx5::encode(ctrl(Opcode::kRdmaWrite, 3)), raddr(), data()};
}
Segments atomic_wqe(Opcode opcode, std::uint8_t opmod = 0) {
  return {mlx5::encode(ctrl(opcode, 4, opmod)), raddr(), mlx5::encode(mlx5::AtomicSeg{3, 4}),
          data(opmod == mlx5::kMaskedAtomic4Bytes ? 4 : 8)};
}
// Carries `payload` behind its ctrl and raddr segments.
Segments inline_wqe(const std::string& payload) {
  const auto bytes = static_cast<std::uint32_t>(payload.size());
  const std::uint32_t ds = mlx5::ds_of_inline(bytes);
  Segments all(ds);
  all[0] = mlx5::encode(ctrl(Opcode::kRdmaWrite, static_cast<std::uint8_t>(ds)));
  all[1] = raddr();
  all[2] = mlx5::encode(mlx5::InlineSeg{bytes, {}});
  std::memcpy(reinterpret_cast<char*>(&all[2]) + 4, payload.data(), payload.size());
  return all;
}

Segments with_ctrl(Segments wqe, const std::function<void(mlx5::CtrlSeg&)>& change) {
  mlx5::CtrlSeg s = mlx5::decode_ctrl(wqe[0]);
  change(s);
  wqe[0] = mlx5::encode(s);
  return wqe;
}
Segments with(Segments wqe, std::size_t segment, Words16 words) {
  wqe[segment] = words;
  return wqe;
}
Segments with_ds(Segments wqe, std::uint8_t ds) {
  return with_ctrl(std::move(wqe), [ds](mlx5::CtrlSeg& s) { s.ds = ds; });
}
Segments padded(Segments wqe) {
  wqe.resize((wqe.size() + 3) / 4 * 4);
  return wqe;
}

Decoded decoded(const Segments& wqe, const WqeExpectations& expected = {}) {
  return decode_wqe(bytes_of(wqe), expected);
}

// ---- what is said ----

TEST(DecodeWqe, SaysAllFieldsOfAPut) {
  WqeExpectations expected;
  expected.index = 0x10000ull * 77 + kIndex;
  expected.depth = 256;
  expected.qpn = kQpn;
  expected.lkey = kLkey;
  expected.rkey = kRkey;
  EXPECT_EQ(to_text(decoded(padded(write_wqe()), expected)),
            "WQE: RDMA_WRITE, index 511, QPN 0xac5, 48 bytes in 1 slot\n"
            "    0  00                opmod                  0\n"
            "    1  01ff              wqe_index              511, slot 255 of 256\n"
            "    3  08                opcode                 RDMA_WRITE\n"
            "    4  000ac5            qpn                    0xac5 (2757)\n"
            "    7  03                ds                     3 segments of 16 bytes: 1 slot\n"
            "    8  00                signature              not looked at\n"
            "    9  0000              dci_stream_channel_id  not looked at\n"
            "   11  08                fm_ce_se               fence 0 (none), ce 2 (CQE always), "
            "solicited 0\n"
            "   12  00000000          imm                    not used by this opcode\n"
            "   16  00007f1234567000  remote_address         0x7f1234567000\n"
            "   24  00240200          rkey                   0x00240200\n"
            "   28  00000000          reserved               not looked at\n"
            "   32  00001000          byte_count             4096 bytes\n"
            "   36  00130100          lkey                   0x00130100\n"
            "   40  00007f0000001000  local_address          0x7f0000001000\n"
            "nothing wrong found\n");
}

TEST(DecodeWqe, SaysEachOpcodesOwnFields) {
  Segments write_imm = write_wqe();
  write_imm[0] = mlx5::encode([] {
    mlx5::CtrlSeg s = ctrl(Opcode::kRdmaWriteImm, 3);
    s.imm = 0xcafe0001;
    return s;
  }());
  const mlx5::MaskedAtomic4Seg four = {5, 6, 7, 8};
  Segments masked_add4 = atomic_wqe(Opcode::kMaskedFetchAdd, mlx5::kMaskedAtomic4Bytes);
  masked_add4[2] = mlx5::encode(four);
  Segments masked_swap4 = atomic_wqe(Opcode::kMaskedCompareSwap, mlx5::kMaskedAtomic4Bytes);
  masked_swap4[2] = mlx5::encode(four);
  Segments masked_swap8 = atomic_wqe(Opcode::kMaskedCompareSwap, mlx5::kMaskedAtomic8Bytes);
  masked_swap8[0] = mlx5::encode(ctrl(Opcode::kMaskedCompareSwap, 5, mlx5::kMaskedAtomic8Bytes));
  masked_swap8.insert(masked_swap8.begin() + 3, mlx5::encode(mlx5::AtomicSeg{0xff, 0xf0}));
  const struct {
    Segments wqe;
    std::vector<std::pair<std::string, std::string>> fields;
  } cases[] = {
      {{mlx5::encode(ctrl(Opcode::kNop, 1))}, {{"opcode", "NOP"}}},
      {{mlx5::encode(ctrl(Opcode::kNop, 2)), {}}, {{"ds", "2 segments of 16 bytes: 1 slot"}}},
      {write_imm, {{"opcode", "RDMA_WRITE_IMM"}, {"imm", "0xcafe0001, immediate data"}}},
      {{mlx5::encode(ctrl(Opcode::kRdmaRead, 3)), raddr(), data()},
       {{"opcode", "RDMA_READ"}, {"byte_count", "4096 bytes"}}},
      {{mlx5::encode(ctrl(Opcode::kSend, 2)), data(1)}, {{"byte_count", "1 byte"}}},
      {{mlx5::encode(ctrl(Opcode::kSendImm, 2)), data()}, {{"opcode", "SEND_IMM"}}},
      {{mlx5::encode(ctrl(Opcode::kSendInvalidate, 2)), data()},
       {{"imm", "0x00000000, the peer's key to invalidate"}}},
      {atomic_wqe(Opcode::kFetchAdd),
       {{"opcode", "ATOMIC_FA"}, {"add", "0x3 (3)"}, {"compare", "not used by this opcode"}}},
      {atomic_wqe(Opcode::kCompareSwap), {{"swap", "0x3 (3)"}, {"compare", "0x4 (4)"}}},
      {atomic_wqe(Opcode::kMaskedFetchAdd, mlx5::kMaskedAtomic8Bytes),
       {{"opmod", "operands of 8 bytes"}, {"add", "0x3 (3)"}, {"field_boundary", "0x4 (4)"}}},
      {masked_add4,
       {{"opmod", "operands of 4 bytes"}, {"add", "0x5 (5)"}, {"field_boundary", "0x6 (6)"}}},
      {masked_swap4,
       {{"swap", "0x5 (5)"},
        {"compare", "0x6 (6)"},
        {"swap_mask", "0x7"},
        {"compare_mask", "0x8"}}},
      {masked_swap8,
       {{"swap", "0x3 (3)"},
        {"compare", "0x4 (4)"},
        {"swap_mask", "0xff"},
        {"compare_mask", "0xf0"},
        {"byte_count", "8 bytes"},
        {"ds", "5 segments of 16 bytes: 2 slots"}}},
      {{mlx5::encode(ctrl(Opcode::kWait, 2)), mlx5::encode(mlx5::WaitSeg{9, 0x41})},
       {{"max_index", "9: waits for CQE number 9 of the CQ"}, {"cqn", "0x41 (65)"}}},
      {{mlx5::encode(ctrl(Opcode::kDump, 2)), data()},
       {{"opcode", "DUMP"}, {"lkey", "0x00130100"}}},
      {{mlx5::encode(ctrl(Opcode::kUmr, 2)), data()},
       {{"opcode", "UMR"}, {"segment", "not decoded for this opcode"}}},
  };
  for (const auto& c : cases) {
    const Decoded d = decoded(c.wqe);
    for (const auto& [name, text] : c.fields) EXPECT_EQ(meaning(d, name), text) << d.title;
    EXPECT_EQ(wrongs(d), "") << d.title;
    EXPECT_EQ(notes(d), "") << d.title;
  }
}

TEST(DecodeWqe, ExplainsWhenACompletionComes) {
  const struct {
    std::uint8_t flags;
    std::string text;
    bool noted;
  } cases[] = {
      {0x00, "fence 0 (none), ce 0 (CQE only on an error), solicited 0", true},
      {0x04, "fence 0 (none), ce 1 (CQE on the first error only), solicited 0", true},
      {0x08, "fence 0 (none), ce 2 (CQE always), solicited 0", false},
      {0x4a, "fence 2 (waits for all before it), ce 2 (CQE always), solicited 1", false},
      {0x2c, "fence 1 (initiator small fence), ce 3 (CQE and event always), solicited 0", false},
      {0x68, "fence 3 (strong ordering), ce 2 (CQE always), solicited 0", false},
      {0x88, "fence 4 (small fence and fence), ce 2 (CQE always), solicited 0", false},
      {0xe8, "fence 7 (reserved), ce 2 (CQE always), solicited 0", true},
  };
  for (const auto& c : cases) {
    const Decoded d =
        decoded(with_ctrl(write_wqe(), [&](mlx5::CtrlSeg& s) { s.fm_ce_se = c.flags; }));
    EXPECT_EQ(meaning(d, "fm_ce_se"), c.text);
    EXPECT_EQ(!notes(d).empty(), c.noted) << c.text;
    EXPECT_FALSE(d.wrong());
  }
}

TEST(DecodeWqe, ShowsInlineBytesByTheSegment) {
  for (const std::size_t size : {1u, 12u, 13u, 28u, 29u, 44u, 300u, 956u}) {
    std::string payload;
    for (std::size_t i = 0; i < size; ++i) payload += static_cast<char>(i * 7 + 1);
    const Decoded d = decoded(inline_wqe(payload));
    EXPECT_EQ(wrongs(d) + notes(d), "") << size;
    std::string hex;
    for (const Field& f : d.fields) {
      if (f.name == "inline data") hex += f.raw;
    }
    EXPECT_EQ(parse_dump(hex).bytes, Bytes(payload.begin(), payload.end())) << size;
  }
  EXPECT_EQ(meaning(decoded(inline_wqe("abc")), "inline byte_count"), "3 bytes, inline");
}

TEST(DecodeWqe, SaysWhatWasNotGivenAndWhatIsNotPartOfIt) {
  Segments one = write_wqe();
  one.resize(1);
  EXPECT_EQ(notes(decoded(one)), "bytes 16-47 of this WQE were not given");
  EXPECT_FALSE(decoded(one).wrong());
  Segments eight = write_wqe();
  eight.resize(8);
  EXPECT_EQ(notes(decoded(eight)), "bytes 64-127 lie behind this WQE and were not decoded");
}

// ---- what is wrong ----

struct WrongCase {
  Segments wqe;
  std::string what;
  std::string mend;
  WqeExpectations expected = {};
};

WqeExpectations expect_index(std::uint64_t index, std::optional<std::uint32_t> depth = {}) {
  WqeExpectations e;
  e.index = index;
  e.depth = depth;
  return e;
}
WqeExpectations expect_qpn(std::uint32_t qpn) {
  WqeExpectations e;
  e.qpn = qpn;
  return e;
}
WqeExpectations expect_keys(std::uint32_t lkey, std::uint32_t rkey) {
  WqeExpectations e;
  e.lkey = lkey;
  e.rkey = rkey;
  return e;
}

Segments swapped_words(Segments wqe, Words words) {
  Bytes bytes = bytes_of(wqe);
  reorder(bytes, words);
  std::memcpy(wqe.data(), bytes.data(), bytes.size());
  return wqe;
}

Segments index_wqe(std::uint16_t index) {
  return with_ctrl(write_wqe(), [index](mlx5::CtrlSeg& s) { s.wqe_index = index; });
}

std::vector<WrongCase> wrong_cases() {
  const std::uint32_t inline_flag = mlx5::kInlineFlag;
  const std::string rest = "ctrl, raddr, and a data segment for each piece of local memory";
  return {
      // ctrl
      {Segments(4), "all bytes are 0, so no WQE was written here",
       "write the WQE before the doorbell announces its slot, or dump the slot that is meant"},
      {with_ctrl(write_wqe(), [](auto& s) { s.opcode = 0x7f; }), "opcode 0x7f is not a send opcode",
       "build the first word as opmod << 24 | wqe_index << 8 | opcode, and store it big-endian"},
      {swapped_words(write_wqe(), Words::kLittle32),
       "the ctrl segment makes no sense, but with the bytes of each 4-byte word swapped it is "
       "RDMA_WRITE, index 511, QPN 0xac5, ds 3",
       "decode with --words le if these are words that a little-endian host printed, otherwise "
       "store the fields big-endian"},
      {swapped_words(write_wqe(), Words::kLittle64),
       "the ctrl segment makes no sense, but with the bytes of each 8-byte word swapped it is "
       "RDMA_WRITE, index 511, QPN 0xac5, ds 3",
       "decode with --words le64 if these are words that a little-endian host printed, otherwise "
       "store the fields big-endian"},
      {swapped_words(atomic_wqe(Opcode::kMaskedFetchAdd, 9), Words::kLittle32),
       "the ctrl segment makes no sense, but with the bytes of each 4-byte word swapped it is "
       "ATOMIC_MASKED_FA, index 511, QPN 0xac5, ds 4",
       "decode with --words le if these are words that a little-endian host printed, otherwise "
       "store the fields big-endian"},
      {with_ctrl(write_wqe(), [](auto& s) { s.qpn = Qpn(0); }),
       "qpn is 0, which is never a queue pair's number",
       "build the second word as qpn << 8 | ds, and store it big-endian"},
      {write_wqe(), "qpn is 0xac5, not 0xac6",
       "write the number of the queue pair whose ring holds the WQE", expect_qpn(0xac6)},
      {write_wqe(), "qpn is 0xac5, the expected number with its bytes swapped, not 0xc50a00",
       "store qpn << 8 | ds as one big-endian word", expect_qpn(0xc50a00)},
      {index_wqe(511), "wqe_index is 511, but that of index 65281 is 65281: its bytes are swapped",
       "build the first word as opmod << 24 | wqe_index << 8 | opcode, and store it big-endian",
       expect_index(65281)},
      {index_wqe(511),
       "wqe_index is 511, but that of index 512 is 512: the index is not the slot's",
       "write into each WQE the low 16 bits of the index of its first slot", expect_index(512)},
      {index_wqe(5),
       "wqe_index is 5, but that of index 1029 is 1029 (slot 5 of 1024): the slot's number "
       "stands in its place",
       "write the low 16 bits of the index and not the index modulo the depth",
       expect_index(1029, 1024)},
      {index_wqe(1029),
       "wqe_index is 1029, but that of index 70661 is 5125 (slot 5 of 1024): it is right for "
       "the slot, but of another lap",
       "write this index's WQE before the doorbell announces it; what lies there is stale",
       expect_index(70661, 1024)},
      {index_wqe(7),
       "wqe_index is 7, but that of index 1029 is 1029 (slot 5 of 1024): the index is not the "
       "slot's",
       "write into each WQE the low 16 bits of the index of its first slot",
       expect_index(1029, 1024)},
      // ds
      {with_ds(write_wqe(), 0), "ds is 0, which is no WQE", "set ds to 3: " + rest},
      {with_ctrl({mlx5::encode(ctrl(Opcode::kNop, 0))}, [](auto&) {}), "ds is 0, which is no WQE",
       "set ds to the number of 16-byte segments, the ctrl segment included"},
      {with_ds(write_wqe(), 1), "ds is 1, but RDMA_WRITE needs at least 2", "set ds to 3: " + rest},
      {with_ds(write_wqe(), 2),
       "ds is 2, so the WQE ends before the data segment at byte 32 and moves nothing",
       "set ds to 3: " + rest + "; leave it only if 0 bytes are meant"},
      {padded(with_ds(write_wqe(), 4)), "the data segment at byte 48 is all 0",
       "fill it with length, lkey and address, or lower ds to 3"},
      {padded(with_ds(inline_wqe(std::string(20, 'x')), 9)),
       "ds 9 counts 144 bytes, but 64 were given",
       "give all 3 slots if the WQE is that long, otherwise lower ds"},
      {with_ds(atomic_wqe(Opcode::kFetchAdd), 3), "ds is 3, but ATOMIC_FA needs 4",
       "set ds to 4: ctrl, raddr, atomic, data"},
      {with_ds(atomic_wqe(Opcode::kCompareSwap), 5), "ds is 5, but ATOMIC_CS needs 4",
       "set ds to 4: ctrl, raddr, atomic, data"},
      {with_ds({mlx5::encode(ctrl(Opcode::kWait, 0)), mlx5::encode(mlx5::WaitSeg{1, 2})}, 1),
       "ds is 1, but WAIT needs 2", "set ds to 2: ctrl, wait"},
      {{mlx5::encode(ctrl(Opcode::kDump, 3)), data(), data()},
       "ds is 3, but DUMP needs 2",
       "set ds to 2: ctrl, data"},
      {atomic_wqe(Opcode::kMaskedFetchAdd), "opmod 0x00 gives a masked atomic no operand size",
       "set opmod to 0x08 for operands of 4 bytes or to 0x09 for 8 bytes"},
      // inline
      {with(write_wqe(), 2, data(inline_flag | 13)),
       "13 bytes inline do not fit: ds 3 leaves room for 12",
       "set ds to 4 (2 before it, 2 for 4 + 13 bytes), or clear bit 31 of byte_count if it is the "
       "length of local memory"},
      {with(write_wqe(), 2, data(inline_flag | 0x100000)),
       "1048576 bytes inline do not fit: ds 3 leaves room for 12",
       "clear bit 31 of byte_count if it is the length of local memory"},
      {with(write_wqe(), 2, data(inline_flag)),
       "inline data of 0 bytes, but more follows; with its bytes swapped, byte_count is 128",
       "store byte_count big-endian, or write the number of inline bytes"},
      {{mlx5::encode(ctrl(Opcode::kRdmaRead, 3)), raddr(), data(inline_flag | 8)},
       "byte_count has bit 31 set, which means inline data, and RDMA_READ takes none",
       "clear bit 31 and give the length, lkey and address of local memory"},
      {with(atomic_wqe(Opcode::kFetchAdd), 3, data(inline_flag | 8)),
       "byte_count has bit 31 set, which means inline data, and ATOMIC_FA takes none",
       "clear bit 31 and give the length, lkey and address of local memory"},
      // data
      {with(write_wqe(), 2, data(0)),
       "byte_count is 0, but the segment at byte 32 names local memory",
       "write the length, or post a NOP where there is nothing to move"},
      {with(write_wqe(), 2, data(0, 0, 0)), "the data segment at byte 32 is all 0",
       "fill it with length, lkey and address, or lower ds to 2"},
      {with(write_wqe(), 2, data(0x40000001)),
       "the message has 1073741825 bytes, but 1073741824 is the most; with its bytes swapped, "
       "byte_count is 16777280",
       "split it into several WQEs, and store byte_count big-endian"},
      {{mlx5::encode(ctrl(Opcode::kRdmaWrite, 4)), raddr(), data(0x40000000), data(1)},
       "the message has 1073741825 bytes, but 1073741824 is the most",
       "split it into several WQEs, and store byte_count big-endian"},
      // keys
      {with(write_wqe(), 2, data(8, 0)), "lkey is 0, which names no memory region",
       "write the lkey of the registered region"},
      {with(write_wqe(), 1, raddr(kRemote, 0)), "rkey is 0, which names no memory region",
       "write the rkey of the registered region"},
      {with(write_wqe(), 2, data(8, swap_bytes(kLkey))),
       "lkey 0x00011300 is the expected 0x00130100 with its bytes swapped",
       "swap it exactly once on its way into the WQE: it lies there little-endian, so it was "
       "swapped never or twice",
       expect_keys(kLkey, kRkey)},
      {with(write_wqe(), 1, raddr(kRemote, swap_bytes(kRkey))),
       "rkey 0x00022400 is the expected 0x00240200 with its bytes swapped",
       "swap it exactly once on its way into the WQE: it lies there little-endian, so it was "
       "swapped never or twice",
       expect_keys(kLkey, kRkey)},
      {with(write_wqe(), 1, raddr(kRemote, kLkey)),
       "the lkey 0x00130100 stands in the rkey's place", "write the rkey 0x00240200 there",
       expect_keys(kLkey, kRkey)},
      {with(write_wqe(), 2, data(8, kLkey + 1)),
       "lkey 0x00130101 has the index of the expected 0x00130100, but another tag",
       "use the key of the newest registration: the other's region was deregistered",
       expect_keys(kLkey, kRkey)},
      {write_wqe(), "lkey is 0x00130100, not 0x00999900",
       "write the lkey of the region that the address lies in", expect_keys(0x999900, kRkey)},
      // addresses
      {with(write_wqe(), 2, data(8, kLkey, swap_bytes(std::uint64_t{0x7f00000010f0}))),
       "the local address 0xf0100000007f0000 lies in no process, but 0x7f00000010f0, with its "
       "bytes swapped, may",
       "store the address big-endian"},
      {with(write_wqe(), 2, data(16, kLkey, ~std::uint64_t{7})),
       "16 bytes from the local address 0xfffffffffffffff8 on wrap around the end of the address "
       "space",
       "correct the address or the length"},
      {with(write_wqe(), 1, raddr(~std::uint64_t{7})),
       "4096 bytes from the remote address 0xfffffffffffffff8 on wrap around the end of the "
       "address space",
       "correct the address or the length"},
      // atomics
      {with(atomic_wqe(Opcode::kFetchAdd), 1, raddr(kRemote + 4)),
       "the remote address 0x7f1234567004 of the atomic is not a multiple of 8",
       "align the target to 8 bytes"},
      {with(atomic_wqe(Opcode::kMaskedFetchAdd, 8), 1, raddr(kRemote + 2)),
       "the remote address 0x7f1234567002 of the atomic is not a multiple of 4",
       "align the target to 4 bytes"},
      {with(atomic_wqe(Opcode::kCompareSwap), 3, data(4)),
       "the old value has 8 bytes, but byte_count is 4", "set byte_count to 8"},
      {with(atomic_wqe(Opcode::kMaskedFetchAdd, 8), 3, data(8)),
       "the old value has 4 bytes, but byte_count is 8", "set byte_count to 4"},
      {with(atomic_wqe(Opcode::kFetchAdd), 3, data(0)),
       "the old value has 8 bytes, but byte_count is 0", "set byte_count to 8"},
      {with(atomic_wqe(Opcode::kFetchAdd), 3, data(0, 0, 0)),
       "the data segment at byte 48 is all 0", "fill it with length, lkey and address"},
      // WAIT
      {{mlx5::encode(ctrl(Opcode::kWait, 2)), mlx5::encode(mlx5::WaitSeg{1, 0x41000000})},
       "cqn 0x41000000 has more than 24 bits; with its bytes swapped it is 0x41",
       "store the CQ's number big-endian"},
  };
}

TEST(DecodeWqe, SaysOneThingThatIsWrongAndHowToMendIt) {
  for (const WrongCase& c : wrong_cases()) {
    const Decoded d = decoded(c.wqe, c.expected);
    EXPECT_EQ(wrongs(d), c.what);
    for (const Finding& f : d.findings) {
      if (f.wrong()) {
        EXPECT_EQ(f.mend, c.mend);
      }
    }
    EXPECT_TRUE(d.wrong());
  }
}

TEST(DecodeWqe, TakesAMaskedCompareSwapOf8BytesForOneOfFiveSegments) {
  const Decoded d = decoded(atomic_wqe(Opcode::kMaskedCompareSwap, mlx5::kMaskedAtomic8Bytes));
  EXPECT_EQ(wrongs(d), "ds is 4, but ATOMIC_MASKED_CS with 8-byte operands needs 5");
  EXPECT_EQ(notes(d), "bytes 64-79 of this WQE were not given");
}

TEST(DecodeWqe, LooksAtNothingRemoteWhereNothingIsMoved) {
  const Segments wqe = {mlx5::encode(ctrl(Opcode::kRdmaWrite, 2)), raddr(0, 0)};
  EXPECT_EQ(wrongs(decoded(wqe)), "");
  EXPECT_EQ(notes(decoded(wqe)), "ds 2 leaves no data segment: 0 bytes are moved");
}

// A region may be registered with addresses that start at 0.
TEST(DecodeWqe, NotesAnAddressOf0) {
  const Decoded d = decoded(with(with(write_wqe(), 1, raddr(0)), 2, data(8, kLkey, 0)));
  EXPECT_FALSE(d.wrong());
  EXPECT_EQ(notes(d),
            "the remote address is 0, which is right only for a region whose addresses start at 0\n"
            "the local address is 0, which is right only for a region whose addresses start at 0");
}

TEST(DecodeWqe, TakesAnIndexFarBeyond16Bits) {
  EXPECT_FALSE(decoded(index_wqe(65535), expect_index(~std::uint64_t{0}, 32768)).wrong());
  EXPECT_FALSE(decoded(index_wqe(0), expect_index(65536, 1)).wrong());
}

TEST(DecodeWqe, SeveralWrongThingsAreAllSaid) {
  Segments wqe = write_wqe();
  wqe[1] = raddr(kRemote, 0);
  wqe[2] = data(8, 0);
  EXPECT_EQ(wrongs(decoded(with_ctrl(wqe, [](auto& s) { s.qpn = Qpn(0); }))),
            "qpn is 0, which is never a queue pair's number\n"
            "rkey is 0, which names no memory region\n"
            "lkey is 0, which names no memory region");
}

// ---- round trips and hostile bytes ----

TEST(DecodeWqe, FindsNothingWrongWithWhatTheEncodersMake) {
  std::mt19937_64 random(0x5eed0110);
  const auto address = [&random] { return (random() % (1ull << 46) + 4096) & ~std::uint64_t{7}; };
  const auto key = [&random] { return static_cast<std::uint32_t>(random() | 1); };
  for (std::uint64_t i = 0; i < test::scaled(5000); ++i) {
    WqeExpectations expected;
    expected.index = random();
    expected.depth = 1u << random() % 16;
    expected.qpn = static_cast<std::uint32_t>(random() % 0xffffff + 1);
    expected.lkey = key();
    expected.rkey = key();
    const auto bytes = static_cast<std::uint32_t>(random() % (1u << 30) + 1);
    const std::uint64_t remote = address();
    const std::uint64_t local = address();
    const Words16 r = raddr(remote, *expected.rkey);
    const std::string payload(random() % 900, 'p');
    const Words16 operands = mlx5::encode(mlx5::AtomicSeg{random(), random()});
    const Words16 old8 = data(8, *expected.lkey, local);
    const Words16 old4 = data(4, *expected.lkey, local);
    const Segments kinds[] = {
        {mlx5::encode(ctrl(Opcode::kRdmaWrite, 3)), r, data(bytes, *expected.lkey, local)},
        {mlx5::encode(ctrl(Opcode::kRdmaWriteImm, 3)), r, data(bytes, *expected.lkey, local)},
        {mlx5::encode(ctrl(Opcode::kRdmaRead, 3)), r, data(bytes, *expected.lkey, local)},
        {mlx5::encode(ctrl(Opcode::kNop, 1))},
        with(inline_wqe(payload), 1, r),
        {mlx5::encode(ctrl(Opcode::kFetchAdd, 4)), r, operands, old8},
        {mlx5::encode(ctrl(Opcode::kCompareSwap, 4)), r, operands, old8},
        {mlx5::encode(ctrl(Opcode::kMaskedFetchAdd, 4, 8)), r, operands, old4},
        {mlx5::encode(ctrl(Opcode::kMaskedFetchAdd, 4, 9)), r, operands, old8},
        {mlx5::encode(ctrl(Opcode::kMaskedCompareSwap, 4, 8)), r, operands, old4},
        {mlx5::encode(ctrl(Opcode::kMaskedCompareSwap, 5, 9)), r, operands, operands, old8},
        {mlx5::encode(ctrl(Opcode::kDump, 2)), data(bytes, *expected.lkey, local)},
        {mlx5::encode(ctrl(Opcode::kWait, 2)),
         mlx5::encode(mlx5::WaitSeg{static_cast<std::uint32_t>(random()),
                                    static_cast<std::uint32_t>(random() % 0xffffff)})},
    };
    Segments wqe = with_ctrl(kinds[random() % std::size(kinds)], [&](mlx5::CtrlSeg& s) {
      s.wqe_index = static_cast<std::uint16_t>(*expected.index);
      s.qpn = Qpn(*expected.qpn);
    });
    const Decoded d = decoded(random() % 2 == 0 ? padded(wqe) : wqe, expected);
    ASSERT_EQ(wrongs(d), "") << to_text(d);
    ASSERT_EQ(meaning(d, "qpn"), [&] {
      char text[40];
      std::snprintf(text, sizeof text, "0x%x (%u)", *expected.qpn, *expected.qpn);
      return std::string(text);
    }());
  }
}

TEST(DecodeWqe, FindsNothingWrongWithAPutOfAnySize) {
  alignas(64) mlx5::Slot ring[4] = {};
  QueueHandle handle;
  handle.qpn = Qpn(kQpn);
  handle.depth = 4;
  handle.sq = ring;
  for (const std::uint64_t bytes : {0ull, 1ull, 4096ull, 1ull << 30}) {
    SendQueue<CpuMemory, Sharing::kDevice> queue(handle);
    write_wqe(queue, 6, Put{kLocal, Lkey(kLkey), kRemote, Rkey(kRkey), bytes});
    WqeExpectations expected = expect_keys(kLkey, kRkey);
    expected.index = 6;
    expected.depth = 4;
    expected.qpn = kQpn;
    const auto* slot = reinterpret_cast<const std::uint8_t*>(&ring[2]);
    const Decoded d = decode_wqe({slot, sizeof ring[2]}, expected);
    EXPECT_EQ(wrongs(d) + notes(d), "") << to_text(d);
  }
}

TEST(DecodeWqe, EndsOnAnyBytes) {
  std::mt19937_64 random(0x5eed0111);
  for (std::uint64_t i = 0; i < test::scaled(20000); ++i) {
    Bytes bytes((random() % 64 + 1) * 16);
    for (std::uint8_t& b : bytes) b = static_cast<std::uint8_t>(random() % 3 == 0 ? 0 : random());
    if (random() % 4 != 0) {
      const std::uint8_t opcodes[] = {0, 1, 8, 9, 10, 11, 15, 16, 17, 18, 20, 21, 35};
      bytes[3] = opcodes[random() % std::size(opcodes)];
      bytes[0] = random() % 2 == 0 ? std::uint8_t{8} : std::uint8_t{9};
    }
    const Decoded d = decode_wqe(bytes);
    for (const Field& f : d.fields) {
      ASSERT_LE(f.offset + f.raw.size() / 2, bytes.size());
      ASSERT_FALSE(f.meaning.empty());
    }
    ASSERT_FALSE(to_text(d).empty());
  }
}

TEST(DecodeWqe, RefusesSizesThatAreNone) {
  for (const std::size_t bytes : {16u, 32u, 48u, 64u, 128u, 1024u}) {
    EXPECT_FALSE(refuse_wqe_size(bytes).has_value()) << bytes;
  }
  for (const std::size_t bytes : {0u, 1u, 15u, 17u, 63u, 1040u, 5000000u}) {
    EXPECT_TRUE(refuse_wqe_size(bytes).has_value()) << bytes;
  }
  EXPECT_EQ(*refuse_wqe_size(17),
            "a WQE is given as 16 to 1024 bytes, in whole segments of 16, and not as 17");
}

}  // namespace
}  // namespace peal::decode
