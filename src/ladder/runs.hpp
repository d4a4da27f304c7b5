// The three runs that the command offers, whole: ends, traffic, verdict.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "ladder/interrupt.hpp"
#include "ladder/options.hpp"
#include "ladder/outcome.hpp"
#include "ladder/runner.hpp"

namespace peal::ladder {

inline constexpr std::uint16_t kDefaultPort = 18515;

// Both ends in this process, joined by a loopback link, stepped by one thread.
Outcome run_local(const LadderOptions& options, const Interrupt& interrupt,
                  const RunEvents& events);

struct ClientOptions {
  std::string host;
  std::uint16_t port = kDefaultPort;
};
// The sending end, against a server. The server is told how it ended, so that both end alike.
Outcome run_client(const ClientOptions& client, const LadderArguments& arguments,
                   const LadderOptions& options, const Interrupt& interrupt,
                   const RunEvents& events);

struct ServerOptions {
  std::string bind = "0.0.0.0";
  std::uint16_t port = kDefaultPort;
  bool once = false;
  double idle_timeout_s = 0;  // without a client for so long, the server ends; 0: it waits on
  double deadline_s = 5;      // of every wait for a client that is there
  LadderArguments required;   // what was given here must be what a client asks for
};
// Serves one client after the other, until `once` is served, the idle timeout passes or a signal
// comes. The outcome is the worst over its clients. `say` gets a line for each thing worth telling.
Outcome run_server(const ServerOptions& server, const Interrupt& interrupt,
                   const std::function<void(const std::string&)>& say,
                   const std::function<void(const std::string&)>& complain);

}  // namespace peal::ladder
