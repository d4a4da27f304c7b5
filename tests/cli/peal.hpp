// The command as its users run it: alone, as a server, as a pair of both ends.
// For tests of the command. Sees only what a user sees: status, output, the file of rows.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "cli/process.hpp"
#include "support/scale.hpp"

namespace peal::test {

using Arguments = std::vector<std::string>;
using Rows = std::vector<nlohmann::json>;

inline Arguments words(const std::string& text) {
  std::istringstream stream(text);
  Arguments all;
  for (std::string word; stream >> word;) all.push_back(word);
  return all;
}

inline Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline Arguments peal_command(const Arguments& arguments) {
  return Arguments{PEAL_COMMAND_PATH} + arguments;
}

// Progress is shown only there.
inline ProcessOptions on_terminal() {
  ProcessOptions options;
  options.terminal = true;
  return options;
}

struct Ended {
  int status = -1;
  std::string out;
  std::string err;
};

inline Ended ended(Process& process) {
  const int status = process.wait();
  return {status, process.out(), process.err()};
}

inline Ended run_peal(const Arguments& arguments, ProcessOptions options = {}) {
  Process process(peal_command(arguments), options);
  return ended(process);
}

inline Ended run_peal(const std::string& arguments, ProcessOptions options = {}) {
  return run_peal(words(arguments), options);
}

inline bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

inline std::size_t lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

// A file that rows go to.
class RowFile {
 public:
  RowFile() {
    std::string path = ::testing::TempDir() + "peal_rows_XXXXXX";
    const int fd = ::mkstemp(path.data());
    if (fd < 0) throw std::system_error(errno, std::generic_category(), "mkstemp");
    ::close(fd);
    path_ = path;
  }
  RowFile(const RowFile&) = delete;
  RowFile& operator=(const RowFile&) = delete;
  ~RowFile() { ::unlink(path_.c_str()); }

  const std::string& path() const { return path_; }

  // Every line must be a row.
  Rows rows() const {
    Rows all;
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) {
      all.push_back(nlohmann::json::parse(line, nullptr, false));
      EXPECT_TRUE(all.back().is_object()) << line;
      if (all.back().is_object()) {
        EXPECT_EQ(all.back().value("schema", ""), "peal.row.1") << line;
      }
    }
    return all;
  }

 private:
  std::string path_;
};

class Server {
 public:
  explicit Server(const Arguments& arguments = {"--once"}, ProcessOptions options = {})
      : process_(
            peal_command(Arguments{"server", "--bind", "127.0.0.1", "--port", "0"} + arguments),
            options) {
    // The last line's end too: the port must not be cut short.
    if (!process_.wait_for_out("\n")) {
      ADD_FAILURE() << "the server did not listen: " << process_.out() << process_.err();
      return;
    }
    const std::string out = process_.out();
    EXPECT_TRUE(contains(out, "peal server: listening on 127.0.0.1, port ")) << out;
    const std::size_t at = out.find("port ");
    if (at != std::string::npos) {
      port_ = static_cast<std::uint16_t>(std::strtoul(out.c_str() + at + 5, nullptr, 10));
    }
  }

  std::uint16_t port() const { return port_; }
  Process& process() { return process_; }
  Ended end() { return ended(process_); }

 private:
  Process process_;
  std::uint16_t port_ = 0;
};

inline Arguments client_of(std::uint16_t port, const Arguments& arguments) {
  return Arguments{"client", "127.0.0.1", "--port", std::to_string(port)} + arguments;
}

// Two processes, one run.
struct Pair {
  Ended server;
  Ended client;
  Rows rows;
};

inline Pair run_pair(const Arguments& client, const Arguments& server = {},
                     ProcessOptions server_options = {}) {
  Server listening(Arguments{"--once"} + server, server_options);
  const RowFile file;
  Pair pair;
  pair.client = run_peal(client_of(listening.port(), client + Arguments{"--json", file.path()}));
  pair.server = listening.end();
  pair.rows = file.rows();
  return pair;
}

inline Pair run_pair(const std::string& client, const std::string& server = {}) {
  return run_pair(words(client), words(server));
}

inline std::string shown(const Pair& p) {
  return "client: " + p.client.out + p.client.err + "server: " + p.server.out + p.server.err;
}

// Both ends exit alike.
inline void expect_both(const Pair& pair, int status) {
  EXPECT_EQ(pair.client.status, status) << shown(pair);
  EXPECT_EQ(pair.server.status, status) << shown(pair);
}

// Wrong use: one sentence on the standard error, with `part` in it, and nothing else.
inline void expect_refusal(const Arguments& arguments, std::string_view part = "") {
  std::string text;
  for (const std::string& a : arguments) text += "'" + a + "' ";
  SCOPED_TRACE(text);
  const Ended e = run_peal(arguments);
  EXPECT_EQ(e.status, 2);
  EXPECT_EQ(e.out, "");
  EXPECT_EQ(lines(e.err), 1u) << e.err;
  EXPECT_EQ(e.err.rfind("peal", 0), 0u) << e.err;
  EXPECT_TRUE(contains(e.err, part)) << e.err;
}

// Neither a line of the table nor one of JSON.
inline void expect_no_row(const Pair& pair) {
  EXPECT_TRUE(pair.rows.empty()) << pair.rows.size();
  EXPECT_EQ(pair.client.out, "");
}

// Enough traffic that a run ends only by what the test does to it, in segments of a few
// milliseconds.
inline Arguments endless_traffic() {
  return words("--size 64 --iters 1000000000 --repeat 1 --region 1M");
}

// What the progress line says once the timed traffic has begun. It needs a terminal.
inline constexpr std::string_view kTimedTraffic = "1 of 1";

// True for a build whose own memory does not fit any limit.
constexpr bool command_has_sanitizer() {
  return PEAL_COMMAND_HAS_SANITIZER;
}

}  // namespace peal::test
