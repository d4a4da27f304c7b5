#include "peal/host/queue_pair.hpp"

#include <gtest/gtest.h>
#include <malloc.h>

#include <cerrno>
#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "host/host_fixture.hpp"
#include "mlx5/layout.hpp"
#include "peal/mlx5/doorbell.hpp"

namespace peal {
namespace {

using test::error_of;
using test::ForwardingVerbs;
using test::HostFixture;
using test::says;

TEST(QueuePair, RefusesADepthThatIsNoPowerOfTwoOrTooLarge) {
  HostFixture host;
  const Context context = Context::open(host.provider());
  const nic::Commands::Objects before = host.objects();
  for (const std::uint32_t depth : {0u, 3u, 100u, 32769u, 65536u, 0x80000000u}) {
    const Error e = error_of([&] { QueuePair::create(context, {.depth = depth}); });
    EXPECT_EQ(e.code(), EINVAL);
    EXPECT_TRUE(says(e, std::to_string(depth))) << e.what();
    EXPECT_TRUE(says(e, "power of two")) << e.what();
    EXPECT_EQ(host.objects(), before);
  }
  for (const std::uint32_t depth : {1u, 2u, 32768u}) {
    const QueuePair qp = QueuePair::create(context, {.depth = depth});
    EXPECT_EQ(qp.handle().depth, depth);
  }
  EXPECT_EQ(host.objects(), before);
}

TEST(QueuePair, StartsWithAnUnwrittenCqAndItsRecordAtTheFirstIndex) {
  HostFixture host;
  const Context context = Context::open(host.provider());
  const QueuePair qp = QueuePair::create(context, {.depth = 8, .first_wqe_index = 0x12345});
  const QueueHandle h = qp.handle();
  for (std::uint32_t i = 0; i < 8; ++i) {
    const auto owner = mlx5::decode_cqe_owner_word(h.nic_cq[i].word[mlx5::kCqeOwnerWord]);
    EXPECT_EQ(owner.opcode, mlx5::CqeOpcode::kInvalid);
    EXPECT_EQ(owner.owner, 1);
  }
  EXPECT_EQ(mlx5::decode_dbrec(*h.dbrec), 0x2345);
  EXPECT_EQ(h.state->reserved, 0x12345u);
  EXPECT_EQ(h.state->completed, 0x12345u);
  EXPECT_EQ(h.cq_base + 0x12345u, 0u);
  EXPECT_EQ(h.qpn, qp.address().qpn);
  EXPECT_EQ(h.max_message_bytes, std::uint64_t{1} << 30);
}

TEST(QueuePair, GoesThroughItsStates) {
  HostFixture host;
  const Context a = Context::open(host.provider());
  const Context b = Context::open(host.peer_provider());
  QueuePair qp = QueuePair::create(a, {.depth = 4});
  const QueuePair peer = QueuePair::create(b, {.depth = 4});
  EXPECT_EQ(qp.state(), QueuePairState::kReset);
  qp.connect(peer.address());
  EXPECT_EQ(qp.state(), QueuePairState::kRts);
  EXPECT_EQ(peer.state(), QueuePairState::kReset);
  qp.to_error();
  EXPECT_EQ(qp.state(), QueuePairState::kError);
  EXPECT_NO_THROW(qp.to_error());
  EXPECT_STREQ(queue_pair_state_name(QueuePairState::kRts), "RTS");
  EXPECT_STREQ(queue_pair_state_name(QueuePairState::kError), "ERR");
}

TEST(QueuePair, RefusesToConnectTwiceAndNamesTheTransition) {
  HostFixture host;
  const Context a = Context::open(host.provider());
  const Context b = Context::open(host.peer_provider());
  QueuePair qp = QueuePair::create(a, {.depth = 4});
  const QueuePair peer = QueuePair::create(b, {.depth = 4});
  qp.connect(peer.address());
  const Error e = error_of([&] { qp.connect(peer.address()); });
  EXPECT_EQ(e.code(), EREMOTEIO);
  EXPECT_TRUE(says(e, "RST2INIT")) << e.what();
  EXPECT_NE(e.command_status(), 0);
  EXPECT_NE(e.command_syndrome(), 0u);
  EXPECT_EQ(qp.state(), QueuePairState::kRts);
}

TEST(QueuePair, RefusesAPeerWithoutQpnOrWithoutMtu) {
  HostFixture host;
  const Context context = Context::open(host.provider());
  QueuePairAddress peer{Qpn(0), Psn(1), 1, 4096};
  QueuePair qp = QueuePair::create(context, {.depth = 4});
  EXPECT_TRUE(says(error_of([&] { qp.connect(peer); }), "INIT2RTR"));
  peer.qpn = Qpn(77);
  for (const std::uint32_t mtu : {0u, 128u}) {
    QueuePair other = QueuePair::create(context, {.depth = 4});
    peer.mtu_bytes = mtu;
    EXPECT_TRUE(says(error_of([&] { other.connect(peer); }), "INIT2RTR")) << mtu;
  }
}

TEST(QueuePair, ProgramsTheSmallerMtuOnBothSides) {
  struct SmallMtu : ForwardingVerbs {
    using ForwardingVerbs::ForwardingVerbs;
    int query_port(ibv_context* c, std::uint8_t port, ibv_port_attr* a) override {
      const int error = ForwardingVerbs::query_port(c, port, a);
      a->active_mtu = IBV_MTU_1024;
      return error;
    }
  };
  HostFixture host;
  Provider small = host.peer_provider();
  small.verbs = std::make_shared<SmallMtu>(small.verbs);
  const Context a = Context::open(host.provider());
  const Context b = Context::open(small);
  QueuePair qp = QueuePair::create(a, {.depth = 4});
  QueuePair peer = QueuePair::create(b, {.depth = 4});
  ASSERT_EQ(qp.address().mtu_bytes, 4096u);
  ASSERT_EQ(peer.address().mtu_bytes, 1024u);
  qp.connect(peer.address());
  peer.connect(qp.address());
  EXPECT_EQ(host.nic.core().tables().find_qp(qp.address().qpn)->mtu_bytes(), 1024u);
  EXPECT_EQ(host.peer_nic.core().tables().find_qp(peer.address().qpn)->mtu_bytes(), 1024u);
}

TEST(QueuePair, ProgramsEachSidesPsnWhereTheOtherExpectsIt) {
  HostFixture host;
  const Context a = Context::open(host.provider());
  const Context b = Context::open(host.peer_provider());
  QueuePair qp = QueuePair::create(a, {.depth = 4});
  QueuePair peer = QueuePair::create(b, {.depth = 4});
  qp.connect(peer.address());
  peer.connect(qp.address());
  const nic::QpEntry* mine = host.nic.core().tables().find_qp(qp.address().qpn);
  const nic::QpEntry* its = host.peer_nic.core().tables().find_qp(peer.address().qpn);
  EXPECT_EQ(mine->next_send_psn, qp.address().psn);
  EXPECT_EQ(its->next_receive_psn, qp.address().psn);
  EXPECT_EQ(its->next_send_psn, mine->next_receive_psn);
  EXPECT_EQ(mine->remote_qpn, peer.address().qpn);
}

TEST(QueuePair, StartsAtAnotherPsnEachTimeAlsoWhenItsNumberIsReused) {
  HostFixture host;
  const Context context = Context::open(host.provider());
  std::set<std::uint32_t> psns;
  std::set<std::uint32_t> qpns;
  for (int i = 0; i < 16; ++i) {
    const QueuePair qp = QueuePair::create(context, {.depth = 1});
    psns.insert(qp.address().psn.value);
    qpns.insert(qp.address().qpn.value);
  }
  EXPECT_EQ(qpns.size(), 1u);
  EXPECT_GE(psns.size(), 15u);
  QueuePair first = QueuePair::create(context, {.depth = 1});
  const QueuePair second = QueuePair::create(context, {.depth = 1});
  EXPECT_NE(first.address().qpn, second.address().qpn);
}

// Notes what the commands ask for.
struct NotingVerbs : ForwardingVerbs {
  using ForwardingVerbs::ForwardingVerbs;
  std::vector<std::vector<std::byte>> asked;

  void note(const void* in, std::size_t bytes) {
    const auto* from = static_cast<const std::byte*>(in);
    asked.emplace_back(from, from + bytes);
  }
  mlx5dv_devx_obj* devx_obj_create(ibv_context* c, const void* in, std::size_t in_bytes, void* out,
                                   std::size_t out_bytes) override {
    note(in, in_bytes);
    return ForwardingVerbs::devx_obj_create(c, in, in_bytes, out, out_bytes);
  }
  int devx_obj_modify(mlx5dv_devx_obj* o, const void* in, std::size_t in_bytes, void* out,
                      std::size_t out_bytes) override {
    note(in, in_bytes);
    namespace devx = mlx5::devx;
    // The one thing that is random.
    if (devx::get(asked.back().data(), devx::header::opcode) ==
        static_cast<std::uint64_t>(devx::CommandOpcode::kRtr2RtsQp)) {
      devx::set(asked.back().data(), devx::within(devx::modify_qp::qpc, devx::qpc::next_send_psn),
                0);
    }
    return ForwardingVerbs::devx_obj_modify(o, in, in_bytes, out, out_bytes);
  }
};

[[gnu::noinline]] void leave_on_stack(int byte) {
  volatile char below[65536];
  for (volatile char& c : below) c = static_cast<char>(byte);
}

// No field is whatever the stack or the heap held before.
TEST(QueuePair, AsksForTheSameWhateverItsMemoryHeldBefore) {
  std::vector<std::vector<std::vector<std::byte>>> runs;
  for (const int byte : {0x00, 0xff, 0xa5}) {
    HostFixture host;
    Provider provider = host.provider();
    const auto verbs = std::make_shared<NotingVerbs>(provider.verbs);
    provider.verbs = verbs;
    const Context context = Context::open(provider);
    mallopt(M_PERTURB, byte);
    leave_on_stack(byte);
    QueuePair qp = QueuePair::create(context, {.depth = 4});
    leave_on_stack(byte);
    qp.connect({Qpn(77), Psn(1), 1, 4096});
    leave_on_stack(byte);
    qp.to_error();
    mallopt(M_PERTURB, 0);
    runs.push_back(verbs->asked);
  }
  EXPECT_EQ(runs[0].size(), 6u);  // CQ, QP, three transitions, the way to error
  EXPECT_TRUE(runs[1] == runs[0]);
  EXPECT_TRUE(runs[2] == runs[0]);
}

// ---- Without a doorbell record ------------------------------------------------------------------

TEST(QueuePair, WithoutARecordRingsAnotherRegisterOfAPageOfItsOwn) {
  HostFixture host;
  const Context context = Context::open(host.provider());
  EXPECT_TRUE(context.offers_recordless());
  const QueuePair with = QueuePair::create(context, {.depth = 4});
  const QueuePair a = QueuePair::create(context, {.depth = 4, .doorbell_record = false});
  const QueuePair b = QueuePair::create(context, {.depth = 4, .doorbell_record = false});
  const auto offset = [](const QueueHandle& q) {
    return reinterpret_cast<std::uintptr_t>(q.doorbell) % mlx5::kUarPageBytes;
  };
  EXPECT_TRUE(with.handle().has_record);
  EXPECT_NE(with.handle().dbrec, nullptr);
  EXPECT_EQ(offset(with.handle()), 0x800u);
  for (const QueuePair* qp : {&a, &b}) {
    EXPECT_FALSE(qp->handle().has_record);
    EXPECT_EQ(qp->handle().dbrec, nullptr);
    EXPECT_EQ(offset(qp->handle()), 0x600u);
  }
  EXPECT_NE(a.handle().doorbell, b.handle().doorbell);
}

TEST(QueuePair, WithoutARecordIsRefusedBeforeAnythingIsMadeWhereTheDeviceDoesNotOfferIt) {
  HostFixture host;
  link::Loopback loopback;
  verbs::SoftwareNic older{{.nic_number = 3, .offers_recordless = false}, loopback.a()};
  test::Refusals asked;
  const Context context = Context::open(older.provider(host.engine, asked.hook()));
  EXPECT_FALSE(context.offers_recordless());
  const std::size_t before = asked.asked.size();
  const Error e =
      error_of([&] { QueuePair::create(context, {.depth = 4, .doorbell_record = false}); });
  EXPECT_EQ(e.code(), ENOTSUP);
  EXPECT_STREQ(e.what(),
               "mlx5_software0 does not offer queue pairs without a doorbell record, which "
               "ring_only needs: take record_ring");
  EXPECT_EQ(asked.asked.size(), before);
  EXPECT_NO_THROW(QueuePair::create(context, {.depth = 4}));
}

TEST(QueuePair, WithoutARecordHasNoCompanionAndIsNone) {
  HostFixture host;
  const Context context = Context::open(host.provider());
  const QueuePair with = QueuePair::create(context, {.depth = 4});
  const QueuePair without = QueuePair::create(context, {.depth = 4, .doorbell_record = false});
  const nic::Commands::Objects before = host.objects();
  const Error companion =
      error_of([&] { QueuePair::create_companion(with, {.depth = 4, .doorbell_record = false}); });
  const Error main = error_of([&] { QueuePair::create_companion(without, {.depth = 4}); });
  for (const Error& e : {companion, main}) {
    EXPECT_EQ(e.code(), EINVAL);
    EXPECT_TRUE(says(e, "shares its UAR page with no companion")) << e.what();
  }
  EXPECT_EQ(host.objects(), before);
}

TEST(QueuePair, MovesAndIsDestroyedOnce) {
  HostFixture host;
  const Context context = Context::open(host.provider());
  const nic::Commands::Objects before = host.objects();
  {
    QueuePair a = QueuePair::create(context, {.depth = 4});
    const Qpn qpn = a.address().qpn;
    QueuePair b = std::move(a);
    EXPECT_EQ(b.address().qpn, qpn);
    EXPECT_EQ(host.objects().qps, 1u);
    QueuePair c = QueuePair::create(context, {.depth = 4});
    c = std::move(b);
    EXPECT_EQ(c.address().qpn, qpn);
    EXPECT_EQ(host.objects().qps, 1u);
    a = std::move(c);  // a moved-from one may be given a new life
    EXPECT_EQ(a.state(), QueuePairState::kReset);
    std::vector<QueuePair> many;
    for (int i = 0; i < 9; ++i) many.push_back(QueuePair::create(context, {.depth = 1}));
    EXPECT_EQ(host.objects().qps, 10u);
  }
  EXPECT_EQ(host.objects(), before);
}

}  // namespace
}  // namespace peal
