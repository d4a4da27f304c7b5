// How a queue pair's path to its peer is made: by LID, by GID, over Ethernet.
#include <gtest/gtest.h>

#include "host/ethernet_verbs.hpp"

namespace peal::test {
namespace {

namespace devx = mlx5::devx;

struct PathFixture : ::testing::Test {
  Context open(const ContextOptions& options = {}) {
    Provider p = nics.provider();
    p.verbs = verbs = std::make_shared<EthernetVerbs>(p.verbs);
    verbs->table = table;
    verbs->pkeys = pkeys;
    verbs->ethernet = ethernet;
    verbs->active_mtu = active_mtu;
    return Context::open(p, options);
  }
  std::uint32_t chosen(const ContextOptions& options = {}) { return open(options).gid()->index; }

  HostFixture nics;
  std::shared_ptr<EthernetVerbs> verbs;
  std::map<std::uint32_t, Gid> table;
  std::vector<std::uint16_t> pkeys = {0xffff};
  bool ethernet = true;
  ibv_mtu active_mtu = IBV_MTU_4096;
};

QueuePairAddress peer_with(std::optional<Gid> gid, std::uint32_t mtu_bytes = 4096) {
  return {Qpn(0x002345), Psn(7), 9, mtu_bytes, gid};
}

TEST_F(PathFixture, TakesTheGidThatReachesFurthest) {
  table = {{2, link_local(GidType::kRoceV1, 1)}, {3, link_local(GidType::kRoceV2, 1)}};
  EXPECT_EQ(chosen(), 3u);
  table[5] = ipv6(GidType::kRoceV2, 1);
  EXPECT_EQ(chosen(), 5u);
  table[6] = ipv4(GidType::kRoceV1, 1);
  table[7] = ipv4(GidType::kRoceV2, 1);
  EXPECT_EQ(chosen(), 7u);
  table[1] = ipv4(GidType::kRoceV2, 2);
  EXPECT_EQ(chosen(), 1u) << "the first of equals";
}

TEST_F(PathFixture, TakesTheGidThatIsNamed) {
  table = {{2, ipv4(GidType::kRoceV1, 1)}, {3, ipv4(GidType::kRoceV2, 1)}};
  EXPECT_EQ(chosen({.gid_index = 2}), 2u);
  EXPECT_EQ(chosen({.gid_type = GidType::kRoceV1}), 2u);
  EXPECT_EQ(open({.gid_index = 3}).gid()->gid, ipv4(GidType::kRoceV2, 1));
  EXPECT_EQ(gid_text(ipv4(GidType::kRoceV2, 1)), "::ffff:192.0.2.1");
}

TEST_F(PathFixture, SkipsSlotsThatAreEmptyUnreadableOrZero) {
  table = {{0, Gid{}}, {6, ipv4(GidType::kRoceV2, 1)}};
  EXPECT_EQ(chosen(), 6u);
}

TEST_F(PathFixture, SaysThatThereIsNoGid) {
  const Error none = error_of([&] { open(); });
  EXPECT_EQ(none.code(), ENODATA);
  EXPECT_TRUE(says(none, "port 1 of mlx5_software0 has no GID in 8 slots: give its network"))
      << none.what();
  table[4] = ipv4(GidType::kRoceV1, 1);
  EXPECT_TRUE(says(error_of([&] { open({.gid_type = GidType::kRoceV2}); }), "has no roce_v2 GID"));
  EXPECT_TRUE(says(error_of([&] { open({.gid_index = 5}); }), "has no GID at index 5 of 8"));
  EXPECT_TRUE(says(error_of([&] { open({.gid_index = 4, .gid_type = GidType::kRoceV2}); }),
                   "GID index 4 of port 1 of mlx5_software0 is roce_v1, not roce_v2"));
}

// Nothing is left behind, and the next one succeeds.
TEST_F(PathFixture, AHundredFailedOpensLeaveNothing) {
  for (int i = 0; i < 100; ++i) error_of([&] { open(); });
  EXPECT_EQ(nics.objects().pds, 0u);
  table[3] = ipv4(GidType::kRoceV2, 1);
  EXPECT_EQ(chosen(), 3u);
}

TEST_F(PathFixture, TellsADeviceOnEthernetAllOfThePath) {
  table = {{3, ipv4(GidType::kRoceV2, 1)}};
  const Context context = open();
  QueuePair qp = QueuePair::create(context, {.traffic_class = 104});
  EXPECT_EQ(qp.address().gid, ipv4(GidType::kRoceV2, 1));
  qp.connect(peer_with(ipv4(GidType::kRoceV2, 2)));
  ASSERT_EQ(verbs->rtr.size(), 1u);
  EXPECT_EQ(verbs->in_path(0, devx::ads::src_addr_index), 3u);
  EXPECT_EQ(verbs->in_path(0, devx::ads::hop_limit), 64u) << "a router takes one off";
  EXPECT_EQ(verbs->in_path(0, devx::ads::tclass), 104u);
  EXPECT_EQ(verbs->in_path(0, devx::ads::rmac_47_32), 0xa0a1u);
  EXPECT_EQ(verbs->in_path(0, devx::ads::rmac_31_0), 0xa2a3a4a5u);
  EXPECT_EQ(verbs->in_path(0, devx::ads::rlid), 0u);
  EXPECT_GE(verbs->in_path(0, devx::ads::udp_sport), 0xc000u);
  EXPECT_EQ(verbs->rgid(0), ipv4(GidType::kRoceV2, 2).bytes);
  // What the kernel is asked, with nothing in it that is not set.
  EXPECT_EQ(verbs->asked.grh.sgid_index, 3);
  EXPECT_EQ(verbs->asked.grh.hop_limit, 64);
  EXPECT_EQ(verbs->asked.grh.traffic_class, 104);
  EXPECT_EQ(verbs->asked.is_global, 1);
  EXPECT_EQ(verbs->asked.static_rate, 0);
  EXPECT_EQ(std::memcmp(verbs->asked.grh.dgid.raw, ipv4(GidType::kRoceV2, 2).bytes.data(), 16), 0);
}

// The way to one peer does not change the way to another.
TEST_F(PathFixture, EachQueuePairHasAPathOfItsOwn) {
  table = {{3, ipv4(GidType::kRoceV2, 1)}};
  const Context context = open();
  std::vector<QueuePair> qps;
  for (const std::uint8_t host : {std::uint8_t{2}, std::uint8_t{3}}) {
    qps.push_back(QueuePair::create(context));
    qps.back().connect(peer_with(ipv4(GidType::kRoceV2, host)));
  }
  for (const std::uint8_t host : {std::uint8_t{2}, std::uint8_t{3}}) {
    EXPECT_EQ(verbs->rgid(host - 2u), ipv4(GidType::kRoceV2, host).bytes);
  }
}

// Transition, cause and all that the device was told.
TEST_F(PathFixture, ARefusedTransitionSaysWhatItWasAbout) {
  table = {{3, ipv4(GidType::kRoceV2, 1)}};
  const Context context = open();
  QueuePair qp = QueuePair::create(context);
  qp.connect(peer_with(ipv4(GidType::kRoceV2, 2), 1024));
  const Error e = error_of([&] { qp.connect(peer_with(ipv4(GidType::kRoceV2, 2), 1024)); });
  EXPECT_EQ(e.code(), EREMOTEIO);
  EXPECT_TRUE(says(e,
                   "connecting from port 1 of mlx5_software0 by GID index 3 (roce_v2) to QPN "
                   "0x002345 at ::ffff:192.0.2.2 with MTU 1024: RST2INIT_QP of QP 0x"))
      << e.what();
  EXPECT_TRUE(says(e, "syndrome 0x")) << e.what();
}

TEST_F(PathFixture, QueuePairsOfTwoEndsSendFromTwoPorts) {
  table = {{3, ipv4(GidType::kRoceV2, 1)}};
  const Context context = open();
  for (int i = 0; i < 2; ++i) {
    QueuePair::create(context).connect(peer_with(ipv4(GidType::kRoceV2, 2)));
    QueuePair qp = QueuePair::create(context);
    qp.connect({Qpn(0x002346), Psn(7), 0, 4096, ipv4(GidType::kRoceV2, 2)});
  }
  EXPECT_NE(verbs->in_path(0, devx::ads::udp_sport), verbs->in_path(1, devx::ads::udp_sport));
}

TEST_F(PathFixture, SendsFromNoPortUnderRoceV1) {
  table = {{3, link_local(GidType::kRoceV1, 1)}};
  const Context context = open();
  QueuePair::create(context).connect(peer_with(link_local(GidType::kRoceV1, 2)));
  EXPECT_EQ(verbs->in_path(0, devx::ads::udp_sport), 0u);
}

TEST_F(PathFixture, RefusesAPeerWhoseGidIsOfAnotherType) {
  table = {{3, ipv4(GidType::kRoceV2, 1)}};
  const Context context = open();
  QueuePair qp = QueuePair::create(context);
  const Error other = error_of([&] { qp.connect(peer_with(ipv4(GidType::kRoceV1, 2))); });
  EXPECT_EQ(other.code(), EINVAL);
  EXPECT_TRUE(says(other,
                   "this end's GID, at index 3, is of type roce_v2, the peer's of type "
                   "roce_v1: choose indices of one type"))
      << other.what();
  QueuePair next = QueuePair::create(context);
  EXPECT_TRUE(
      says(error_of([&] { next.connect(peer_with(std::nullopt)); }), "the peer gives none"));
}

TEST_F(PathFixture, SaysWhichPeerHasNoEthernetAddress) {
  table = {{3, ipv4(GidType::kRoceV2, 1)}};
  const Context context = open();
  verbs->mac_error = ETIMEDOUT;
  QueuePair qp = QueuePair::create(context);
  const Error e = error_of([&] { qp.connect(peer_with(ipv4(GidType::kRoceV2, 2))); });
  EXPECT_EQ(e.code(), ETIMEDOUT);
  EXPECT_TRUE(says(e, "the Ethernet address of the peer ::ffff:192.0.2.2")) << e.what();
}

TEST_F(PathFixture, GoesByLidOnInfiniBandUnlessAGidIsAskedFor) {
  ethernet = false;
  table = {{0, link_local(GidType::kInfiniBand, 1)}};
  const Context by_lid = open();
  EXPECT_FALSE(by_lid.gid().has_value());
  QueuePair::create(by_lid).connect(peer_with(std::nullopt));
  EXPECT_EQ(verbs->in_path(0, devx::ads::rlid), 9u);
  EXPECT_EQ(verbs->in_path(0, devx::ads::grh), 0u);

  const Context by_gid = open({.gid_index = 0});
  QueuePair::create(by_gid).connect(peer_with(link_local(GidType::kInfiniBand, 2)));
  EXPECT_EQ(verbs->in_path(0, devx::ads::rlid), 9u);
  EXPECT_EQ(verbs->in_path(0, devx::ads::grh), 1u);
  EXPECT_EQ(verbs->in_path(0, devx::ads::hop_limit), 64u);
}

TEST_F(PathFixture, TakesThePartitionKeyAtTheIndexAskedFor) {
  ethernet = false;
  pkeys = {0x0000, 0xffff, 0x8000};
  const Context context = open({.pkey_index = 1});
  EXPECT_EQ(context.pkey().key, 0xffff);
  QueuePair qp = QueuePair::create(context);
  EXPECT_EQ(qp.address().pkey, 0xffff);
  qp.connect(peer_with(std::nullopt));
  ASSERT_EQ(verbs->init.size(), 1u);
  EXPECT_EQ(EthernetVerbs::in_path_of(verbs->init[0], devx::ads::pkey_index), 1u);
  // Empty: no key, or that of no partition.
  for (const std::uint16_t index : {std::uint16_t{0}, std::uint16_t{2}, std::uint16_t{3}}) {
    EXPECT_TRUE(
        says(error_of([&] { open({.pkey_index = index}); }),
             "port 1 of mlx5_software0 has no partition key at index " + std::to_string(index)));
  }
}

TEST_F(PathFixture, RefusesAPeerOfAPartitionThatWouldNotHearIt) {
  ethernet = false;
  pkeys = {0xffff, 0x8001, 0x0001};
  const auto connect = [&](std::uint16_t index, std::optional<std::uint16_t> key) {
    QueuePairAddress peer = peer_with(std::nullopt);
    peer.pkey = key;
    QueuePair::create(open({.pkey_index = index})).connect(peer);
  };
  for (const std::uint16_t key : {std::uint16_t{0x8001}, std::uint16_t{0x0001}}) connect(1, key);
  connect(2, std::uint16_t{0x8001});
  connect(2, std::nullopt);
  const Error other = error_of([&] { connect(1, std::uint16_t{0xffff}); });
  EXPECT_EQ(other.code(), EINVAL);
  EXPECT_TRUE(says(other, "this end's partition key, at index 1, is 0x8001, the peer's 0xffff"))
      << other.what();
  EXPECT_TRUE(says(error_of([&] { connect(2, std::uint16_t{0x0001}); }), "limited members"));
}

// Of this port, of the peer's, and of what was asked for, the least.
TEST_F(PathFixture, PacketsCarryTheLeastOfThreeMtus) {
  table = {{3, ipv4(GidType::kRoceV2, 1)}};
  const Gid gid = ipv4(GidType::kRoceV2, 2);
  constexpr std::uint64_t k1024Bytes = 3;
  QueuePair::create(open()).connect(peer_with(gid, 1024));
  EXPECT_EQ(verbs->in_context(0, devx::qpc::mtu), k1024Bytes);
  const Context asked = open({.mtu_bytes = 1024});
  EXPECT_EQ(asked.mtu_bytes(), 1024u);
  QueuePair::create(asked).connect(peer_with(gid, 4096));
  EXPECT_EQ(verbs->in_context(0, devx::qpc::mtu), k1024Bytes);
  active_mtu = IBV_MTU_1024;
  QueuePair::create(open()).connect(peer_with(gid, 4096));
  EXPECT_EQ(verbs->in_context(0, devx::qpc::mtu), k1024Bytes);
  EXPECT_TRUE(says(error_of([&] { open({.mtu_bytes = 2048}); }),
                   "the MTU of port 1 of mlx5_software0 is 1024: 2048 is more"));
  EXPECT_TRUE(says(error_of([&] { open({.mtu_bytes = 1500}); }), "not 1500"));
}

}  // namespace
}  // namespace peal::test
