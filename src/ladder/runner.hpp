// Runs a ladder's rows from the sending end: traffic in segments, each checked off the clock.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "ladder/interrupt.hpp"
#include "ladder/notices.hpp"
#include "ladder/options.hpp"
#include "ladder/outcome.hpp"
#include "ladder/producers.hpp"
#include "ladder/receiver.hpp"
#include "ladder/row.hpp"
#include "nic/inspected.hpp"
#include "peal/host/context.hpp"

namespace peal::ladder {

// What a run tells while it goes on. Rows come only when they are valid, or of the null NIC.
struct RunEvents {
  std::function<void(const Row&)> row = [](const Row&) {};
  std::function<void(const std::string&)> warn = [](const std::string&) {};
  // A line on what the NICs hold against the run.
  std::function<void(const std::string&)> note = [](const std::string&) {};
  // A line for each QP and row: what its NIC counted. Empty where nobody wants them.
  std::function<void(const std::string&)> counters;
  // "serial original 4096 B: 3 of 5"; on the calling thread, a few times a second.
  std::function<void(const std::string&)> progress = [](const std::string&) {};
};

// What rows say of what ran, besides what each of them is about.
struct RunFacts {
  std::string provider = "software";
  std::string engine = "threads";
  std::string link;
  std::string memory = "host";  // where the payload lies
  std::string doorbell_memory = "host";
  std::optional<std::string> gpu = {};
  std::optional<std::string> driver = {};
  std::optional<double> copy_ceiling_gbps = {};
};

// The sending end: its NIC, the engine that steps it, who PUTs from where, and the far end.
struct RunEnds {
  // Null where it is a device, which tells of itself by its queues alone.
  nic::Inspected* nic;
  engine::Engine* engine;
  Context context;
  Producers& producers;
  PayloadMemory& source;
  Receiver& receiver;
  Notices& notices;  // of all NICs here
  RunFacts facts;
  std::uint64_t ends_here = 1;  // whose memory is this machine's

  // Runs `f(nic)` between two of its steps, if it is one that can be asked.
  template <class F>
  void inspect(const F& f) const {
    if (nic != nullptr) engine->call([&] { f(*nic); });
  }
};

// Runs every size, stage and submit in turn until one fails. Throws what the control path or the
// peer throws (Error, MachineError, UsageError, PeerError, PeerRefusal).
Outcome run_ladder(const LadderOptions& options, const RunEnds& ends, const Interrupt& interrupt,
                   const RunEvents& events);

// "stage serial, producer 0, PUT 17, byte 4032: ...; 1 of 100 payloads checked are wrong"
std::string wrong_payload_sentence(const std::string& stage, const Verdict& verdict);

// What an exception that ends a run means. Call it inside a catch block.
Outcome outcome_of_exception();

}  // namespace peal::ladder
