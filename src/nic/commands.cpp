#include "nic/commands.hpp"

#include <algorithm>
#include <cstring>

#include "nic/known_fields.hpp"
#include "peal/mlx5/doorbell.hpp"

namespace peal::nic {
namespace {

using namespace mlx5::devx;

// Syndromes of refused commands: ours, so that a log names the exact check.
enum Syndrome : std::uint32_t {
  kUnknownOpcode = 0x00a1,
  kShortInput = 0x00a2,
  kShortOutput = 0x00a3,
  kNoSuchQp = 0x00b1,
  kWrongQpState = 0x00b2,
  kBadServiceType = 0x00b3,
  kBadPd = 0x00b4,
  kBadCq = 0x00b5,
  kBadUar = 0x00b6,
  kBadRingUmem = 0x00b7,
  kBadRecordUmem = 0x00b8,
  kBadSize = 0x00b9,
  kBadMtu = 0x00ba,
  kBadMessageSize = 0x00bb,
  kBadPort = 0x00bc,
  kNoRemoteQp = 0x00bd,
  kInUse = 0x00be,
  kTableFull = 0x00bf,
  kReservedBits = 0x00c0,
  kNoRecordlessQps = 0x00c1,
  kRecordlessUar = 0x00c2,
};

// The first free entry from 1 on, or 0.
template <class Table, class IsFree>
std::uint32_t first_free(const Table& table, IsFree is_free) {
  for (std::uint32_t i = 1; i < table.size(); ++i) {
    if (is_free(table[i])) return i;
  }
  return 0;
}

std::uint32_t used_entries(const auto& table, auto is_used) {
  return static_cast<std::uint32_t>(std::count_if(table.begin(), table.end(), is_used));
}

}  // namespace

bool Commands::execute(std::span<const std::byte> in, std::span<std::byte> out) {
  std::memset(out.data(), 0, out.size());
  const Answer answer = dispatch(in, out);
  set(out.data(), header::status, static_cast<std::uint8_t>(answer.status));
  set(out.data(), header::syndrome, answer.syndrome);
  return answer.status == Status::kOk;
}

Commands::Answer Commands::dispatch(std::span<const std::byte> in, std::span<std::byte> out) {
  struct Shape {
    CommandOpcode opcode;
    std::uint32_t in_bytes;
    std::uint32_t out_bytes;
  };
  static constexpr Shape kShapes[] = {
      {CommandOpcode::kQueryHcaCap, query_hca_cap::kInBytes, query_hca_cap::kOutBytes},
      {CommandOpcode::kCreateCq, create_cq::kInBytes, create_cq::kOutBytes},
      {CommandOpcode::kDestroyCq, destroy_cq::kInBytes, destroy_cq::kOutBytes},
      {CommandOpcode::kCreateQp, create_qp::kInBytes, create_qp::kOutBytes},
      {CommandOpcode::kDestroyQp, destroy_qp::kInBytes, destroy_qp::kOutBytes},
      {CommandOpcode::kRst2InitQp, modify_qp::kInBytes, modify_qp::kOutBytes},
      {CommandOpcode::kInit2InitQp, modify_qp::kInBytes, modify_qp::kOutBytes},
      {CommandOpcode::kInit2RtrQp, modify_qp::kInBytes, modify_qp::kOutBytes},
      {CommandOpcode::kRtr2RtsQp, modify_qp::kInBytes, modify_qp::kOutBytes},
      {CommandOpcode::kRts2RtsQp, modify_qp::kInBytes, modify_qp::kOutBytes},
      {CommandOpcode::k2ErrQp, modify_qp::kShortInBytes, modify_qp::kOutBytes},
      {CommandOpcode::k2RstQp, modify_qp::kShortInBytes, modify_qp::kOutBytes},
      {CommandOpcode::kQueryQp, query_qp::kInBytes, query_qp::kOutBytes},
  };
  if (in.size() < header::kInBytesMin) return {Status::kBadInputLength, kShortInput};
  const auto opcode = static_cast<CommandOpcode>(get(in.data(), header::opcode));
  const auto* shape = std::find_if(std::begin(kShapes), std::end(kShapes),
                                   [opcode](const Shape& s) { return s.opcode == opcode; });
  if (shape == std::end(kShapes)) return {Status::kBadOpcode, kUnknownOpcode};
  if (in.size() < shape->in_bytes) return {Status::kBadInputLength, kShortInput};
  if (out.size() < shape->out_bytes) return {Status::kBadOutputLength, kShortOutput};
  if (sets_unknown_field(opcode, in) && rule_is_kept(Refusal::kReservedField, in)) {
    return {Status::kBadParameter, kReservedBits};
  }
  ++tables_.epoch;

  switch (opcode) {
    case CommandOpcode::kQueryHcaCap: return query_hca_cap(in, out);
    case CommandOpcode::kCreateCq: return create_cq(in, out);
    case CommandOpcode::kDestroyCq: return destroy_cq(in);
    case CommandOpcode::kCreateQp: return create_qp(in, out);
    case CommandOpcode::kDestroyQp: return destroy_qp(in);
    case CommandOpcode::kQueryQp: return query_qp(in, out);
    default: return modify_qp(opcode, in);
  }
}

bool Commands::rule_is_kept(Refusal rule, std::span<const std::byte> in) {
  // Where a command names a QP it does so in one place.
  const auto qpn = static_cast<std::uint32_t>(get(in.data(), mlx5::devx::modify_qp::qpn));
  const QpEntry* qp = tables_.find_qp(Qpn(qpn));
  return events_.rule_broken(rule, qp == nullptr ? 0 : tables_.index_of(*qp));
}

Commands::Answer Commands::query_hca_cap(std::span<const std::byte> in, std::span<std::byte> out) {
  namespace query = mlx5::devx::query_hca_cap;
  std::byte* caps = at(out.data(), query::capability);
  switch (query::group_of(get(in.data(), header::op_mod))) {
    case query::kGeneral:
      set(caps, hca_cap::hca_cap_2, limits_.offers_recordless ? 1 : 0);
      set(caps, hca_cap::log_max_qp_sz, kLogMaxQpDepth);
      set(caps, hca_cap::gid_table_size, 0);  // coded: 8 entries
      set(caps, hca_cap::port_type, hca_cap::kPortTypeIb);
      set(caps, hca_cap::rc, 1);
      set(caps, hca_cap::max_wqe_sz_sq, kMaxWqeSegments * mlx5::kSegmentBytes);
      set(caps, hca_cap::max_wqe_sz_rq, 512);
      return {};
    case query::kRoce: return {};  // an InfiniBand port: nothing of it applies
    case query::kGeneral2:
      if (!limits_.offers_recordless) break;
      set(caps, hca_cap_2::send_dbr_mode_no_dbr_ext, 1);
      return {};
    default: break;
  }
  return {Status::kBadParameter, kUnknownOpcode};
}

std::byte* Commands::umem_range(std::uint64_t umem, std::uint64_t offset, std::uint64_t bytes,
                                std::uint32_t alignment) {
  if (umem == 0 || umem >= kMaxUmems) return nullptr;
  const UmemEntry& u = tables_.umems[umem];
  if (u.memory == nullptr || offset > u.bytes || bytes > u.bytes - offset) return nullptr;
  std::byte* range = u.memory + offset;
  return reinterpret_cast<std::uintptr_t>(range) % alignment == 0 ? range : nullptr;
}

Commands::Answer Commands::create_cq(std::span<const std::byte> in, std::span<std::byte> out) {
  namespace create = mlx5::devx::create_cq;
  const std::byte* context = at(in.data(), create::cq_context);
  const auto uar = static_cast<std::uint32_t>(get(context, cqc::uar_page));
  const auto log_size = static_cast<std::uint8_t>(get(context, cqc::log_cq_size));
  if (uar == 0 || uar >= kMaxUars || tables_.uars[uar].page == nullptr) {
    return {Status::kBadParameter, kBadUar};
  }
  if (log_size > 22 || get(context, cqc::cqe_sz) != cqc::kCqeSize64Bytes) {
    return {Status::kBadParameter, kBadSize};
  }
  const auto umem = static_cast<std::uint32_t>(get(in.data(), create::cq_umem_id));
  const std::uint64_t offset = get(in.data(), create::cq_umem_offset);
  std::byte* ring =
      get(in.data(), create::cq_umem_valid) == 1
          ? umem_range(umem, offset, std::uint64_t{mlx5::kCqeBytes} << log_size, mlx5::kCqeBytes)
          : nullptr;
  if (ring == nullptr) return {Status::kBadParameter, kBadRingUmem};
  // Clients that set oi give none: the record is then never read.
  const auto record_umem = static_cast<std::uint32_t>(get(context, cqc::dbr_umem_id));
  const std::byte* record = get(context, cqc::dbr_umem_valid) == 1
                                ? umem_range(record_umem, get(context, cqc::dbr_addr),
                                             mlx5::kDbrecBytes, mlx5::kDbrecBytes)
                                : nullptr;
  if (record == nullptr && get(context, cqc::oi) == 0) {
    return {Status::kBadParameter, kBadRecordUmem};
  }

  const std::uint32_t index = first_free(tables_.cqs, [](const CqEntry& cq) { return !cq.used; });
  if (index == 0) return {Status::kNoResources, kTableFull};
  CqEntry cq;
  cq.used = true;
  cq.log_size = log_size;
  cq.ring = reinterpret_cast<mlx5::Cqe*>(ring);
  cq.collapsed = get(context, cqc::cc) == 1;
  cq.ignores_overrun = get(context, cqc::oi) == 1;
  cq.uar = uar;
  cq.consumer_record = reinterpret_cast<const std::uint32_t*>(record);
  tables_.cqs[index] = cq;
  cq_umems_[index] = {umem, record == nullptr ? 0 : record_umem};
  ++tables_.umems[umem].users;
  if (record != nullptr) ++tables_.umems[record_umem].users;
  set(out.data(), create::cqn, index);
  return {};
}

Commands::Answer Commands::destroy_cq(std::span<const std::byte> in) {
  const auto index = static_cast<std::uint32_t>(get(in.data(), mlx5::devx::destroy_cq::cqn));
  if (index == 0 || index >= kMaxCqs || !tables_.cqs[index].used) {
    return {Status::kBadResource, kBadCq};
  }
  for (const QpEntry& qp : tables_.qps) {
    if (qp.qpn.value != 0 && qp.cq == index) return {Status::kResourceBusy, kInUse};
  }
  --tables_.umems[cq_umems_[index].ring].users;
  if (cq_umems_[index].dbrec != 0) --tables_.umems[cq_umems_[index].dbrec].users;
  tables_.cqs[index] = CqEntry{};
  return {};
}

Commands::Answer Commands::create_qp(std::span<const std::byte> in, std::span<std::byte> out) {
  namespace create = mlx5::devx::create_qp;
  const std::byte* context = at(in.data(), create::qpc);
  QpEntry qp;
  if (get(context, qpc::st) != qpc::kServiceTypeRc) {
    return {Status::kBadParameter, kBadServiceType};
  }
  qp.pd = static_cast<std::uint32_t>(get(context, qpc::pd));
  if (qp.pd == 0 || qp.pd >= kMaxPds || !tables_.pds[qp.pd]) {
    return {Status::kBadParameter, kBadPd};
  }
  qp.cq = static_cast<std::uint32_t>(get(context, qpc::cqn_snd));
  if (qp.cq == 0 || qp.cq >= kMaxCqs || !tables_.cqs[qp.cq].used) {
    return {Status::kBadParameter, kBadCq};
  }
  qp.uar = static_cast<std::uint32_t>(get(context, qpc::uar_page));
  if (qp.uar == 0 || qp.uar >= kMaxUars || tables_.uars[qp.uar].page == nullptr) {
    return {Status::kBadParameter, kBadUar};
  }
  const std::uint64_t record_mode = get(context, qpc::send_dbr_mode);
  const bool recordless = record_mode == qpc::kSendDbrModeNoDbrExt;
  if (record_mode != qpc::kSendDbrModeValid && !(recordless && limits_.offers_recordless)) {
    return {Status::kBadParameter, kNoRecordlessQps};
  }
  // A word keeps the last ring only, and where there are no records no other one is found again.
  const bool taken = std::any_of(tables_.qps.begin(), tables_.qps.end(), [&](const QpEntry& q) {
    return q.qpn.value != 0 && q.uar == qp.uar && !q.has_record();
  });
  if (recordless && taken) return {Status::kBadParameter, kRecordlessUar};
  qp.log_sq_size = static_cast<std::uint8_t>(get(context, qpc::log_sq_size));
  if (get(context, qpc::no_sq) == 1 || qp.log_sq_size > kLogMaxQpDepth) {
    return {Status::kBadParameter, kBadSize};
  }
  const auto ring_umem = static_cast<std::uint32_t>(get(in.data(), create::wq_umem_id));
  const std::uint64_t ring_offset = get(in.data(), create::wq_umem_offset);
  const std::byte* ring =
      get(in.data(), create::wq_umem_valid) == 1
          ? umem_range(ring_umem, ring_offset, std::uint64_t{mlx5::kSlotBytes} << qp.log_sq_size,
                       mlx5::kSlotBytes)
          : nullptr;
  if (ring == nullptr) return {Status::kBadParameter, kBadRingUmem};
  const auto record_umem = static_cast<std::uint32_t>(get(context, qpc::dbr_umem_id));
  const std::uint64_t record_offset = get(context, qpc::dbr_addr);
  const std::byte* record =
      !recordless && get(context, qpc::dbr_umem_valid) == 1
          ? umem_range(record_umem, record_offset, mlx5::kDbrecBytes, mlx5::kDbrecBytes)
          : nullptr;
  if (record == nullptr && !recordless) return {Status::kBadParameter, kBadRecordUmem};

  const std::uint32_t index =
      first_free(tables_.qps, [](const QpEntry& q) { return q.qpn.value == 0; });
  if (index == 0) return {Status::kNoResources, kTableFull};
  qp.qpn = Qpn(tables_.qpn_base + index);
  qp.sq = reinterpret_cast<const mlx5::Slot*>(ring);
  if (record != nullptr) {
    qp.dbrec = reinterpret_cast<const std::uint32_t*>(record) + mlx5::kDbrecSendWord;
  }
  // A valid MTU even in reset: clients ask right after creating and refuse anything else.
  qp.mtu = qpc::kMtu256Bytes;
  tables_.qps[index] = qp;
  std::memcpy(contexts_[index].data(), context, contexts_[index].size());
  qp_umems_[index] = {ring_umem, record == nullptr ? 0 : record_umem};
  ++tables_.umems[ring_umem].users;
  if (record != nullptr) ++tables_.umems[record_umem].users;
  events_.qp_created(index);
  set(out.data(), create::qpn, qp.qpn.value);
  return {};
}

Commands::Answer Commands::destroy_qp(std::span<const std::byte> in) {
  QpEntry* qp =
      tables_.find_qp(Qpn(static_cast<std::uint32_t>(get(in.data(), mlx5::devx::destroy_qp::qpn))));
  if (qp == nullptr) return {Status::kBadResource, kNoSuchQp};
  const std::uint32_t index = tables_.index_of(*qp);
  events_.qp_destroyed(index);
  --tables_.umems[qp_umems_[index].ring].users;
  if (qp_umems_[index].dbrec != 0) --tables_.umems[qp_umems_[index].dbrec].users;
  *qp = QpEntry{};
  return {};
}

Commands::Answer Commands::modify_qp(CommandOpcode opcode, std::span<const std::byte> in) {
  namespace modify = mlx5::devx::modify_qp;
  QpEntry* qp = tables_.find_qp(Qpn(static_cast<std::uint32_t>(get(in.data(), modify::qpn))));
  if (qp == nullptr) return {Status::kBadResource, kNoSuchQp};
  const std::uint32_t index = tables_.index_of(*qp);
  const auto wrong_state = [] { return Answer{Status::kBadQpState, kWrongQpState}; };

  if (opcode == CommandOpcode::k2ErrQp) {
    qp->state = QpState::kError;
    return {};
  }
  if (opcode == CommandOpcode::k2RstQp) {
    events_.qp_reset(index);
    qp->state = QpState::kReset;
    return {};
  }

  const auto mask = static_cast<std::uint32_t>(get(in.data(), modify::opt_param_mask));
  if ((mask & ~kKnownOptParams) != 0 && rule_is_kept(Refusal::kOptParamMask, in)) {
    return {Status::kBadParameter, kReservedBits};
  }
  const std::byte* context = at(in.data(), modify::qpc);
  std::byte* kept = contexts_[index].data();
  const auto keep = [context, kept](Field f) { set(kept, f, get(context, f)); };
  switch (opcode) {
    case CommandOpcode::kRst2InitQp:
    case CommandOpcode::kInit2InitQp: {
      const bool from_reset = opcode == CommandOpcode::kRst2InitQp;
      if (qp->state != (from_reset ? QpState::kReset : QpState::kInit)) return wrong_state();
      const Field port = within(qpc::primary_address_path, ads::vhca_port_num);
      if (from_reset && get(context, port) != 1) return {Status::kBadParameter, kBadPort};
      qp->remote_write_enabled = get(context, qpc::rwe) == 1;
      qp->remote_read_enabled = get(context, qpc::rre) == 1;
      qp->remote_atomic_enabled = get(context, qpc::rae) == 1;
      qp->atomic_mode = static_cast<std::uint8_t>(get(context, qpc::atomic_mode));
      for (const Field f : {qpc::rwe, qpc::rre, qpc::rae, qpc::atomic_mode, port}) keep(f);
      qp->state = QpState::kInit;
      return {};
    }
    case CommandOpcode::kInit2RtrQp: {
      if (qp->state != QpState::kInit) return wrong_state();
      const std::uint64_t mtu = get(context, qpc::mtu);
      if (mtu < qpc::kMtu256Bytes || mtu > qpc::kMtu4096Bytes) {
        return {Status::kBadParameter, kBadMtu};
      }
      const std::uint64_t log_msg_max = get(context, qpc::log_msg_max);
      if (log_msg_max > limits_.log_max_message) return {Status::kBadParameter, kBadMessageSize};
      if (get(context, qpc::remote_qpn) == 0) return {Status::kBadParameter, kNoRemoteQp};
      qp->mtu = static_cast<std::uint8_t>(mtu);
      qp->log_msg_max = static_cast<std::uint8_t>(log_msg_max);
      qp->remote_qpn = Qpn(static_cast<std::uint32_t>(get(context, qpc::remote_qpn)));
      qp->log_rra_max = static_cast<std::uint8_t>(get(context, qpc::log_rra_max));
      qp->min_rnr_timer = static_cast<std::uint8_t>(get(context, qpc::min_rnr_nak));
      qp->next_receive_psn = Psn(static_cast<std::uint32_t>(get(context, qpc::next_rcv_psn)));
      for (const Field f : {qpc::mtu, qpc::log_msg_max, qpc::remote_qpn, qpc::next_rcv_psn,
                            qpc::min_rnr_nak, qpc::log_rra_max}) {
        keep(f);
      }
      events_.qp_receives_from(index, qp->next_receive_psn);
      qp->state = QpState::kRtr;
      return {};
    }
    case CommandOpcode::kRtr2RtsQp:
      if (qp->state != QpState::kRtr) return wrong_state();
      qp->next_send_psn = Psn(static_cast<std::uint32_t>(get(context, qpc::next_send_psn)));
      for (const Field f : {qpc::next_send_psn, qpc::retry_count, qpc::rnr_retry, qpc::log_sra_max,
                            within(qpc::primary_address_path, ads::ack_timeout)}) {
        keep(f);
      }
      qp->log_sra_max = static_cast<std::uint8_t>(get(context, qpc::log_sra_max));
      qp->retry_count = static_cast<std::uint8_t>(get(context, qpc::retry_count));
      qp->rnr_retry = static_cast<std::uint8_t>(get(context, qpc::rnr_retry));
      qp->ack_timeout = static_cast<std::uint8_t>(
          get(context, within(qpc::primary_address_path, ads::ack_timeout)));
      events_.qp_sends_from(index, qp->next_send_psn);
      qp->state = QpState::kRts;
      return {};
    default: return qp->state == QpState::kRts ? Answer{} : wrong_state();
  }
}

Commands::Answer Commands::query_qp(std::span<const std::byte> in, std::span<std::byte> out) {
  namespace query = mlx5::devx::query_qp;
  const QpEntry* qp = tables_.find_qp(Qpn(static_cast<std::uint32_t>(get(in.data(), query::qpn))));
  if (qp == nullptr) return {Status::kBadResource, kNoSuchQp};
  std::byte* context = at(out.data(), query::qpc);
  std::memcpy(context, contexts_[tables_.index_of(*qp)].data(), sizeof(Context));
  set(context, qpc::state, static_cast<std::uint8_t>(qp->state));
  set(context, qpc::mtu, qp->mtu);
  return {};
}

std::uint32_t Commands::allocate_pd() {
  const std::uint32_t pd = first_free(tables_.pds, [](bool used) { return !used; });
  if (pd != 0) tables_.pds[pd] = true;
  return pd;
}

bool Commands::free_pd(std::uint32_t pd) {
  if (pd == 0 || pd >= kMaxPds || !tables_.pds[pd]) return false;
  for (const QpEntry& qp : tables_.qps) {
    if (qp.qpn.value != 0 && qp.pd == pd) return false;
  }
  for (const KeyEntry& key : tables_.keys) {
    if (key.key != 0 && key.pd == pd) return false;
  }
  tables_.pds[pd] = false;
  return true;
}

std::uint32_t Commands::allocate_uar(std::byte* page) {
  const std::uint32_t uar =
      first_free(tables_.uars, [](const UarEntry& u) { return u.page == nullptr; });
  if (uar != 0) tables_.uars[uar] = {page};
  return uar;
}

bool Commands::free_uar(std::uint32_t uar) {
  if (uar == 0 || uar >= kMaxUars || tables_.uars[uar].page == nullptr) return false;
  for (const QpEntry& qp : tables_.qps) {
    if (qp.qpn.value != 0 && qp.uar == uar) return false;
  }
  for (const CqEntry& cq : tables_.cqs) {
    if (cq.used && cq.uar == uar) return false;
  }
  if (!events_.uar_freed(tables_.uars[uar])) return false;
  tables_.uars[uar] = UarEntry{};
  return true;
}

std::uint32_t Commands::register_umem(std::byte* memory, std::uint64_t bytes) {
  if (memory == nullptr || bytes == 0) return 0;
  const std::uint32_t umem =
      first_free(tables_.umems, [](const UmemEntry& u) { return u.memory == nullptr; });
  if (umem != 0) tables_.umems[umem] = {memory, bytes, 0};
  return umem;
}

bool Commands::deregister_umem(std::uint32_t umem) {
  if (umem == 0 || umem >= kMaxUmems || tables_.umems[umem].memory == nullptr) return false;
  if (tables_.umems[umem].users != 0) return false;
  tables_.umems[umem] = UmemEntry{};
  return true;
}

std::uint32_t Commands::register_region(std::uint32_t pd, std::uint64_t start, std::byte* memory,
                                        std::uint64_t bytes, std::uint32_t access) {
  if (pd == 0 || pd >= kMaxPds || !tables_.pds[pd]) return 0;
  if (memory == nullptr || bytes == 0 || start + bytes < start) return 0;
  // As ibv_reg_mr: whoever lets the peer write may write.
  if ((access & (kRemoteWrite | kRemoteAtomic)) != 0 && (access & kLocalWrite) == 0) return 0;
  const std::uint32_t index =
      first_free(tables_.keys, [](const KeyEntry& k) { return k.key == 0; });
  if (index == 0) return 0;
  KeyEntry& entry = tables_.keys[index];
  entry.key = tables_.next_key(index, entry.last_key);
  entry.last_key = entry.key;
  entry.pd = pd;
  entry.access = access;
  entry.start = start;
  entry.bytes = bytes;
  entry.memory = memory;
  ++tables_.epoch;
  return entry.key;
}

bool Commands::deregister_region(std::uint32_t key) {
  const KeyEntry* found = tables_.find_key(key);
  if (found == nullptr) return false;
  KeyEntry& entry = tables_.keys[static_cast<std::size_t>(found - tables_.keys.data())];
  const std::uint32_t last_key = entry.last_key;
  entry = KeyEntry{};
  entry.last_key = last_key;
  ++tables_.epoch;
  events_.region_forgotten(key);
  return true;
}

Commands::Objects Commands::objects() const {
  return {
      used_entries(tables_.pds, [](bool used) { return used; }),
      used_entries(tables_.uars, [](const UarEntry& u) { return u.page != nullptr; }),
      used_entries(tables_.umems, [](const UmemEntry& u) { return u.memory != nullptr; }),
      used_entries(tables_.keys, [](const KeyEntry& k) { return k.key != 0; }),
      used_entries(tables_.cqs, [](const CqEntry& c) { return c.used; }),
      used_entries(tables_.qps, [](const QpEntry& q) { return q.qpn.value != 0; }),
  };
}

}  // namespace peal::nic
