// Groups of GPU threads that act as one producer (peal/device/group.hpp). Only nvcc compiles it. A
// kernel says which thread is which.
#pragma once

#include <cstdint>

namespace peal {

// The 32 lanes of a warp, all of which run.
struct Warp {
  std::uint32_t lane = 0;

  __device__ std::uint32_t rank() const { return lane; }
  __device__ std::uint32_t size() const { return 32; }
  // MO-13: what each lane has stored is before what the leader releases.
  __device__ void sync() const { __syncwarp(); }
  template <class T>
  __device__ T from_leader(T value) const {
    return __shfl_sync(kAll, value, 0);
  }
  template <class Pred>
  __device__ std::uint32_t leading(std::uint32_t n, Pred pred) const {
    for (std::uint32_t from = 0; from < n; from += 32) {
      const bool holds = from + lane < n && pred(from + lane);
      const std::uint32_t failing = ~__ballot_sync(kAll, holds);
      if (failing != 0)
        return from + static_cast<std::uint32_t>(__ffs(static_cast<int>(failing))) - 1;
    }
    return n;
  }

 private:
  static constexpr std::uint32_t kAll = 0xffffffff;
};

// All threads of a block, by way of 8 bytes of shared memory that nobody else uses.
struct Block {
  std::uint32_t thread = 0;
  std::uint32_t threads = 1;
  std::uint64_t* word = nullptr;

  __device__ std::uint32_t rank() const { return thread; }
  __device__ std::uint32_t size() const { return threads; }
  // MO-13
  __device__ void sync() const { __syncthreads(); }
  template <class T>
  __device__ T from_leader(T value) const {
    __syncthreads();  // the last value has been read
    if (thread == 0) *word = static_cast<std::uint64_t>(value);
    __syncthreads();
    return static_cast<T>(*word);
  }
  template <class Pred>
  __device__ std::uint32_t leading(std::uint32_t n, Pred pred) const {
    for (std::uint32_t from = 0; from < n; from += threads) {
      const std::uint32_t left = n - from < threads ? n - from : threads;
      const bool holds = thread < left && pred(from + thread);
      if (__syncthreads_count(holds) == static_cast<int>(left)) continue;
      // Rare: a message too long for one WQE.
      __syncthreads();
      if (thread == 0) *word = left;
      __syncthreads();
      if (thread < left && !holds) {
        atomicMin(reinterpret_cast<unsigned long long*>(word), 1ull * thread);
      }
      __syncthreads();
      return from + static_cast<std::uint32_t>(*word);
    }
    return n;
  }
};

}  // namespace peal
