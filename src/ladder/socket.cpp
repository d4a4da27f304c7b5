#include "ladder/socket.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace peal::ladder {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBacklog = 16;
constexpr std::chrono::seconds kListenLookupLimit{5};

std::string reason(int error) {
  return std::generic_category().message(error);
}

[[noreturn]] void throw_system(const std::string& doing, int error) {
  throw PeerError(PeerError::Kind::kSystem, fmt::format("{}: {}", doing, reason(error)));
}

enum class Ready { kReady, kDeadline, kInterrupted };

// To be called after the operation itself would have blocked: with its deadline past it does not
// look again, so that a peer that drips bytes cannot prolong a wait.
Ready wait_ready(int fd, short events, Wait wait) {
  for (;;) {
    const auto left = wait.deadline - Clock::now();
    if (left <= Clock::duration::zero()) return Ready::kDeadline;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    const timespec timeout{seconds.count(), std::chrono::nanoseconds(left - seconds).count()};
    // ppoll ignores negative descriptors: no interrupt_fd needs no case of its own.
    std::array<pollfd, 2> polled{{{.fd = fd, .events = events, .revents = 0},
                                  {.fd = wait.interrupt_fd, .events = POLLIN, .revents = 0}}};
    const int n = ::ppoll(polled.data(), polled.size(), &timeout, nullptr);
    if (n < 0 && errno != EINTR) throw_system("cannot wait for a socket", errno);
    if (n <= 0) continue;
    if (((polled[0].revents | polled[1].revents) & POLLNVAL) != 0) {
      throw_system("cannot wait for a socket", EBADF);
    }
    if (polled[1].revents != 0) return Ready::kInterrupted;
    return Ready::kReady;
  }
}

// `progress` says how far the awaited thing got; it may be empty.
void wait_or_throw(int fd, short events, std::string_view what, TimePoint started, Wait wait,
                   const std::string& progress = {}) {
  const Ready ready = wait_ready(fd, events, wait);
  if (ready == Ready::kReady) return;
  const std::chrono::duration<double> waited = Clock::now() - started;
  if (ready == Ready::kInterrupted) {
    throw PeerError(
        PeerError::Kind::kInterrupted,
        fmt::format("interrupted after waiting {:.1f} s for {}{}", waited.count(), what, progress));
  }
  throw PeerError(PeerError::Kind::kTimeout,
                  fmt::format("waited {:.1f} s for {}{}", waited.count(), what, progress));
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using AddressList = std::unique_ptr<addrinfo, FreeAddresses>;

struct LookupResult {
  int code = 0;
  int error = 0;  // errno, when code is EAI_SYSTEM
  AddressList addresses;
};

LookupResult look_up_blocking(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  LookupResult result;
  result.code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  result.error = errno;
  if (result.code == 0) result.addresses.reset(list);
  return result;
}

struct Lookup {
  std::promise<LookupResult> result;
  Socket done;  // an eventfd, written after `result`
};

AddressList look_up(const std::string& host, std::uint16_t port, Wait wait) {
  LookupResult result = look_up_blocking(host, port, AI_NUMERICHOST);
  if (result.code == 0) return std::move(result.addresses);

  // The resolver has no deadline, so that a thread waits for it, and is left behind at ours.
  const TimePoint started = Clock::now();
  auto lookup = std::make_shared<Lookup>();
  lookup->done = Socket(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (lookup->done.fd() < 0) throw_system("cannot create an eventfd", errno);
  std::thread([lookup, host, port] {
    lookup->result.set_value(look_up_blocking(host, port, 0));
    const std::uint64_t one = 1;
    while (::write(lookup->done.fd(), &one, sizeof one) < 0 && errno == EINTR) {
    }
  }).detach();
  wait_or_throw(lookup->done.fd(), POLLIN, fmt::format("the address of host \"{}\"", host), started,
                wait);
  result = lookup->result.get_future().get();
  if (result.code == 0) return std::move(result.addresses);
  throw PeerError(
      PeerError::Kind::kAddress,
      fmt::format("cannot find the address of host \"{}\": {}", host,
                  result.code == EAI_SYSTEM ? reason(result.error)
                                            : std::string(::gai_strerror(result.code))));
}

Socket open_socket(const addrinfo& address) {
  Socket socket(
      ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol));
  if (socket.fd() < 0) throw_system("cannot create a socket", errno);
  return socket;
}

void set_flag(const Socket& socket, int level, int option) {
  const int on = 1;
  if (::setsockopt(socket.fd(), level, option, &on, sizeof on) != 0) {
    throw_system("cannot set a socket option", errno);
  }
}

PeerError::Kind kind_of_connect_error(int error) {
  switch (error) {
    case ECONNREFUSED:
    case ECONNRESET:
    case EHOSTUNREACH:
    case ENETUNREACH: return PeerError::Kind::kRefused;
    case ETIMEDOUT: return PeerError::Kind::kTimeout;
    default: return PeerError::Kind::kSystem;
  }
}

// A connection to an unused port of this host can meet itself when the kernel happens to choose
// that same port for this end (simultaneous open, RFC 9293 3.5).
bool is_connected_to_itself(const Socket& socket) {
  sockaddr_storage local{};
  sockaddr_storage peer{};
  socklen_t local_bytes = sizeof local;
  socklen_t peer_bytes = sizeof peer;
  return ::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&local), &local_bytes) == 0 &&
         ::getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&peer), &peer_bytes) == 0 &&
         local_bytes == peer_bytes && std::memcmp(&local, &peer, local_bytes) == 0;
}

Socket connect_address(const addrinfo& address, const std::string& endpoint, Wait wait) {
  const TimePoint started = Clock::now();
  Socket socket = open_socket(address);
  int error = 0;
  if (::connect(socket.fd(), address.ai_addr, address.ai_addrlen) != 0) {
    error = errno;
    // After EINTR the connection goes on being made, as after EINPROGRESS.
    if (error == EINPROGRESS || error == EINTR) {
      wait_or_throw(socket.fd(), POLLOUT, "a connection to " + endpoint, started, wait);
      socklen_t bytes = sizeof error;
      if (::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
    }
  }
  if (error == 0 && is_connected_to_itself(socket)) error = ECONNREFUSED;
  if (error != 0) {
    throw PeerError(kind_of_connect_error(error),
                    fmt::format("cannot connect to {}: {}", endpoint, reason(error)));
  }
  set_flag(socket, IPPROTO_TCP, TCP_NODELAY);
  return socket;
}

sockaddr_storage name_of(int (*get)(int, sockaddr*, socklen_t*), const Socket& socket) {
  sockaddr_storage name{};
  socklen_t bytes = sizeof name;
  if (get(socket.fd(), reinterpret_cast<sockaddr*>(&name), &bytes) != 0) {
    throw_system("cannot read a socket's addresses", errno);
  }
  return name;
}

link::IpAddress ip_of(const sockaddr_storage& name, std::uint16_t* port = nullptr) {
  return link::ip_address_of(reinterpret_cast<const sockaddr&>(name), port);
}

// Throws unless `error` only means "not now". `progress` is like ": 3 of 12 bytes came".
void check_transfer_error(int error, std::string_view what, const std::string& progress) {
  if (error == EAGAIN || error == EWOULDBLOCK) return;
  const bool closed = error == ECONNRESET || error == EPIPE || error == ETIMEDOUT ||
                      error == EHOSTUNREACH || error == ENETUNREACH || error == ENETDOWN;
  throw PeerError(
      closed ? PeerError::Kind::kClosed : PeerError::Kind::kSystem,
      fmt::format("lost the connection while waiting for {}: {}{}", what, reason(error), progress));
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = other.release();
  }
  return *this;
}

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

int Socket::release() {
  return std::exchange(fd_, -1);
}

Socket listen_on(const std::string& address, std::uint16_t port) {
  const AddressList addresses =
      look_up(address, port, {.deadline = Clock::now() + kListenLookupLimit});
  int error = 0;
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    Socket socket = open_socket(*a);
    set_flag(socket, SOL_SOCKET, SO_REUSEADDR);
    if (::bind(socket.fd(), a->ai_addr, a->ai_addrlen) == 0 &&
        ::listen(socket.fd(), kBacklog) == 0) {
      return socket;
    }
    if (error == 0) error = errno;
  }
  throw PeerError(PeerError::Kind::kAddress,
                  fmt::format("cannot listen on {} port {}: {}", address, port, reason(error)));
}

std::uint16_t local_port(const Socket& socket) {
  std::uint16_t port = 0;
  (void)ip_of(name_of(::getsockname, socket), &port);
  return port;
}

link::IpAddress local_address(const Socket& socket) {
  return ip_of(name_of(::getsockname, socket));
}

link::IpAddress peer_address(const Socket& socket) {
  return ip_of(name_of(::getpeername, socket));
}

Accepted accept_one(const Socket& listener, Wait wait) {
  for (;;) {
    Socket socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.fd() >= 0) {
      set_flag(socket, IPPROTO_TCP, TCP_NODELAY);
      return {AcceptOutcome::kAccepted, std::move(socket)};
    }
    switch (errno) {
      case EAGAIN: break;
      case EINTR:
      case ECONNABORTED:
      case EPROTO: continue;  // a connection that ended before it was taken
      default: throw_system("cannot accept a connection", errno);
    }
    switch (wait_ready(listener.fd(), POLLIN, wait)) {
      case Ready::kReady: break;
      case Ready::kDeadline: return {AcceptOutcome::kDeadline, Socket()};
      case Ready::kInterrupted: return {AcceptOutcome::kInterrupted, Socket()};
    }
  }
}

Socket connect_to(const std::string& host, std::uint16_t port, Wait wait) {
  const AddressList addresses = look_up(host, port, wait);
  int left = 0;
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) ++left;
  const std::string endpoint = fmt::format("{} port {}", host, port);
  std::optional<PeerError> first;
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next, --left) {
    const TimePoint now = Clock::now();
    const TimePoint share = left == 1 ? wait.deadline : now + (wait.deadline - now) / left;
    try {
      return connect_address(*a, endpoint, {share, wait.interrupt_fd});
    } catch (const PeerError& error) {
      if (error.kind() == PeerError::Kind::kInterrupted) throw;
      if (!first) first = error;
    }
  }
  throw *first;
}

void send_all(Socket& socket, std::span<const std::byte> bytes, std::string_view what, Wait wait) {
  const TimePoint started = Clock::now();
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n =
        ::send(socket.fd(), bytes.data() + sent, bytes.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0) {
      sent += static_cast<std::size_t>(n);
      continue;
    }
    const int error = errno;
    if (error == EINTR) continue;
    const std::string progress = fmt::format(": {} of {} bytes were sent", sent, bytes.size());
    const std::string sending = fmt::format("the peer to take {}", what);
    check_transfer_error(error, sending, progress);
    wait_or_throw(socket.fd(), POLLOUT, sending, started, wait, progress);
  }
}

void receive_all(Socket& socket, std::span<std::byte> bytes, std::string_view what, Wait wait) {
  const TimePoint started = Clock::now();
  std::size_t received = 0;
  while (received < bytes.size()) {
    const ssize_t n =
        ::recv(socket.fd(), bytes.data() + received, bytes.size() - received, MSG_DONTWAIT);
    if (n > 0) {
      received += static_cast<std::size_t>(n);
      continue;
    }
    const int error = n < 0 ? errno : 0;
    if (error == EINTR) continue;
    const std::string progress = fmt::format(": {} of {} bytes came", received, bytes.size());
    if (n == 0) {
      throw PeerError(PeerError::Kind::kClosed,
                      fmt::format("the peer closed the connection while this end waited for {}{}",
                                  what, progress));
    }
    check_transfer_error(error, what, progress);
    wait_or_throw(socket.fd(), POLLIN, what, started, wait, progress);
  }
}

}  // namespace peal::ladder
