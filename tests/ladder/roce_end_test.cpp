#include "ladder/roce_end.hpp"

#include <gtest/gtest.h>

#include "ladder/socket.hpp"

namespace peal::ladder {
namespace {

const link::IpAddress kHere = *link::ip_address_from("192.0.2.1");
const link::IpAddress kThere = *link::ip_address_from("192.0.2.2");

TEST(RoceAddress, IsReadAsItWasWritten) {
  const RoceAddress told{kThere, 4791, 212992, 1024};
  EXPECT_EQ(roce_address_from(to_json(told), kHere, kThere), told);
  for (const RoceAddress& edge :
       {RoceAddress{kThere, 1, 1, 256}, RoceAddress{kThere, 65535, std::uint64_t{1} << 30, 4096}}) {
    EXPECT_EQ(roce_address_from(to_json(edge), kHere, kThere), edge);
  }
}

TEST(RoceAddress, IsRefusedWhereItIsNotThePeers) {
  const RoceAddress told{kThere, 4791, 212992, 1024};
  const link::IpAddress v6 = *link::ip_address_from("2001:db8::1");
  EXPECT_THROW(roce_address_from(to_json(told), kHere, kHere), PeerError);
  EXPECT_THROW(roce_address_from(to_json(told), v6, kThere), PeerError);
}

TEST(RoceDropsText, AreToldByReasonOnlyWhereThereWereAny) {
  link::RoceCounters c;
  c.sent_packets = c.received_packets = 1000;
  EXPECT_EQ(text_of_drops(c), "");
  c.dropped[static_cast<std::size_t>(link::RoceDrop::kStranger)] = 1;
  EXPECT_EQ(text_of_drops(c), std::string("1 packet dropped: 1 (") +
                                  link::drop_text(link::RoceDrop::kStranger) + ")");
  c.malformed[static_cast<std::size_t>(wire::Malformed::kIcrc)] = 2;
  c.overflowed = 3;
  EXPECT_EQ(text_of_drops(c), std::string("6 packets dropped: 2 (") +
                                  wire::malformed_text(wire::Malformed::kIcrc) + "), 1 (" +
                                  link::drop_text(link::RoceDrop::kStranger) +
                                  "), 3 (the kernel's buffer was full)");
}

// A run is repeated by its seed, and what its two ends lose is not the same.
TEST(RoceEnd, MeetsTheFaultsAskedForInFrontOfItsLink) {
  LadderOptions options;
  options.link = LinkKind::kRoce;
  const link::IpAddress local = *link::ip_address_from("127.0.0.1");
  RoceEnd plain(options, local, 0, RunEnd::kSender, nullptr);
  EXPECT_EQ(plain.address().address, local);
  EXPECT_NE(plain.address().udp_port, 0);
  EXPECT_EQ(plain.port().roce_gid, local.bytes);
  EXPECT_EQ(dynamic_cast<link::ImpairedLink*>(&plain.link()), nullptr);
  options.faults = {parse_fault("drop=1")};
  RoceEnd lossy(options, local, 0, RunEnd::kSender, nullptr);
  lossy.connect(plain.address());
  auto* impaired = dynamic_cast<link::ImpairedLink*>(&lossy.link());
  ASSERT_NE(impaired, nullptr);
  EXPECT_TRUE(lossy.link().try_send({}));
  EXPECT_EQ(impaired->counters().dropped, 1u);
}

}  // namespace
}  // namespace peal::ladder
