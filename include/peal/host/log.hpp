// What the control path tells of while it sets up and closes, for a user who looks for a mistake.
// Silent unless asked.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace peal {

enum class LogLevel : std::uint8_t {
  kError,    // what is lost for good: memory or an object that the device did not let go of
  kWarning,  // what works otherwise than it was wanted: a fallback
  kInfo,     // which device was opened, and who rings its queues and why
  kDebug,    // each change of a queue pair's state
};

// "error", "warning", "info" or "debug".
const char* log_level_name(LogLevel level);

// `line` is one sentence without a newline.
using LogCallback = std::function<void(LogLevel level, const std::string& line)>;

// From now on `callback` hears of what is at `up_to` or more severe, in the whole process; an empty
// one makes Peal silent again. Any thread may call this; it returns when no call of the former
// callback is under way, so that what that one refers to may go.
//
// The callback is called by whichever thread opens, connects, resets or closes something, never by
// one that posts, waits or rings; one call at a time. It must be quick, and must not call Peal.
// What it throws is dropped.
void set_log(LogLevel up_to, LogCallback callback);

}  // namespace peal
