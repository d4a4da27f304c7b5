// What a WQE means, and whether the NIC may do it: pure functions over the tables, shared by every
// engine. They read no ring, move no payload and change nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nic/tables.hpp"
#include "peal/mlx5/cqe.hpp"
#include "peal/mlx5/wqe.hpp"

namespace peal::nic {

// Why the NIC refused something. Each has a sentence in refusal_text().
enum class Refusal : std::uint8_t {
  kNone,
  kWqeIndex,
  kWqeQpn,
  kWqeSize,
  kWqeCrossesProducerIndex,
  kOpcode,
  kWqeSegments,
  kInlineFlag,
  kLkeyUnknown,
  kLkeySwapped,
  kLkeyStale,
  kLkeyOtherPd,
  kLocalRange,
  kMessageTooLong,
  kRkeyUnknown,
  kRkeySwapped,
  kRkeyStale,
  kRkeyOtherPd,
  kRemoteRange,
  kRemoteAccess,
  kRemoteWriteDisabled,
  kDoorbellQpn,
  kDoorbellJump,
  kDoorbellWithoutRecord,
  kRecordWithoutDoorbell,
  kSequence,
  kNoAnswer,
  kInjected,
  kCount,
};

const char* refusal_text(Refusal reason);

// What one accepted WQE asks for. `source` is resolved; the remote side is checked by the
// responder.
struct Move {
  std::uint8_t opcode = 0;
  std::uint8_t fm_ce_se = 0;
  std::uint32_t slots = 0;  // that the WQE occupies
  const std::byte* source = nullptr;
  std::uint64_t remote_address = 0;
  Rkey rkey;
  std::uint32_t bytes = 0;
};

struct CheckResult {
  Refusal refusal = Refusal::kNone;
  mlx5::Syndrome syndrome = mlx5::Syndrome::kNone;
  std::uint8_t vendor_syndrome = 0;
  Move move;  // opcode, fm_ce_se and slots are set even on a refusal
};

// Vendor syndromes as logs of real NICs show them beside the syndrome; nothing depends on them.
inline constexpr std::uint8_t kVendorLocalProtection = 0x51;
inline constexpr std::uint8_t kVendorRemoteAccess = 0x88;
inline constexpr std::uint8_t kVendorFlushed = 0xf9;
inline constexpr std::uint8_t kVendorQpOperation = 0x68;
inline constexpr std::uint8_t kVendorRetryExceeded = 0x81;

// Checks the WQE in `slot`, fetched for ring index `index` of `qp`, of which `posted` slots from
// `index` on have been announced.
inline CheckResult check(const mlx5::Slot& slot, std::uint64_t index, std::uint64_t posted,
                         const QpEntry& qp, const Tables& tables) {
  using mlx5::Syndrome;
  CheckResult r;
  const mlx5::CtrlSeg ctrl = mlx5::decode_ctrl(slot.segment[0]);
  r.move.opcode = ctrl.opcode;
  r.move.fm_ce_se = ctrl.fm_ce_se;
  r.move.slots = ctrl.ds == 0 ? 1 : (ctrl.ds + 3u) / 4u;

  const auto refuse = [&r](Refusal why, Syndrome syndrome, std::uint8_t vendor) {
    r.refusal = why;
    r.syndrome = syndrome;
    r.vendor_syndrome = vendor;
    return r;
  };
  const auto refuse_operation = [&refuse](Refusal why) {
    return refuse(why, Syndrome::kLocalQpOperation, kVendorQpOperation);
  };
  const auto refuse_protection = [&refuse](Refusal why) {
    return refuse(why, Syndrome::kLocalProtection, kVendorLocalProtection);
  };

  if (ctrl.wqe_index != static_cast<std::uint16_t>(index)) {
    return refuse_operation(Refusal::kWqeIndex);
  }
  if (ctrl.qpn != qp.qpn) return refuse_operation(Refusal::kWqeQpn);
  if (ctrl.ds == 0 || ctrl.ds > kMaxWqeSegments) return refuse_operation(Refusal::kWqeSize);
  if (r.move.slots > posted) return refuse_operation(Refusal::kWqeCrossesProducerIndex);

  switch (static_cast<mlx5::Opcode>(ctrl.opcode)) {
    case mlx5::Opcode::kNop:
      // Clients post it with ds 1 or 2; what follows the ctrl segment is not read.
      return r;
    case mlx5::Opcode::kRdmaWrite: break;
    default: return refuse_operation(Refusal::kOpcode);
  }

  if (ctrl.ds != 3) return refuse_operation(Refusal::kWqeSegments);
  const mlx5::RaddrSeg raddr = mlx5::decode_raddr(slot.segment[1]);
  const mlx5::DataSeg data = mlx5::decode_data(slot.segment[2]);
  if ((data.byte_count & mlx5::kInlineFlag) != 0) return refuse_operation(Refusal::kInlineFlag);
  r.move.remote_address = raddr.address;
  r.move.rkey = raddr.rkey;
  r.move.bytes = data.byte_count;
  // A write of length 0 touches no memory, so its keys and addresses are not looked at.
  if (data.byte_count == 0) return r;

  if (data.byte_count > (std::uint64_t{1} << qp.log_msg_max)) {
    return refuse(Refusal::kMessageTooLong, Syndrome::kLocalLength, kVendorQpOperation);
  }
  const KeyEntry* key = tables.find_key(data.lkey.value);
  if (key == nullptr) {
    if (tables.find_key(swap_bytes(data.lkey.value)) != nullptr) {
      return refuse_protection(Refusal::kLkeySwapped);
    }
    return refuse_protection(tables.key_is_stale(data.lkey.value) ? Refusal::kLkeyStale
                                                                  : Refusal::kLkeyUnknown);
  }
  if (key->pd != qp.pd) return refuse_protection(Refusal::kLkeyOtherPd);
  // Written so that no sum can wrap.
  const std::uint64_t offset = data.address - key->start;
  if (data.address < key->start || offset > key->bytes || data.byte_count > key->bytes - offset) {
    return refuse_protection(Refusal::kLocalRange);
  }
  r.move.source = key->memory + offset;
  return r;
}

// The responder's side: may `qp` be written at [address, address + bytes) under `rkey`?
// On Refusal::kNone *target is the memory.
inline Refusal check_remote_write(std::uint64_t address, Rkey rkey, std::uint64_t bytes,
                                  const QpEntry& qp, const Tables& tables, std::byte** target) {
  *target = nullptr;
  if (!qp.remote_write_enabled) return Refusal::kRemoteWriteDisabled;
  if (bytes == 0) return Refusal::kNone;
  const KeyEntry* key = tables.find_key(rkey.value);
  if (key == nullptr) {
    if (tables.find_key(swap_bytes(rkey.value)) != nullptr) return Refusal::kRkeySwapped;
    return tables.key_is_stale(rkey.value) ? Refusal::kRkeyStale : Refusal::kRkeyUnknown;
  }
  if (key->pd != qp.pd) return Refusal::kRkeyOtherPd;
  if ((key->access & kRemoteWrite) == 0) return Refusal::kRemoteAccess;
  const std::uint64_t offset = address - key->start;
  if (address < key->start || offset > key->bytes || bytes > key->bytes - offset) {
    return Refusal::kRemoteRange;
  }
  *target = key->memory + offset;
  return Refusal::kNone;
}

// How a WQE ended.
struct Completion {
  std::uint64_t index = 0;
  std::uint8_t opcode = 0;
  std::uint32_t bytes = 0;
  mlx5::Syndrome syndrome = mlx5::Syndrome::kNone;
  std::uint8_t vendor_syndrome = 0;
};

// The CQE of `c` as the `number`-th of a CQ of 2^log_cq_size entries.
inline mlx5::Cqe complete(const Completion& c, Qpn qpn, std::uint64_t number,
                          std::uint8_t log_cq_size) {
  mlx5::CqeFields f;
  f.opcode = c.syndrome == mlx5::Syndrome::kNone ? mlx5::CqeOpcode::kRequester
                                                 : mlx5::CqeOpcode::kRequesterError;
  f.owner = mlx5::cqe_owner(number, std::uint64_t{1} << log_cq_size);
  f.wqe_counter = static_cast<std::uint16_t>(c.index);
  f.qpn = qpn;
  f.wqe_opcode = c.opcode;
  f.byte_count = c.bytes;
  f.syndrome = static_cast<std::uint8_t>(c.syndrome);
  f.vendor_syndrome = c.vendor_syndrome;
  return mlx5::encode(f);
}

}  // namespace peal::nic
