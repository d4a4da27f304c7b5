#include "ladder/socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ladder/peer_error.hpp"
#include "ladder/slow_relay.hpp"

namespace peal::ladder {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::expect_error;
using test::long_wait;
using test::make_socket_pair;
using test::short_wait;

// An eventfd that is readable from the start.
Socket make_interrupt() {
  return Socket(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
}

struct Pair {
  Socket a;
  Socket b;
};
Pair make_pair() {
  const auto fds = make_socket_pair();
  return {Socket(fds[0]), Socket(fds[1])};
}

std::vector<std::byte> random_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

void exchange(Socket& from, Socket& to) {
  const auto sent = random_bytes(100, 1);
  send_all(from, sent, "the test's bytes", long_wait());
  std::vector<std::byte> received(sent.size());
  receive_all(to, received, "the test's bytes", long_wait());
  EXPECT_EQ(received, sent);
}

void connect_and_exchange(const std::string& listen_address, const std::string& host) {
  Socket listener = listen_on(listen_address, 0);
  ASSERT_NE(local_port(listener), 0);
  Socket client = connect_to(host, local_port(listener), long_wait());
  Accepted server = accept_one(listener, long_wait());
  ASSERT_EQ(server.outcome, AcceptOutcome::kAccepted);
  exchange(client, server.socket);
  exchange(server.socket, client);
}

TEST(Socket, ClosesItsDescriptorWhenDestroyed) {
  auto fds = make_socket_pair();
  Socket peer(fds[1]);
  {
    Socket first(fds[0]);
    Socket second(std::move(first));
    EXPECT_EQ(first.fd(), -1);
    EXPECT_EQ(second.fd(), fds[0]);
    first = std::move(second);
  }
  std::byte byte{};
  EXPECT_EQ(::recv(peer.fd(), &byte, 1, MSG_DONTWAIT), 0);
}

TEST(Socket, KeepsTheDescriptorOpenWhenReleased) {
  auto fds = make_socket_pair();
  Socket peer(fds[1]);
  int fd = -1;
  {
    Socket owner(fds[0]);
    fd = owner.release();
    EXPECT_EQ(owner.fd(), -1);
  }
  Socket again(fd);
  exchange(again, peer);
}

TEST(Socket, ConnectsOverIpv4) {
  connect_and_exchange("127.0.0.1", "127.0.0.1");
}

TEST(Socket, ConnectsByNameWhenOnlyOneAddressListens) {
  connect_and_exchange("127.0.0.1", "localhost");
}

TEST(Socket, ConnectsOverIpv6) {
  try {
    listen_on("::1", 0);
  } catch (const PeerError& error) {
    GTEST_SKIP() << error.what();
  }
  connect_and_exchange("::1", "::1");
}

TEST(Socket, HasItsOptionsSetAtBothEnds) {
  Socket listener = listen_on("127.0.0.1", 0);
  Socket client = connect_to("127.0.0.1", local_port(listener), long_wait());
  Accepted server = accept_one(listener, long_wait());
  ASSERT_EQ(server.outcome, AcceptOutcome::kAccepted);
  for (const int fd : {client.fd(), server.socket.fd()}) {
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_NE(::fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    int no_delay = 0;
    socklen_t bytes = sizeof no_delay;
    ASSERT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &no_delay, &bytes), 0);
    EXPECT_NE(no_delay, 0);
  }
}

TEST(Socket, RefusesToListenWhenThePortIsTaken) {
  Socket listener = listen_on("127.0.0.1", 0);
  const std::uint16_t port = local_port(listener);
  expect_error(PeerError::Kind::kAddress, std::to_string(port),
               [&] { listen_on("127.0.0.1", port); });
}

TEST(Socket, RefusesToListenWhenTheAddressIsNotOfThisHost) {
  expect_error(PeerError::Kind::kAddress, "192.0.2.1", [] { listen_on("192.0.2.1", 0); });
}

TEST(Socket, AcceptEndsAtItsDeadlineWhenNobodyConnects) {
  Socket listener = listen_on("127.0.0.1", 0);
  const Wait wait = short_wait();
  EXPECT_EQ(accept_one(listener, wait).outcome, AcceptOutcome::kDeadline);
  EXPECT_GE(Clock::now(), wait.deadline);
}

TEST(Socket, AcceptEndsWhenInterrupted) {
  Socket listener = listen_on("127.0.0.1", 0);
  Socket interrupt = make_interrupt();
  EXPECT_EQ(accept_one(listener, long_wait(interrupt.fd())).outcome, AcceptOutcome::kInterrupted);
}

TEST(Socket, AcceptSurvivesSignals) {
  Socket listener = listen_on("127.0.0.1", 0);
  test::SignalStorm storm(::pthread_self());
  const Wait wait = short_wait();
  EXPECT_EQ(accept_one(listener, wait).outcome, AcceptOutcome::kDeadline);
  EXPECT_GE(Clock::now(), wait.deadline);
}

TEST(Socket, ConnectIsRefusedWhenNobodyListens) {
  // Bound, so that nobody else can listen there meanwhile.
  Socket bound(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(bound.fd(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const std::uint16_t port = local_port(bound);
  expect_error(PeerError::Kind::kRefused, "127.0.0.1 port " + std::to_string(port),
               [&] { connect_to("127.0.0.1", port, long_wait()); });
}

TEST(Socket, ConnectSaysSoWhenTheNameIsUnknown) {
  // A label beyond 63 characters: no resolver asks a network for it.
  std::string name(70, 'x');
  name += ".invalid";
  expect_error(PeerError::Kind::kAddress, name, [&] { connect_to(name, 1, long_wait()); });
}

// A listener whose queue is full, so that further connections get no answer.
struct FullListener {
  FullListener() {
    if (::listen(listener.fd(), 0) != 0) throw std::system_error(errno, std::generic_category());
    for (int i = 0; i < 8; ++i) {
      try {
        queued.push_back(connect_to("127.0.0.1", local_port(listener), short_wait()));
      } catch (const PeerError&) {
        full = true;
        return;
      }
    }
  }
  Socket listener = listen_on("127.0.0.1", 0);
  std::vector<Socket> queued;
  bool full = false;
};

TEST(Socket, ConnectEndsAtItsDeadlineWhenNobodyAnswers) {
  FullListener listener;
  if (!listener.full) GTEST_SKIP() << "this kernel answers beyond the backlog";
  const Wait wait = short_wait();
  expect_error(PeerError::Kind::kTimeout, "a connection to 127.0.0.1",
               [&] { connect_to("127.0.0.1", local_port(listener.listener), wait); });
  EXPECT_GE(Clock::now(), wait.deadline);
}

TEST(Socket, ConnectEndsWhenInterrupted) {
  FullListener listener;
  if (!listener.full) GTEST_SKIP() << "this kernel answers beyond the backlog";
  Socket interrupt = make_interrupt();
  expect_error(PeerError::Kind::kInterrupted, "a connection to 127.0.0.1", [&] {
    connect_to("127.0.0.1", local_port(listener.listener), long_wait(interrupt.fd()));
  });
}

TEST(Socket, TransfersEverythingWhenBytesComeSinglyAmongSignals) {
  const auto left = make_socket_pair();
  const auto right = make_socket_pair();
  Socket a(left[0]);
  Socket b(right[0]);
  test::SlowRelay relay({left[1], right[1]});
  test::SignalStorm storm(::pthread_self());
  const auto sent = random_bytes(2000, 2);
  std::vector<std::byte> received(sent.size());
  send_all(a, sent, "the test's bytes", long_wait());
  receive_all(b, received, "the test's bytes", long_wait());
  EXPECT_EQ(received, sent);
}

TEST(Socket, TransfersEverythingWhenItExceedsTheSocketBuffers) {
  Pair pair = make_pair();
  const auto sent = random_bytes(std::size_t{4} << 20, 3);
  std::vector<std::byte> received(sent.size());
  std::thread sender([&] {
    try {
      send_all(pair.a, sent, "the test's bytes", long_wait());
    } catch (const PeerError& error) {
      ADD_FAILURE() << error.what();
    }
  });
  {
    test::SignalStorm storm(sender.native_handle());
    try {
      receive_all(pair.b, received, "the test's bytes", long_wait());
    } catch (const PeerError& error) {
      ADD_FAILURE() << error.what();
    }
  }
  sender.join();
  EXPECT_EQ(received, sent);
}

TEST(Socket, ReceiveEndsAtItsDeadlineWhenThePeerStopsPartWay) {
  Pair pair = make_pair();
  send_all(pair.a, random_bytes(5, 4), "the test's bytes", long_wait());
  std::vector<std::byte> received(12);
  const Wait wait = short_wait();
  expect_error(PeerError::Kind::kTimeout, "s for the server's hello: 5 of 12 bytes",
               [&] { receive_all(pair.b, received, "the server's hello", wait); });
  EXPECT_GE(Clock::now(), wait.deadline);
}

TEST(Socket, ReceiveEndsAtItsDeadlineWhenThePeerDripsBytes) {
  const auto left = make_socket_pair();
  const auto right = make_socket_pair();
  Socket a(left[0]);
  Socket b(right[0]);
  test::SlowRelay relay({left[1], right[1]}, {.limit_bytes = 100, .hold_at_limit = true});
  test::SignalStorm storm(::pthread_self());
  send_all(a, random_bytes(200, 5), "the test's bytes", long_wait());
  std::vector<std::byte> received(200);
  const Wait wait = short_wait();
  expect_error(PeerError::Kind::kTimeout, "of 200 bytes",
               [&] { receive_all(b, received, "the test's bytes", wait); });
  EXPECT_GE(Clock::now(), wait.deadline);
}

TEST(Socket, ReceiveSaysClosedWhenThePeerEndsPartWay) {
  Pair pair = make_pair();
  send_all(pair.a, random_bytes(5, 6), "the test's bytes", long_wait());
  pair.a = Socket();
  std::vector<std::byte> received(12);
  expect_error(PeerError::Kind::kClosed, "the server's hello: 5 of 12 bytes",
               [&] { receive_all(pair.b, received, "the server's hello", long_wait()); });
}

TEST(Socket, ReceiveEndsWhenInterrupted) {
  Pair pair = make_pair();
  Socket interrupt = make_interrupt();
  std::vector<std::byte> received(1);
  expect_error(PeerError::Kind::kInterrupted, "the server's hello", [&] {
    receive_all(pair.b, received, "the server's hello", long_wait(interrupt.fd()));
  });
}

TEST(Socket, SendEndsAtItsDeadlineWhenThePeerDoesNotRead) {
  Pair pair = make_pair();
  const std::vector<std::byte> bytes(std::size_t{8} << 20);
  const Wait wait = short_wait();
  expect_error(PeerError::Kind::kTimeout, "the peer to take the hello",
               [&] { send_all(pair.a, bytes, "the hello", wait); });
  EXPECT_GE(Clock::now(), wait.deadline);
}

TEST(Socket, SendEndsWhenInterrupted) {
  Pair pair = make_pair();
  Socket interrupt = make_interrupt();
  const std::vector<std::byte> bytes(std::size_t{8} << 20);
  expect_error(PeerError::Kind::kInterrupted, "the peer to take the hello",
               [&] { send_all(pair.a, bytes, "the hello", long_wait(interrupt.fd())); });
}

TEST(Socket, SendSaysClosedWhenThePeerIsGone) {
  Pair pair = make_pair();
  pair.b = Socket();
  expect_error(PeerError::Kind::kClosed, "the hello",
               [&] { send_all(pair.a, random_bytes(1, 7), "the hello", long_wait()); });
}

TEST(Socket, FailsAtOnceWhenTheInterruptDescriptorIsInvalid) {
  Pair pair = make_pair();
  std::vector<std::byte> received(1);
  expect_error(PeerError::Kind::kSystem, "cannot wait",
               [&] { receive_all(pair.b, received, "a byte", long_wait(1 << 20)); });
}

}  // namespace
}  // namespace peal::ladder
