#include "host/log.hpp"

#include <atomic>
#include <mutex>
#include <utility>

namespace peal {
namespace {

struct Log {
  std::mutex mutex;  // held while the callback runs
  LogCallback callback;
  std::atomic<int> up_to{-1};  // -1: silent
};

// Never destroyed: what is static may close after it.
Log& the_log() {
  static Log& only = *new Log;
  return only;
}

}  // namespace

const char* log_level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kError: return "error";
    case LogLevel::kWarning: return "warning";
    case LogLevel::kInfo: return "info";
    case LogLevel::kDebug: break;
  }
  return "debug";
}

void set_log(LogLevel up_to, LogCallback callback) {
  Log& to = the_log();
  const std::lock_guard lock(to.mutex);
  to.up_to = callback ? static_cast<int>(up_to) : -1;
  to.callback = std::move(callback);
}

bool host::logs(LogLevel level) noexcept {
  return static_cast<int>(level) <= the_log().up_to.load(std::memory_order_relaxed);
}

void host::log_line(LogLevel level, const std::string& line) {
  Log& to = the_log();
  const std::lock_guard lock(to.mutex);
  if (to.callback && logs(level)) to.callback(level, line);
}

}  // namespace peal
