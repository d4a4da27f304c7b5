// A small wrong client for each rule: with the rule off, warned of and kept. What can be waived is
// then done; what cannot fails all the same.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "nic/raw_fabric.hpp"

namespace peal::nic {
namespace {

using mlx5::Opcode;
using mlx5::Syndrome;
using test::failed_with;
using test::RawFabric;
using test::RawFabricOptions;
using test::succeeded;
using test::Wqe;

constexpr std::uint64_t kClientGraceNs = 1'000'000;

struct WrongClient {
  Refusal rule;
  // Of the error CQE when the rule is kept; kNone where no WQE fails.
  Syndrome syndrome;
  std::function<void(RawFabric<>&)> act;
  std::function<void(RawFabricOptions&)> prepare = [](RawFabricOptions&) {};
  bool at_the_peer = false;  // which NIC counts
};

void post_and_settle(RawFabric<>& f, const Wqe& wqe) {
  f.qp.write_as_is(wqe);
  f.qp.record();
  f.qp.ring();
  f.settle();
}

Wqe first_write(RawFabric<>& f) {
  Wqe wqe = f.write(0, 0, 64);
  wqe.ctrl.qpn = f.qp.qpn();
  return wqe;
}

std::vector<mlx5::Words16> inline_write(RawFabric<>& f, std::uint8_t ds, std::uint32_t bytes) {
  mlx5::InlineSeg s;
  s.bytes = bytes;
  return {f.ctrl(Opcode::kRdmaWrite, ds), f.remote(0), mlx5::encode(s), {}};
}

void wait_for(RawFabric<>& f, std::uint64_t ns) {
  f.settle();
  f.now_ns += ns;
  f.settle();
}

const std::vector<WrongClient>& wrong_clients() {
  using F = RawFabric<>&;
  static const std::vector<WrongClient> clients = {
      {Refusal::kWqeIndex, Syndrome::kLocalQpOperation,
       [](F f) {
         Wqe w = first_write(f);
         w.ctrl.wqe_index = 7;
         post_and_settle(f, w);
       }},
      {Refusal::kWqeQpn, Syndrome::kLocalQpOperation,
       [](F f) {
         Wqe w = first_write(f);
         w.ctrl.qpn = Qpn(f.qp.qpn().value + 1);
         post_and_settle(f, w);
       }},
      {Refusal::kWqeSize, Syndrome::kLocalQpOperation,
       [](F f) {
         Wqe w = first_write(f);
         w.ctrl.ds = 0;
         post_and_settle(f, w);
       }},
      {Refusal::kWqeCrossesProducerIndex, Syndrome::kLocalQpOperation,
       [](F f) {
         f.qp.write(test::nop(5));
         f.qp.record_at(1);
         f.qp.ring_at(1);
         f.settle();
       }},
      {Refusal::kOpcode, Syndrome::kLocalQpOperation,
       [](F f) {
         Wqe w = first_write(f);
         w.ctrl.opcode = static_cast<std::uint8_t>(Opcode::kSend);
         post_and_settle(f, w);
       }},
      {Refusal::kWqeSegments, Syndrome::kLocalQpOperation,
       [](F f) {
         Wqe w = first_write(f);
         w.ctrl.ds = 4;
         post_and_settle(f, w);
       }},
      {Refusal::kInlineLength, Syndrome::kLocalQpOperation,
       [](F f) { f.run(inline_write(f, 4, 29)); }},
      {Refusal::kInlineFlag, Syndrome::kLocalQpOperation,
       [](F f) {
         f.run({f.ctrl(Opcode::kRdmaRead, 3), f.remote(0), f.local(0, 0x80000008)});
       }},
      {Refusal::kLkeyUnknown, Syndrome::kLocalProtection,
       [](F f) {
         Wqe w = first_write(f);
         w.data.lkey = Lkey(0xffffff00);
         post_and_settle(f, w);
       }},
      {Refusal::kLkeySwapped, Syndrome::kLocalProtection,
       [](F f) {
         Wqe w = first_write(f);
         w.data.lkey = Lkey(swap_bytes(f.source.key()));
         post_and_settle(f, w);
       }},
      {Refusal::kLkeyStale, Syndrome::kLocalProtection,
       [](F f) {
         Wqe w = first_write(f);
         f.source.free();
         post_and_settle(f, w);
       }},
      {Refusal::kLkeyOtherPd, Syndrome::kLocalProtection,
       [](F f) {
         const std::uint32_t pd = f.sender.commands().allocate_pd();
         test::RawMemory other(f.sender.commands(), pd, 64, kLocalWrite);
         Wqe w = first_write(f);
         w.data = {64, Lkey(other.key()), other.address()};
         post_and_settle(f, w);
       }},
      {Refusal::kLocalRange, Syndrome::kLocalProtection,
       [](F f) {
         Wqe w = first_write(f);
         w.data.address = f.source.address() + f.source.size() - 63;
         post_and_settle(f, w);
       }},
      {Refusal::kLocalAccess, Syndrome::kLocalProtection,
       [](F f) {
         test::RawMemory read_only(f.sender.commands(), f.sender_pd, 64, 0);
         f.run({f.ctrl(Opcode::kRdmaRead, 3), f.remote(0),
                mlx5::encode(mlx5::DataSeg{8, Lkey(read_only.key()), read_only.address()})});
       }},
      {Refusal::kMessageTooLong, Syndrome::kLocalLength,
       [](F f) { f.qp.post(f.write(0, 0, 4097)), f.settle(); },
       [](RawFabricOptions& o) { o.connection.log_msg_max = 12; }},
      {Refusal::kAtomicSize, Syndrome::kLocalQpOperation,
       [](F f) {
         auto wqe = f.fetch_add(0, 1);
         wqe[3] = f.local(0, 4);
         f.run(wqe);
       }},
      {Refusal::kAtomicOpmod, Syndrome::kLocalQpOperation,
       [](F f) {
         auto wqe = f.fetch_add(0, 1);
         wqe[0] = f.ctrl(Opcode::kMaskedFetchAdd, 4, 0x0a);
         f.run(wqe);
       }},
      {Refusal::kWaitCq, Syndrome::kLocalQpOperation,
       [](F f) {
         f.run({f.ctrl(Opcode::kWait, 2), mlx5::encode(mlx5::WaitSeg{0, kMaxCqs - 1})});
       }},
      {Refusal::kWaitForever, Syndrome::kLocalQpOperation,
       [](F f) {
         f.run({f.ctrl(Opcode::kWait, 2), mlx5::encode(mlx5::WaitSeg{5, f.qp.cqn()})});
         wait_for(f, kClientGraceNs);
       }},
      {Refusal::kReadsInFlight, Syndrome::kLocalQpOperation,
       [](F f) {
         for (std::uint32_t i = 0; i < 3; ++i) f.qp.write_segments(f.read(0, 64 * i, 64));
         f.qp.record();
         f.qp.ring();
         f.settle();
       },
       [](RawFabricOptions& o) { o.connection.log_sra_max = 0; }},
      {Refusal::kUnsignalledChain, Syndrome::kLocalQpOperation,
       [](F f) {
         for (int i = 0; i < 16; ++i) {
           f.qp.post(test::nop(1, mlx5::kCompletionOnError));
           f.settle();
         }
       }},
      {Refusal::kSlotOverwritten, Syndrome::kLocalQpOperation,
       [](F f) {
         f.qp.post(f.write(0, 0, 64));
         f.step_sender();  // fetched and sent
         f.qp.slot(0).segment[2].hi ^= 1;
         f.settle();
       }},
      {Refusal::kCqOverrun, Syndrome::kNone,
       [](F f) {
         for (int i = 0; i < 5; ++i) f.qp.post(test::nop()), f.settle();
       },
       [](RawFabricOptions& o) {
         o.qp.log_cq_size = 2;
         o.qp.ignores_overrun = false;
       }},
      {Refusal::kCqRecord, Syndrome::kNone,
       [](F f) {
         f.qp.consume_to(1);  // of nothing yet
         f.qp.post(test::nop());
         f.settle();
       },
       [](RawFabricOptions& o) { o.qp.ignores_overrun = false; }},
      // Its error CQE is one of those that overwrite each other.
      {Refusal::kCqTooSmall, Syndrome::kNone,
       [](F f) {
         for (int i = 0; i < 5; ++i) f.qp.write(test::nop());
         f.qp.record();
         f.qp.ring();
         f.settle();
       },
       [](RawFabricOptions& o) { o.qp.log_cq_size = 2; }},
      {Refusal::kCqeScribbled, Syndrome::kNone,
       [](F f) {
         f.qp.entry(0).word[mlx5::kCqeOwnerWord] = 0;
         f.qp.post(test::nop());
         f.settle();
       }},
      {Refusal::kRkeyUnknown, Syndrome::kRemoteAccess,
       [](F f) {
         Wqe w = first_write(f);
         w.raddr.rkey = Rkey(0xffffff00);
         post_and_settle(f, w);
       },
       [](RawFabricOptions&) {}, true},
      {Refusal::kRkeySwapped, Syndrome::kRemoteAccess,
       [](F f) {
         Wqe w = first_write(f);
         w.raddr.rkey = Rkey(swap_bytes(f.destination.key()));
         post_and_settle(f, w);
       },
       [](RawFabricOptions&) {}, true},
      {Refusal::kRkeyStale, Syndrome::kRemoteAccess,
       [](F f) {
         Wqe w = first_write(f);
         f.destination.free();
         post_and_settle(f, w);
       },
       [](RawFabricOptions&) {}, true},
      {Refusal::kRkeyOtherPd, Syndrome::kRemoteAccess,
       [](F f) {
         const std::uint32_t pd = f.receiver.commands().allocate_pd();
         test::RawMemory other(f.receiver.commands(), pd, 64, kLocalWrite | kRemoteWrite);
         Wqe w = first_write(f);
         w.raddr = {other.address(), Rkey(other.key())};
         post_and_settle(f, w);
       },
       [](RawFabricOptions&) {}, true},
      {Refusal::kRemoteRange, Syndrome::kRemoteAccess,
       [](F f) {
         Wqe w = first_write(f);
         w.raddr.address = ~std::uint64_t{0} - 3;
         post_and_settle(f, w);
       },
       [](RawFabricOptions&) {}, true},
      {Refusal::kRemoteAccess, Syndrome::kRemoteAccess,
       [](F f) {
         test::RawMemory closed(f.receiver.commands(), f.receiver_pd, 64, kLocalWrite);
         Wqe w = first_write(f);
         w.raddr = {closed.address(), Rkey(closed.key())};
         post_and_settle(f, w);
       },
       [](RawFabricOptions&) {}, true},
      {Refusal::kRemoteWriteDisabled, Syndrome::kRemoteInvalidRequest,
       [](F f) { f.qp.post(f.write(0, 0, 64)), f.settle(); },
       [](RawFabricOptions& o) { o.connection.remote_write = false; }, true},
      {Refusal::kRemoteReadDisabled, Syndrome::kRemoteInvalidRequest,
       [](F f) { f.run(f.read(0, 0, 64)); },
       [](RawFabricOptions& o) { o.connection.remote_read = false; }, true},
      {Refusal::kRemoteAtomicDisabled, Syndrome::kRemoteInvalidRequest,
       [](F f) { f.run(f.fetch_add(0, 1)); },
       [](RawFabricOptions& o) { o.connection.remote_atomic = false; }, true},
      {Refusal::kAtomicModeOff, Syndrome::kRemoteInvalidRequest,
       [](F f) { f.run(f.fetch_add(0, 1)); },
       [](RawFabricOptions& o) { o.connection.atomic_mode = 0; }, true},
      {Refusal::kAtomicMisaligned, Syndrome::kRemoteInvalidRequest,
       [](F f) { f.run(f.fetch_add(4, 1)); }, [](RawFabricOptions&) {}, true},
      {Refusal::kReadResources, Syndrome::kRemoteInvalidRequest,
       [](F f) {
         for (std::uint32_t i = 0; i < 3; ++i) f.qp.write_segments(f.read(0, 64 * i, 64));
         f.qp.record();
         f.qp.ring();
         f.settle();
       },
       [](RawFabricOptions& o) { o.connection.log_rra_max = 0; }, true},
      {Refusal::kNoReceive, Syndrome::kRnrRetryExceeded,
       [](F f) {
         Wqe w = first_write(f);
         w.ctrl.opcode = static_cast<std::uint8_t>(Opcode::kRdmaWriteImm);
         post_and_settle(f, w);
       },
       [](RawFabricOptions&) {}, true},
      {Refusal::kResponderState, Syndrome::kTransportRetryExceeded,
       [](F f) {
         f.peer.to_error();
         f.qp.post(f.write(0, 0, 64));
         wait_for(f, 10'000'000'000);
       },
       [](RawFabricOptions&) {}, true},
      {Refusal::kWrongSource, Syndrome::kTransportRetryExceeded,
       [](F f) {
         f.peer.to_reset();
         test::RawConnection elsewhere = f.peer_connection;
         elsewhere.remote_qpn = Qpn(f.qp.qpn().value + 1);
         f.peer.connect(elsewhere);
         f.qp.post(f.write(0, 0, 64));
         wait_for(f, 10'000'000'000);
       },
       [](RawFabricOptions&) {}, true},
      {Refusal::kDoorbellQpn, Syndrome::kNone,
       [](F f) {
         f.qp.write(f.write(0, 0, 64));
         f.uar.ring(mlx5::encode_doorbell(1, Qpn(f.qp.qpn().value + 1)));
         f.settle();
       }},
      {Refusal::kDoorbellRegister, Syndrome::kNone,
       [](F f) {
         f.qp.write(f.write(0, 0, 64));
         f.uar.ring(mlx5::encode_doorbell(1, f.qp.qpn()), false);
         f.settle();
         wait_for(f, kClientGraceNs);
       }},
      {Refusal::kDoorbellJump, Syndrome::kNone,
       [](F f) {
         f.qp.ring_at(17);
         f.settle();
       }},
      {Refusal::kDoorbellWithoutRecord, Syndrome::kNone,
       [](F f) {
         f.qp.write(test::nop());
         f.qp.ring();
         wait_for(f, kClientGraceNs);
         wait_for(f, kClientGraceNs);
       }},
      {Refusal::kRecordWithoutDoorbell, Syndrome::kNone,
       [](F f) {
         f.qp.write(test::nop());
         f.qp.record();
         wait_for(f, kClientGraceNs);
         wait_for(f, kClientGraceNs);
       }},
      {Refusal::kDoorbellBeforeRts, Syndrome::kNone,
       [](F f) {
         f.qp.post(f.write(0, 0, 64));
         f.settle();
       },
       [](RawFabricOptions& o) { o.connected = false; }},
      {Refusal::kOptParamMask, Syndrome::kNone,
       [](F f) {
         test::RawConnection c = f.connection;
         c.opt_param_mask = 1u << 31;
         f.qp.modify(mlx5::devx::CommandOpcode::kRts2RtsQp, c);
       }},
      {Refusal::kSequence, Syndrome::kTransportRetryExceeded,
       [](F f) {
         f.peer.to_reset();
         test::RawConnection other = f.peer_connection;
         other.receive_psn = Psn(f.connection.send_psn.value - 5);
         f.peer.connect(other);
         f.qp.post(f.write(0, 0, 64));
         f.settle();
       }},
      {Refusal::kNoAnswer, Syndrome::kTransportRetryExceeded,
       [](F f) {
         f.qp.post(f.write(0, 0, 64));
         f.step_sender();
         f.now_ns += 10'000'000'000;
         f.step_sender();
         f.settle();
       }},
  };
  return clients;
}

RawFabricOptions options_for(const WrongClient& client, Strictness level, Notify notify) {
  RawFabricOptions o;
  o.sender.record_grace_ns = o.receiver.record_grace_ns = kClientGraceNs;
  o.sender.rules[static_cast<std::size_t>(client.rule)] = level;
  o.receiver.rules[static_cast<std::size_t>(client.rule)] = level;
  o.sender.notify = o.receiver.notify = std::move(notify);
  client.prepare(o);
  return o;
}

TEST(Strictness, EachRuleIsKeptWarnedOfOrWaived) {
  for (const WrongClient& client : wrong_clients()) {
    for (const Strictness level : {Strictness::kOff, Strictness::kWarn, Strictness::kRefuse}) {
      SCOPED_TRACE(std::string(refusal_name(client.rule)) + ", " + strictness_name(level));
      std::vector<Notice> notices;
      RawFabric fabric(options_for(client, level, [&](const Notice& n) {
        if (n.reason == client.rule) notices.push_back(n);
      }));
      client.act(fabric);
      const ReasonCounts counts =
          client.at_the_peer ? fabric.peer_counters().reasons : fabric.counters().reasons;
      const bool refused = level == Strictness::kRefuse || !can_be_waived(client.rule);
      const bool told = level != Strictness::kOff;
      if (told) {
        EXPECT_GE(refused ? counts.refusals(client.rule) : counts.warnings(client.rule), 1u);
        EXPECT_EQ(refused ? counts.warnings(client.rule) : counts.refusals(client.rule), 0u);
        ASSERT_FALSE(notices.empty());
        EXPECT_EQ(notices[0].level, refused ? Strictness::kRefuse : Strictness::kWarn);
      } else {
        EXPECT_EQ(counts.refusals(client.rule) + counts.warnings(client.rule), 0u);
        EXPECT_TRUE(notices.empty());
      }
      bool failed = false;
      for (const mlx5::CqeFields& cqe : fabric.qp.poll_all()) {
        if (succeeded(cqe)) continue;
        if (!failed) {
          EXPECT_TRUE(failed_with(cqe, client.syndrome)) << int{cqe.syndrome};
        }
        failed = true;
      }
      EXPECT_EQ(failed, refused && client.syndrome != Syndrome::kNone);
    }
  }
}

// A rule without a wrong client is a rule that nobody has seen kept.
TEST(Strictness, EveryRuleHasAWrongClientHereOrElsewhere) {
  std::set<Refusal> tripped;
  for (const WrongClient& client : wrong_clients()) tripped.insert(client.rule);
  for (const Refusal elsewhere :
       {Refusal::kMalformedRequest, Refusal::kBadResponse,  // a peer's, not a client's
        Refusal::kRemoteRefused, Refusal::kInjected, Refusal::kDoorbellLeftBehind,
        Refusal::kReservedField, Refusal::kNotOnThisLink}) {
    tripped.insert(elsewhere);
  }
  for (std::size_t i = 1; i < kRefusals; ++i) {
    EXPECT_TRUE(tripped.contains(static_cast<Refusal>(i))) << refusal_name(static_cast<Refusal>(i));
  }
}

TEST(Strictness, NamesAreThereAndBack) {
  std::set<std::string> names;
  for (std::size_t i = 1; i < kRefusals; ++i) {
    const auto r = static_cast<Refusal>(i);
    EXPECT_TRUE(names.insert(refusal_name(r)).second) << refusal_name(r);
    EXPECT_EQ(refusal_named(refusal_name(r)), r);
  }
  EXPECT_FALSE(refusal_named("none"));
  EXPECT_FALSE(refusal_named("wqe"));
}

TEST(Strictness, ADoorbellOnAPageThatIsBeingFreedIsTold) {
  std::vector<Notice> notices;
  CoreOptions options;
  options.notify = [&](const Notice& n) { notices.push_back(n); };
  link::Loopback loopback;
  Core<CpuMemory> core(options, loopback.a());
  {
    test::RawUar uar(core.commands());
    uar.ring(mlx5::encode_doorbell(1, Qpn(5)));
  }
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_EQ(notices[0].reason, Refusal::kDoorbellLeftBehind);
  EXPECT_EQ(core.reasons().warnings(Refusal::kDoorbellLeftBehind), 1u);
  { test::RawUar quiet(core.commands()); }
  EXPECT_EQ(notices.size(), 1u);
}

TEST(Strictness, APageThatWasRungIsNotFreedWhereThatIsRefused) {
  CoreOptions options;
  options.rules[static_cast<std::size_t>(Refusal::kDoorbellLeftBehind)] = Strictness::kRefuse;
  link::Loopback loopback;
  Core<CpuMemory> core(options, loopback.a());
  test::RawUar uar(core.commands());
  uar.ring(mlx5::encode_doorbell(1, Qpn(5)));
  EXPECT_FALSE(core.commands().free_uar(uar.number()));
  EXPECT_EQ(core.reasons().refusals(Refusal::kDoorbellLeftBehind), 1u);
}

TEST(Strictness, ABitOfNoFieldIsToldAndCanBeRefused) {
  for (const Strictness level : {Strictness::kOff, Strictness::kWarn, Strictness::kRefuse}) {
    CoreOptions options;
    options.rules[static_cast<std::size_t>(Refusal::kReservedField)] = level;
    link::Loopback loopback;
    Core<CpuMemory> core(options, loopback.a());
    test::RawUar uar(core.commands());
    const std::uint32_t pd = core.commands().allocate_pd();
    test::RawQp qp(core.commands(), pd, uar);
    const auto answer = [&](mlx5::devx::Field field) {
      test::RawCommand command(mlx5::devx::CommandOpcode::kRst2InitQp);
      command.set(mlx5::devx::modify_qp::qpn, qp.qpn().value);
      command.set(mlx5::devx::within(mlx5::devx::modify_qp::qpc,
                                     mlx5::devx::within(mlx5::devx::qpc::primary_address_path,
                                                        mlx5::devx::ads::vhca_port_num)),
                  1);
      command.set(field, 1);
      const bool executed = test::execute(core.commands(), command);
      if (executed) qp.to_reset();
      return executed;
    };
    EXPECT_TRUE(answer(mlx5::devx::within(mlx5::devx::modify_qp::qpc, mlx5::devx::qpc::rwe)));
    EXPECT_EQ(answer({0x60, 1}), level != Strictness::kRefuse);
    const ReasonCounts counts = core.counters(qp.qpn()).reasons;
    EXPECT_EQ(counts.warnings(Refusal::kReservedField), level == Strictness::kWarn ? 1u : 0u);
    EXPECT_EQ(counts.refusals(Refusal::kReservedField), level == Strictness::kRefuse ? 1u : 0u);
  }
}

// A ring for a QP that is gone is not taken for one of the next QP on its page, though that may
// have the same number.
TEST(Strictness, ADoorbellForAQpThatIsGoneStartsNothingInTheNext) {
  RawFabric fabric;
  fabric.qp.post(fabric.write(0, 0, 64));
  fabric.settle();
  const Qpn qpn = fabric.qp.qpn();
  fabric.qp.destroy();
  fabric.uar.ring(mlx5::encode_doorbell(3, qpn));
  test::RawQp next(fabric.sender.commands(), fabric.sender_pd, fabric.uar);
  ASSERT_EQ(next.qpn(), qpn);
  test::RawConnection c = fabric.connection;
  next.connect(c);
  fabric.settle();
  EXPECT_EQ(fabric.sender.counters(next.qpn()).producer_index, 0u);
  EXPECT_EQ(fabric.sender.reasons().warnings(Refusal::kDoorbellLeftBehind), 1u);
}

// One region of two over the same memory may go while the other is in use.
TEST(Strictness, ARegionThatGoesTakesOnlyItsOwnWqesWithIt) {
  for (const bool own : {false, true}) {
    RawFabric fabric;
    const std::uint32_t second = fabric.sender.commands().register_region(
        fabric.sender_pd, fabric.source.address(), fabric.source.data(), 64, kLocalWrite);
    Wqe wqe = fabric.write(0, 0, 64);
    if (own) wqe.data.lkey = Lkey(second);
    fabric.qp.post(wqe);
    fabric.step_sender();  // on its way
    ASSERT_TRUE(fabric.sender.commands().deregister_region(second));
    fabric.settle();
    const auto cqe = fabric.qp.poll();
    ASSERT_TRUE(cqe);
    EXPECT_EQ(succeeded(*cqe), !own);
  }
}

// A read whose region goes before it is answered: refused, and told at the responder.
TEST(Strictness, AReadOfARegionThatGoesIsRefused) {
  RawFabric fabric;
  fabric.qp.write_segments(fabric.read(0, 0, 4096));
  fabric.qp.record();
  fabric.qp.ring();
  fabric.step_sender();
  fabric.step_receiver();  // the answer is on its way, and refers to the region's memory
  fabric.destination.free();
  fabric.settle();
  const auto cqe = fabric.qp.poll();
  ASSERT_TRUE(cqe);
  EXPECT_TRUE(failed_with(*cqe, Syndrome::kRemoteAccess));
  EXPECT_EQ(fabric.peer_refused(Refusal::kRkeyStale), 1u);
}

TEST(Strictness, TheResponderHoldsItsOwnMessageLimit) {
  RawFabricOptions o;
  o.connected = false;
  RawFabric fabric(o);
  fabric.qp.connect(fabric.connection);
  fabric.peer_connection.log_msg_max = 10;
  fabric.peer.connect(fabric.peer_connection);
  fabric.qp.post(fabric.write(0, 0, 1024));
  fabric.qp.post(fabric.write(0, 0, 1025));
  fabric.settle();
  const auto cqes = fabric.qp.poll_all();
  ASSERT_EQ(cqes.size(), 2u);
  EXPECT_TRUE(succeeded(cqes[0]));
  EXPECT_TRUE(failed_with(cqes[1], Syndrome::kRemoteInvalidRequest));
  EXPECT_EQ(fabric.peer_refused(Refusal::kMessageTooLong), 1u);
}

// What ends a QP without a WQE's fault is on record too.
TEST(Strictness, WhatEndsAQpIsOnRecord) {
  RawFabricOptions o;
  o.sender.record_grace_ns = kClientGraceNs;
  RawFabric fabric(o);
  fabric.qp.write(test::nop());
  fabric.qp.ring();
  wait_for(fabric, kClientGraceNs);
  wait_for(fabric, kClientGraceNs);
  EXPECT_EQ(fabric.state(), QpState::kError);
  EXPECT_EQ(fabric.counters().first_error.reason, Refusal::kDoorbellWithoutRecord);
}

// What a waived rule lets through is done, not dropped.
TEST(Strictness, WaivedWorkIsDone) {
  RawFabricOptions o;
  for (const Refusal r : {Refusal::kWqeIndex, Refusal::kWqeQpn, Refusal::kRemoteWriteDisabled}) {
    o.sender.rules[static_cast<std::size_t>(r)] = Strictness::kWarn;
    o.receiver.rules[static_cast<std::size_t>(r)] = Strictness::kWarn;
  }
  o.connection.remote_write = false;
  RawFabric fabric(o);
  Wqe w = first_write(fabric);
  w.ctrl.wqe_index = 9;
  w.ctrl.qpn = Qpn(1);
  post_and_settle(fabric, w);
  const auto cqe = fabric.qp.poll();
  ASSERT_TRUE(cqe);
  EXPECT_TRUE(succeeded(*cqe));
  EXPECT_TRUE(fabric.arrived(0, 0, 64));
}

}  // namespace
}  // namespace peal::nic
