// Runs of which something lies or runs on a GPU. A build without nvcc has them too: they say so.
#pragma once

#include "ladder/interrupt.hpp"
#include "ladder/links.hpp"
#include "ladder/notices.hpp"
#include "ladder/options.hpp"
#include "ladder/outcome.hpp"
#include "ladder/receiver.hpp"
#include "ladder/runner.hpp"

namespace peal::ladder::gpu {

// Both ends in this process. Throws what run_ladder does.
Outcome run_local(const LadderOptions& options, LocalLinks& links, const Interrupt& interrupt,
                  const RunEvents& events, Notices& notices);

// The sending end, whose NIC is on a CPU thread whatever the engine: a kernel has no sockets.
// Likewise.
Outcome run_sender(const LadderOptions& options, const LinkEnd& link, Receiver& receiver,
                   const Interrupt& interrupt, const RunEvents& events, Notices& notices);

// The same of devices.
Outcome run_devices(const LadderOptions& options, const Interrupt& interrupt,
                    const RunEvents& events, Notices& notices);
Outcome run_device_sender(const LadderOptions& options, Receiver& receiver,
                          const Interrupt& interrupt, const RunEvents& events, Notices& notices);

}  // namespace peal::ladder::gpu
