#include "ladder/gpu/cuda_payload.hpp"

#include <cuda_runtime_api.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "ladder/gpu/payload_kernels.hpp"
#include "ladder/options.hpp"
#include "ladder/outcome.hpp"
#include "verbs/cuda_check.hpp"

namespace peal::ladder::gpu {
namespace {

using namespace cuda;

Slots slots_of(const SegmentPlan& plan) {
  const SlotLayout layout = plan.layout();
  return {plan.seed,          plan.producers,      plan.first_sequence, plan.puts_per_producer,
          plan.payload_bytes, layout.stride_bytes, layout.align_bytes};
}

void launched(int error) {
  must(static_cast<cudaError_t>(error), "launching a kernel over the payload");
}

}  // namespace

CudaPayload::CudaPayload(std::optional<std::uint32_t> gpu, std::uint64_t bytes)
    : gpu_(gpu), bytes_(bytes) {
  const OnGpu on(static_cast<int>(gpu.value_or(0)));
  try {
    require_free(bytes);
    if (gpu_) {
      device_ = std::make_shared<verbs::CudaDeviceMemory>(bytes);
      memory_ = device_->begin();
      must(cudaMemset(memory_, 0, bytes), "clearing GPU memory");
    } else {
      must(cudaHostAlloc(&memory_, bytes, cudaHostAllocPortable),
           "allocating " + std::to_string(bytes) + " bytes of pinned memory");
    }
    cudaStream_t stream = nullptr;
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    stream_ = stream;
    acknowledged_ = pinned<std::uint64_t>(kMaxProducers);
    wrong_ = pinned<unsigned long long>(1);
    *wrong_ = 0;
    // So that nothing is loaded later.
    if (gpu_) {
      const Slots none;
      launched(write_slots(nullptr, none, false, false, stream_));
      launched(count_wrong(nullptr, none, acknowledged_, wrong_, stream_));
      must(cudaStreamSynchronize(stream), "waiting for kernels over no payload");
    }
  } catch (...) {
    release();
    throw;
  }
}

void CudaPayload::require_free(std::uint64_t bytes) const {
  if (!gpu_) return require_memory(bytes, "the payload region of one end");
  std::size_t free = 0;
  std::size_t all = 0;
  must(cudaMemGetInfo(&free, &all), "asking for a GPU's free memory");
  if (bytes <= free) return;
  throw MachineError("the payload region of one end needs " + std::to_string(bytes) +
                     " bytes of memory of GPU " + std::to_string(*gpu_) + ", which has " +
                     std::to_string(free) + " to give");
}

CudaPayload::~CudaPayload() {
  release();
  const OnGpu on(static_cast<int>(gpu_.value_or(0)));
  device_.reset();
}

void CudaPayload::release() noexcept {
  const OnGpu on(static_cast<int>(gpu_.value_or(0)));
  if (stream_ != nullptr) cudaStreamDestroy(static_cast<cudaStream_t>(stream_));
  if (!gpu_) cudaFreeHost(memory_);
  cudaFreeHost(acknowledged_);
  cudaFreeHost(wrong_);
}

void* CudaPayload::take(std::uint64_t bytes) {
  if (bytes > bytes_) {
    throw MachineError("the payload of this run needs " + std::to_string(bytes) + " bytes, and " +
                       std::to_string(bytes_) + " were taken");
  }
  region_bytes_ = bytes;
  return memory_;
}

void CudaPayload::write(const SegmentPlan& plan, bool flip_payload, bool flip_guards) {
  const OnGpu on(static_cast<int>(*gpu_));
  launched(write_slots(region().data(), slots_of(plan), flip_payload, flip_guards, stream_));
  must(cudaStreamSynchronize(static_cast<cudaStream_t>(stream_)), "writing the payload");
}

void CudaPayload::fill(const SegmentPlan& plan) {
  if (!gpu_) return fill_source(region(), plan);
  write(plan, false, true);
}

void CudaPayload::poison(const SegmentPlan& plan) {
  if (!gpu_) return poison_destination(region(), plan);
  write(plan, true, false);
}

// The kernel says how many are wrong; what is wrong with them, the CPU.
Verdict CudaPayload::check(const SegmentPlan& plan, std::span<const std::uint64_t> acknowledged) {
  if (!gpu_) return check_destination(region(), plan, acknowledged);
  const OnGpu on(static_cast<int>(*gpu_));
  const auto stream = static_cast<cudaStream_t>(stream_);
  std::memcpy(acknowledged_, acknowledged.data(), acknowledged.size_bytes());
  *wrong_ = 0;
  launched(count_wrong(region().data(), slots_of(plan), acknowledged_, wrong_, stream_));
  must(cudaStreamSynchronize(stream), "checking the payload");
  if (*wrong_ == 0) {
    Verdict right;
    right.checked = std::accumulate(acknowledged.begin(), acknowledged.end(), std::uint64_t{0});
    return right;
  }
  std::vector<std::byte> copy(region().size());
  must(cudaMemcpyAsync(copy.data(), memory_, copy.size(), cudaMemcpyDeviceToHost, stream),
       "copying the payload");
  must(cudaStreamSynchronize(stream), "copying the payload");
  Verdict verdict = check_destination(copy, plan, acknowledged);
  // What arrived after it was acknowledged is wrong, though it is there now.
  if (verdict.mismatches == 0) verdict.mismatches = *wrong_;
  return verdict;
}

}  // namespace peal::ladder::gpu
