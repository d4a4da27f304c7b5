// 64-byte CQE and error CQE (mlx5 PRM, completion queue entry). No behaviour.
// The last 32-bit word (byte 60) carries wqe_counter and op_own: it is the one word by which a CQE
// becomes visible, so everything else is written before it.
#pragma once

#include <cstdint>

#include "peal/core/config.hpp"
#include "peal/core/types.hpp"

namespace peal::mlx5 {

inline constexpr std::uint32_t kCqeBytes = 64;
inline constexpr std::uint32_t kCqeOwnerWord = 15;  // index of the word at byte 60

struct alignas(64) Cqe {
  std::uint32_t word[16] = {};
};
static_assert(sizeof(Cqe) == kCqeBytes);

enum class CqeOpcode : std::uint8_t {
  kRequester = 0x0,
  kResponderWriteImm = 0x1,
  kResponderSend = 0x2,
  kResponderSendImm = 0x3,
  kResponderSendInvalidate = 0x4,
  kResizeCq = 0x5,
  kSignatureError = 0xc,
  kRequesterError = 0xd,
  kResponderError = 0xe,
  kInvalid = 0xf,
};

// A ring starts with op_own 0xf1: opcode invalid, owner 1, which is "not yet written" on lap 0.
inline constexpr std::uint8_t kInitialOpOwn = 0xf1;

enum class Syndrome : std::uint8_t {
  kNone = 0x00,
  kLocalLength = 0x01,
  kLocalQpOperation = 0x02,
  kLocalProtection = 0x04,
  kFlushed = 0x05,
  kMemoryWindowBind = 0x06,
  kBadResponse = 0x10,
  kLocalAccess = 0x11,
  kRemoteInvalidRequest = 0x12,
  kRemoteAccess = 0x13,
  kRemoteOperation = 0x14,
  kTransportRetryExceeded = 0x15,
  kRnrRetryExceeded = 0x16,
  kRemoteAborted = 0x22,
};

PEAL_HOST_DEVICE constexpr const char* syndrome_name(std::uint8_t syndrome) {
  switch (static_cast<Syndrome>(syndrome)) {
    case Syndrome::kNone: return "no error";
    case Syndrome::kLocalLength: return "local length error";
    case Syndrome::kLocalQpOperation: return "local QP operation error";
    case Syndrome::kLocalProtection: return "local protection error";
    case Syndrome::kFlushed: return "work request flushed error";
    case Syndrome::kMemoryWindowBind: return "memory window bind error";
    case Syndrome::kBadResponse: return "bad response error";
    case Syndrome::kLocalAccess: return "local access error";
    case Syndrome::kRemoteInvalidRequest: return "remote invalid request error";
    case Syndrome::kRemoteAccess: return "remote access error";
    case Syndrome::kRemoteOperation: return "remote operation error";
    case Syndrome::kTransportRetryExceeded: return "transport retry counter exceeded";
    case Syndrome::kRnrRetryExceeded: return "RNR retry counter exceeded";
    case Syndrome::kRemoteAborted: return "remote aborted error";
  }
  return "unknown syndrome";
}

// The owner bit of the `number`-th CQE of a ring of `entries` (a power of two): the lap's parity.
PEAL_HOST_DEVICE constexpr std::uint8_t cqe_owner(std::uint64_t number, std::uint64_t entries) {
  return static_cast<std::uint8_t>((number / entries) & 1);
}

// The fields of a CQE that a requester uses. syndrome, vendor_syndrome and wqe_opcode are those of
// an error CQE; in a success CQE the same bytes belong to the timestamp and are not decoded.
struct CqeFields {
  CqeOpcode opcode = CqeOpcode::kInvalid;
  std::uint8_t owner = 0;
  std::uint16_t wqe_counter = 0;
  Qpn qpn;
  std::uint8_t wqe_opcode = 0;
  std::uint32_t byte_count = 0;
  std::uint8_t syndrome = 0;
  std::uint8_t vendor_syndrome = 0;
};

PEAL_HOST_DEVICE constexpr std::uint32_t encode_cqe_owner_word(CqeOpcode opcode, std::uint8_t owner,
                                                               std::uint16_t wqe_counter) {
  return swap_bytes((std::uint32_t{wqe_counter} << 16) |
                    (std::uint32_t{static_cast<std::uint8_t>(opcode)} << 4) | (owner & 1u));
}

PEAL_HOST_DEVICE constexpr Cqe encode(const CqeFields& f) {
  Cqe c;
  c.word[11] = swap_bytes(f.byte_count);
  if (f.opcode != CqeOpcode::kRequester) {
    c.word[13] = swap_bytes((std::uint32_t{f.vendor_syndrome} << 8) | f.syndrome);
  }
  c.word[14] = swap_bytes((std::uint32_t{f.wqe_opcode} << 24) | f.qpn.value);
  c.word[kCqeOwnerWord] = encode_cqe_owner_word(f.opcode, f.owner, f.wqe_counter);
  return c;
}

// The word at byte 60, decoded: all that polling needs.
struct CqeOwnerWord {
  std::uint16_t wqe_counter;
  CqeOpcode opcode;
  std::uint8_t owner;
};

PEAL_HOST_DEVICE constexpr CqeOwnerWord decode_cqe_owner_word(std::uint32_t memory_word) {
  const std::uint32_t w = swap_bytes(memory_word);
  return {static_cast<std::uint16_t>(w >> 16), static_cast<CqeOpcode>((w >> 4) & 0xf),
          static_cast<std::uint8_t>(w & 1)};
}

PEAL_HOST_DEVICE constexpr CqeFields decode(const Cqe& c) {
  const CqeOwnerWord o = decode_cqe_owner_word(c.word[kCqeOwnerWord]);
  const std::uint32_t w14 = swap_bytes(c.word[14]);
  CqeFields f;
  f.opcode = o.opcode;
  f.owner = o.owner;
  f.wqe_counter = o.wqe_counter;
  f.byte_count = swap_bytes(c.word[11]);
  f.wqe_opcode = static_cast<std::uint8_t>(w14 >> 24);
  f.qpn = Qpn(w14 & 0xffffff);
  if (o.opcode == CqeOpcode::kRequesterError || o.opcode == CqeOpcode::kResponderError) {
    const std::uint32_t w13 = swap_bytes(c.word[13]);
    f.vendor_syndrome = static_cast<std::uint8_t>(w13 >> 8);
    f.syndrome = static_cast<std::uint8_t>(w13);
  }
  return f;
}

}  // namespace peal::mlx5
