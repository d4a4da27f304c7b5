#include "ladder/interrupt.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace peal::ladder {
namespace {

int event_fd = -1;
struct sigaction old_int;
struct sigaction old_term;

// Async-signal-safe: write(2) only. SA_RESETHAND lets the next one through.
void on_signal(int) {
  const int saved = errno;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(event_fd, &one, sizeof one);
  errno = saved;
}

}  // namespace

Interrupt::Interrupt() {
  event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event_fd < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  // The ThreadSanitizer of GCC 12 loses a signal that comes during a thread's first blocking call,
  // where it makes room for signals. So there is one before any can come.
  poll(nullptr, 0, 0);
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, &old_int);
  sigaction(SIGTERM, &action, &old_term);
}

Interrupt::~Interrupt() {
  sigaction(SIGINT, &old_int, nullptr);
  sigaction(SIGTERM, &old_term, nullptr);
  close(event_fd);
  event_fd = -1;
}

int Interrupt::fd() const {
  return event_fd;
}

bool Interrupt::raised() const {
  pollfd p{event_fd, POLLIN, 0};
  return poll(&p, 1, 0) > 0;
}

}  // namespace peal::ladder
