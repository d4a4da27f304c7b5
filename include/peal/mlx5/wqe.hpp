// Send WQE formats (mlx5 PRM, send queue WQE): what lies in a 64-byte slot of the send queue.
// Each 16-byte segment has a value type, an encoder and a decoder; no behaviour.
// Memory order is little-endian words holding big-endian fields.
#pragma once

#include <cstdint>

#include "peal/core/config.hpp"
#include "peal/core/types.hpp"

namespace peal::mlx5 {

inline constexpr std::uint32_t kSlotBytes = 64;  // one WQEBB
inline constexpr std::uint32_t kSegmentBytes = 16;
inline constexpr std::uint32_t kMaxSqDepth = 32768;  // 16-bit indices must tell a full ring apart
inline constexpr std::uint32_t kInlineFlag = 0x80000000u;

// 16 bytes as two native words, in memory order: the unit in which segments are stored.
struct alignas(16) Words16 {
  std::uint64_t lo = 0;
  std::uint64_t hi = 0;
};
static_assert(sizeof(Words16) == kSegmentBytes);

// One slot of the send queue.
struct alignas(64) Slot {
  Words16 segment[4];
};
static_assert(sizeof(Slot) == kSlotBytes);

enum class Opcode : std::uint8_t {
  kNop = 0x00,
  kSendInvalidate = 0x01,
  kRdmaWrite = 0x08,
  kRdmaWriteImm = 0x09,
  kSend = 0x0a,
  kSendImm = 0x0b,
  kTso = 0x0e,
  kWait = 0x0f,
  kRdmaRead = 0x10,
  kCompareSwap = 0x11,
  kFetchAdd = 0x12,
  kMaskedCompareSwap = 0x14,
  kMaskedFetchAdd = 0x15,
  kLocalInvalidate = 0x1b,
  kSetPsv = 0x20,
  kDump = 0x23,
  kUmr = 0x25,
  kMmo = 0x2f,
};

PEAL_HOST_DEVICE constexpr const char* opcode_name(std::uint8_t opcode) {
  switch (static_cast<Opcode>(opcode)) {
    case Opcode::kNop: return "NOP";
    case Opcode::kSendInvalidate: return "SEND_INVAL";
    case Opcode::kRdmaWrite: return "RDMA_WRITE";
    case Opcode::kRdmaWriteImm: return "RDMA_WRITE_IMM";
    case Opcode::kSend: return "SEND";
    case Opcode::kSendImm: return "SEND_IMM";
    case Opcode::kTso: return "TSO";
    case Opcode::kWait: return "WAIT";
    case Opcode::kRdmaRead: return "RDMA_READ";
    case Opcode::kCompareSwap: return "ATOMIC_CS";
    case Opcode::kFetchAdd: return "ATOMIC_FA";
    case Opcode::kMaskedCompareSwap: return "ATOMIC_MASKED_CS";
    case Opcode::kMaskedFetchAdd: return "ATOMIC_MASKED_FA";
    case Opcode::kLocalInvalidate: return "LOCAL_INVAL";
    case Opcode::kSetPsv: return "SET_PSV";
    case Opcode::kDump: return "DUMP";
    case Opcode::kUmr: return "UMR";
    case Opcode::kMmo: return "MMO";
  }
  return "unknown opcode";
}

// fm_ce_se, byte 11 of the ctrl segment: fence [7:5], completion [3:2], solicited [1].
inline constexpr std::uint8_t kCompletionMask = 0x0c;
inline constexpr std::uint8_t kCompletionOnError = 0x00;
inline constexpr std::uint8_t kCompletionAlways = 0x08;
inline constexpr std::uint8_t kFenceMask = 0xe0;
inline constexpr std::uint8_t kFence = 0x40;  // starts when all before it on the queue is done

// The opmod of masked atomics: 0x08 and the base-2 logarithm of the operand's 32-bit words.
inline constexpr std::uint8_t kMaskedAtomic4Bytes = 0x08;
inline constexpr std::uint8_t kMaskedAtomic8Bytes = 0x09;

// What fits behind the ctrl and raddr segments of a WQE of one slot.
inline constexpr std::uint32_t kMaxInlineBytes = 28;
inline constexpr std::uint32_t kInlineHeaderBytes = 4;

namespace detail {
PEAL_HOST_DEVICE constexpr std::uint64_t pair_of_be32(std::uint32_t first, std::uint32_t second) {
  return std::uint64_t{swap_bytes(first)} | (std::uint64_t{swap_bytes(second)} << 32);
}
PEAL_HOST_DEVICE constexpr std::uint32_t first_be32(std::uint64_t word) {
  return swap_bytes(static_cast<std::uint32_t>(word));
}
PEAL_HOST_DEVICE constexpr std::uint32_t second_be32(std::uint64_t word) {
  return swap_bytes(static_cast<std::uint32_t>(word >> 32));
}
}  // namespace detail

// Bytes 0-15 of every WQE. `ds` counts 16-byte segments, this one included.
struct CtrlSeg {
  std::uint8_t opmod = 0;
  std::uint16_t wqe_index = 0;
  std::uint8_t opcode = 0;
  Qpn qpn;
  std::uint8_t ds = 0;
  std::uint8_t fm_ce_se = 0;
  std::uint32_t imm = 0;
};

PEAL_HOST_DEVICE constexpr Words16 encode(const CtrlSeg& s) {
  return {detail::pair_of_be32(
              (std::uint32_t{s.opmod} << 24) | (std::uint32_t{s.wqe_index} << 8) | s.opcode,
              (s.qpn.value << 8) | s.ds),
          detail::pair_of_be32(s.fm_ce_se, s.imm)};
}

PEAL_HOST_DEVICE constexpr CtrlSeg decode_ctrl(const Words16& w) {
  const std::uint32_t d0 = detail::first_be32(w.lo);
  const std::uint32_t d1 = detail::second_be32(w.lo);
  CtrlSeg s;
  s.opmod = static_cast<std::uint8_t>(d0 >> 24);
  s.wqe_index = static_cast<std::uint16_t>(d0 >> 8);
  s.opcode = static_cast<std::uint8_t>(d0);
  s.qpn = Qpn(d1 >> 8);
  s.ds = static_cast<std::uint8_t>(d1 & 0x3f);
  s.fm_ce_se = static_cast<std::uint8_t>(detail::first_be32(w.hi));
  s.imm = detail::second_be32(w.hi);
  return s;
}

// Bytes 16-31 of an RDMA operation: where at the peer.
struct RaddrSeg {
  std::uint64_t address = 0;
  Rkey rkey;
};

PEAL_HOST_DEVICE constexpr Words16 encode(const RaddrSeg& s) {
  return {swap_bytes(s.address), detail::pair_of_be32(s.rkey.value, 0)};
}

PEAL_HOST_DEVICE constexpr RaddrSeg decode_raddr(const Words16& w) {
  return {swap_bytes(w.lo), Rkey(detail::first_be32(w.hi))};
}

// A gather entry: local memory. byte_count is 31 bits; bit 31 would read as inline data.
struct DataSeg {
  std::uint32_t byte_count = 0;
  Lkey lkey;
  std::uint64_t address = 0;
};

PEAL_HOST_DEVICE constexpr Words16 encode(const DataSeg& s) {
  return {detail::pair_of_be32(s.byte_count, s.lkey.value), swap_bytes(s.address)};
}

PEAL_HOST_DEVICE constexpr DataSeg decode_data(const Words16& w) {
  return {detail::first_be32(w.lo), Lkey(detail::second_be32(w.lo)), swap_bytes(w.hi)};
}

// Inline data: a 4-byte header, and the bytes themselves right behind it, padded to 16. This is the
// segment that the header begins.
struct InlineSeg {
  std::uint32_t bytes = 0;
  std::uint32_t first[3] = {};  // the first 12 bytes, as they lie in memory
};

PEAL_HOST_DEVICE constexpr Words16 encode(const InlineSeg& s) {
  return {std::uint64_t{swap_bytes(kInlineFlag | s.bytes)} | (std::uint64_t{s.first[0]} << 32),
          std::uint64_t{s.first[1]} | (std::uint64_t{s.first[2]} << 32)};
}

PEAL_HOST_DEVICE constexpr InlineSeg decode_inline(const Words16& w) {
  return {detail::first_be32(w.lo) & ~kInlineFlag,
          {static_cast<std::uint32_t>(w.lo >> 32), static_cast<std::uint32_t>(w.hi),
           static_cast<std::uint32_t>(w.hi >> 32)}};
}

// ds of a WQE that carries `bytes` inline behind its ctrl and raddr segments.
PEAL_HOST_DEVICE constexpr std::uint32_t ds_of_inline(std::uint32_t bytes) {
  return 2 + (kInlineHeaderBytes + bytes + kSegmentBytes - 1) / kSegmentBytes;
}

// Operands of a fetch-add or compare-swap of 8 bytes. A masked fetch-add of 8 bytes has its field
// boundary (a set bit is the last of a field, out of which nothing is carried) in place of compare;
// a masked compare-swap of 8 bytes has a second segment of this form with its swap and compare
// masks.
struct AtomicSeg {
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;
};

PEAL_HOST_DEVICE constexpr Words16 encode(const AtomicSeg& s) {
  return {swap_bytes(s.swap_or_add), swap_bytes(s.compare)};
}

PEAL_HOST_DEVICE constexpr AtomicSeg decode_atomic(const Words16& w) {
  return {swap_bytes(w.lo), swap_bytes(w.hi)};
}

// Operands of a masked atomic of 4 bytes. A fetch-add has its field boundary in place of compare,
// and no masks.
struct MaskedAtomic4Seg {
  std::uint32_t swap_or_add = 0;
  std::uint32_t compare = 0;
  std::uint32_t swap_mask = 0;
  std::uint32_t compare_mask = 0;
};

PEAL_HOST_DEVICE constexpr Words16 encode(const MaskedAtomic4Seg& s) {
  return {detail::pair_of_be32(s.swap_or_add, s.compare),
          detail::pair_of_be32(s.swap_mask, s.compare_mask)};
}

PEAL_HOST_DEVICE constexpr MaskedAtomic4Seg decode_masked_atomic4(const Words16& w) {
  return {detail::first_be32(w.lo), detail::second_be32(w.lo), detail::first_be32(w.hi),
          detail::second_be32(w.hi)};
}

// Bytes 16-31 of a WAIT: the queue holds until CQ `cqn` has produced its CQE number `max_index`.
struct WaitSeg {
  std::uint32_t max_index = 0;
  std::uint32_t cqn = 0;
};

PEAL_HOST_DEVICE constexpr Words16 encode(const WaitSeg& s) {
  return {0, detail::pair_of_be32(s.max_index, s.cqn)};
}

PEAL_HOST_DEVICE constexpr WaitSeg decode_wait(const Words16& w) {
  return {detail::first_be32(w.hi), detail::second_be32(w.hi)};
}

}  // namespace peal::mlx5
