// TCP sockets whose every wait ends: at its deadline, or when the run is interrupted.
// Knows bytes only; messages are channel.hpp's. A socket belongs to one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "link/ip_address.hpp"

namespace peal::ladder {

using TimePoint = std::chrono::steady_clock::time_point;

// Why the other end of a run could not be used. The message is one sentence that names what was
// awaited.
class PeerError : public std::runtime_error {
 public:
  enum class Kind {
    kRefused,      // nobody listens there, or no route leads there
    kTimeout,      // the deadline passed
    kClosed,       // the peer ended the connection
    kProtocol,     // the peer sent what a Peal would not
    kAddress,      // the name is unknown, or the address cannot be listened on
    kSystem,       // this machine refused
    kInterrupted,  // Wait::interrupt_fd became readable
  };

  PeerError(Kind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

// The end of a wait: a point in time, and optionally a descriptor (an eventfd, never read here)
// that becomes readable when the run is interrupted.
struct Wait {
  TimePoint deadline;
  int interrupt_fd = -1;
};

// Owns one descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  int fd() const { return fd_; }
  // Gives the descriptor to the caller; this socket then owns none.
  int release();

 private:
  int fd_ = -1;
};

// Listens on a name or a numeric address, IPv4 or IPv6; port 0 takes a free one. A name is looked
// up for at most five seconds. Throws PeerError: kAddress, kSystem.
Socket listen_on(const std::string& address, std::uint16_t port);

// The port that `socket` is bound to.
std::uint16_t local_port(const Socket& socket);

// Of a connection: this end's address, and the other's. Throw PeerError kSystem.
link::IpAddress local_address(const Socket& socket);
link::IpAddress peer_address(const Socket& socket);

enum class AcceptOutcome { kAccepted, kDeadline, kInterrupted };
struct Accepted {
  AcceptOutcome outcome = AcceptOutcome::kDeadline;
  Socket socket;  // kAccepted only
};

// Waits for one connection. A server's wait that ends without one is ordinary, so that it is an
// outcome; throws PeerError kSystem only.
Accepted accept_one(const Socket& listener, Wait wait);

// Connects, trying each address of the name within its share of the time that is left. Throws the
// PeerError of the first address, or kAddress when the name has none.
Socket connect_to(const std::string& host, std::uint16_t port, Wait wait);

// Sends or receives every byte, or throws PeerError. `what` completes "waited 2.0 s for ...". After
// an error an unknown part has been transferred: the connection is of no more use.
void send_all(Socket& socket, std::span<const std::byte> bytes, std::string_view what, Wait wait);
void receive_all(Socket& socket, std::span<std::byte> bytes, std::string_view what, Wait wait);

}  // namespace peal::ladder
