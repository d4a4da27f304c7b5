// What the tests of sockets and channels wait for and expect.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>

#include "ladder/socket.hpp"

namespace peal::test {

// Long enough for the slowest machine; no test waits for it unless it fails.
inline ladder::Wait long_wait(int interrupt_fd = -1) {
  return {std::chrono::steady_clock::now() + std::chrono::seconds(20), interrupt_fd};
}
inline ladder::Wait short_wait(int interrupt_fd = -1) {
  return {std::chrono::steady_clock::now() + std::chrono::milliseconds(30), interrupt_fd};
}

// Expects a PeerError of `kind` whose message contains `text`.
inline void expect_error(ladder::PeerError::Kind kind, const std::string& text,
                         const std::function<void()>& action) {
  try {
    action();
    ADD_FAILURE() << "no PeerError";
  } catch (const ladder::PeerError& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

}  // namespace peal::test
