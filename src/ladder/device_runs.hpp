// Runs whose NIC is a device, reached by the system's RDMA libraries. It needs no engine and no
// link.
#pragma once

#include "ladder/runner.hpp"

namespace peal::ladder {

// Both ends in this process, of one device or two.
Outcome run_devices(const LadderOptions& options, const Interrupt& interrupt,
                    const RunEvents& events, Notices& notices);

// The sending end.
Outcome run_device_sender(const LadderOptions& options, Receiver& receiver,
                          const Interrupt& interrupt, const RunEvents& events, Notices& notices);

// What rows say of a run whose sender is `context`. Tells what such a run leaves out of what was
// asked for.
RunFacts device_facts(const Context& context, const RunEvents& events);

}  // namespace peal::ladder
