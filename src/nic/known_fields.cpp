#include "nic/known_fields.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>

namespace peal::nic {
namespace {

using namespace mlx5::devx;

constexpr std::size_t kMaxInBytes = 272;
using Bits = std::array<std::byte, kMaxInBytes>;

void know(Bits& bits, Field f) {
  for (std::uint32_t bit = f.bit; bit != f.bit + f.width; ++bit) {
    bits[bit / 8] |= std::byte{0x80} >> (bit % 8);
  }
}

Bits of_header() {
  Bits bits{};
  for (const Field f : {header::opcode, header::uid, header::op_mod}) know(bits, f);
  return bits;
}

void know_qp_context(Bits& bits, Field context) {
  for (const Field f : {qpc::state,
                        qpc::st,
                        qpc::pm_state,
                        qpc::pd,
                        qpc::mtu,
                        qpc::log_msg_max,
                        qpc::log_rq_size,
                        qpc::log_rq_stride,
                        qpc::no_sq,
                        qpc::log_sq_size,
                        qpc::uar_page,
                        qpc::send_dbr_mode,
                        qpc::user_index,
                        qpc::remote_qpn,
                        qpc::log_ack_req_freq,
                        qpc::log_sra_max,
                        qpc::retry_count,
                        qpc::rnr_retry,
                        qpc::next_send_psn,
                        qpc::cqn_snd,
                        qpc::log_rra_max,
                        qpc::atomic_mode,
                        qpc::rre,
                        qpc::rwe,
                        qpc::rae,
                        qpc::cd_slave_receive,
                        qpc::cd_slave_send,
                        qpc::cd_master,
                        qpc::min_rnr_nak,
                        qpc::next_rcv_psn,
                        qpc::cqn_rcv,
                        qpc::dbr_addr,
                        qpc::rq_type,
                        qpc::srqn_rmpn_xrqn,
                        qpc::dbr_umem_valid,
                        qpc::dbr_umem_id}) {
    know(bits, within(context, f));
  }
  for (const Field path : {qpc::primary_address_path, qpc::secondary_address_path}) {
    for (const Field f :
         {ads::pkey_index, ads::grh, ads::rlid, ads::ack_timeout, ads::src_addr_index,
          ads::hop_limit, ads::tclass, ads::flow_label, ads::rgid_rip, ads::udp_sport, ads::sl,
          ads::vhca_port_num, ads::rmac_47_32, ads::rmac_31_0}) {
      know(bits, within(context, within(path, f)));
    }
  }
}

Bits of_create_cq() {
  Bits bits = of_header();
  for (const Field f : {cqc::dbr_umem_valid, cqc::cqe_sz, cqc::cc, cqc::oi, cqc::dbr_umem_id,
                        cqc::log_cq_size, cqc::uar_page, cqc::c_eqn, cqc::dbr_addr}) {
    know(bits, within(create_cq::cq_context, f));
  }
  for (const Field f :
       {create_cq::cq_umem_offset, create_cq::cq_umem_id, create_cq::cq_umem_valid}) {
    know(bits, f);
  }
  return bits;
}

Bits of_create_qp() {
  Bits bits = of_header();
  know_qp_context(bits, create_qp::qpc);
  for (const Field f : {create_qp::opt_param_mask, create_qp::wq_umem_offset, create_qp::wq_umem_id,
                        create_qp::wq_umem_valid}) {
    know(bits, f);
  }
  return bits;
}

Bits of_modify_qp() {
  Bits bits = of_header();
  know_qp_context(bits, modify_qp::qpc);
  know(bits, modify_qp::qpn);
  know(bits, modify_qp::opt_param_mask);
  return bits;
}

const Bits* known_bits(CommandOpcode opcode) {
  static const Bits create_cq_bits = of_create_cq();
  static const Bits create_qp_bits = of_create_qp();
  static const Bits modify_qp_bits = of_modify_qp();
  switch (opcode) {
    case CommandOpcode::kCreateCq: return &create_cq_bits;
    case CommandOpcode::kCreateQp: return &create_qp_bits;
    case CommandOpcode::kRst2InitQp:
    case CommandOpcode::kInit2InitQp:
    case CommandOpcode::kInit2RtrQp:
    case CommandOpcode::kRtr2RtsQp:
    case CommandOpcode::kRts2RtsQp: return &modify_qp_bits;
    default: return nullptr;
  }
}

}  // namespace

bool sets_unknown_field(CommandOpcode opcode, std::span<const std::byte> in) {
  const Bits* known = known_bits(opcode);
  if (known == nullptr) return false;
  const std::size_t bytes = std::min(in.size(), kMaxInBytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    if ((in[i] & ~(*known)[i]) != std::byte{0}) return true;
  }
  return false;
}

}  // namespace peal::nic
