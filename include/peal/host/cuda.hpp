// What the control path needs where GPU threads produce. In the library peal::cuda.
#pragma once

#include <cstddef>
#include <memory>

#include "peal/host/provider.hpp"

namespace peal {

// Pinned memory of the host, by the same addresses for the GPU, the CPU and a NIC: for queues on
// which threads of the current CUDA device produce. Payload need not lie in it. None of the control
// path that uses it may be called while a kernel waits for what the caller must do next. Throws
// Error, with ENODEV where there is no GPU that CUDA can use.
std::shared_ptr<verbs::DeviceMemory> cuda_host_memory();

// For queues of a device, a real NIC, on which threads of the current CUDA device produce: in
// `gpu_bytes` of that GPU's memory, which is taken at once, or where that is 0 in pinned memory of
// the host. Lets payload in any GPU's memory be registered too. Throws Error, with ENODEV where
// there is no GPU that CUDA can use.
std::shared_ptr<verbs::DeviceMemory> cuda_nic_memory(std::size_t gpu_bytes);

// `bytes` of memory of the current CUDA device, allocated at once and given out in pages of 4 KiB:
// for the counters of adopted queues (adopt.hpp), 12 KiB for one of 1024 slots. Its copies reach
// ordinary memory too, and are made on a stream of their own. For the queues of a SoftwareFabric it
// is of no use: their NIC is a CPU thread. Throws Error, as above, or when there is not as much.
std::shared_ptr<verbs::DeviceMemory> cuda_device_memory(std::size_t bytes);

}  // namespace peal
