// Host memory that a GPU reaches: queues on which GPU threads produce and a NIC on the CPU
// consumes.
#pragma once

#include "verbs/verbs.hpp"

namespace peal::verbs {

// Of the current CUDA device. Blocks as CUDA's calls do: none of its functions may be called while
// a kernel waits for what the caller must do next.
class CudaHostMemory final : public DeviceMemory {
 public:
  void* allocate(std::size_t bytes) override;
  void release(void* memory, std::size_t bytes) override;
  void* map_uar(void* reg_addr) override;
  void unmap_uar(void* mapped) override;
  int copy_to_device(void* to, const void* from, std::size_t bytes) override;
  int copy_from_device(void* to, const void* from, std::size_t bytes) override;
};

}  // namespace peal::verbs
