// The GPUs of this machine, how they reach each other, and how fast they copy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace peal::ladder::gpu {

std::uint32_t gpus();
std::string gpu_name(std::uint32_t gpu);
// Of the kernel module, such as "580.159.04"; where it does not say, the CUDA version it knows.
std::string driver_version();

// Throws MachineError, saying what `gpu` was wanted for, where it is not there.
void require_gpu(std::uint32_t gpu, const std::string& option);
// Lets kernels on `gpu` reach memory of `other`. Throws MachineError where they cannot.
void require_peer_access(std::uint32_t gpu, std::uint32_t other);
// "NVLink", "PCIe" or "its own memory".
std::string path_between(std::uint32_t gpu, std::uint32_t other);

// By the copy engines or whatever CUDA takes, best of a few; `gpu` runs the copies.
double copy_gbps(std::uint32_t gpu, void* to, const void* from, std::uint64_t bytes);

}  // namespace peal::ladder::gpu
