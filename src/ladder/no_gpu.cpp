// In place of gpu/runs.cpp where there was no nvcc.
#include "ladder/gpu/runs.hpp"

namespace peal::ladder::gpu {
namespace {

constexpr const char* kNoGpuCode =
    "this build has no code for GPUs: there was no nvcc when it was configured";

}  // namespace

Outcome run_local(const LadderOptions&, LocalLinks&, const Interrupt&, const RunEvents&, Notices&) {
  throw MachineError(kNoGpuCode);
}

Outcome run_sender(const LadderOptions&, const LinkEnd&, Receiver&, const Interrupt&,
                   const RunEvents&, Notices&) {
  throw MachineError(kNoGpuCode);
}

Outcome run_devices(const LadderOptions&, const Interrupt&, const RunEvents&, Notices&) {
  throw MachineError(kNoGpuCode);
}

Outcome run_device_sender(const LadderOptions&, Receiver&, const Interrupt&, const RunEvents&,
                          Notices&) {
  throw MachineError(kNoGpuCode);
}

}  // namespace peal::ladder::gpu
