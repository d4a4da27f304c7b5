#include <gtest/gtest.h>
#include <signal.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/peal.hpp"
#include "cli/raw_peer.hpp"

namespace peal::test {
namespace {

using nlohmann::json;

// The hello of a real client.
std::string recorded_hello() {
  const RawListener listener;
  Process client(peal_command(client_of(listener.port(), words("--deadline 0.1"))));
  std::string hello = listener.accept().receive_frame();
  client.wait();
  return hello;
}

json row_message() {
  return {{"type", "row"},
          {"stage", "serial"},
          {"submit", "peal"},
          {"payload_bytes", 64},
          {"slots", 8},
          {"depth", 64},
          {"qps", json::array({{{"qpn", 0x801}, {"psn", 1}, {"lid", 1}, {"mtu", 4096}}})}};
}

json segment_message(const std::string& type) {
  return {{"type", type},
          {"seed", 1},
          {"producers", 1},
          {"first_sequence", 0},
          {"puts_per_producer", 8},
          {"payload_bytes", 64},
          {"first_timed_sequence", 0},
          {"acknowledged", json::array({0})}};
}

json with(json message, const std::string& key, const json& value) {
  message[key] = value;
  return message;
}

// A client that did everything right until it sends `messages`.
class HostileClient {
 public:
  HostileClient(std::uint16_t port, const std::string& hello)
      : control_(RawConnection::to(port)), data_(open_data(control_, hello)) {}

  // The last answer.
  std::string say(const std::vector<json>& messages) const {
    std::string answer;
    for (const json& message : messages) {
      control_.send(frame(message.dump()));
      answer = control_.receive_frame();
    }
    return answer;
  }
  const RawConnection& data() const { return data_; }

 private:
  static RawConnection open_data(const RawConnection& control, const std::string& hello) {
    control.send(hello);
    const json welcome = json::parse(control.receive_frame().substr(12));
    RawConnection data = RawConnection::to(welcome.at("data_port").get<std::uint16_t>());
    const std::uint64_t token = welcome.at("token").get<std::uint64_t>();
    std::string bytes = "PEALDATA";
    bytes.append(reinterpret_cast<const char*>(&token), sizeof token);
    data.send(bytes);
    return data;
  }

  RawConnection control_;
  RawConnection data_;
};

TEST(HostileClient, IsRefusedWhateverItAsksFor) {
  const std::string hello = recorded_hello();
  const json row = row_message();
  const json segment = segment_message("segment");
  const json check = segment_message("check");
  const std::uint64_t huge = std::uint64_t{1} << 63;
  const std::vector<std::vector<json>> conversations = {
      {json{{"type", "junk"}}},
      {json{{"type", "row"}}},
      {with(row, "slots", -1)},
      {with(row, "slots", huge)},
      {with(row, "slots", std::uint64_t{1} << 58)},
      {with(row, "slots", (std::uint64_t{1} << 58) + 1)},
      {with(row, "slots", "8")},
      {with(row, "payload_bytes", huge)},
      {with(row, "payload_bytes", UINT64_MAX)},
      {with(row, "payload_bytes", nullptr)},
      {with(row, "stage", 7)},
      {with(row, "qps", json::array({7}))},
      {segment},
      {check},
      {row, with(segment, "puts_per_producer", 9)},
      {row, with(segment, "puts_per_producer", huge)},
      {row, with(segment, "producers", UINT32_MAX)},
      {row, with(segment, "producers", 2)},
      {row, with(segment, "payload_bytes", 4096)},
      {row, with(segment, "payload_bytes", UINT64_MAX)},
      {row, segment, with(check, "acknowledged", json::array())},
      {row, segment, with(check, "acknowledged", json::array({9}))},
      {row, segment, with(check, "acknowledged", json::array({huge}))},
      {row, segment, with(check, "acknowledged", 8)},
      {json{{"type", "end"}}},
      {json{{"type", "end"}, {"status", "0"}, {"sentences", json::array()}}},
      {json{{"type", "end"}, {"status", 0}, {"sentences", 7}}},
  };
  Server server(Arguments{});
  std::size_t clients = 0;
  for (const auto& messages : conversations) {
    SCOPED_TRACE(json(messages).dump().substr(0, 600));
    const std::string answer = HostileClient(server.port(), hello).say(messages);
    EXPECT_TRUE(contains(answer, "\"error\"")) << answer;
    const std::string client = "client " + std::to_string(++clients) + ": ";
    ASSERT_TRUE(server.process().wait_for_out(client)) << server.process().err();
    EXPECT_TRUE(contains(server.process().out(), client + "failed with status 2") ||
                contains(server.process().out(), client + "failed with status 5"))
        << server.process().out();
  }
  EXPECT_EQ(run_peal(client_of(server.port(), words("--size 64 --iters 5 --repeat 1"))).status, 0);
  server.process().signal(SIGTERM);
  server.end();
}

TEST(HostileClient, CannotMakeTheServerExitWithAStatusOfItsChoice) {
  const std::string hello = recorded_hello();
  for (const int status : {-1, 6, 77, 256}) {
    Server server;
    HostileClient(server.port(), hello)
        .say({json{{"type", "end"}, {"status", status}, {"sentences", json::array({"x"})}}});
    EXPECT_EQ(server.end().status, 2) << status;
  }
}

TEST(HostileClient, CannotPutControlCharactersOnTheServersTerminal) {
  const std::string hello = recorded_hello();
  Server server;
  HostileClient(server.port(), hello)
      .say({json{{"type", "end"}, {"status", 4}, {"sentences", json::array({"a\nb\033[2Jc"})}}});
  const Ended e = server.end();
  EXPECT_EQ(e.status, 4);
  EXPECT_EQ(lines(e.err), 1u) << e.err;
  EXPECT_FALSE(contains(e.err, "\033")) << e.err;
}

TEST(HostileClient, CannotEndTheServerByWhatItSendsAsData) {
  const std::string hello = recorded_hello();
  Server server(Arguments{});
  {
    const HostileClient client(server.port(), hello);
    client.say({row_message(), segment_message("segment")});
    client.data().send(std::string(4096, '\xff'));
    // Nothing arrived, so that nothing is acknowledged and nothing is wrong; and the server lives.
    EXPECT_TRUE(contains(client.say({segment_message("check")}), "\"verdict\""));
  }
  ASSERT_TRUE(server.process().wait_for_out("client 1: failed with status 4"));
  EXPECT_EQ(run_peal(client_of(server.port(), words("--size 64 --iters 5 --repeat 1"))).status, 0);
  server.process().signal(SIGTERM);
  EXPECT_EQ(server.end().status, 4);
}

TEST(HostileClient, CannotEndAServerOfManyClientsByRefusingIt) {
  Server server(Arguments{});
  const RawConnection connection = RawConnection::to(server.port());
  connection.send(frame(R"({"type":"error","status":3,"message":"no more"})"));
  ASSERT_TRUE(server.process().wait_for_out("client 1: ")) << server.process().out();
  Process next(peal_command(client_of(server.port(), words("--size 64 --iters 5 --repeat 1"))));
  EXPECT_EQ(next.wait(), 0) << next.err();
  server.process().signal(SIGTERM);
  EXPECT_EQ(server.end().status, 3);
}

}  // namespace
}  // namespace peal::test
