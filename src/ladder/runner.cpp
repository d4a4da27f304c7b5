#include "ladder/runner.hpp"

#include "ladder/row_run.hpp"
#include "ladder/usage_error.hpp"

namespace peal::ladder {

Outcome run_ladder(const LadderOptions& options, const RunEnds& ends, const Interrupt& interrupt,
                   const RunEvents& events) {
  Outcome outcome;
  for (const std::uint64_t payload_bytes : options.sizes) {
    for (const Stage& stage : options.stages) {
      for (const SubmitVariant& submit : options.submits) {
        RowRun row(options, ends, interrupt, events, stage, submit, payload_bytes);
        outcome.add(row.run());
        if (!outcome.good()) return outcome;
      }
    }
  }
  return outcome;
}

Outcome outcome_of_exception() {
  Outcome outcome;
  try {
    throw;
  } catch (const UsageError& e) {
    outcome.add(kExitUsage, e.what());
  } catch (const PeerRefusal& e) {
    const bool refused = is_exit_status(e.status()) && e.status() != kExitValidated;
    outcome.add(refused ? e.status() : kExitUsage,
                std::string("the peer ended the run: ") + e.what());
  } catch (const PeerError& e) {
    switch (e.kind()) {
      case PeerError::Kind::kInterrupted: outcome.add(kExitInterrupted, "interrupted"); break;
      // Another name, another program or another version was meant.
      case PeerError::Kind::kAddress:
      case PeerError::Kind::kProtocol: outcome.add(kExitUsage, e.what()); break;
      case PeerError::Kind::kSystem: outcome.add(kExitMachine, e.what()); break;
      case PeerError::Kind::kRefused:
      case PeerError::Kind::kTimeout:
      case PeerError::Kind::kClosed: outcome.add(kExitDeadline, e.what()); break;
    }
  } catch (const std::exception& e) {
    // The machine refused: memory, a registration, a thread, a descriptor.
    outcome.add(kExitMachine, e.what());
  }
  return outcome;
}

}  // namespace peal::ladder
