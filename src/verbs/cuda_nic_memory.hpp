// Memory for queues of a NIC behind a bus, on which GPU threads produce: what the NIC has to be
// helped to is exported as a dmabuf, and its registers are mapped as IO memory.
#pragma once

#include <cstddef>
#include <memory>

#include "verbs/cuda_memory.hpp"
#include "verbs/uar_mappings.hpp"

namespace peal::verbs {

// Of the current CUDA device. Blocks as CUDA's calls do. Any thread.
class CudaNicMemory final : public DeviceMemory {
 public:
  // Queues lie in `gpu_bytes` of the GPU's memory, taken at once, or where that is 0 in pinned
  // memory of the host. Throws peal::Error.
  explicit CudaNicMemory(std::size_t gpu_bytes);

  void* allocate(std::size_t bytes) override;
  void release(void* memory, std::size_t bytes) override;
  void* map_uar(void* reg_addr) override { return registers_.map(reg_addr); }
  void unmap_uar(void* mapped) override { registers_.unmap(mapped); }
  const char* uar_remedy() const override;
  int copy_to_device(void* to, const void* from, std::size_t bytes) override;
  int copy_from_device(void* to, const void* from, std::size_t bytes) override;
  int copy_payload(void* to, const void* from, std::size_t bytes) override;
  bool reached_by_cpu() const override { return arena_ == nullptr; }
  void* allocate_shared(std::size_t bytes) override { return host_.allocate(bytes); }
  void release_shared(void* memory, std::size_t bytes) override { host_.release(memory, bytes); }
  bool on_gpu(const void* memory) const override;
  Dmabuf export_dmabuf(const void* memory, std::size_t bytes) override;

 private:
  std::unique_ptr<CudaDeviceMemory> arena_;  // null: queues lie in host_
  CudaHostMemory host_;
  UarMappings registers_;
};

}  // namespace peal::verbs
