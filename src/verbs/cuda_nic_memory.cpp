#include "verbs/cuda_nic_memory.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cerrno>
#include <cstdint>

#include "peal/host/cuda.hpp"
#include "verbs/cuda_check.hpp"

namespace peal::verbs {
namespace {

// Two functions that the runtime does not have, of the driver's library, which is there wherever a
// GPU is.
struct Driver {
  decltype(&cuMemGetAddressRange) address_range = nullptr;
  decltype(&cuMemGetHandleForAddressRange) handle_for_range = nullptr;

  Driver() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    address_range =
        reinterpret_cast<decltype(address_range)>(dlsym(library, "cuMemGetAddressRange_v2"));
    handle_for_range = reinterpret_cast<decltype(handle_for_range)>(
        dlsym(library, "cuMemGetHandleForAddressRange"));
  }
};

// A refusal is an answer here, not to be found again by who looks at CUDA's last error.
int answered(cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();
  return cuda::errno_of(error);
}

void* map_page(void* page) {
  errno = answered(cudaHostRegister(
      page, mlx5::kUarPageBytes,
      cudaHostRegisterPortable | cudaHostRegisterMapped | cudaHostRegisterIoMemory));
  if (errno != 0) return nullptr;
  void* mapped = nullptr;
  errno = answered(cudaHostGetDevicePointer(&mapped, page, 0));
  if (errno == 0) return mapped;
  const int error = errno;
  cudaHostUnregister(page);
  errno = error;
  return nullptr;
}

void unmap_page(void* page) {
  cudaHostUnregister(page);
}

}  // namespace

CudaNicMemory::CudaNicMemory(std::size_t gpu_bytes) : registers_(map_page, unmap_page) {
  if (gpu_bytes > 0) arena_ = std::make_unique<CudaDeviceMemory>(gpu_bytes);
}

void* CudaNicMemory::allocate(std::size_t bytes) {
  return arena_ ? arena_->allocate(bytes) : host_.allocate(bytes);
}

void CudaNicMemory::release(void* memory, std::size_t bytes) {
  if (arena_) {
    arena_->release(memory, bytes);
  } else {
    host_.release(memory, bytes);
  }
}

const char* CudaNicMemory::uar_remedy() const {
  return "a GPU maps it where NVIDIA's driver was loaded with PeerMappingOverride=1";
}

int CudaNicMemory::copy_to_device(void* to, const void* from, std::size_t bytes) {
  return arena_ ? arena_->copy_to_device(to, from, bytes) : host_.copy_to_device(to, from, bytes);
}

int CudaNicMemory::copy_from_device(void* to, const void* from, std::size_t bytes) {
  return arena_ ? arena_->copy_from_device(to, from, bytes)
                : host_.copy_from_device(to, from, bytes);
}

int CudaNicMemory::copy_payload(void* to, const void* from, std::size_t bytes) {
  return arena_ ? arena_->copy_payload(to, from, bytes) : host_.copy_payload(to, from, bytes);
}

bool CudaNicMemory::on_gpu(const void* memory) const {
  cudaPointerAttributes attributes{};
  return answered(cudaPointerGetAttributes(&attributes, memory)) == 0 &&
         attributes.type == cudaMemoryTypeDevice;
}

// Of the whole allocation, as only whole pages of the host's can be exported.
Dmabuf CudaNicMemory::export_dmabuf(const void* memory, std::size_t) {
  static const Driver driver;
  errno = ENOSYS;
  if (driver.address_range == nullptr || driver.handle_for_range == nullptr) return {};
  errno = EINVAL;
  const auto at = reinterpret_cast<CUdeviceptr>(memory);
  CUdeviceptr begin = 0;
  std::size_t bytes = 0;
  if (driver.address_range(&begin, &bytes, at) != CUDA_SUCCESS) return {};
  constexpr std::uint64_t kPageBytes = 65536;  // of the largest host pages
  const CUdeviceptr first = begin - begin % kPageBytes;
  const std::size_t pages = (begin + bytes - first + kPageBytes - 1) / kPageBytes * kPageBytes;
  int fd = -1;
  const CUresult error =
      driver.handle_for_range(&fd, first, pages, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  if (error == CUDA_SUCCESS) return {fd, at - first};
  errno = error == CUDA_ERROR_NOT_SUPPORTED ? ENOTSUP : EINVAL;
  return {};
}

}  // namespace peal::verbs

namespace peal {

std::shared_ptr<verbs::DeviceMemory> cuda_nic_memory(std::size_t gpu_bytes) {
  const std::string why = cuda::why_no_gpu();
  if (!why.empty()) throw Error(ENODEV, "there is no GPU that CUDA can use: " + why);
  return std::make_shared<verbs::CudaNicMemory>(gpu_bytes);
}

}  // namespace peal
