// A ConnectX, through the system's own libraries.
#pragma once

#include <memory>
#include <string>

#include "peal/host/provider.hpp"

namespace peal {

// libibverbs.so.1 and libmlx5.so.1, found at run time as the dynamic linker finds them, or in
// `folder` where it is not empty. They are not unloaded. Queues will lie in `memory`, or where it
// is null in ordinary memory. Devices are opened by Context::open. Any thread. Throws Error: ENOENT
// where a library is not there or cannot be loaded, ENOSYS where it lacks a function.
Provider rdma_core(std::shared_ptr<verbs::DeviceMemory> memory = nullptr,
                   const std::string& folder = {});

}  // namespace peal
