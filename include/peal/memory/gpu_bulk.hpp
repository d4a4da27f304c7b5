// Bulk copies through shared memory by a GPU's copy engine (TMA), in PTX: sm_90 or later. They run
// in the async proxy, which sees what other threads wrote, and lets its own writes be seen, only as
// the fences here say (MO-17). Only nvcc compiles it.
//
// Of one thread, which waits itself for what it began. Addresses and sizes are multiples of 16.
// Payload may lie in memory of this GPU, in a peer's, or in host memory that the GPU reaches: all
// are of the global window, and each reaches its place through L2.
#pragma once

#include <cstddef>
#include <cstdint>

namespace peal {

struct GpuBulk {
  // `barrier` is in shared memory; once, before the first load that names it.
  __device__ static void begin(std::uint64_t* barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared(barrier)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
  }

  // MO-17. What this thread has acquired, others' plain stores, is before the loads and stores that
  // it begins from now on.
  __device__ static void fence_after_acquire() {
    asm volatile("fence.proxy.async.global;" ::: "memory");
  }
  // Into a buffer whose last store has been read, by a barrier whose last load has been awaited.
  __device__ static void load(std::byte* buffer, const std::byte* from, std::uint32_t bytes,
                              std::uint64_t* barrier) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared(barrier)),
                 "r"(bytes)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(shared(buffer)),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared(barrier))
        : "memory");
  }
  // Of the load that is the barrier's `parity`-th, modulo 2.
  __device__ static void wait_load(std::uint64_t* barrier, std::uint32_t parity) {
    std::uint32_t done = 0;
    while (done == 0) {
      asm volatile(
          "{\n.reg .pred p;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n}"
          : "=r"(done)
          : "r"(shared(barrier)), "r"(parity)
          : "memory");
    }
  }

  // Of a buffer whose load has been awaited.
  __device__ static void store(std::byte* to, const std::byte* buffer, std::uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                     __cvta_generic_to_global(to)),
                 "r"(shared(buffer)), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  }
  // Of all stores but the newest `kBut` their buffers may be written again; they are not yet whole.
  template <int kBut>
  __device__ static void wait_stores_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kBut) : "memory");
  }
  // MO-17. All stores but the newest `kBut` are whole, not only read: what this thread releases
  // from now on covers them.
  template <int kBut>
  __device__ static void wait_stores() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kBut) : "memory");
  }

 private:
  __device__ static std::uint32_t shared(const void* p) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
  }
};

}  // namespace peal
