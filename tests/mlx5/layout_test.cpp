// The DevX layouts against two independent encoders: the bit structs of the Linux kernel's
// mlx5_ifc.h, in which each byte stands for one bit, and the DEVX_SET/GET of rdma-core.
#include "mlx5/layout.hpp"

#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

#ifdef PEAL_HAVE_MLX5_IFC
namespace ifc {
using u8 = std::uint8_t;
#define BIT(n) (1u << (n))
#define BIT_ULL(n) (1ull << (n))
// C++ has no flexible array before the end of a struct, and one struct, not used here, nests one.
#define record (*record)
#include <mlx5_ifc.h>
#undef record
#undef BIT
#undef BIT_ULL
}  // namespace ifc
#endif

namespace peal::mlx5::devx {
namespace {

// Every field that mlx5_ifc.h names: X(our namespace, kernel struct, field).
#define PEAL_COMMAND_FIELDS(X)                                     \
  X(header, create_cq_in, opcode)                                  \
  X(header, create_cq_in, uid)                                     \
  X(header, create_cq_in, op_mod)                                  \
  X(header, create_cq_out, status)                                 \
  X(header, create_cq_out, syndrome)                               \
  X(header, query_hca_cap_in, opcode)                              \
  X(header, query_hca_cap_in, op_mod)                              \
  X(header, query_hca_cap_out, status)                             \
  X(header, query_hca_cap_out, syndrome)                           \
  X(query_hca_cap, query_hca_cap_out, capability)                  \
  X(query_roce_address, query_roce_address_in, roce_address_index) \
  X(query_roce_address, query_roce_address_out, roce_address)      \
  X(create_cq, create_cq_in, cq_context)                           \
  X(create_cq, create_cq_in, cq_umem_valid)                        \
  X(create_cq, create_cq_out, cqn)                                 \
  X(destroy_cq, destroy_cq_in, cqn)                                \
  X(create_qp, create_qp_in, opt_param_mask)                       \
  X(create_qp, create_qp_in, qpc)                                  \
  X(create_qp, create_qp_in, wq_umem_valid)                        \
  X(create_qp, create_qp_out, qpn)                                 \
  X(query_qp, query_qp_in, qpn)                                    \
  X(query_qp, query_qp_out, opt_param_mask)                        \
  X(query_qp, query_qp_out, qpc)                                   \
  X(destroy_qp, destroy_qp_in, qpn)                                \
  X(modify_qp, qp_2err_in, qpn)                                    \
  X(modify_qp, qp_2rst_in, qpn)

#define PEAL_TRANSITION_FIELDS(X, command) \
  X(modify_qp, command, qpn)               \
  X(modify_qp, command, opt_param_mask)    \
  X(modify_qp, command, qpc)

#define PEAL_CAPABILITY_FIELDS(X)                          \
  X(hca_cap, cmd_hca_cap, hca_cap_2)                       \
  X(hca_cap, cmd_hca_cap, log_max_qp_sz)                   \
  X(hca_cap, cmd_hca_cap, gid_table_size)                  \
  X(hca_cap, cmd_hca_cap, port_type)                       \
  X(hca_cap, cmd_hca_cap, rc)                              \
  X(hca_cap, cmd_hca_cap, max_wqe_sz_sq)                   \
  X(hca_cap, cmd_hca_cap, max_wqe_sz_rq)                   \
  X(roce_cap, roce_cap, r_roce_max_src_udp_port)           \
  X(roce_cap, roce_cap, r_roce_min_src_udp_port)           \
  X(roce_cap, roce_cap, roce_address_table_size)           \
  X(roce_addr_layout, roce_addr_layout, source_l3_address) \
  X(roce_addr_layout, roce_addr_layout, source_mac_47_32)  \
  X(roce_addr_layout, roce_addr_layout, source_mac_31_0)   \
  X(roce_addr_layout, roce_addr_layout, roce_l3_type)      \
  X(roce_addr_layout, roce_addr_layout, roce_version)

#define PEAL_CONTEXT_FIELDS(X)        \
  X(cqc, cqc, dbr_umem_valid)         \
  X(cqc, cqc, cqe_sz)                 \
  X(cqc, cqc, cc)                     \
  X(cqc, cqc, oi)                     \
  X(cqc, cqc, log_cq_size)            \
  X(cqc, cqc, uar_page)               \
  X(cqc, cqc, dbr_addr)               \
  X(ads, ads, pkey_index)             \
  X(ads, ads, grh)                    \
  X(ads, ads, rlid)                   \
  X(ads, ads, ack_timeout)            \
  X(ads, ads, src_addr_index)         \
  X(ads, ads, hop_limit)              \
  X(ads, ads, tclass)                 \
  X(ads, ads, flow_label)             \
  X(ads, ads, rgid_rip)               \
  X(ads, ads, udp_sport)              \
  X(ads, ads, sl)                     \
  X(ads, ads, vhca_port_num)          \
  X(ads, ads, rmac_47_32)             \
  X(ads, ads, rmac_31_0)              \
  X(qpc, qpc, state)                  \
  X(qpc, qpc, st)                     \
  X(qpc, qpc, pm_state)               \
  X(qpc, qpc, pd)                     \
  X(qpc, qpc, mtu)                    \
  X(qpc, qpc, log_msg_max)            \
  X(qpc, qpc, log_rq_size)            \
  X(qpc, qpc, log_rq_stride)          \
  X(qpc, qpc, no_sq)                  \
  X(qpc, qpc, log_sq_size)            \
  X(qpc, qpc, uar_page)               \
  X(qpc, qpc, user_index)             \
  X(qpc, qpc, remote_qpn)             \
  X(qpc, qpc, primary_address_path)   \
  X(qpc, qpc, secondary_address_path) \
  X(qpc, qpc, log_ack_req_freq)       \
  X(qpc, qpc, log_sra_max)            \
  X(qpc, qpc, retry_count)            \
  X(qpc, qpc, rnr_retry)              \
  X(qpc, qpc, next_send_psn)          \
  X(qpc, qpc, cqn_snd)                \
  X(qpc, qpc, log_rra_max)            \
  X(qpc, qpc, atomic_mode)            \
  X(qpc, qpc, rre)                    \
  X(qpc, qpc, rwe)                    \
  X(qpc, qpc, rae)                    \
  X(qpc, qpc, cd_slave_receive)       \
  X(qpc, qpc, cd_slave_send)          \
  X(qpc, qpc, cd_master)              \
  X(qpc, qpc, min_rnr_nak)            \
  X(qpc, qpc, next_rcv_psn)           \
  X(qpc, qpc, cqn_rcv)                \
  X(qpc, qpc, dbr_addr)               \
  X(qpc, qpc, rq_type)                \
  X(qpc, qpc, srqn_rmpn_xrqn)         \
  X(qpc, qpc, dbr_umem_valid)

#define PEAL_ALL_FIELDS(X)                   \
  PEAL_COMMAND_FIELDS(X)                     \
  PEAL_TRANSITION_FIELDS(X, rst2init_qp_in)  \
  PEAL_TRANSITION_FIELDS(X, init2init_qp_in) \
  PEAL_TRANSITION_FIELDS(X, init2rtr_qp_in)  \
  PEAL_TRANSITION_FIELDS(X, rtr2rts_qp_in)   \
  PEAL_TRANSITION_FIELDS(X, rts2rts_qp_in)   \
  PEAL_CAPABILITY_FIELDS(X)                  \
  PEAL_CONTEXT_FIELDS(X)

struct NamedField {
  const char* name;
  Field field;
};

constexpr NamedField kFields[] = {
#define X(ours, theirs, field) {#ours "." #field, ours::field},
    PEAL_ALL_FIELDS(X)
#undef X
        {"hca_cap.rts2rts_qp_dscp", hca_cap::rts2rts_qp_dscp},
    {"hca_cap_2.send_dbr_mode_no_dbr_ext", hca_cap_2::send_dbr_mode_no_dbr_ext},
    {"create_cq.cq_umem_offset", create_cq::cq_umem_offset},
    {"create_cq.cq_umem_id", create_cq::cq_umem_id},
    {"cqc.dbr_umem_id", cqc::dbr_umem_id},
    {"cqc.c_eqn", cqc::c_eqn},
    {"create_qp.wq_umem_offset", create_qp::wq_umem_offset},
    {"create_qp.wq_umem_id", create_qp::wq_umem_id},
    {"qpc.send_dbr_mode", qpc::send_dbr_mode},
    {"qpc.dbr_umem_id", qpc::dbr_umem_id},
};

TEST(DevxLayout, FieldsStayInOneDwordUnlessTheyAreContexts) {
  for (const NamedField& f : kFields) {
    if (f.field.width > 64) {
      EXPECT_EQ(f.field.bit % 32, 0u) << f.name;
    } else {
      EXPECT_TRUE(f.field.is_integer()) << f.name;
    }
  }
}

#ifdef PEAL_HAVE_MLX5_IFC

TEST(DevxLayout, FieldsLieWhereTheKernelHeaderSays) {
#define X(ours, theirs, field)                                               \
  EXPECT_EQ(ours::field.bit, offsetof(ifc::mlx5_ifc_##theirs##_bits, field)) \
      << #ours "." #field " in " #theirs;                                    \
  EXPECT_EQ(ours::field.width, sizeof(ifc::mlx5_ifc_##theirs##_bits::field)) \
      << #ours "." #field " in " #theirs;
  PEAL_ALL_FIELDS(X)
#undef X
}

// A gap of a kernel struct: from the end of one named field to the begin of the next one. Named
// neighbours are used and not the reserved field, whose name changes with the kernel's version.
#define PEAL_EXPECT_IN_GAP(ours, theirs, before, after)                            \
  do {                                                                             \
    using Bits = ifc::mlx5_ifc_##theirs##_bits;                                    \
    EXPECT_GE((ours).bit, offsetof(Bits, before) + sizeof(Bits::before)) << #ours; \
    EXPECT_LE((ours).bit + (ours).width, (after)) << #ours;                        \
  } while (false)
#define PEAL_IFC_OFFSET(theirs, field) offsetof(ifc::mlx5_ifc_##theirs##_bits, field)

TEST(DevxLayout, UmemFieldsLieInReservedRangesOfTheKernelHeader) {
  PEAL_EXPECT_IN_GAP(cqc::dbr_umem_id, cqc, st, PEAL_IFC_OFFSET(cqc, page_offset));
  PEAL_EXPECT_IN_GAP(create_cq::cq_umem_offset, create_cq_in, cq_context,
                     PEAL_IFC_OFFSET(create_cq_in, cq_umem_valid));
  PEAL_EXPECT_IN_GAP(create_cq::cq_umem_id, create_cq_in, cq_context,
                     PEAL_IFC_OFFSET(create_cq_in, cq_umem_valid));
  PEAL_EXPECT_IN_GAP(qpc::dbr_umem_id, qpc, dbr_umem_valid, sizeof(ifc::mlx5_ifc_qpc_bits));
  PEAL_EXPECT_IN_GAP(create_qp::wq_umem_offset, create_qp_in, qpc,
                     PEAL_IFC_OFFSET(create_qp_in, wq_umem_valid));
  PEAL_EXPECT_IN_GAP(create_qp::wq_umem_id, create_qp_in, qpc,
                     PEAL_IFC_OFFSET(create_qp_in, wq_umem_valid));
}

TEST(DevxLayout, DoorbellModeAndDscpFieldsLieInReservedRangesOfTheKernelHeader) {
  PEAL_EXPECT_IN_GAP(qpc::send_dbr_mode, qpc, uar_page, PEAL_IFC_OFFSET(qpc, user_index));
  PEAL_EXPECT_IN_GAP(hca_cap_2::send_dbr_mode_no_dbr_ext, cmd_hca_cap_2,
                     ts_cqe_metadata_size2wqe_counter, sizeof(ifc::mlx5_ifc_cmd_hca_cap_2_bits));
  PEAL_EXPECT_IN_GAP(hca_cap::rts2rts_qp_dscp, cmd_hca_cap, rts2rts_qp_counters_set_id,
                     PEAL_IFC_OFFSET(cmd_hca_cap, vnic_env_int_rq_oob));
}

TEST(DevxLayout, EventQueueNumberEndsItsKernelField) {
  const auto end = PEAL_IFC_OFFSET(cqc, c_eqn_or_apu_element) +
                   sizeof(ifc::mlx5_ifc_cqc_bits::c_eqn_or_apu_element);
  EXPECT_EQ(cqc::c_eqn.bit + cqc::c_eqn.width, end);
}

TEST(DevxLayout, CommandSizesAreThoseOfTheKernelHeader) {
#define PEAL_EXPECT_BYTES(bytes, theirs) \
  EXPECT_EQ(8 * (bytes), sizeof(ifc::mlx5_ifc_##theirs##_bits)) << #theirs
  PEAL_EXPECT_BYTES(query_hca_cap::kInBytes, query_hca_cap_in);
  PEAL_EXPECT_BYTES(query_hca_cap::kOutBytes, query_hca_cap_out);
  PEAL_EXPECT_BYTES(query_roce_address::kInBytes, query_roce_address_in);
  PEAL_EXPECT_BYTES(query_roce_address::kOutBytes, query_roce_address_out);
  PEAL_EXPECT_BYTES(create_cq::kInBytes, create_cq_in);
  PEAL_EXPECT_BYTES(create_cq::kOutBytes, create_cq_out);
  PEAL_EXPECT_BYTES(destroy_cq::kInBytes, destroy_cq_in);
  PEAL_EXPECT_BYTES(destroy_cq::kOutBytes, destroy_cq_out);
  PEAL_EXPECT_BYTES(create_qp::kInBytes, create_qp_in);
  PEAL_EXPECT_BYTES(create_qp::kOutBytes, create_qp_out);
  PEAL_EXPECT_BYTES(destroy_qp::kInBytes, destroy_qp_in);
  PEAL_EXPECT_BYTES(destroy_qp::kOutBytes, destroy_qp_out);
  PEAL_EXPECT_BYTES(query_qp::kInBytes, query_qp_in);
  PEAL_EXPECT_BYTES(query_qp::kOutBytes, query_qp_out);
  PEAL_EXPECT_BYTES(modify_qp::kInBytes, rst2init_qp_in);
  PEAL_EXPECT_BYTES(modify_qp::kOutBytes, rst2init_qp_out);
  PEAL_EXPECT_BYTES(modify_qp::kInBytes, init2init_qp_in);
  PEAL_EXPECT_BYTES(modify_qp::kOutBytes, init2init_qp_out);
  PEAL_EXPECT_BYTES(modify_qp::kInBytes, init2rtr_qp_in);
  PEAL_EXPECT_BYTES(modify_qp::kOutBytes, init2rtr_qp_out);
  PEAL_EXPECT_BYTES(modify_qp::kInBytes, rtr2rts_qp_in);
  PEAL_EXPECT_BYTES(modify_qp::kOutBytes, rtr2rts_qp_out);
  PEAL_EXPECT_BYTES(modify_qp::kInBytes, rts2rts_qp_in);
  PEAL_EXPECT_BYTES(modify_qp::kOutBytes, rts2rts_qp_out);
  PEAL_EXPECT_BYTES(modify_qp::kShortInBytes, qp_2err_in);
  PEAL_EXPECT_BYTES(modify_qp::kOutBytes, qp_2err_out);
  PEAL_EXPECT_BYTES(modify_qp::kShortInBytes, qp_2rst_in);
  PEAL_EXPECT_BYTES(modify_qp::kOutBytes, qp_2rst_out);
  EXPECT_EQ(8 * query_hca_cap::kCapabilityBytes, sizeof(ifc::mlx5_ifc_hca_cap_union_bits));
}

TEST(DevxLayout, NumbersAreThoseOfTheKernelHeader) {
  EXPECT_EQ(int(CommandOpcode::kQueryHcaCap), ifc::MLX5_CMD_OP_QUERY_HCA_CAP);
  EXPECT_EQ(int(CommandOpcode::kCreateCq), ifc::MLX5_CMD_OP_CREATE_CQ);
  EXPECT_EQ(int(CommandOpcode::kDestroyCq), ifc::MLX5_CMD_OP_DESTROY_CQ);
  EXPECT_EQ(int(CommandOpcode::kCreateQp), ifc::MLX5_CMD_OP_CREATE_QP);
  EXPECT_EQ(int(CommandOpcode::kDestroyQp), ifc::MLX5_CMD_OP_DESTROY_QP);
  EXPECT_EQ(int(CommandOpcode::kRst2InitQp), ifc::MLX5_CMD_OP_RST2INIT_QP);
  EXPECT_EQ(int(CommandOpcode::kInit2RtrQp), ifc::MLX5_CMD_OP_INIT2RTR_QP);
  EXPECT_EQ(int(CommandOpcode::kRtr2RtsQp), ifc::MLX5_CMD_OP_RTR2RTS_QP);
  EXPECT_EQ(int(CommandOpcode::kRts2RtsQp), ifc::MLX5_CMD_OP_RTS2RTS_QP);
  EXPECT_EQ(int(CommandOpcode::k2ErrQp), ifc::MLX5_CMD_OP_2ERR_QP);
  EXPECT_EQ(int(CommandOpcode::k2RstQp), ifc::MLX5_CMD_OP_2RST_QP);
  EXPECT_EQ(int(CommandOpcode::kQueryQp), ifc::MLX5_CMD_OP_QUERY_QP);
  EXPECT_EQ(int(CommandOpcode::kInit2InitQp), ifc::MLX5_CMD_OP_INIT2INIT_QP);
  EXPECT_EQ(int(CommandOpcode::kQueryRoceAddress), ifc::MLX5_CMD_OP_QUERY_ROCE_ADDRESS);
  EXPECT_EQ(int(QpState::kRst), ifc::MLX5_QPC_STATE_RST);
  EXPECT_EQ(int(QpState::kInit), ifc::MLX5_QPC_STATE_INIT);
  EXPECT_EQ(int(QpState::kRtr), ifc::MLX5_QPC_STATE_RTR);
  EXPECT_EQ(int(QpState::kRts), ifc::MLX5_QPC_STATE_RTS);
  EXPECT_EQ(int(QpState::kSqer), ifc::MLX5_QPC_STATE_SQER);
  EXPECT_EQ(int(QpState::kErr), ifc::MLX5_QPC_STATE_ERR);
  EXPECT_EQ(int(QpState::kSqd), ifc::MLX5_QPC_STATE_SQD);
  EXPECT_EQ(int(qpc::kServiceTypeRc), ifc::MLX5_QPC_ST_RC);
  EXPECT_EQ(int(qpc::kPmStateMigrated), ifc::MLX5_QPC_PM_STATE_MIGRATED);
  EXPECT_EQ(int(qpc::kMtu256Bytes), ifc::MLX5_QPC_MTU_256_BYTES);
  EXPECT_EQ(int(qpc::kMtu4096Bytes), ifc::MLX5_QPC_MTU_4K_BYTES);
  EXPECT_EQ(int(cqc::kCqeSize64Bytes), ifc::MLX5_CQC_CQE_SZ_64_BYTES);
  EXPECT_EQ(int(hca_cap::kPortTypeIb), ifc::MLX5_CAP_PORT_TYPE_IB);
  EXPECT_EQ(int(hca_cap::kPortTypeEthernet), ifc::MLX5_CAP_PORT_TYPE_ETH);
}

#else

TEST(DevxLayout, FieldsLieWhereTheKernelHeaderSays) {
  GTEST_SKIP() << "mlx5_ifc.h not found; it is in Debian's linux-headers-*-common";
}

#endif

TEST(DevxLayout, SetAndGetAgreeWithRdmaCoreOnRandomFields) {
  std::mt19937_64 random(0x5eed0001);
  constexpr std::size_t kBytes = 272;
  alignas(8) std::byte ours[kBytes];
  alignas(8) std::byte theirs[kBytes];
  for (int round = 0; round < 20000; ++round) {
    for (std::size_t i = 0; i < kBytes; ++i) ours[i] = theirs[i] = std::byte(random() & 0xff);
    Field field{};
    if (round % 8 == 0) {
      field = {static_cast<std::uint32_t>(random() % (kBytes / 8) * 64), 64};
      const std::uint64_t value = random();
      set(ours, field, value);
      _devx_set64(theirs, value, field.bit);
      ASSERT_EQ(get(ours, field), value);
      ASSERT_EQ(_devx_get64(ours, field.bit), value);
    } else {
      const auto width = static_cast<std::uint32_t>(1 + random() % 32);
      const auto bit = static_cast<std::uint32_t>(random() % (33 - width));
      field = {static_cast<std::uint32_t>(random() % (kBytes / 4) * 32) + bit, width};
      const std::uint64_t value = random() & field.max();
      set(ours, field, value);
      _devx_set(theirs, static_cast<std::uint32_t>(value), field.bit, field.width);
      ASSERT_EQ(get(ours, field), value);
      ASSERT_EQ(_devx_get(ours, field.bit, field.width), value);
    }
    ASSERT_TRUE(std::equal(ours, ours + kBytes, theirs)) << field.bit << "/" << field.width;
  }
}

TEST(DevxLayout, SetOfOneFieldLeavesEveryOtherFieldOfTheContextAlone) {
  for (const NamedField& f : kFields) {
    if (f.field.width > 64) continue;
    for (const std::byte fill : {std::byte{0x00}, std::byte{0xff}}) {
      std::array<std::byte, create_qp::kInBytes> buffer;
      buffer.fill(fill);
      set(buffer.data(), f.field, fill == std::byte{0} ? f.field.max() : 0);
      std::uint32_t changed = 0;
      for (std::uint32_t bit = 0; bit < 8 * buffer.size(); ++bit) {
        const bool one = get(buffer.data(), {bit, 1}) != 0;
        const bool inside = bit >= f.field.bit && bit < f.field.bit + f.field.width;
        const bool was = fill == std::byte{0xff};
        if (one != was) ++changed;
        ASSERT_EQ(one != was, inside) << f.name << " bit " << bit;
      }
      ASSERT_EQ(changed, f.field.width) << f.name;
    }
  }
}

TEST(DevxLayout, GoldenBytesOfACreateQp) {
  std::array<std::byte, create_qp::kInBytes> in{};
  set(in.data(), header::opcode, static_cast<std::uint16_t>(CommandOpcode::kCreateQp));
  const auto q = [](Field f) { return within(create_qp::qpc, f); };
  set(in.data(), q(qpc::pd), 0x00abcd);
  set(in.data(), q(qpc::log_sq_size), 10);
  set(in.data(), q(qpc::uar_page), 0x123456);
  set(in.data(), q(qpc::cqn_snd), 0x000407);
  set(in.data(), q(qpc::rq_type), qpc::kRqTypeNone);
  set(in.data(), q(qpc::dbr_addr), 0x0102030405060708);
  set(in.data(), q(qpc::dbr_umem_valid), 1);
  set(in.data(), q(qpc::dbr_umem_id), 0x11223344);
  set(in.data(), create_qp::wq_umem_id, 0x55667788);
  set(in.data(), create_qp::wq_umem_valid, 1);

  std::array<std::uint8_t, create_qp::kInBytes> golden{};
  const auto put = [&](std::size_t at, std::initializer_list<std::uint8_t> bytes) {
    std::copy(bytes.begin(), bytes.end(), golden.begin() + static_cast<std::ptrdiff_t>(at));
  };
  put(0x00, {0x05, 0x00});
  put(0x18 + 0x04, {0x00, 0x00, 0xab, 0xcd});
  put(0x18 + 0x08, {0x00, 0x00, 0x50, 0x00});  // 10 in the 4 bits after no_sq
  put(0x18 + 0x0c, {0x00, 0x12, 0x34, 0x56});
  put(0x18 + 0x7c, {0x00, 0x00, 0x04, 0x07});
  put(0x18 + 0xa0, {1, 2, 3, 4, 5, 6, 7, 8});
  put(0x18 + 0xac, {0x03, 0x00, 0x00, 0x00});
  put(0x18 + 0xd0, {0x10, 0x00, 0x00, 0x00});
  put(0x18 + 0xe4, {0x11, 0x22, 0x33, 0x44});
  put(0x108, {0x55, 0x66, 0x77, 0x88});
  put(0x10c, {0x80, 0x00, 0x00, 0x00});
  for (std::size_t i = 0; i < golden.size(); ++i) {
    ASSERT_EQ(std::to_integer<int>(in[i]), golden[i]) << "byte " << i;
  }
}

TEST(DevxLayout, ContextsCanBeReachedByOffsetOrByAddress) {
  std::array<std::byte, modify_qp::kInBytes> in{};
  const Field path = within(modify_qp::qpc, qpc::primary_address_path);
  set(in.data(), within(path, ads::rlid), 0xbeef);
  std::byte* context = at(in.data(), modify_qp::qpc);
  EXPECT_EQ(get(at(context, qpc::primary_address_path), ads::rlid), 0xbeefu);
  EXPECT_EQ(std::to_integer<int>(in[0x18 + 0x18 + 0x06]), 0xbe);
  EXPECT_EQ(std::to_integer<int>(in[0x18 + 0x18 + 0x07]), 0xef);
  EXPECT_EQ(at(in.data(), within(path, ads::rgid_rip)) - in.data(), 0x18 + 0x18 + 0x10);
}

// 65536 slots in a field of four bits once became a queue of size 0.
TEST(DevxLayoutDeathTest, EndsTheProgramWhenAValueIsTooLargeForItsField) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::array<std::byte, create_qp::kInBytes> in{};
  EXPECT_DEATH(set(in.data(), within(create_qp::qpc, qpc::log_sq_size), 16), "too large");
  EXPECT_DEATH(get(in.data(), create_qp::qpc), "not an integer field");
}

TEST(DevxLayout, OpModSelectsTheCapabilityGroup) {
  EXPECT_EQ(query_hca_cap::group_of(0x01), query_hca_cap::kGeneral);
  EXPECT_EQ(query_hca_cap::group_of(0x09), query_hca_cap::kRoce);
  EXPECT_EQ(query_hca_cap::group_of(0x41), query_hca_cap::kGeneral2);
}

TEST(DevxLayout, NamesEveryStatusAndRefusesUnknownOnes) {
  EXPECT_STREQ(command_status_name(0x00), "ok");
  EXPECT_STREQ(command_status_name(0x51), "bad output length");
  EXPECT_STREQ(command_status_name(0x77), "unknown command status");
  EXPECT_STREQ(command_name(0x50b), "QUERY_QP");
  EXPECT_STREQ(command_name(0x999), "unknown command");
  EXPECT_STREQ(qp_state_name(6), "ERR");
  EXPECT_STREQ(qp_state_name(5), "unknown QP state");
}

}  // namespace
}  // namespace peal::mlx5::devx
