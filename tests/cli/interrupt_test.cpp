#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "cli/peal.hpp"
#include "cli/raw_peer.hpp"

namespace peal::test {
namespace {

TEST(Interrupted, EndsALongRunWithoutARow) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const RowFile file;
    Process ladder(
        peal_command(words("ladder") + endless_traffic() + Arguments{"--json", file.path()}),
        on_terminal());
    ASSERT_TRUE(ladder.wait_for_err(kTimedTraffic)) << ladder.err();
    ladder.signal(signal);
    EXPECT_EQ(ladder.wait(), 130) << ladder.err();
    EXPECT_EQ(ladder.out(), "");
    EXPECT_TRUE(contains(ladder.err(), "peal ladder: interrupted")) << ladder.err();
    EXPECT_TRUE(file.rows().empty());
    EXPECT_EQ(run_peal("ladder --size 64 --iters 5 --repeat 1").status, 0);
  }
}

TEST(Interrupted, EndsARunWhoseCompletionsAreHeld) {
  Process ladder(peal_command(words("ladder --size 64 --iters 5 --repeat 1 --deadline 3600 "
                                    "--fault hold=3600000")),
                 on_terminal());
  ASSERT_TRUE(ladder.wait_for_err(kTimedTraffic)) << ladder.err();
  ladder.signal(SIGINT);
  EXPECT_EQ(ladder.wait(), 130) << ladder.err();
  EXPECT_EQ(ladder.out(), "");
}

TEST(Interrupted, EndsBothEndsWhenItIsTheClient) {
  Server server;
  Process client(peal_command(client_of(server.port(), endless_traffic())), on_terminal());
  ASSERT_TRUE(client.wait_for_err(kTimedTraffic)) << client.err();
  client.signal(SIGINT);
  EXPECT_EQ(client.wait(), 130) << client.err();
  EXPECT_EQ(client.out(), "");
  EXPECT_TRUE(contains(client.err(), "peal client: interrupted")) << client.err();
  EXPECT_EQ(server.end().status, 130);
}

TEST(Interrupted, EndsBothEndsWhenItIsTheServer) {
  Server server;
  Process client(peal_command(client_of(server.port(), endless_traffic())), on_terminal());
  ASSERT_TRUE(client.wait_for_err(kTimedTraffic)) << client.err();
  server.process().signal(SIGINT);
  EXPECT_EQ(server.end().status, 130);
  EXPECT_EQ(client.wait(), 130) << client.err();
  EXPECT_EQ(client.out(), "");
}

TEST(Interrupted, LeavesAServerOfManyClientsToTheNext) {
  Server server(Arguments{});
  Process client(peal_command(client_of(server.port(), endless_traffic())), on_terminal());
  ASSERT_TRUE(client.wait_for_err(kTimedTraffic)) << client.err();
  client.signal(SIGINT);
  EXPECT_EQ(client.wait(), 130) << client.err();
  const Ended next = run_peal(client_of(server.port(), words("--size 64 --iters 5 --repeat 1")));
  EXPECT_EQ(next.status, 0) << next.err;
}

TEST(Interrupted, EndsAClientThatWaitsForItsServer) {
  const RawListener listener;
  Process client(peal_command(client_of(listener.port(), words("--deadline 3600"))));
  const RawConnection connection = listener.accept();
  connection.receive_frame();
  client.signal(SIGINT);
  EXPECT_EQ(client.wait(), 130) << client.err();
  EXPECT_TRUE(contains(client.err(), "interrupted")) << client.err();
}

TEST(Progress, IsShownOnATerminalAndCleared) {
  Process ladder(peal_command(words("ladder --size 64 --iters 5 --repeat 2")), on_terminal());
  EXPECT_EQ(ladder.wait(), 0);
  const std::string err = ladder.err();
  EXPECT_TRUE(contains(err, "serial original 64 B: 2 of 2")) << err;
  EXPECT_TRUE(err.ends_with("\r\033[K")) << err;
  EXPECT_FALSE(contains(ladder.out(), "\r")) << ladder.out();
}

TEST(Progress, IsNotShownInAPipe) {
  const Ended e = run_peal("ladder --size 64 --iters 5 --repeat 2");
  EXPECT_EQ(e.status, 0);
  EXPECT_EQ(e.err, "");
  EXPECT_FALSE(contains(e.out, "\r")) << e.out;
  EXPECT_FALSE(contains(e.out, "\033")) << e.out;
}

}  // namespace
}  // namespace peal::test
