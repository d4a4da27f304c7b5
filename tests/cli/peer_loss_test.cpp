#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "cli/peal.hpp"
#include "cli/raw_peer.hpp"

namespace peal::test {
namespace {

TEST(PeerLoss, EndsTheClientWhenNobodyListens) {
  std::uint16_t port = 0;
  {
    const RawListener listener;
    port = listener.port();
  }
  const Ended e = run_peal(client_of(port, {}));
  EXPECT_EQ(e.status, 4) << e.err;
  EXPECT_EQ(e.out, "");
  EXPECT_EQ(lines(e.err), 1u) << e.err;
  EXPECT_TRUE(contains(e.err, "127.0.0.1 port " + std::to_string(port))) << e.err;
}

TEST(PeerLoss, EndsTheClientWhenTheServerIsKilledInTheMiddle) {
  Server server;
  Process client(peal_command(client_of(server.port(), endless_traffic())), on_terminal());
  ASSERT_TRUE(client.wait_for_err(kTimedTraffic)) << client.err();
  server.process().signal(SIGKILL);
  EXPECT_EQ(client.wait(), 4) << client.err();
  EXPECT_EQ(client.out(), "");
  EXPECT_TRUE(contains(client.err(), "connection")) << client.err();
}

TEST(PeerLoss, EndsTheServerWhenTheClientIsKilledInTheMiddle) {
  Server server;
  Process client(peal_command(client_of(server.port(), endless_traffic())), on_terminal());
  ASSERT_TRUE(client.wait_for_err(kTimedTraffic)) << client.err();
  client.signal(SIGKILL);
  const Ended e = server.end();
  EXPECT_EQ(e.status, 4) << e.err;
  EXPECT_TRUE(contains(e.err, "client 1: ")) << e.err;
}

TEST(PeerLoss, EndsTheClientWhenTheServerIsStoppedBeforeItAnswers) {
  Server server(words("--once --deadline 0.5"));
  server.process().signal(SIGSTOP);
  const Ended e = run_peal(client_of(server.port(), words("--deadline 0.5")));
  EXPECT_EQ(e.status, 4) << e.err;
  EXPECT_EQ(e.out, "");
  EXPECT_TRUE(contains(e.err, "welcome")) << e.err;
  server.process().signal(SIGCONT);
  EXPECT_EQ(server.end().status, 4);
}

TEST(PeerLoss, EndsTheClientWhenTheServerIsStoppedInTheMiddle) {
  Server server;
  Process client(peal_command(client_of(server.port(), endless_traffic() + words("--deadline 1"))),
                 on_terminal());
  ASSERT_TRUE(client.wait_for_err(kTimedTraffic)) << client.err();
  server.process().signal(SIGSTOP);
  EXPECT_EQ(client.wait(), 4) << client.err();
  EXPECT_EQ(client.out(), "");
  server.process().signal(SIGCONT);
  EXPECT_EQ(server.end().status, 4);
}

TEST(PeerLoss, EndsTheServerWhenTheClientIsStoppedInTheMiddle) {
  Server server(words("--once --deadline 1"));
  Process client(peal_command(client_of(server.port(), endless_traffic() + words("--deadline 1"))),
                 on_terminal());
  ASSERT_TRUE(client.wait_for_err(kTimedTraffic)) << client.err();
  client.signal(SIGSTOP);
  EXPECT_EQ(server.end().status, 4);
  client.signal(SIGCONT);
  EXPECT_EQ(client.wait(), 4) << client.err();
}

TEST(PeerLoss, EndsTheClientWhenTheServerNeverAnswers) {
  const RawListener listener;
  Process client(peal_command(client_of(listener.port(), words("--deadline 0.5"))));
  const RawConnection connection = listener.accept();
  EXPECT_TRUE(contains(connection.receive_frame(), "hello"));
  EXPECT_EQ(client.wait(), 4) << client.err();
  EXPECT_TRUE(contains(client.err(), "welcome")) << client.err();
}

TEST(PeerLoss, EndsTheClientWhenTheServerClosesInsteadOfAnswering) {
  const RawListener listener;
  Process client(peal_command(client_of(listener.port(), {})));
  {
    const RawConnection connection = listener.accept();
    connection.receive_frame();
  }
  EXPECT_EQ(client.wait(), 4) << client.err();
}

TEST(PeerLoss, EndsTheServerWhenTheClientSaysNothing) {
  Server server(words("--once --deadline 0.5"));
  const RawConnection connection = RawConnection::to(server.port());
  const Ended e = server.end();
  EXPECT_EQ(e.status, 4) << e.err;
  EXPECT_TRUE(contains(e.err, "hello")) << e.err;
}

TEST(PeerLoss, EndsTheServerWhenTheClientLeavesAtOnce) {
  Server server;
  { const RawConnection connection = RawConnection::to(server.port()); }
  EXPECT_EQ(server.end().status, 4);
}

TEST(PeerLoss, EndsTheServerWhenTheClientStopsInsideAMessage) {
  Server server(words("--once --deadline 0.5"));
  const RawConnection connection = RawConnection::to(server.port());
  connection.send(frame(R"({"type":"hello"})").substr(0, 20));
  const Ended e = server.end();
  EXPECT_EQ(e.status, 4) << e.err;
  EXPECT_TRUE(contains(e.err, "8 of 16 bytes came")) << e.err;
}

TEST(PeerLoss, EndsTheServerWhenTheDataConnectionNeverComes) {
  // The hello of a real client, sent again without what has to follow.
  const RawListener listener;
  Process client(peal_command(client_of(listener.port(), words("--deadline 0.5"))));
  const std::string hello = listener.accept().receive_frame();
  client.wait();
  Server server(words("--once --deadline 0.5"));
  const RawConnection connection = RawConnection::to(server.port());
  connection.send(hello);
  EXPECT_TRUE(contains(connection.receive_frame(), "welcome"));
  const Ended e = server.end();
  EXPECT_EQ(e.status, 4) << e.err;
  EXPECT_TRUE(contains(e.err, "data connection")) << e.err;
}

}  // namespace
}  // namespace peal::test
