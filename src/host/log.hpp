// How the control path logs. Destructors may, too.
#pragma once

#include <sstream>
#include <string>

#include "peal/host/log.hpp"

namespace peal::host {

bool logs(LogLevel level) noexcept;
void log_line(LogLevel level, const std::string& line);

// `parts` in a row make the line; they are put together only when somebody hears of it.
template <class... Parts>
void log(LogLevel level, const Parts&... parts) noexcept {
  if (!logs(level)) return;
  try {
    std::ostringstream line;
    (line << ... << parts);
    log_line(level, line.str());
  } catch (...) {
    // What is logged changes nothing of what is done.
  }
}

// Of what was to be let go at close, with what the device answered; returns that.
inline int log_kept(int error, const std::string& device, const char* what) noexcept {
  if (error != 0) log(LogLevel::kError, device, " did not let go of ", what, ": error ", error);
  return error;
}

}  // namespace peal::host
