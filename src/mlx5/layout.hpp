// DevX commands as bit layouts (mlx5 PRM, command reference), used by both ends of a command.
// Names of fields are those of the Linux kernel's mlx5_ifc.h where it has one, so that the tests
// can hold each against it. Knows formats only: no state, no policy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "peal/core/types.hpp"

namespace peal::mlx5::devx {

// `bit` counts from the start of the command or of the context that holds the field, most
// significant bit first. A field of up to 32 bits lies in one big-endian dword; a 64-bit field is
// two whole dwords. Anything wider is a context, and is reached by `within` or `at`.
struct Field {
  std::uint32_t bit;
  std::uint32_t width;

  constexpr bool is_integer() const {
    if (width == 64) return bit % 32 == 0;
    return width >= 1 && width <= 32 && bit / 32 == (bit + width - 1) / 32;
  }
  constexpr std::uint64_t max() const { return ~std::uint64_t{0} >> (64 - width); }
};

// `field` of the context at `context`, counted from where `context` is counted.
constexpr Field within(Field context, Field field) {
  return {context.bit + field.bit, field.width};
}

// Where a context or byte-aligned field lies.
inline std::byte* at(std::byte* buffer, Field field) {
  return buffer + field.bit / 8;
}
inline const std::byte* at(const std::byte* buffer, Field field) {
  return buffer + field.bit / 8;
}

namespace detail {
inline std::uint32_t load_be32(const std::byte* p) {
  std::uint32_t raw;
  std::memcpy(&raw, p, sizeof raw);
  return swap_bytes(raw);
}
inline void store_be32(std::byte* p, std::uint32_t value) {
  const std::uint32_t raw = swap_bytes(value);
  std::memcpy(p, &raw, sizeof raw);
}
// Always on: a value that is cut off silently makes a queue of another size than was asked for.
inline void require(bool ok, const char* what, Field field) {
  if (ok) return;
  std::fprintf(stderr, "peal: %s: field at bit 0x%x, width %u\n", what, field.bit, field.width);
  std::abort();
}
}  // namespace detail

inline std::uint64_t get(const std::byte* buffer, Field field) {
  detail::require(field.is_integer(), "not an integer field", field);
  const std::byte* dword = buffer + field.bit / 32 * 4;
  const std::uint64_t first = detail::load_be32(dword);
  if (field.width == 64) return (first << 32) | detail::load_be32(dword + 4);
  return (first >> (32 - field.bit % 32 - field.width)) & field.max();
}

// Leaves every other bit as it is. Ends the program when `value` does not fit.
inline void set(std::byte* buffer, Field field, std::uint64_t value) {
  detail::require(field.is_integer(), "not an integer field", field);
  detail::require(value <= field.max(), "value too large for its field", field);
  std::byte* dword = buffer + field.bit / 32 * 4;
  if (field.width == 64) {
    detail::store_be32(dword, static_cast<std::uint32_t>(value >> 32));
    detail::store_be32(dword + 4, static_cast<std::uint32_t>(value));
    return;
  }
  const std::uint32_t shift = 32 - field.bit % 32 - field.width;
  const std::uint32_t mask = static_cast<std::uint32_t>(field.max() << shift);
  const std::uint32_t bits = static_cast<std::uint32_t>(value << shift);
  detail::store_be32(dword, (detail::load_be32(dword) & ~mask) | bits);
}

enum class CommandOpcode : std::uint16_t {
  kQueryHcaCap = 0x100,
  kCreateCq = 0x400,
  kDestroyCq = 0x401,
  kCreateQp = 0x500,
  kDestroyQp = 0x501,
  kRst2InitQp = 0x502,
  kInit2RtrQp = 0x503,
  kRtr2RtsQp = 0x504,
  kRts2RtsQp = 0x505,
  k2ErrQp = 0x507,
  k2RstQp = 0x50a,
  kQueryQp = 0x50b,
  kInit2InitQp = 0x50e,
  kQueryRoceAddress = 0x760,
};

constexpr const char* command_name(std::uint64_t opcode) {
  switch (static_cast<CommandOpcode>(opcode)) {
    case CommandOpcode::kQueryHcaCap: return "QUERY_HCA_CAP";
    case CommandOpcode::kCreateCq: return "CREATE_CQ";
    case CommandOpcode::kDestroyCq: return "DESTROY_CQ";
    case CommandOpcode::kCreateQp: return "CREATE_QP";
    case CommandOpcode::kDestroyQp: return "DESTROY_QP";
    case CommandOpcode::kRst2InitQp: return "RST2INIT_QP";
    case CommandOpcode::kInit2RtrQp: return "INIT2RTR_QP";
    case CommandOpcode::kRtr2RtsQp: return "RTR2RTS_QP";
    case CommandOpcode::kRts2RtsQp: return "RTS2RTS_QP";
    case CommandOpcode::k2ErrQp: return "2ERR_QP";
    case CommandOpcode::k2RstQp: return "2RST_QP";
    case CommandOpcode::kQueryQp: return "QUERY_QP";
    case CommandOpcode::kInit2InitQp: return "INIT2INIT_QP";
    case CommandOpcode::kQueryRoceAddress: return "QUERY_ROCE_ADDRESS";
  }
  return "unknown command";
}

enum class CommandStatus : std::uint8_t {
  kOk = 0x00,
  kInternalError = 0x01,
  kBadOpcode = 0x02,
  kBadParameter = 0x03,
  kBadSystemState = 0x04,
  kBadResource = 0x05,
  kResourceBusy = 0x06,
  kLimitExceeded = 0x08,
  kBadResourceState = 0x09,
  kBadIndex = 0x0a,
  kNoResources = 0x0f,
  kBadQpState = 0x10,
  kBadInputLength = 0x50,
  kBadOutputLength = 0x51,
};

constexpr const char* command_status_name(std::uint8_t status) {
  switch (static_cast<CommandStatus>(status)) {
    case CommandStatus::kOk: return "ok";
    case CommandStatus::kInternalError: return "internal error";
    case CommandStatus::kBadOpcode: return "bad opcode";
    case CommandStatus::kBadParameter: return "bad parameter";
    case CommandStatus::kBadSystemState: return "bad system state";
    case CommandStatus::kBadResource: return "bad resource";
    case CommandStatus::kResourceBusy: return "resource busy";
    case CommandStatus::kLimitExceeded: return "limit exceeded";
    case CommandStatus::kBadResourceState: return "bad resource state";
    case CommandStatus::kBadIndex: return "bad index";
    case CommandStatus::kNoResources: return "no resources";
    case CommandStatus::kBadQpState: return "bad QP state";
    case CommandStatus::kBadInputLength: return "bad input length";
    case CommandStatus::kBadOutputLength: return "bad output length";
  }
  return "unknown command status";
}

// qpc.state. There is no 5 here: the kernel's driver keeps software states of its own.
enum class QpState : std::uint8_t {
  kRst = 0,
  kInit = 1,
  kRtr = 2,
  kRts = 3,
  kSqer = 4,
  kErr = 6,
  kSqd = 7,
};

constexpr const char* qp_state_name(std::uint64_t state) {
  switch (static_cast<QpState>(state)) {
    case QpState::kRst: return "RST";
    case QpState::kInit: return "INIT";
    case QpState::kRtr: return "RTR";
    case QpState::kRts: return "RTS";
    case QpState::kSqer: return "SQER";
    case QpState::kErr: return "ERR";
    case QpState::kSqd: return "SQD";
  }
  return "unknown QP state";
}

// What every command begins with, and every answer.
namespace header {
inline constexpr std::uint32_t kInBytesMin = 8;
inline constexpr std::uint32_t kOutBytesMin = 8;
inline constexpr Field opcode{0x00, 16};
inline constexpr Field uid{0x10, 16};
inline constexpr Field op_mod{0x30, 16};
inline constexpr Field status{0x00, 8};
inline constexpr Field syndrome{0x20, 32};
}  // namespace header

namespace query_hca_cap {
inline constexpr std::uint32_t kInBytes = 16;
inline constexpr std::uint32_t kOutBytes = 4112;
inline constexpr std::uint32_t kCapabilityBytes = 4096;
inline constexpr Field capability{0x80, 8 * kCapabilityBytes};
// op_mod is the group of capabilities above one bit: 0 the maximum, 1 the current value.
inline constexpr std::uint16_t kGeneral = 0x00;
inline constexpr std::uint16_t kRoce = 0x04;
inline constexpr std::uint16_t kGeneral2 = 0x20;
constexpr std::uint16_t group_of(std::uint64_t op_mod) {
  return static_cast<std::uint16_t>(op_mod >> 1);
}
}  // namespace query_hca_cap

// The general capabilities (cmd_hca_cap).
namespace hca_cap {
inline constexpr Field hca_cap_2{0x020, 1};
inline constexpr Field log_max_qp_sz{0x088, 8};
inline constexpr Field rts2rts_qp_dscp{0x16a, 1};  // not in mlx5_ifc.h
inline constexpr Field gid_table_size{0x170, 16};
inline constexpr Field port_type{0x1b6, 2};
inline constexpr Field rc{0x23f, 1};
inline constexpr Field max_wqe_sz_sq{0x290, 16};
inline constexpr Field max_wqe_sz_rq{0x2b0, 16};
inline constexpr std::uint32_t kPortTypeIb = 0;
inline constexpr std::uint32_t kPortTypeEthernet = 1;
}  // namespace hca_cap

// The second page of general capabilities (cmd_hca_cap_2).
namespace hca_cap_2 {
inline constexpr Field send_dbr_mode_no_dbr_ext{0x2e1, 1};  // not in mlx5_ifc.h
}  // namespace hca_cap_2

namespace roce_cap {
inline constexpr Field r_roce_max_src_udp_port{0xc0, 16};
inline constexpr Field r_roce_min_src_udp_port{0xd0, 16};
inline constexpr Field roce_address_table_size{0xf0, 16};
}  // namespace roce_cap

namespace query_roce_address {
inline constexpr std::uint32_t kInBytes = 16;
inline constexpr std::uint32_t kOutBytes = 48;
inline constexpr Field roce_address_index{0x40, 16};
inline constexpr Field roce_address{0x80, 256};
}  // namespace query_roce_address

namespace roce_addr_layout {
inline constexpr Field source_l3_address{0x00, 128};
inline constexpr Field source_mac_47_32{0x90, 16};
inline constexpr Field source_mac_31_0{0xa0, 32};
inline constexpr Field roce_l3_type{0xd4, 4};
inline constexpr Field roce_version{0xd8, 8};
inline constexpr std::uint32_t kRoceVersion2 = 2;
}  // namespace roce_addr_layout

namespace create_cq {
inline constexpr std::uint32_t kInBytes = 272;
inline constexpr std::uint32_t kOutBytes = 16;
inline constexpr Field cq_context{0x080, 512};
inline constexpr Field cq_umem_offset{0x280, 64};  // not in mlx5_ifc.h
inline constexpr Field cq_umem_id{0x2c0, 32};      // not in mlx5_ifc.h
inline constexpr Field cq_umem_valid{0x2e0, 1};
inline constexpr Field cqn{0x48, 24};  // in the answer
}  // namespace create_cq

namespace cqc {
inline constexpr Field dbr_umem_valid{0x006, 1};
inline constexpr Field cqe_sz{0x008, 3};
inline constexpr Field cc{0x00b, 1};
inline constexpr Field oi{0x00e, 1};
inline constexpr Field dbr_umem_id{0x020, 32};  // not in mlx5_ifc.h
inline constexpr Field log_cq_size{0x063, 5};
inline constexpr Field uar_page{0x068, 24};
inline constexpr Field c_eqn{0x0b8, 8};  // the low byte of c_eqn_or_apu_element
inline constexpr Field dbr_addr{0x1c0, 64};
inline constexpr std::uint32_t kCqeSize64Bytes = 0;
}  // namespace cqc

namespace destroy_cq {
inline constexpr std::uint32_t kInBytes = 16;
inline constexpr std::uint32_t kOutBytes = 16;
inline constexpr Field cqn{0x48, 24};
}  // namespace destroy_cq

namespace create_qp {
inline constexpr std::uint32_t kInBytes = 272;
inline constexpr std::uint32_t kOutBytes = 16;
inline constexpr Field opt_param_mask{0x080, 32};
inline constexpr Field qpc{0x0c0, 1856};
inline constexpr Field wq_umem_offset{0x800, 64};  // not in mlx5_ifc.h
inline constexpr Field wq_umem_id{0x840, 32};      // not in mlx5_ifc.h
inline constexpr Field wq_umem_valid{0x860, 1};
inline constexpr Field qpn{0x48, 24};  // in the answer
}  // namespace create_qp

// A path, inside a QP context.
namespace ads {
inline constexpr Field pkey_index{0x010, 16};
inline constexpr Field grh{0x028, 1};
inline constexpr Field rlid{0x030, 16};
inline constexpr Field ack_timeout{0x040, 5};
inline constexpr Field src_addr_index{0x048, 8};
inline constexpr Field hop_limit{0x058, 8};
inline constexpr Field tclass{0x064, 8};
inline constexpr Field flow_label{0x06c, 20};
inline constexpr Field rgid_rip{0x080, 128};
inline constexpr Field udp_sport{0x110, 16};
inline constexpr Field sl{0x124, 4};
inline constexpr Field vhca_port_num{0x128, 8};
inline constexpr Field rmac_47_32{0x130, 16};
inline constexpr Field rmac_31_0{0x140, 32};
}  // namespace ads

namespace qpc {
inline constexpr Field state{0x000, 4};
inline constexpr Field st{0x008, 8};
inline constexpr Field pm_state{0x013, 2};
inline constexpr Field pd{0x028, 24};
inline constexpr Field mtu{0x040, 3};
inline constexpr Field log_msg_max{0x043, 5};
inline constexpr Field log_rq_size{0x049, 4};
inline constexpr Field log_rq_stride{0x04d, 3};
inline constexpr Field no_sq{0x050, 1};
inline constexpr Field log_sq_size{0x051, 4};  // in units of 64 bytes
inline constexpr Field uar_page{0x068, 24};
inline constexpr Field send_dbr_mode{0x080, 2};  // not in mlx5_ifc.h
inline constexpr Field user_index{0x088, 24};
inline constexpr Field remote_qpn{0x0a8, 24};
inline constexpr Field primary_address_path{0x0c0, 352};
inline constexpr Field secondary_address_path{0x220, 352};
inline constexpr Field log_ack_req_freq{0x380, 4};
inline constexpr Field log_sra_max{0x388, 3};
inline constexpr Field retry_count{0x38d, 3};
inline constexpr Field rnr_retry{0x390, 3};
inline constexpr Field next_send_psn{0x3c8, 24};
inline constexpr Field cqn_snd{0x3e8, 24};
inline constexpr Field log_rra_max{0x488, 3};
inline constexpr Field atomic_mode{0x48c, 4};
inline constexpr std::uint32_t kAtomicModeUpTo8Bytes = 3;
inline constexpr Field rre{0x490, 1};
inline constexpr Field rwe{0x491, 1};
inline constexpr Field rae{0x492, 1};
inline constexpr Field cd_slave_receive{0x49d, 1};
inline constexpr Field cd_slave_send{0x49e, 1};
inline constexpr Field cd_master{0x49f, 1};
inline constexpr Field min_rnr_nak{0x4a3, 5};
inline constexpr Field next_rcv_psn{0x4a8, 24};
inline constexpr Field cqn_rcv{0x4e8, 24};
inline constexpr Field dbr_addr{0x500, 64};
inline constexpr Field rq_type{0x565, 3};
inline constexpr Field srqn_rmpn_xrqn{0x568, 24};
inline constexpr Field dbr_umem_valid{0x683, 1};
inline constexpr Field dbr_umem_id{0x720, 32};  // not in mlx5_ifc.h
inline constexpr std::uint32_t kServiceTypeRc = 0;
inline constexpr std::uint32_t kSendDbrModeValid = 0;
inline constexpr std::uint32_t kSendDbrModeNoDbrExt = 1;  // no record; rung from outside the NIC
inline constexpr std::uint32_t kPmStateMigrated = 3;
inline constexpr std::uint32_t kMtu256Bytes = 1;
inline constexpr std::uint32_t kMtu4096Bytes = 5;
inline constexpr std::uint32_t kRqTypeRegular = 0;
inline constexpr std::uint32_t kRqTypeSrq = 1;
inline constexpr std::uint32_t kRqTypeNone = 3;
}  // namespace qpc

// RST2INIT, INIT2INIT, INIT2RTR, RTR2RTS and RTS2RTS have one shape. 2ERR and 2RST have the first
// 16 bytes of it.
namespace modify_qp {
inline constexpr std::uint32_t kInBytes = 272;
inline constexpr std::uint32_t kOutBytes = 16;
inline constexpr std::uint32_t kShortInBytes = 16;  // 2ERR and 2RST
inline constexpr Field qpn{0x48, 24};
inline constexpr Field opt_param_mask{0x80, 32};
inline constexpr Field qpc{0xc0, 1856};
}  // namespace modify_qp

namespace query_qp {
inline constexpr std::uint32_t kInBytes = 16;
inline constexpr std::uint32_t kOutBytes = 272;
inline constexpr Field qpn{0x48, 24};
inline constexpr Field opt_param_mask{0x80, 32};  // in the answer
inline constexpr Field qpc{0xc0, 1856};           // in the answer
}  // namespace query_qp

namespace destroy_qp {
inline constexpr std::uint32_t kInBytes = 16;
inline constexpr std::uint32_t kOutBytes = 16;
inline constexpr Field qpn{0x48, 24};
}  // namespace destroy_qp

}  // namespace peal::mlx5::devx
