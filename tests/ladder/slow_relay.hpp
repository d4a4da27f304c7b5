// Makes the worst of a connection: bytes that come one at a time, and signals that interrupt every
// call. For tests of anything that reads or writes a stream.
#pragma once

#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <limits>
#include <system_error>
#include <thread>

namespace peal::test {

// Two connected stream descriptors, which the caller owns.
inline std::array<int, 2> make_socket_pair() {
  std::array<int, 2> fds{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) != 0) {
    throw std::system_error(errno, std::generic_category(), "socketpair");
  }
  return fds;
}

// Forwards between two descriptors, which it owns, in both directions, one byte at a time, until
// it is destroyed. When one side ends, or has passed on its limit of bytes, the other side sees the
// end; after a limit with `hold_at_limit` it sees nothing more.
class SlowRelay {
 public:
  struct Options {
    std::size_t limit_bytes = std::numeric_limits<std::size_t>::max();  // each direction
    bool hold_at_limit = false;
  };

  SlowRelay(std::array<int, 2> fds, Options options)
      : fds_(fds), options_(options), thread_([this] { run(); }) {}
  explicit SlowRelay(std::array<int, 2> fds) : SlowRelay(fds, Options{}) {}
  SlowRelay(const SlowRelay&) = delete;
  SlowRelay& operator=(const SlowRelay&) = delete;
  ~SlowRelay() {
    stop_.store(true);
    thread_.join();
    ::close(fds_[0]);
    ::close(fds_[1]);
  }

 private:
  struct Direction {
    int from;
    int to;
    std::size_t bytes = 0;
    bool ended = false;
  };

  void run() {
    std::array<Direction, 2> directions{{{fds_[0], fds_[1]}, {fds_[1], fds_[0]}}};
    while (!stop_.load()) {
      std::array<pollfd, 2> polled{};
      for (std::size_t i = 0; i < 2; ++i) {
        polled[i] = {directions[i].ended ? -1 : directions[i].from, POLLIN, 0};
      }
      ::poll(polled.data(), polled.size(), /*timeout_ms=*/5);
      for (std::size_t i = 0; i < 2; ++i) {
        if (polled[i].revents != 0) forward_byte(&directions[i]);
      }
    }
  }

  void forward_byte(Direction* direction) {
    if (direction->bytes == options_.limit_bytes) {
      direction->ended = true;
      if (!options_.hold_at_limit) ::shutdown(direction->to, SHUT_WR);
      return;
    }
    std::byte byte{};
    const ssize_t n = ::recv(direction->from, &byte, 1, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0 || !put_byte(direction->to, byte)) {
      direction->ended = true;
      ::shutdown(direction->to, SHUT_WR);
      return;
    }
    ++direction->bytes;
    wait_until_read(direction->to);
  }

  bool put_byte(int fd, std::byte byte) {
    while (!stop_.load()) {
      const ssize_t n = ::send(fd, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n == 1) return true;
      if (errno != EAGAIN && errno != EINTR) return false;
      std::this_thread::yield();
    }
    return false;
  }

  // So that two bytes are rarely read by one call. Bounded, since the reader may be busy.
  static void wait_until_read(int fd) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(200);
    int unread = 0;
    while (::ioctl(fd, SIOCOUTQ, &unread) == 0 && unread != 0 &&
           std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
  }

  std::array<int, 2> fds_;
  Options options_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Interrupts the system calls of one thread, which must outlive this, again and again.
class SignalStorm {
 public:
  explicit SignalStorm(pthread_t target) {
    struct sigaction action = {};
    action.sa_handler = [](int) {};  // no SA_RESTART: calls fail with EINTR
    ::sigemptyset(&action.sa_mask);
    ::sigaction(SIGUSR1, &action, &previous_);
    thread_ = std::thread([this, target] {
      while (!stop_.load()) {
        ::pthread_kill(target, SIGUSR1);
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    });
  }
  SignalStorm(const SignalStorm&) = delete;
  SignalStorm& operator=(const SignalStorm&) = delete;
  ~SignalStorm() {
    stop_.store(true);
    thread_.join();
    // The default action of SIGUSR1 would end the process if one signal were still on its way.
    if (previous_.sa_handler != SIG_DFL) ::sigaction(SIGUSR1, &previous_, nullptr);
  }

 private:
  struct sigaction previous_ = {};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace peal::test
