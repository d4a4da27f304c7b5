// A peer made by hand, byte by byte: for tests of what the command does with a wrong one.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "cli/process.hpp"

namespace peal::test {

// A frame of the control connection: "PEAL", version, zero, bytes of text, text.
inline std::string frame(const std::string& text, std::uint16_t version = 1) {
  std::string bytes = "PEAL";
  const auto put = [&bytes](std::uint32_t value, int count) {
    for (int i = count - 1; i >= 0; --i) bytes += static_cast<char>((value >> (8 * i)) & 0xff);
  };
  put(version, 2);
  put(0, 2);
  put(static_cast<std::uint32_t>(text.size()), 4);
  return bytes + text;
}

class RawConnection {
 public:
  explicit RawConnection(int fd) : fd_(fd) {}
  RawConnection(RawConnection&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  RawConnection& operator=(RawConnection&&) = delete;
  ~RawConnection() {
    if (fd_ >= 0) ::close(fd_);
  }

  static RawConnection to(std::uint16_t port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return RawConnection(fd);
  }

  void send(const std::string& bytes) const {
    EXPECT_EQ(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }

  // What comes until the other end closes, or until a whole frame is there.
  std::string receive_frame() const {
    std::string bytes;
    pollfd polled{fd_, POLLIN, 0};
    const int timeout_ms = static_cast<int>(kProcessDeadline.count()) * 1000;
    while (bytes.size() < 12 || bytes.size() < 12 + text_bytes(bytes)) {
      std::array<char, 4096> buffer;
      if (::poll(&polled, 1, timeout_ms) <= 0) break;
      const ssize_t n = ::recv(fd_, buffer.data(), buffer.size(), 0);
      if (n <= 0) break;
      bytes.append(buffer.data(), static_cast<std::size_t>(n));
    }
    return bytes;
  }

 private:
  static std::size_t text_bytes(const std::string& bytes) {
    std::size_t value = 0;
    for (std::size_t i = 8; i < 12; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
    return value;
  }

  int fd_;
};

// Accepts, and leaves the rest to the test.
class RawListener {
 public:
  RawListener() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&address), bytes), 0);
    EXPECT_EQ(::listen(fd_, 4), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    port_ = ntohs(address.sin_port);
  }
  RawListener(const RawListener&) = delete;
  RawListener& operator=(const RawListener&) = delete;
  ~RawListener() { ::close(fd_); }

  std::uint16_t port() const { return port_; }
  int fd() const { return fd_; }
  RawConnection accept() const {
    return RawConnection(::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC));
  }

 private:
  int fd_;
  std::uint16_t port_ = 0;
};

}  // namespace peal::test
