// What a WQE means, and whether the NIC may do it: pure functions over the tables, shared by every
// engine. They read no ring, move no payload and change nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nic/atomic.hpp"
#include "nic/refusal.hpp"
#include "nic/tables.hpp"
#include "peal/mlx5/cqe.hpp"
#include "peal/mlx5/wqe.hpp"

namespace peal::nic {

// What an accepted WQE makes the NIC do.
enum class Operation : std::uint8_t { kNop, kWrite, kRead, kAtomic, kWait, kDump };

// What one accepted WQE asks for. Local memory is resolved; the remote side is checked by the
// responder.
struct Move {
  Operation operation = Operation::kNop;
  std::uint8_t opcode = 0;
  std::uint8_t fm_ce_se = 0;
  std::uint32_t slots = 0;  // that the WQE occupies
  // Where a write's payload comes from (in the WQE itself where it is inline), or where a read's
  // lands and an atomic's old value.
  std::byte* local = nullptr;
  std::uint32_t lkey = 0;  // of `local`; 0 where that is in no region
  bool inlined = false;
  bool has_immediate = false;
  std::uint32_t immediate = 0;
  std::uint64_t remote_address = 0;
  Rkey rkey;
  std::uint32_t bytes = 0;
  AtomicOperands operands;
  std::uint32_t wait_cq = 0;
  std::uint32_t wait_number = 0;
};

struct CheckResult {
  Refusal refusal = Refusal::kNone;
  mlx5::Syndrome syndrome = mlx5::Syndrome::kNone;
  std::uint8_t vendor_syndrome = 0;
  std::uint64_t warned = 0;  // a bit for each rule that was broken, and is not kept strictly
  Move move;                 // opcode, fm_ce_se and slots are set even on a refusal

  // As new, but for what only its own operation reads.
  PEAL_HOST_DEVICE void clear() {
    refusal = Refusal::kNone;
    syndrome = mlx5::Syndrome::kNone;
    vendor_syndrome = 0;
    warned = 0;
    move.operation = Operation::kNop;
    move.local = nullptr;
    move.lkey = 0;
    move.inlined = move.has_immediate = false;
    move.bytes = 0;
  }
};

// Vendor syndromes as logs of real NICs show them beside the syndrome; nothing depends on them.
inline constexpr std::uint8_t kVendorLocalProtection = 0x51;
inline constexpr std::uint8_t kVendorRemoteAccess = 0x88;
inline constexpr std::uint8_t kVendorFlushed = 0xf9;
inline constexpr std::uint8_t kVendorQpOperation = 0x68;
inline constexpr std::uint8_t kVendorRetryExceeded = 0x81;
inline constexpr std::uint8_t kVendorBadResponse = 0x67;

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
PEAL_HOST_DEVICE constexpr RegionRefusals local_refusals() {
  return {Refusal::kLkeyUnknown, Refusal::kLkeySwapped, Refusal::kLkeyStale,
          Refusal::kLkeyOtherPd, Refusal::kLocalAccess, Refusal::kLocalRange};
}
PEAL_HOST_DEVICE constexpr RegionRefusals remote_refusals() {
  return {Refusal::kRkeyUnknown, Refusal::kRkeySwapped,  Refusal::kRkeyStale,
          Refusal::kRkeyOtherPd, Refusal::kRemoteAccess, Refusal::kRemoteRange};
}

// On Refusal::kNone *memory is where the use begins.
PEAL_HOST_DEVICE inline Refusal check_region(const RegionUse& use, std::uint32_t pd,
                                             const Tables& tables, const RegionRefusals& refusals,
                                             std::byte** memory) {
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

// Checks one WQE of `qp`, fetched for ring index `index`, of which `posted` slots from `index` on
// have been announced. `wqe` holds all its segments as far as they were announced: at least four.
// A rule that is waived (Tables::rules) leaves a mark in `warned`, or nothing.
class WqeCheck {
 public:
  PEAL_HOST_DEVICE WqeCheck(const mlx5::Words16* wqe, std::uint64_t index, std::uint64_t posted,
                            const QpEntry& qp, const Tables& tables, CheckResult* result)
      : wqe_(wqe), index_(index), posted_(posted), qp_(qp), tables_(tables), r_(*result) {}

  PEAL_HOST_DEVICE void run() {
    const mlx5::CtrlSeg ctrl = mlx5::decode_ctrl(wqe_[0]);
    Move& m = r_.move;
    m.opcode = ctrl.opcode;
    m.fm_ce_se = ctrl.fm_ce_se;
    m.slots = ctrl.ds == 0 ? 1 : (ctrl.ds + 3u) / 4u;
    if (ctrl.wqe_index != static_cast<std::uint16_t>(index_) && breaks(Refusal::kWqeIndex)) {
      return refuse_operation(Refusal::kWqeIndex);
    }
    if (ctrl.qpn != qp_.qpn && breaks(Refusal::kWqeQpn)) return refuse_operation(Refusal::kWqeQpn);
    if (ctrl.ds == 0 || ctrl.ds > kMaxWqeSegments) return refuse_operation(Refusal::kWqeSize);
    if (m.slots > posted_) return refuse_operation(Refusal::kWqeCrossesProducerIndex);

    switch (static_cast<mlx5::Opcode>(ctrl.opcode)) {
      // Clients post it with ds 1 or 2; what follows the ctrl segment is not read.
      case mlx5::Opcode::kNop: return;
      case mlx5::Opcode::kRdmaWriteImm:
        m.has_immediate = true;
        m.immediate = ctrl.imm;
        [[fallthrough]];
      case mlx5::Opcode::kRdmaWrite: return write(ctrl.ds);
      case mlx5::Opcode::kRdmaRead: return read(ctrl.ds);
      case mlx5::Opcode::kFetchAdd:
        m.operands = {mlx5::decode_atomic(wqe_[2]).swap_or_add, 0, 0, 0};
        return atomic(ctrl.ds, 4, 8);
      case mlx5::Opcode::kCompareSwap: {
        const mlx5::AtomicSeg s = mlx5::decode_atomic(wqe_[2]);
        m.operands = {s.swap_or_add, s.compare, ~std::uint64_t{0}, ~std::uint64_t{0}};
        return atomic(ctrl.ds, 4, 8);
      }
      case mlx5::Opcode::kMaskedFetchAdd:
      case mlx5::Opcode::kMaskedCompareSwap: return masked_atomic(ctrl);
      case mlx5::Opcode::kWait: return wait(ctrl.ds);
      case mlx5::Opcode::kDump: return dump(ctrl.ds);
      default: return refuse_operation(Refusal::kOpcode);
    }
  }

 private:
  // Whether a rule that can be waived is kept; takes note where it is only warned of.
  PEAL_HOST_DEVICE bool breaks(Refusal rule) {
    const Strictness level = tables_.rules[static_cast<std::size_t>(rule)];
    if (level == Strictness::kWarn) r_.warned |= std::uint64_t{1} << static_cast<unsigned>(rule);
    return level == Strictness::kRefuse;
  }
  PEAL_HOST_DEVICE void refuse(Refusal why, mlx5::Syndrome syndrome, std::uint8_t vendor) {
    r_.refusal = why;
    r_.syndrome = syndrome;
    r_.vendor_syndrome = vendor;
  }
  PEAL_HOST_DEVICE void refuse_operation(Refusal why) {
    return refuse(why, mlx5::Syndrome::kLocalQpOperation, kVendorQpOperation);
  }
  // Fewer segments than needed cannot be waived.
  PEAL_HOST_DEVICE bool wrong_segments(std::uint32_t ds, std::uint32_t needed) {
    return ds < needed || (ds > needed && breaks(Refusal::kWqeSegments));
  }
  PEAL_HOST_DEVICE void set_remote() {
    const mlx5::RaddrSeg raddr = mlx5::decode_raddr(wqe_[1]);
    r_.move.remote_address = raddr.address;
    r_.move.rkey = raddr.rkey;
  }
  PEAL_HOST_DEVICE void resolve(const mlx5::DataSeg& data, std::uint32_t access) {
    std::byte* memory = nullptr;
    const Refusal why = check_region({data.lkey.value, data.address, data.byte_count, access},
                                     qp_.pd, tables_, local_refusals(), &memory);
    if (why != Refusal::kNone) {
      return refuse(why, mlx5::Syndrome::kLocalProtection, kVendorLocalProtection);
    }
    r_.move.local = memory;
    r_.move.lkey = data.lkey.value;
  }
  PEAL_HOST_DEVICE bool too_long(std::uint32_t bytes) {
    return bytes > (std::uint64_t{1} << qp_.log_msg_max) && breaks(Refusal::kMessageTooLong);
  }

  PEAL_HOST_DEVICE void write(std::uint32_t ds) {
    if (ds < 3) return refuse_operation(Refusal::kWqeSegments);
    r_.move.operation = Operation::kWrite;
    set_remote();
    const mlx5::DataSeg data = mlx5::decode_data(wqe_[2]);
    if ((data.byte_count & mlx5::kInlineFlag) != 0) return inline_write(ds);
    if (wrong_segments(ds, 3)) return refuse_operation(Refusal::kWqeSegments);
    r_.move.bytes = data.byte_count;
    // A write of length 0 touches no memory, so its keys and addresses are not looked at.
    if (data.byte_count == 0) return;
    if (too_long(data.byte_count)) {
      return refuse(Refusal::kMessageTooLong, mlx5::Syndrome::kLocalLength, kVendorQpOperation);
    }
    return resolve(data, 0);
  }

  PEAL_HOST_DEVICE void inline_write(std::uint32_t ds) {
    const std::uint32_t bytes = mlx5::decode_inline(wqe_[2]).bytes;
    const std::uint32_t room = (ds - 2) * mlx5::kSegmentBytes - mlx5::kInlineHeaderBytes;
    if (bytes > room) return refuse_operation(Refusal::kInlineLength);
    if (wrong_segments(ds, mlx5::ds_of_inline(bytes))) {
      return refuse_operation(Refusal::kWqeSegments);
    }
    if (too_long(bytes)) {
      return refuse(Refusal::kMessageTooLong, mlx5::Syndrome::kLocalLength, kVendorQpOperation);
    }
    r_.move.bytes = bytes;
    r_.move.inlined = true;
    const auto* segment = reinterpret_cast<const std::byte*>(&wqe_[2]);
    r_.move.local = const_cast<std::byte*>(segment + mlx5::kInlineHeaderBytes);
  }

  PEAL_HOST_DEVICE void read(std::uint32_t ds) {
    if (wrong_segments(ds, 3)) return refuse_operation(Refusal::kWqeSegments);
    r_.move.operation = Operation::kRead;
    set_remote();
    const mlx5::DataSeg data = mlx5::decode_data(wqe_[2]);
    if ((data.byte_count & mlx5::kInlineFlag) != 0) return refuse_operation(Refusal::kInlineFlag);
    r_.move.bytes = data.byte_count;
    if (data.byte_count == 0) return;
    if (too_long(data.byte_count)) {
      return refuse(Refusal::kMessageTooLong, mlx5::Syndrome::kLocalLength, kVendorQpOperation);
    }
    return resolve(data, kLocalWrite);
  }

  // Its data segment is the last of `needed`.
  PEAL_HOST_DEVICE void atomic(std::uint32_t ds, std::uint32_t needed, std::uint32_t bytes) {
    if (wrong_segments(ds, needed)) return refuse_operation(Refusal::kWqeSegments);
    r_.move.operation = Operation::kAtomic;
    set_remote();
    const mlx5::DataSeg data = mlx5::decode_data(wqe_[needed - 1]);
    if ((data.byte_count & mlx5::kInlineFlag) != 0) return refuse_operation(Refusal::kInlineFlag);
    if (data.byte_count != bytes) return refuse_operation(Refusal::kAtomicSize);
    r_.move.bytes = bytes;
    return resolve(data, kLocalWrite);
  }

  PEAL_HOST_DEVICE void masked_atomic(const mlx5::CtrlSeg& ctrl) {
    const bool swaps = static_cast<mlx5::Opcode>(ctrl.opcode) == mlx5::Opcode::kMaskedCompareSwap;
    AtomicOperands& o = r_.move.operands;
    if (ctrl.opmod == mlx5::kMaskedAtomic4Bytes) {
      const mlx5::MaskedAtomic4Seg s = mlx5::decode_masked_atomic4(wqe_[2]);
      o = {s.swap_or_add, s.compare, s.swap_mask, s.compare_mask};
      return atomic(ctrl.ds, 4, 4);
    }
    if (ctrl.opmod != mlx5::kMaskedAtomic8Bytes) return refuse_operation(Refusal::kAtomicOpmod);
    const mlx5::AtomicSeg s = mlx5::decode_atomic(wqe_[2]);
    o.swap_or_add = s.swap_or_add;
    o.compare = s.compare;
    if (!swaps) return atomic(ctrl.ds, 4, 8);
    if (ctrl.ds < 5) return refuse_operation(Refusal::kWqeSegments);
    const mlx5::AtomicSeg masks = mlx5::decode_atomic(wqe_[3]);
    o.swap_mask = masks.swap_or_add;
    o.compare_mask = masks.compare;
    return atomic(ctrl.ds, 5, 8);
  }

  PEAL_HOST_DEVICE void wait(std::uint32_t ds) {
    if (wrong_segments(ds, 2)) return refuse_operation(Refusal::kWqeSegments);
    r_.move.operation = Operation::kWait;
    const mlx5::WaitSeg segment = mlx5::decode_wait(wqe_[1]);
    r_.move.wait_number = segment.max_index;
    r_.move.wait_cq = segment.cqn;
    if (r_.move.wait_cq == 0 || r_.move.wait_cq >= kMaxCqs || !tables_.cqs[r_.move.wait_cq].used) {
      return refuse_operation(Refusal::kWaitCq);
    }
  }

  PEAL_HOST_DEVICE void dump(std::uint32_t ds) {
    if (wrong_segments(ds, 2)) return refuse_operation(Refusal::kWqeSegments);
    r_.move.operation = Operation::kDump;
    const mlx5::DataSeg data = mlx5::decode_data(wqe_[1]);
    if ((data.byte_count & mlx5::kInlineFlag) != 0) return refuse_operation(Refusal::kInlineFlag);
    r_.move.bytes = data.byte_count;
    if (data.byte_count != 0) resolve(data, 0);
  }

  const mlx5::Words16* wqe_;
  std::uint64_t index_;
  std::uint64_t posted_;
  const QpEntry& qp_;
  const Tables& tables_;
  CheckResult& r_;
};

PEAL_HOST_DEVICE inline void check(const mlx5::Words16* wqe, std::uint64_t index,
                                   std::uint64_t posted, const QpEntry& qp, const Tables& tables,
                                   CheckResult* result) {
  result->clear();
  WqeCheck(wqe, index, posted, qp, tables, result).run();
}
PEAL_HOST_DEVICE inline CheckResult check(const mlx5::Words16* wqe, std::uint64_t index,
                                          std::uint64_t posted, const QpEntry& qp,
                                          const Tables& tables) {
  CheckResult r;
  check(wqe, index, posted, qp, tables, &r);
  return r;
}

// The responder's side: may `qp` be written (or read, or both at once) at [address, address +
// bytes) under `rkey`, as `access` says? On Refusal::kNone *memory is where; null for length 0.
PEAL_HOST_DEVICE inline Refusal check_remote(std::uint64_t address, Rkey rkey, std::uint64_t bytes,
                                             std::uint32_t access, const QpEntry& qp,
                                             const Tables& tables, std::byte** memory) {
  *memory = nullptr;
  if (bytes == 0) return Refusal::kNone;
  return check_region({rkey.value, address, bytes, access}, qp.pd, tables, remote_refusals(),
                      memory);
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
PEAL_HOST_DEVICE inline mlx5::Cqe complete(const Completion& c, Qpn qpn, std::uint64_t number,
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
