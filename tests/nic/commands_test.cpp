#include "nic/commands.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "nic/command_device.hpp"

namespace peal::nic {
namespace {

namespace devx = mlx5::devx;
using devx::CommandOpcode;
using devx::CommandStatus;
using test::CommandDevice;
using test::execute;
using test::kCommandLengths;
using test::RawCommand;
using test::status_of;
using test::syndrome_of;

TEST(Command, TooShortAnInputOrOutputIsRefused) {
  CommandDevice nic;
  const Commands::Objects before = nic.commands.objects();
  for (const test::CommandLength& length : kCommandLengths) {
    const std::string name = devx::command_name(static_cast<std::uint16_t>(length.opcode));
    // Exact buffers, so that an access beyond them is seen.
    for (std::size_t bytes = 0; bytes < length.in_bytes; ++bytes) {
      std::vector<std::byte> in(bytes);
      std::vector<std::byte> out(length.out_bytes, std::byte{0xff});
      if (bytes >= 4)
        devx::set(in.data(), devx::header::opcode, static_cast<std::uint16_t>(length.opcode));
      EXPECT_FALSE(nic.commands.execute(in, out)) << name << " " << bytes;
      EXPECT_EQ(devx::get(out.data(), devx::header::status),
                static_cast<std::uint8_t>(CommandStatus::kBadInputLength))
          << name << " " << bytes;
      EXPECT_NE(devx::get(out.data(), devx::header::syndrome), 0u) << name << " " << bytes;
    }
    for (std::size_t bytes = 8; bytes < length.out_bytes; bytes += bytes < 300 ? 1 : 97) {
      std::vector<std::byte> in(length.in_bytes);
      std::vector<std::byte> out(bytes);
      devx::set(in.data(), devx::header::opcode, static_cast<std::uint16_t>(length.opcode));
      EXPECT_FALSE(nic.commands.execute(in, out)) << name << " " << bytes;
      EXPECT_EQ(devx::get(out.data(), devx::header::status),
                static_cast<std::uint8_t>(CommandStatus::kBadOutputLength))
          << name << " " << bytes;
    }
  }
  EXPECT_EQ(nic.commands.objects(), before);
}

TEST(Command, UnknownOpcodeIsRefused) {
  CommandDevice nic;
  for (std::uint32_t opcode = 0; opcode < 0x1000; ++opcode) {
    bool known = false;
    for (const test::CommandLength& l : kCommandLengths)
      known |= static_cast<std::uint32_t>(l.opcode) == opcode;
    if (known) continue;
    RawCommand c{static_cast<CommandOpcode>(opcode)};
    EXPECT_FALSE(execute(nic.commands, c)) << opcode;
    EXPECT_EQ(status_of(c), CommandStatus::kBadOpcode) << opcode;
  }
}

TEST(QueryHcaCap, AnswersWhatAClientAsksForAndRefusesOtherGroups) {
  CommandDevice nic;
  RawCommand c(CommandOpcode::kQueryHcaCap);
  c.set(devx::header::op_mod, 1);
  ASSERT_TRUE(execute(nic.commands, c));
  const std::byte* caps = devx::at(c.out.data(), devx::query_hca_cap::capability);
  EXPECT_EQ(devx::get(caps, devx::hca_cap::rc), 1u);
  EXPECT_EQ(devx::get(caps, devx::hca_cap::log_max_qp_sz), 15u);
  EXPECT_EQ(devx::get(caps, devx::hca_cap::max_wqe_sz_sq), 1024u);
  EXPECT_EQ(devx::get(caps, devx::hca_cap::hca_cap_2), 1u);
  RawCommand second(CommandOpcode::kQueryHcaCap);
  second.set(devx::header::op_mod, 0x41);
  ASSERT_TRUE(execute(nic.commands, second));
  EXPECT_EQ(devx::get(devx::at(second.out.data(), devx::query_hca_cap::capability),
                      devx::hca_cap_2::send_dbr_mode_no_dbr_ext),
            1u);
  RawCommand unknown(CommandOpcode::kQueryHcaCap);
  unknown.set(devx::header::op_mod, 0x55 << 1);
  EXPECT_FALSE(execute(nic.commands, unknown));
  EXPECT_EQ(status_of(unknown), CommandStatus::kBadParameter);
}

struct Spoiled {
  const char* name;
  void (*spoil)(const CommandDevice&, RawCommand&);
};

TEST(CreateCq, RefusesEachWrongParameterWithASyndrome) {
  const Spoiled all[] = {
      {"no UAR",
       [](const CommandDevice&, RawCommand& c) {
         c.set(devx::within(devx::create_cq::cq_context, devx::cqc::uar_page), 0);
       }},
      {"a UAR that is none",
       [](const CommandDevice& d, RawCommand& c) {
         c.set(devx::within(devx::create_cq::cq_context, devx::cqc::uar_page), d.uar.number() + 1);
       }},
      {"a UAR beyond the table",
       [](const CommandDevice&, RawCommand& c) {
         c.set(devx::within(devx::create_cq::cq_context, devx::cqc::uar_page), 0xffffff);
       }},
      {"128-byte CQEs",
       [](const CommandDevice&, RawCommand& c) {
         c.set(devx::within(devx::create_cq::cq_context, devx::cqc::cqe_sz), 1);
       }},
      {"umem not valid",
       [](const CommandDevice&, RawCommand& c) { c.set(devx::create_cq::cq_umem_valid, 0); }},
      {"umem 0",
       [](const CommandDevice&, RawCommand& c) { c.set(devx::create_cq::cq_umem_id, 0); }},
      {"unknown umem",
       [](const CommandDevice&, RawCommand& c) { c.set(devx::create_cq::cq_umem_id, 4000); }},
      {"umem beyond the table",
       [](const CommandDevice&, RawCommand& c) { c.set(devx::create_cq::cq_umem_id, 0xffffffff); }},
      {"umem too small",
       [](const CommandDevice&, RawCommand& c) {
         c.set(devx::within(devx::create_cq::cq_context, devx::cqc::log_cq_size), 5);
       }},
      {"the largest size",
       [](const CommandDevice&, RawCommand& c) {
         c.set(devx::within(devx::create_cq::cq_context, devx::cqc::log_cq_size), 31);
       }},
      {"offset misaligned",
       [](const CommandDevice&, RawCommand& c) {
         c.set(devx::create_cq::cq_umem_offset, 32);
         c.set(devx::within(devx::create_cq::cq_context, devx::cqc::log_cq_size), 1);
       }},
      {"offset that leaves too little",
       [](const CommandDevice&, RawCommand& c) { c.set(devx::create_cq::cq_umem_offset, 64); }},
      {"offset beyond the umem",
       [](const CommandDevice&, RawCommand& c) {
         c.set(devx::create_cq::cq_umem_offset, 1 << 20);
       }},
      {"offset that wraps",
       [](const CommandDevice&, RawCommand& c) {
         c.set(devx::create_cq::cq_umem_offset, ~std::uint64_t{63});
       }},
  };
  CommandDevice nic;
  const Commands::Objects before = nic.commands.objects();
  for (const Spoiled& spoiled : all) {
    RawCommand c = nic.create_cq();
    spoiled.spoil(nic, c);
    EXPECT_FALSE(execute(nic.commands, c)) << spoiled.name;
    EXPECT_EQ(status_of(c), CommandStatus::kBadParameter) << spoiled.name;
    EXPECT_NE(syndrome_of(c), 0u) << spoiled.name;
    EXPECT_EQ(c.get(devx::create_cq::cqn), 0u) << spoiled.name;
    EXPECT_EQ(nic.commands.objects(), before) << spoiled.name;
  }
  EXPECT_TRUE(nic.commands.deregister_umem(nic.cq_umem)) << "a refusal left the umem in use";
}

TEST(CreateQp, RefusesEachWrongParameterWithASyndrome) {
  const Spoiled all[] = {
      {"not RC",
       [](const CommandDevice&, RawCommand& c) { c.set(CommandDevice::in_qpc(devx::qpc::st), 1); }},
      {"PD 0",
       [](const CommandDevice&, RawCommand& c) { c.set(CommandDevice::in_qpc(devx::qpc::pd), 0); }},
      {"a PD that is none",
       [](const CommandDevice& d, RawCommand& c) {
         c.set(CommandDevice::in_qpc(devx::qpc::pd), d.pd + 1);
       }},
      {"a PD beyond the table",
       [](const CommandDevice&, RawCommand& c) {
         c.set(CommandDevice::in_qpc(devx::qpc::pd), 0xffffff);
       }},
      {"CQ 0", [](const CommandDevice&,
                  RawCommand& c) { c.set(CommandDevice::in_qpc(devx::qpc::cqn_snd), 0); }},
      {"a CQ that is none",
       [](const CommandDevice&, RawCommand& c) {
         c.set(CommandDevice::in_qpc(devx::qpc::cqn_snd), 99);
       }},
      {"a CQ beyond the table",
       [](const CommandDevice&, RawCommand& c) {
         c.set(CommandDevice::in_qpc(devx::qpc::cqn_snd), 0xffffff);
       }},
      {"no UAR", [](const CommandDevice&,
                    RawCommand& c) { c.set(CommandDevice::in_qpc(devx::qpc::uar_page), 0); }},
      {"a UAR that is none",
       [](const CommandDevice& d, RawCommand& c) {
         c.set(CommandDevice::in_qpc(devx::qpc::uar_page), d.uar.number() + 1);
       }},
      {"no send queue", [](const CommandDevice&,
                           RawCommand& c) { c.set(CommandDevice::in_qpc(devx::qpc::no_sq), 1); }},
      {"ring umem not valid",
       [](const CommandDevice&, RawCommand& c) { c.set(devx::create_qp::wq_umem_valid, 0); }},
      {"unknown ring umem",
       [](const CommandDevice&, RawCommand& c) { c.set(devx::create_qp::wq_umem_id, 4000); }},
      {"ring umem too small",
       [](const CommandDevice&, RawCommand& c) {
         c.set(CommandDevice::in_qpc(devx::qpc::log_sq_size), 5);
       }},
      {"ring offset misaligned",
       [](const CommandDevice&, RawCommand& c) {
         c.set(devx::create_qp::wq_umem_offset, 16);
         c.set(CommandDevice::in_qpc(devx::qpc::log_sq_size), 1);
       }},
      {"ring offset that leaves too little",
       [](const CommandDevice&, RawCommand& c) { c.set(devx::create_qp::wq_umem_offset, 64); }},
      {"ring offset that wraps",
       [](const CommandDevice&, RawCommand& c) {
         c.set(devx::create_qp::wq_umem_offset, ~std::uint64_t{63});
       }},
      {"record umem not valid",
       [](const CommandDevice&, RawCommand& c) {
         c.set(CommandDevice::in_qpc(devx::qpc::dbr_umem_valid), 0);
       }},
      {"unknown record umem",
       [](const CommandDevice&, RawCommand& c) {
         c.set(CommandDevice::in_qpc(devx::qpc::dbr_umem_id), 4000);
       }},
      {"record offset misaligned",
       [](const CommandDevice&, RawCommand& c) {
         c.set(CommandDevice::in_qpc(devx::qpc::dbr_addr), 4);
       }},
      {"record beyond its umem",
       [](const CommandDevice&, RawCommand& c) {
         c.set(CommandDevice::in_qpc(devx::qpc::dbr_addr), 16);
       }},
  };
  CommandDevice nic;
  const std::uint32_t cqn = nic.make_cq();
  const Commands::Objects before = nic.commands.objects();
  for (const Spoiled& spoiled : all) {
    RawCommand c = nic.create_qp(cqn);
    spoiled.spoil(nic, c);
    EXPECT_FALSE(execute(nic.commands, c)) << spoiled.name;
    EXPECT_EQ(status_of(c), CommandStatus::kBadParameter) << spoiled.name;
    EXPECT_NE(syndrome_of(c), 0u) << spoiled.name;
    EXPECT_EQ(nic.commands.objects(), before) << spoiled.name;
  }
  EXPECT_TRUE(nic.commands.deregister_umem(nic.ring_umem));
  EXPECT_TRUE(nic.commands.deregister_umem(nic.record_umem));
  RawCommand destroy = nic.destroy_cq(cqn);
  EXPECT_TRUE(execute(nic.commands, destroy));
}

// ---- Without a doorbell record ------------------------------------------------------------------

constexpr std::uint32_t kNoRecordlessSyndrome = 0xc1;
constexpr std::uint32_t kRecordlessUarSyndrome = 0xc2;

RawCommand create_recordless(const CommandDevice& nic, std::uint32_t cqn) {
  RawCommand c = nic.create_qp(cqn);
  c.set(CommandDevice::in_qpc(devx::qpc::send_dbr_mode), 1);
  return c;
}

TEST(CreateQp, WithoutARecordNeedsNoPlaceForOne) {
  CommandDevice nic;
  const std::uint32_t cqn = nic.make_cq();
  for (const bool place : {true, false}) {
    RawCommand c = create_recordless(nic, cqn);
    if (!place) {
      c.set(CommandDevice::in_qpc(devx::qpc::dbr_umem_valid), 0);
      c.set(CommandDevice::in_qpc(devx::qpc::dbr_umem_id), 0);
    }
    ASSERT_TRUE(execute(nic.commands, c)) << place;
    const Qpn qpn(static_cast<std::uint32_t>(c.get(devx::create_qp::qpn)));
    EXPECT_FALSE(nic.core.tables().find_qp(qpn)->has_record());
    EXPECT_EQ(nic.core.tables().umems[nic.record_umem].users, 0u) << "it is not looked at";
    RawCommand query(CommandOpcode::kQueryQp);
    query.set(devx::query_qp::qpn, qpn.value);
    ASSERT_TRUE(execute(nic.commands, query));
    EXPECT_EQ(query.get(devx::within(devx::query_qp::qpc, devx::qpc::send_dbr_mode)), 1u);
    RawCommand destroy = nic.destroy_qp(qpn);
    ASSERT_TRUE(execute(nic.commands, destroy));
  }
}

TEST(CreateQp, WithoutARecordIsRefusedWhereAnotherSuchQpRingsOnThePage) {
  CommandDevice nic;
  const std::uint32_t cqn = nic.make_cq();
  const Qpn with_record = nic.make_qp(cqn);
  RawCommand first = create_recordless(nic, cqn);
  ASSERT_TRUE(execute(nic.commands, first)) << "one that has a record rings elsewhere";
  RawCommand second = create_recordless(nic, cqn);
  EXPECT_FALSE(execute(nic.commands, second));
  EXPECT_EQ(status_of(second), CommandStatus::kBadParameter);
  EXPECT_EQ(syndrome_of(second), kRecordlessUarSyndrome);
  RawCommand destroy =
      nic.destroy_qp(Qpn(static_cast<std::uint32_t>(first.get(devx::create_qp::qpn))));
  ASSERT_TRUE(execute(nic.commands, destroy));
  EXPECT_TRUE(execute(nic.commands, second));
  EXPECT_NE(nic.core.tables().find_qp(with_record), nullptr);
}

TEST(CreateQp, WithoutARecordIsRefusedByANicThatDoesNotOfferIt) {
  CommandDevice nic(CoreOptions{.nic_number = 3, .offers_recordless = false});
  RawCommand query(CommandOpcode::kQueryHcaCap);
  query.set(devx::header::op_mod, 1);
  ASSERT_TRUE(execute(nic.commands, query));
  EXPECT_EQ(devx::get(devx::at(query.out.data(), devx::query_hca_cap::capability),
                      devx::hca_cap::hca_cap_2),
            0u);
  query.set(devx::header::op_mod, 0x41);
  EXPECT_FALSE(execute(nic.commands, query));
  const std::uint32_t cqn = nic.make_cq();
  RawCommand c = create_recordless(nic, cqn);
  EXPECT_FALSE(execute(nic.commands, c));
  EXPECT_EQ(status_of(c), CommandStatus::kBadParameter);
  EXPECT_EQ(syndrome_of(c), kNoRecordlessSyndrome);
  nic.make_qp(cqn);
}

// 2 is for doorbells that the device itself rings; 3 is nothing.
TEST(CreateQp, OfAnotherDoorbellModeIsRefused) {
  CommandDevice nic;
  const std::uint32_t cqn = nic.make_cq();
  for (const std::uint32_t mode : {2u, 3u}) {
    RawCommand c = nic.create_qp(cqn);
    c.set(CommandDevice::in_qpc(devx::qpc::send_dbr_mode), mode);
    EXPECT_FALSE(execute(nic.commands, c)) << mode;
    EXPECT_EQ(syndrome_of(c), kNoRecordlessSyndrome) << mode;
  }
}

// The NIC reads slots, entries and records as aligned words, whatever memory a client registers.
TEST(CreateQp, RefusesAUmemWhoseAddressIsNotAlignedForWhatLiesInIt) {
  CommandDevice nic;
  const std::uint32_t cqn = nic.make_cq();
  const std::uint32_t ring = nic.commands.register_umem(nic.ring->bytes + 4, 15 * 64);
  RawCommand c = nic.create_qp(cqn);
  c.set(devx::create_qp::wq_umem_id, ring);
  c.set(CommandDevice::in_qpc(devx::qpc::log_sq_size), 1);
  EXPECT_FALSE(execute(nic.commands, c)) << "ring";
  const std::uint32_t record = nic.commands.register_umem(nic.record->bytes + 1, 16);
  c = nic.create_qp(cqn);
  c.set(CommandDevice::in_qpc(devx::qpc::dbr_umem_id), record);
  EXPECT_FALSE(execute(nic.commands, c)) << "record";
}
TEST(CreateCq, RefusesAUmemWhoseAddressIsNotAlignedForCqes) {
  CommandDevice nic;
  const std::uint32_t ring = nic.commands.register_umem(nic.cq->bytes + 4, 15 * 64);
  RawCommand c = nic.create_cq();
  c.set(devx::create_cq::cq_umem_id, ring);
  c.set(devx::within(devx::create_cq::cq_context, devx::cqc::log_cq_size), 1);
  EXPECT_FALSE(execute(nic.commands, c));
}

TEST(Destroy, RefusesWhatAnotherObjectUses) {
  CommandDevice nic;
  const Commands::Objects before = nic.commands.objects();
  const std::uint32_t cqn = nic.make_cq();
  const Qpn qpn = nic.make_qp(cqn);
  const std::uint32_t key = nic.commands.register_region(nic.pd, 0, nic.ring->bytes, 64, 0);
  RawCommand c = nic.destroy_cq(cqn);
  EXPECT_FALSE(execute(nic.commands, c));
  EXPECT_EQ(status_of(c), CommandStatus::kResourceBusy);
  EXPECT_FALSE(nic.commands.free_uar(nic.uar.number()));
  EXPECT_FALSE(nic.commands.free_pd(nic.pd));
  for (const std::uint32_t umem : {nic.ring_umem, nic.cq_umem, nic.record_umem}) {
    EXPECT_FALSE(nic.commands.deregister_umem(umem));
  }
  c = nic.destroy_qp(qpn);
  EXPECT_TRUE(execute(nic.commands, c));
  EXPECT_FALSE(execute(nic.commands, c)) << "twice";
  EXPECT_EQ(status_of(c), CommandStatus::kBadResource);
  EXPECT_FALSE(nic.commands.free_uar(nic.uar.number())) << "the CQ is on it";
  EXPECT_FALSE(nic.commands.free_pd(nic.pd)) << "the region is in it";
  EXPECT_FALSE(nic.commands.deregister_umem(nic.cq_umem));
  c = nic.destroy_cq(cqn);
  EXPECT_TRUE(execute(nic.commands, c));
  EXPECT_FALSE(execute(nic.commands, c)) << "twice";
  EXPECT_TRUE(nic.commands.deregister_region(key));
  EXPECT_FALSE(nic.commands.deregister_region(key));
  EXPECT_EQ(nic.commands.objects(), before);
  for (const std::uint32_t umem : {nic.ring_umem, nic.cq_umem, nic.record_umem}) {
    EXPECT_TRUE(nic.commands.deregister_umem(umem));
    EXPECT_FALSE(nic.commands.deregister_umem(umem));
  }
  EXPECT_TRUE(nic.commands.free_pd(nic.pd));
  EXPECT_FALSE(nic.commands.free_pd(nic.pd));
}

constexpr std::uint32_t kRefused = 0xff;
struct Transition {
  CommandOpcode command;
  // The state after it, from RST, INIT, RTR, RTS, ERR.
  std::uint32_t from_rst, from_init, from_rtr, from_rts, from_err;
};
constexpr Transition kTransitions[] = {
    {CommandOpcode::kRst2InitQp, 1, kRefused, kRefused, kRefused, kRefused},
    {CommandOpcode::kInit2InitQp, kRefused, 1, kRefused, kRefused, kRefused},
    {CommandOpcode::kInit2RtrQp, kRefused, 2, kRefused, kRefused, kRefused},
    {CommandOpcode::kRtr2RtsQp, kRefused, kRefused, 3, kRefused, kRefused},
    {CommandOpcode::kRts2RtsQp, kRefused, kRefused, kRefused, 3, kRefused},
    {CommandOpcode::k2ErrQp, 6, 6, 6, 6, 6},
    {CommandOpcode::k2RstQp, 0, 0, 0, 0, 0},
};

TEST(ModifyQp, TakesEachTransitionOfTheTableAndNoOther) {
  constexpr CommandOpcode kWay[] = {CommandOpcode::kRst2InitQp, CommandOpcode::kInit2RtrQp,
                                    CommandOpcode::kRtr2RtsQp, CommandOpcode::k2ErrQp};
  constexpr std::uint32_t kStates[] = {0, 1, 2, 3, 6};
  for (const Transition& t : kTransitions) {
    const std::uint32_t after[] = {t.from_rst, t.from_init, t.from_rtr, t.from_rts, t.from_err};
    for (std::size_t from = 0; from < 5; ++from) {
      const std::string name =
          std::string(devx::command_name(static_cast<std::uint16_t>(t.command))) + " from state " +
          std::to_string(kStates[from]);
      CommandDevice nic;
      const Qpn qpn = nic.make_qp(nic.make_cq());
      for (std::size_t i = 0; i < from; ++i) {
        RawCommand c = nic.modify(kWay[i], qpn);
        ASSERT_TRUE(execute(nic.commands, c)) << name;
      }
      ASSERT_EQ(static_cast<std::uint32_t>(nic.state(qpn)), kStates[from]) << name;
      RawCommand c = nic.modify(t.command, qpn);
      const bool ok = execute(nic.commands, c);
      EXPECT_EQ(ok, after[from] != kRefused) << name;
      if (!ok) {
        EXPECT_EQ(status_of(c), CommandStatus::kBadQpState) << name;
        EXPECT_NE(syndrome_of(c), 0u) << name;
      }
      EXPECT_EQ(static_cast<std::uint32_t>(nic.state(qpn)), ok ? after[from] : kStates[from])
          << name;
      RawCommand query = nic.query(qpn);
      ASSERT_TRUE(execute(nic.commands, query)) << name;
      EXPECT_EQ(query.get(devx::within(devx::query_qp::qpc, devx::qpc::state)),
                ok ? after[from] : kStates[from])
          << name;
    }
  }
}

TEST(ModifyQp, RefusesEachWrongFieldAndStaysInItsState) {
  const auto in = [](devx::Field f) { return devx::within(devx::modify_qp::qpc, f); };
  CommandDevice nic;
  const Qpn qpn = nic.make_qp(nic.make_cq());
  RawCommand c = nic.modify(CommandOpcode::kRst2InitQp, qpn);
  c.set(in(devx::within(devx::qpc::primary_address_path, devx::ads::vhca_port_num)), 2);
  EXPECT_FALSE(execute(nic.commands, c)) << "port 2";
  EXPECT_EQ(nic.state(qpn), QpState::kReset);
  c = nic.modify(CommandOpcode::kRst2InitQp, qpn);
  ASSERT_TRUE(execute(nic.commands, c));
  for (const std::uint32_t mtu : {0u, 6u, 7u}) {
    c = nic.modify(CommandOpcode::kInit2RtrQp, qpn);
    c.set(in(devx::qpc::mtu), mtu);
    EXPECT_FALSE(execute(nic.commands, c)) << "mtu " << mtu;
  }
  c = nic.modify(CommandOpcode::kInit2RtrQp, qpn);
  c.set(in(devx::qpc::log_msg_max), 31);
  EXPECT_FALSE(execute(nic.commands, c)) << "log_msg_max";
  c = nic.modify(CommandOpcode::kInit2RtrQp, qpn);
  c.set(in(devx::qpc::remote_qpn), 0);
  EXPECT_FALSE(execute(nic.commands, c)) << "remote_qpn";
  EXPECT_EQ(status_of(c), CommandStatus::kBadParameter);
  EXPECT_EQ(nic.state(qpn), QpState::kInit);
  c = nic.modify(CommandOpcode::kInit2RtrQp, Qpn(qpn.value + 1));
  EXPECT_FALSE(execute(nic.commands, c)) << "unknown QP";
  EXPECT_EQ(status_of(c), CommandStatus::kBadResource);
}

TEST(QueryQp, AnswersAValidMtuEvenInResetAndEchoesTheContext) {
  const auto in = [](devx::Field f) { return devx::within(devx::query_qp::qpc, f); };
  CommandDevice nic;
  const std::uint32_t cqn = nic.make_cq();
  RawCommand create = nic.create_qp(cqn);
  create.set(CommandDevice::in_qpc(devx::qpc::user_index), 0x123abc);
  ASSERT_TRUE(execute(nic.commands, create));
  const Qpn qpn(static_cast<std::uint32_t>(create.get(devx::create_qp::qpn)));

  RawCommand query = nic.query(qpn);
  ASSERT_TRUE(execute(nic.commands, query));
  const std::uint64_t mtu = query.get(in(devx::qpc::mtu));
  EXPECT_TRUE(mtu >= 1 && mtu <= 5) << mtu;
  EXPECT_EQ(query.get(in(devx::qpc::state)), 0u);
  EXPECT_EQ(query.get(in(devx::qpc::user_index)), 0x123abcu);
  EXPECT_EQ(query.get(in(devx::qpc::pd)), nic.pd);
  EXPECT_EQ(query.get(in(devx::qpc::cqn_snd)), cqn);
  EXPECT_EQ(query.get(in(devx::qpc::log_sq_size)), 4u);
  EXPECT_EQ(query.get(in(devx::qpc::uar_page)), nic.uar.number());

  for (const CommandOpcode opcode :
       {CommandOpcode::kRst2InitQp, CommandOpcode::kInit2RtrQp, CommandOpcode::kRtr2RtsQp}) {
    RawCommand c = nic.modify(opcode, qpn);
    ASSERT_TRUE(execute(nic.commands, c));
  }
  query = nic.query(qpn);
  ASSERT_TRUE(execute(nic.commands, query));
  EXPECT_EQ(query.get(in(devx::qpc::state)), 3u);
  EXPECT_EQ(query.get(in(devx::qpc::mtu)), 3u);
  EXPECT_EQ(query.get(in(devx::qpc::log_msg_max)), 30u);
  EXPECT_EQ(query.get(in(devx::qpc::remote_qpn)), 0x123456u);
  EXPECT_EQ(query.get(in(devx::qpc::next_rcv_psn)), 0xabcdefu);
  EXPECT_EQ(query.get(in(devx::qpc::next_send_psn)), 0xfedcbau);
  EXPECT_EQ(query.get(in(devx::qpc::rwe)), 1u);
  EXPECT_EQ(query.get(in(devx::qpc::retry_count)), 6u);
  EXPECT_EQ(query.get(in(devx::qpc::user_index)), 0x123abcu);
  EXPECT_EQ(query.get(in(devx::within(devx::qpc::primary_address_path, devx::ads::ack_timeout))),
            14u);
}

}  // namespace
}  // namespace peal::nic
