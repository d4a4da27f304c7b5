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

// A use of memory: `bytes` from `address` under `key`, which must allow `access`.
struct RegionUse {
  std::uint32_t key = 0;
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint32_t access = 0;
};

// What each way of being wrong is called at the requester and at the responder.
struct RegionRefusals {
  Refusal unknown, swapped, stale, other_pd, access, range;
};
inline constexpr RegionRefusals kLocalRefusals = {Refusal::kLkeyUnknown, Refusal::kLkeySwapped,
                                                  Refusal::kLkeyStale,   Refusal::kLkeyOtherPd,
                                                  Refusal::kLocalRange,  Refusal::kLocalRange};
inline constexpr RegionRefusals kRemoteRefusals = {Refusal::kRkeyUnknown,  Refusal::kRkeySwapped,
                                                   Refusal::kRkeyStale,    Refusal::kRkeyOtherPd,
                                                   Refusal::kRemoteAccess, Refusal::kRemoteRange};

// On Refusal::kNone *memory is where the use begins.
inline Refusal check_region(const RegionUse& use, std::uint32_t pd, const Tables& tables,
                            const RegionRefusals& refusals, std::byte** memory) {
  const KeyEntry* key = tables.find_key(use.key);
  if (key == nullptr) {
    if (tables.find_key(swap_bytes(use.key)) != nullptr) return refusals.swapped;
    return tables.key_is_stale(use.key) ? refusals.stale : refusals.unknown;
  }
  if (key->pd != pd) return refusals.other_pd;
  if ((key->access & use.access) != use.access) return refusals.access;
  // Written so that no sum can wrap.
  const std::uint64_t offset = use.address - key->start;
  if (use.address < key->start || offset > key->bytes || use.bytes > key->bytes - offset) {
    return refusals.range;
  }
  *memory = key->memory + offset;
  return Refusal::kNone;
}

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
  std::byte* memory = nullptr;
  const Refusal why = check_region({data.lkey.value, data.address, data.byte_count, 0}, qp.pd,
                                   tables, kLocalRefusals, &memory);
  if (why != Refusal::kNone) return refuse(why, Syndrome::kLocalProtection, kVendorLocalProtection);
  r.move.source = memory;
  return r;
}

// The responder's side: may `qp` be written at [address, address + bytes) under `rkey`?
// On Refusal::kNone *target is the memory.
inline Refusal check_remote_write(std::uint64_t address, Rkey rkey, std::uint64_t bytes,
                                  const QpEntry& qp, const Tables& tables, std::byte** target) {
  *target = nullptr;
  if (!qp.remote_write_enabled) return Refusal::kRemoteWriteDisabled;
  if (bytes == 0) return Refusal::kNone;
  return check_region({rkey.value, address, bytes, kRemoteWrite}, qp.pd, tables, kRemoteRefusals,
                      target);
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
