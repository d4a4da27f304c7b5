// --link roce: the command's ends joined by RoCEv2's packets.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/peal.hpp"
#include "cli/raw_peer.hpp"

namespace peal::test {
namespace {

using nlohmann::json;

constexpr const char* kSmall = " --link roce --size 300,9000 --iters 60 --repeat 1 --region 1M ";
// What is not lost is not sent again, however long this machine is busy with something else: 4 s.
constexpr const char* kPatient = "--qp-timeout 20 ";
// What is lost is soon sent again: 134 ms, eight times.
constexpr const char* kSoon = "--qp-timeout 15 --retry 7 ";

sockaddr_in loopback_port(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

struct LadderRun {
  Ended ended;
  Rows rows;
};

LadderRun run_roce_ladder(const std::string& options, const char* timeouts = kPatient) {
  const RowFile file;
  const Ended e =
      run_peal("ladder" + std::string(kSmall) + timeouts + options + " --json " + file.path());
  return {e, file.rows()};
}

TEST(RoceRun, ClimbsTheLadderInOneProcessByEitherIpVersion) {
  for (const auto& [address, gid] : {std::pair{"127.0.0.1", "::ffff:127.0.0.1"}, {"::1", "::1"}}) {
    SCOPED_TRACE(address);
    const LadderRun run = run_roce_ladder(std::string("--bind ") + address);
    EXPECT_EQ(run.ended.status, 0) << run.ended.err;
    EXPECT_EQ(run.ended.err, "");
    EXPECT_TRUE(contains(run.ended.out, "roce link")) << run.ended.out;
    ASSERT_EQ(run.rows.size(), 20u);
    for (const auto& row : run.rows) {
      EXPECT_EQ(row["link"], "roce");
      EXPECT_EQ(row["kind"], "software");
      EXPECT_EQ(row["gid_index"], 0);
      EXPECT_EQ(row["gid"], gid);
      EXPECT_EQ(row["gid_type"], "roce_v2");
      EXPECT_EQ(row["mtu"], 4096);
      EXPECT_EQ(row["pkey"], "0xffff");
      EXPECT_EQ(row["validated"], true);
      EXPECT_EQ(row["total_bytes"],
                row["puts"].get<std::uint64_t>() * row["payload_bytes"].get<std::uint64_t>());
    }
  }
}

TEST(RoceRun, JoinsTwoProcesses) {
  const Pair pair = run_pair(std::string(kSmall) + kPatient + "--mtu 1024 --traffic-class 104");
  expect_both(pair, 0);
  EXPECT_EQ(pair.client.err, "");
  EXPECT_EQ(pair.server.err, "");
  EXPECT_TRUE(contains(pair.server.out, "all payloads validated")) << pair.server.out;
  ASSERT_EQ(pair.rows.size(), 20u);
  EXPECT_EQ(pair.rows[0]["link"], "roce");
  EXPECT_EQ(pair.rows[0]["mtu"], 1024);
  EXPECT_EQ(pair.rows[0]["traffic_class"], 104);
}

TEST(RoceRun, TakesOptionsOfAPort) {
  const LadderRun run =
      run_roce_ladder("--stages batch --submit peal --gid-index 0 --gid-type roce_v2 --mtu 512");
  EXPECT_EQ(run.ended.status, 0) << run.ended.err;
  ASSERT_EQ(run.rows.size(), 2u);
  EXPECT_EQ(run.rows[0]["mtu"], 512);
  for (const auto& [option, part] : {std::pair{"--gid-index 1", "has no GID at index 1 of 1"},
                                     {"--gid-type ib", "has no ib GID"},
                                     {"--pkey-index 1", "has no partition key at index 1"},
                                     {"--bind 192.0.2.1", "192.0.2.1"}}) {
    const LadderRun refused = run_roce_ladder(option);
    EXPECT_EQ(refused.ended.status, 5) << refused.ended.err;
    EXPECT_EQ(lines(refused.ended.err), 1u) << refused.ended.err;
    EXPECT_TRUE(contains(refused.ended.err, part)) << refused.ended.err;
  }
}

TEST(RoceRun, ValidatesEveryPayloadOverALinkThatLosesRepeatsAndReorders) {
  const std::string faults = "--stages batch --fault drop=0.1 --fault dup=0.1 --fault reorder=0.1";
  const LadderRun local = run_roce_ladder(faults, kSoon);
  EXPECT_EQ(local.ended.status, 0) << local.ended.err;
  ASSERT_EQ(local.rows.size(), 4u);
  for (const auto& row : local.rows) {
    EXPECT_EQ(row["faults"], json({"drop=0.1", "dup=0.1", "reorder=0.1"}));
    EXPECT_GT(row["retransmitted"], 0);
    EXPECT_EQ(row["validated"], true);
  }
  const Pair pair = run_pair(std::string(kSmall) + kSoon + faults);
  expect_both(pair, 0);
  ASSERT_EQ(pair.rows.size(), 4u);
}

TEST(RoceRun, SendsNothingAgainWhereNothingIsLost) {
  const LadderRun run = run_roce_ladder("--stages serial --submit peal");
  ASSERT_EQ(run.rows.size(), 2u) << run.ended.err;
  EXPECT_EQ(run.rows[0]["retransmitted"], 0);
}

TEST(RoceRun, DelaysPacketsByTheLink) {
  const RowFile file;
  const Ended e = run_peal(
      "ladder --link roce --stages serial --submit peal --size 64 --iters 5 --repeat 1 --fault "
      "linkdelay=20000 --json " +
      file.path());
  EXPECT_EQ(e.status, 0) << e.err;
  const Rows rows = file.rows();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_GE(rows[0]["latency_ns_p50"], 40e6) << "both ways";
}

// The NIC gives up, and says so by its CQE, well before the deadline.
TEST(RoceRun, EndsByACompletionErrorWhereEveryPacketIsLost) {
  const Pair pair = run_pair(
      "--link roce --size 64 --iters 5 --repeat 1 --qp-timeout 12 --retry 2 --deadline 30 "
      "--fault drop=1");
  expect_both(pair, 3);
  expect_no_row(pair);
  EXPECT_TRUE(contains(pair.client.err, "syndrome 0x15")) << pair.client.err;
}

TEST(RoceRun, NamesThatTheEndsDifferInTheLink) {
  for (const auto& [client, server] : {std::pair{"--link stream", "--link roce"},
                                       {"", "--link roce"},
                                       {"--link roce", "--link stream"}}) {
    const Pair pair = run_pair(client, server);
    expect_both(pair, 2);
    EXPECT_TRUE(contains(pair.client.err, "link differs: \"")) << pair.client.err;
  }
}

TEST(RoceRun, RefusesWhatDoesNotGoTogether) {
  for (const char* fault : {"drop=0.1", "dup=0.1", "reorder=0.1", "linkdelay=10"}) {
    expect_refusal(words(std::string("ladder --fault ") + fault), "is of --link roce");
    expect_refusal(words(std::string("client localhost --fault ") + fault), "is of --link roce");
  }
  expect_refusal(words("ladder --link roce --fault drop=0.1 --fault drop=0.2"), "given once");
  expect_refusal(words("ladder --link stream"), "--link must be one of loopback, roce");
  expect_refusal(words("client localhost --link loopback"), "--link must be one of stream, roce");
  expect_refusal(words("server --link loopback"), "--link must be one of stream, roce");
  expect_refusal(words("ladder --link ib"), "--link");
  expect_refusal(words("ladder --roce-port 4791"), "--roce-port is of --link roce");
  expect_refusal(words("ladder --roce-port 65536 --link roce"), "--roce-port");
  expect_refusal(words("ladder --capture x.pcap"), "--capture is of --link roce");
  expect_refusal(words("ladder --bind 127.0.0.1"), "--bind is of --link roce");
  expect_refusal(words("ladder --link roce --bind localhost"), "--bind must be");
  expect_refusal(words("ladder --provider rdma_core --link roce"), "is of the software ConnectX");
}

TEST(RoceRun, TakesItsOptionsInAnyOrder) {
  for (const char* options : {"--fault drop=0 --link roce", "--link roce --fault drop=0",
                              "--roce-port 0 --fault drop=0 --bind 127.0.0.1 --link roce"}) {
    const Ended e =
        run_peal(std::string("ladder --size 64 --iters 5 --repeat 1 --json - ") + options);
    EXPECT_EQ(e.status, 0) << options << e.err;
    EXPECT_EQ(lines(e.out), 10u) << "rows and nothing else";
  }
}

TEST(RoceRun, SendsToThePortThatIsNamedAndNoOther) {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in taken = loopback_port(0);
  socklen_t bytes = sizeof taken;
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&taken), bytes), 0);
  ASSERT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&taken), &bytes), 0);
  const std::string port = std::to_string(ntohs(taken.sin_port));
  const std::string ladder =
      "ladder --link roce --size 64 --iters 5 --repeat 1 --stages serial --roce-port " + port;
  const Ended refused = run_peal(ladder);
  EXPECT_EQ(refused.status, 5) << refused.err;
  EXPECT_EQ(lines(refused.err), 1u) << refused.err;
  EXPECT_TRUE(contains(refused.err, port)) << refused.err;
  ::close(fd);
  const RowFile capture;  // of no rows this time
  const Ended e = run_peal(ladder + " --capture " + capture.path());
  EXPECT_EQ(e.status, 0) << e.err;
  std::ifstream file(capture.path(), std::ios::binary);
  const std::string pcap{std::istreambuf_iterator<char>(file), {}};
  ASSERT_GT(pcap.size(), 24u + 10 * (16 + 28 + 12 + 16 + 64 + 4));
  EXPECT_EQ(pcap.substr(0, 4).find("\xd4\xc3\xb2\xa1") == 0 ||
                pcap.substr(0, 4).find("\x4d\x3c\xb2\xa1") == 0,
            true)
      << "pcap's magic number";
  // The first packet is a WRITE to that port: behind the file's header, its own, and the IP header.
  const auto byte = [&](std::size_t i) {
    return static_cast<unsigned>(static_cast<unsigned char>(pcap[i]));
  };
  EXPECT_EQ(byte(24 + 16 + 20 + 2) << 8 | byte(24 + 16 + 20 + 3), ntohs(taken.sin_port));
  EXPECT_EQ(byte(24 + 16 + 28), 10u) << "RDMA WRITE Only";
}

TEST(RoceRun, CannotCaptureWhereItMayNotWrite) {
  for (const std::string command : {"ladder", "client 127.0.0.1 --port 1", "server --port 0"}) {
    const Ended e = run_peal(command + " --link roce --capture /nonexistent/x.pcap");
    EXPECT_EQ(e.status, 5) << e.err;
    EXPECT_EQ(lines(e.err), 1u) << e.err;
    EXPECT_TRUE(contains(e.err, "/nonexistent/x.pcap")) << e.err;
  }
}

TEST(RoceRun, NoticesWhenTheOtherProcessIsGone) {
  const Arguments traffic = endless_traffic() + words("--link roce --deadline 3");
  for (const bool server_dies : {true, false}) {
    Server server(words("--once --deadline 3"));
    Process client(peal_command(client_of(server.port(), traffic)), on_terminal());
    ASSERT_TRUE(client.wait_for_err(kTimedTraffic)) << client.err();
    (server_dies ? server.process() : client).signal(SIGKILL);
    if (server_dies) {
      EXPECT_EQ(client.wait(), 4) << client.err();
      EXPECT_EQ(client.out(), "");
    } else {
      EXPECT_EQ(server.end().status, 4);
    }
  }
}

// Those of 127.0.0.1 that a process has bound.
std::vector<std::uint16_t> udp_ports_of(pid_t pid) {
  std::set<std::string> sockets;
  std::error_code gone;
  for (const auto& fd :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
    sockets.insert(std::filesystem::read_symlink(fd, gone).string());
  }
  std::ifstream udp("/proc/net/udp");
  std::vector<std::uint16_t> ports;
  for (std::string line; std::getline(udp, line);) {
    // Place, address and port, eight fields, inode.
    std::istringstream fields(line);
    std::vector<std::string> all{std::istream_iterator<std::string>(fields), {}};
    if (all.size() < 10 || !all[1].starts_with("0100007F:")) continue;
    if (!sockets.contains("socket:[" + all[9] + "]")) continue;
    ports.push_back(static_cast<std::uint16_t>(std::stoul(all[1].substr(9), nullptr, 16)));
  }
  return ports;
}

// The packets of somebody else, all through a run.
TEST(RoceRun, CountsAndDropsWhatStrangersSend) {
  Server server;
  const RowFile file;
  Process client(
      peal_command(client_of(server.port(),
                             words("--link roce --size 64 --iters 200 --repeat 1 --stages serial "
                                   "--submit peal --fault linkdelay=1000 --json " +
                                   file.path()))),
      on_terminal());
  ASSERT_TRUE(client.wait_for_err(kTimedTraffic)) << client.err();
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  std::vector<std::uint16_t> ports = udp_ports_of(client.pid());
  for (const std::uint16_t port : udp_ports_of(server.process().pid())) ports.push_back(port);
  ASSERT_EQ(ports.size(), 2u);
  for (const std::uint16_t port : ports) {
    for (std::size_t bytes = 0; bytes < 100; ++bytes) {
      const sockaddr_in to = loopback_port(port);
      const std::string junk(bytes, 'x');
      ::sendto(fd, junk.data(), junk.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    }
  }
  ::close(fd);
  EXPECT_EQ(client.wait(), 0) << client.err();
  const Ended e = server.end();
  EXPECT_EQ(e.status, 0) << e.err;
  EXPECT_EQ(file.rows().size(), 1u);
  EXPECT_TRUE(contains(client.err(), "packets dropped: ")) << client.err();
  EXPECT_TRUE(contains(e.err, "client 1: ") && contains(e.err, "packets dropped: ")) << e.err;
}

// ---- what a wrong peer says at the handshake ----

// The hello of a real client on this link.
json roce_hello() {
  const RawListener listener;
  Process client(
      peal_command(client_of(listener.port(), words("--link roce --deadline 0.1 --size 64"))));
  const std::string hello = listener.accept().receive_frame();
  client.wait();
  return json::parse(hello.substr(12));
}

json v6_loopback() {
  json bytes = json::array();
  for (int i = 0; i < 16; ++i) bytes.push_back(i == 15 ? 1 : 0);
  return bytes;
}

// Each with what the sentence says of it.
std::vector<std::pair<json, std::string>> wrong_addresses(const json& right) {
  const auto with = [&](const char* key, const json& value) {
    json j = right;
    j[key] = value;
    return j;
  };
  json elsewhere = right.at("address");
  elsewhere[15] = 9;
  json without = right;
  without.erase("mtu");
  return {{with("address", v6_loopback()), "of two IP versions"},
          {with("address", elsewhere), "control connection is with 127.0.0.1"},
          {with("address", json::array({1, 2, 3})), "of 16 bytes"},
          {with("address", "127.0.0.1"), "must be a list"},
          {with("address", json::array({256, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})),
           "of 16 bytes"},
          {with("port", 0), "UDP port is 0"},
          {with("port", 65536), "port must be"},
          {with("port", "4791"), "port must be"},
          {with("receive_buffer", 0), "receive buffer"},
          {with("receive_buffer", (std::uint64_t{1} << 30) + 1), "receive buffer"},
          {with("receive_buffer", -1), "receive_buffer must be"},
          {with("mtu", 1500), "its MTU must be"},
          {with("mtu", 128), "its MTU must be"},
          {with("mtu", 8192), "its MTU must be"},
          {with("mtu", nullptr), "mtu must be"},
          {without, "mtu"},
          {json(7), "not understood"}};
}

TEST(RoceServer, RefusesAnAddressThatCannotBeUsed) {
  const json hello = roce_hello();
  Server server(Arguments{});
  int clients = 0;
  for (const auto& [roce, part] : wrong_addresses(hello.at("roce"))) {
    SCOPED_TRACE(roce.dump());
    json wrong = hello;
    wrong["roce"] = roce;
    const RawConnection connection = RawConnection::to(server.port());
    connection.send(frame(wrong.dump()));
    const std::string answer = connection.receive_frame();
    EXPECT_TRUE(contains(answer, "\"error\"") && contains(answer, part)) << answer;
    ++clients;
  }
  ASSERT_TRUE(server.process().wait_for_out("client " + std::to_string(clients) + ": failed"));
  server.process().signal(SIGTERM);
  const Ended e = server.end();
  EXPECT_EQ(e.status, 2) << e.err;
  EXPECT_EQ(lines(e.err), static_cast<std::size_t>(clients)) << e.err;
}

TEST(RoceClient, RefusesAnAddressThatCannotBeUsed) {
  const json right = roce_hello().at("roce");
  for (const auto& [roce, part] : wrong_addresses(right)) {
    SCOPED_TRACE(roce.dump());
    const RawListener listener;
    Process client(peal_command(client_of(listener.port(), words("--link roce"))));
    const RawConnection connection = listener.accept();
    connection.receive_frame();
    connection.send(frame(json{{"type", "welcome"}, {"roce", roce}}.dump()));
    EXPECT_EQ(client.wait(), 2) << client.err();
    EXPECT_EQ(lines(client.err()), 1u) << client.err();
    EXPECT_TRUE(contains(client.err(), part)) << client.err();
  }
}

}  // namespace
}  // namespace peal::test
