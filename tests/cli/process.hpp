// A child process under test: what it wrote, how it ended, and no trace of it afterwards.
// For tests of the command. Knows nothing of what it runs.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace peal::test {

// Bounds a test that would hang; nothing is ever said about speed.
inline constexpr std::chrono::seconds kProcessDeadline{60};

struct ProcessOptions {
  bool terminal = false;                      // standard error is a terminal; otherwise a pipe
  std::optional<rlim_t> address_space_bytes;  // RLIMIT_AS
};

class Process {
 public:
  // `command[0]` is the path of the program.
  explicit Process(std::vector<std::string> command, ProcessOptions options = {})
      : command_(std::move(command)) {
    const std::array<int, 2> out = make_pipe();
    const std::array<int, 2> err = options.terminal ? make_terminal() : make_pipe();
    std::vector<char*> argv;
    for (std::string& argument : command_) argv.push_back(argument.data());
    argv.push_back(nullptr);
    // Between fork and exec only what is async-signal-safe: other threads may hold locks.
    pid_ = ::fork();
    if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
    if (pid_ == 0) {
      const int null = ::open("/dev/null", O_RDONLY);
      ::dup2(null, STDIN_FILENO);
      ::dup2(out[1], STDOUT_FILENO);
      ::dup2(err[1], STDERR_FILENO);
      if (options.address_space_bytes) {
        const rlimit limit{*options.address_space_bytes, *options.address_space_bytes};
        ::setrlimit(RLIMIT_AS, &limit);
      }
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(out[1]);
    ::close(err[1]);
    reader_ = std::thread([this, out_fd = out[0], err_fd = err[0]] { read_both(out_fd, err_fd); });
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    end_by_force();
    if (reader_.joinable()) reader_.join();
  }

  pid_t pid() const { return pid_; }

  // The exit status, or minus the signal that ended it. A process that goes on past the deadline
  // fails the test and is killed. Whatever it wrote has been read by then.
  int wait() {
    const auto deadline = std::chrono::steady_clock::now() + kProcessDeadline;
    while (!try_reap()) {
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << shown() << " did not end within a minute";
        end_by_force();
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (reader_.joinable()) reader_.join();
    // Sanitizers end a process with a status that may mean something else here.
    EXPECT_EQ(err_.find("Sanitizer:"), std::string::npos) << shown() << "\n" << err_;
    return *status_;
  }

  void signal(int number) const { ::kill(pid_, number); }

  std::string out() const {
    const std::lock_guard lock(mutex_);
    return out_;
  }
  std::string err() const {
    const std::lock_guard lock(mutex_);
    return err_;
  }

  // Until it wrote `text`. False when it closed its output, or the deadline passed, before that.
  bool wait_for_out(std::string_view text) { return wait_for(out_, text); }
  bool wait_for_err(std::string_view text) { return wait_for(err_, text); }

 private:
  static std::array<int, 2> make_pipe() {
    std::array<int, 2> fds{-1, -1};
    if (::pipe2(fds.data(), O_CLOEXEC) != 0) {
      throw std::system_error(errno, std::generic_category(), "pipe2");
    }
    return fds;
  }

  static std::array<int, 2> make_terminal() {
    std::array<int, 2> fds{-1, -1};
    if (::openpty(&fds[0], &fds[1], nullptr, nullptr, nullptr) != 0) {
      throw std::system_error(errno, std::generic_category(), "openpty");
    }
    for (const int fd : fds) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fds;
  }

  std::string shown() const {
    std::string all;
    for (const std::string& argument : command_) all += (all.empty() ? "" : " ") + argument;
    return all;
  }

  bool try_reap() {
    if (status_) return true;
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) != pid_) return false;
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    return true;
  }

  void end_by_force() {
    if (try_reap()) return;
    ::kill(pid_, SIGKILL);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    status_ = -SIGKILL;
  }

  bool wait_for(const std::string& stream, std::string_view text) {
    std::unique_lock lock(mutex_);
    const auto found = [&] { return stream.find(text) != std::string::npos; };
    wrote_.wait_for(lock, kProcessDeadline, [&] { return found() || ended_; });
    return found();
  }

  void read_both(int out_fd, int err_fd) {
    std::array<pollfd, 2> polled{{{out_fd, POLLIN, 0}, {err_fd, POLLIN, 0}}};
    while (polled[0].fd >= 0 || polled[1].fd >= 0) {
      if (::poll(polled.data(), polled.size(), -1) < 0) continue;
      for (std::size_t i = 0; i < polled.size(); ++i) {
        if (polled[i].fd < 0 || polled[i].revents == 0) continue;
        std::array<char, 4096> buffer;
        const ssize_t n = ::read(polled[i].fd, buffer.data(), buffer.size());
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {  // a terminal ends with EIO
          polled[i].fd = -1;
          continue;
        }
        const std::lock_guard lock(mutex_);
        (i == 0 ? out_ : err_).append(buffer.data(), static_cast<std::size_t>(n));
        wrote_.notify_all();
      }
    }
    ::close(out_fd);
    ::close(err_fd);
    const std::lock_guard lock(mutex_);
    ended_ = true;
    wrote_.notify_all();
  }

  std::vector<std::string> command_;
  pid_t pid_ = -1;
  std::optional<int> status_;
  std::thread reader_;
  mutable std::mutex mutex_;
  std::condition_variable wrote_;
  std::string out_;
  std::string err_;
  bool ended_ = false;
};

}  // namespace peal::test
