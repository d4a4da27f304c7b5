// One NIC with what queues are made from, and its commands as a client would write them.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "nic/core.hpp"
#include "nic/raw_client.hpp"
#include "nic/test_wire.hpp"

namespace peal::test {

inline std::uint32_t syndrome_of(const RawCommand& command) {
  return static_cast<std::uint32_t>(command.get(mlx5::devx::header::syndrome));
}

// One NIC with what a queue is made from: two PDs' worth of memory, umems, a UAR.
struct CommandDevice {
  explicit CommandDevice(const nic::CoreOptions& options = {.nic_number = 3})
      : core(options, link), commands(core.commands()), pd(commands.allocate_pd()), uar(commands) {
    ring_umem = commands.register_umem(ring->bytes, sizeof ring->bytes);
    cq_umem = commands.register_umem(cq->bytes, sizeof cq->bytes);
    record_umem = commands.register_umem(record->bytes, 16);
  }
  // Whatever a test left can go, in order.
  ~CommandDevice() {
    for (const nic::QpEntry& qp : core.tables().qps) {
      if (qp.qpn == Qpn()) continue;
      RawCommand c = destroy_qp(qp.qpn);
      EXPECT_TRUE(execute(commands, c));
    }
    for (std::uint32_t i = 1; i < nic::kMaxCqs; ++i) {
      if (!core.tables().cqs[i].used) continue;
      RawCommand c = destroy_cq(i);
      EXPECT_TRUE(execute(commands, c));
    }
    for (const nic::UmemEntry& umem : core.tables().umems) EXPECT_EQ(umem.users, 0u);
  }

  // In which nothing is wrong.
  RawCommand create_cq() const {
    RawCommand c(mlx5::devx::CommandOpcode::kCreateCq);
    const auto in = [](mlx5::devx::Field f) {
      return mlx5::devx::within(mlx5::devx::create_cq::cq_context, f);
    };
    c.set(in(mlx5::devx::cqc::log_cq_size), 4);
    c.set(in(mlx5::devx::cqc::oi), 1);
    c.set(in(mlx5::devx::cqc::uar_page), uar.number());
    c.set(mlx5::devx::create_cq::cq_umem_valid, 1);
    c.set(mlx5::devx::create_cq::cq_umem_id, cq_umem);
    return c;
  }
  static mlx5::devx::Field in_qpc(mlx5::devx::Field f) {
    return mlx5::devx::within(mlx5::devx::create_qp::qpc, f);
  }
  RawCommand create_qp(std::uint32_t cqn) const {
    RawCommand c(mlx5::devx::CommandOpcode::kCreateQp);
    c.set(in_qpc(mlx5::devx::qpc::pd), pd);
    c.set(in_qpc(mlx5::devx::qpc::log_sq_size), 4);
    c.set(in_qpc(mlx5::devx::qpc::rq_type), mlx5::devx::qpc::kRqTypeNone);
    c.set(in_qpc(mlx5::devx::qpc::uar_page), uar.number());
    c.set(in_qpc(mlx5::devx::qpc::cqn_snd), cqn);
    c.set(in_qpc(mlx5::devx::qpc::dbr_umem_valid), 1);
    c.set(in_qpc(mlx5::devx::qpc::dbr_umem_id), record_umem);
    c.set(mlx5::devx::create_qp::wq_umem_valid, 1);
    c.set(mlx5::devx::create_qp::wq_umem_id, ring_umem);
    return c;
  }
  std::uint32_t make_cq() {
    RawCommand c = create_cq();
    EXPECT_TRUE(execute(commands, c));
    return static_cast<std::uint32_t>(c.get(mlx5::devx::create_cq::cqn));
  }
  Qpn make_qp(std::uint32_t cqn) {
    RawCommand c = create_qp(cqn);
    EXPECT_TRUE(execute(commands, c));
    return Qpn(static_cast<std::uint32_t>(c.get(mlx5::devx::create_qp::qpn)));
  }
  RawCommand destroy_cq(std::uint32_t cqn) const {
    RawCommand c(mlx5::devx::CommandOpcode::kDestroyCq);
    c.set(mlx5::devx::destroy_cq::cqn, cqn);
    return c;
  }
  RawCommand destroy_qp(Qpn qpn) const {
    RawCommand c(mlx5::devx::CommandOpcode::kDestroyQp);
    c.set(mlx5::devx::destroy_qp::qpn, qpn.value);
    return c;
  }
  RawCommand query(Qpn qpn) const {
    RawCommand c(mlx5::devx::CommandOpcode::kQueryQp);
    c.set(mlx5::devx::query_qp::qpn, qpn.value);
    return c;
  }
  // A modify command with every field that some transition needs.
  RawCommand modify(mlx5::devx::CommandOpcode opcode, Qpn qpn) const {
    RawCommand c(opcode);
    const auto in = [](mlx5::devx::Field f) {
      return mlx5::devx::within(mlx5::devx::modify_qp::qpc, f);
    };
    const auto in_path = [in](mlx5::devx::Field f) {
      return in(mlx5::devx::within(mlx5::devx::qpc::primary_address_path, f));
    };
    c.set(mlx5::devx::modify_qp::qpn, qpn.value);
    c.set(in_path(mlx5::devx::ads::vhca_port_num), 1);
    c.set(in(mlx5::devx::qpc::rwe), 1);
    c.set(in(mlx5::devx::qpc::mtu), 3);
    c.set(in(mlx5::devx::qpc::log_msg_max), 30);
    c.set(in(mlx5::devx::qpc::remote_qpn), 0x123456);
    c.set(in(mlx5::devx::qpc::next_rcv_psn), 0xabcdef);
    c.set(in(mlx5::devx::qpc::next_send_psn), 0xfedcba);
    c.set(in(mlx5::devx::qpc::retry_count), 6);
    c.set(in_path(mlx5::devx::ads::ack_timeout), 14);
    return c;
  }
  nic::QpState state(Qpn qpn) const { return core.tables().find_qp(qpn)->state; }

  template <std::size_t N>
  struct alignas(64) Bytes {
    std::byte bytes[N] = {};
  };
  ScriptedLink link;
  nic::Core<CpuMemory> core;
  nic::Commands& commands;
  std::uint32_t pd;
  RawUar uar;
  std::unique_ptr<Bytes<16 * 64>> ring = std::make_unique<Bytes<16 * 64>>();
  std::unique_ptr<Bytes<16 * 64>> cq = std::make_unique<Bytes<16 * 64>>();
  std::unique_ptr<Bytes<64>> record = std::make_unique<Bytes<64>>();
  std::uint32_t ring_umem = 0;
  std::uint32_t cq_umem = 0;
  std::uint32_t record_umem = 0;
};

struct CommandLength {
  mlx5::devx::CommandOpcode opcode;
  std::size_t in_bytes;
  std::size_t out_bytes;
};
// As the PRM gives them.
inline constexpr CommandLength kCommandLengths[] = {
    {mlx5::devx::CommandOpcode::kQueryHcaCap, 16, 4112},
    {mlx5::devx::CommandOpcode::kCreateCq, 272, 16},
    {mlx5::devx::CommandOpcode::kDestroyCq, 16, 16},
    {mlx5::devx::CommandOpcode::kCreateQp, 272, 16},
    {mlx5::devx::CommandOpcode::kDestroyQp, 16, 16},
    {mlx5::devx::CommandOpcode::kRst2InitQp, 272, 16},
    {mlx5::devx::CommandOpcode::kInit2InitQp, 272, 16},
    {mlx5::devx::CommandOpcode::kInit2RtrQp, 272, 16},
    {mlx5::devx::CommandOpcode::kRtr2RtsQp, 272, 16},
    {mlx5::devx::CommandOpcode::kRts2RtsQp, 272, 16},
    {mlx5::devx::CommandOpcode::k2ErrQp, 16, 16},
    {mlx5::devx::CommandOpcode::k2RstQp, 16, 16},
    {mlx5::devx::CommandOpcode::kQueryQp, 16, 272},
};

}  // namespace peal::test
