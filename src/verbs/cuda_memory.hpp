// Memory for queues on which GPU threads produce: of the host, where a NIC on the CPU consumes, or
// of the GPU, where a NIC there does.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

#include "verbs/software.hpp"

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

// GPU memory, of one allocation made by the constructor: a kernel that runs for ever would deadlock
// with one made later. Copies go through a stream of its own. Any thread.
class CudaDeviceMemory final : public DeviceMemory {
 public:
  // Of the current device. Throws peal::Error.
  explicit CudaDeviceMemory(std::size_t bytes);
  ~CudaDeviceMemory() override;
  CudaDeviceMemory(const CudaDeviceMemory&) = delete;
  CudaDeviceMemory& operator=(const CudaDeviceMemory&) = delete;

  void* allocate(std::size_t bytes) override;
  void release(void* memory, std::size_t bytes) override;
  void* map_uar(void* reg_addr) override { return reg_addr; }  // of CudaUarPages
  void unmap_uar(void*) override {}
  int copy_to_device(void* to, const void* from, std::size_t bytes) override;
  int copy_from_device(void* to, const void* from, std::size_t bytes) override;
  int copy_payload(void* to, const void* from, std::size_t bytes) override;
  bool reached_by_cpu() const override { return false; }
  // All of it: for StagedMemory::Range, where a CPU thread is the NIC.
  std::byte* begin() const { return arena_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::mutex mutex_;
  std::byte* arena_ = nullptr;
  std::size_t bytes_ = 0;
  void* stream_ = nullptr;
  std::map<std::byte*, std::size_t> free_;  // by address; neighbours are joined
};

// UAR pages of one allocation made by the constructor: in pinned host memory, where a doorbell
// crosses PCIe as a NIC's would, or in memory of the current GPU.
class CudaUarPages final : public UarPages {
 public:
  // Throws peal::Error.
  explicit CudaUarPages(std::size_t pages, bool on_gpu = false);
  ~CudaUarPages() override;
  CudaUarPages(const CudaUarPages&) = delete;
  CudaUarPages& operator=(const CudaUarPages&) = delete;

  void* take() override;
  void give_back(void* page) override;

 private:
  void release() noexcept;

  std::mutex mutex_;
  std::byte* arena_ = nullptr;
  bool on_gpu_ = false;
  void* stream_ = nullptr;
  std::vector<void*> free_;
};

}  // namespace peal::verbs
