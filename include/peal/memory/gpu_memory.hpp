// The memory policy of GPU threads, in PTX (ISA 8.2 or later; sm_70 or later, as st.mmio asks for).
// docs/MEMORY_MODEL.md explains the MO numbers. Only nvcc compiles it.
//
// Addresses are generic, of GPU memory or of host memory that the GPU can reach. Scopes are those
// of PTX: block is cta, device is gpu, system is sys. PTX promises nothing of a NIC; like the
// field's libraries, this one takes system scope for whatever lies outside of the GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "peal/memory/scope.hpp"
#include "peal/mlx5/cqe.hpp"
#include "peal/mlx5/wqe.hpp"

// One statement for each scope: PTX has it in the opcode.
#define PEAL_PTX_BY_SCOPE(scope, STATEMENT)            \
  switch (scope) {                                     \
    case FenceScope::kBlock: STATEMENT("cta"); break;  \
    case FenceScope::kDevice: STATEMENT("gpu"); break; \
    case FenceScope::kSystem:                          \
    case FenceScope::kBus: STATEMENT("sys"); break;    \
  }

namespace peal {

struct GpuMemory {
  // ---- Producer to NIC -------------------------------------------------------------------------

  // One 16-byte store, which MO-1, MO-3, MO-5 or MO-7 publishes.
  __device__ static void store_wqe_segment(mlx5::Words16* segment, mlx5::Words16 v, Sharing) {
    asm volatile("st.v2.b64 [%0], {%1, %2};" ::"l"(segment), "l"(v.lo), "l"(v.hi) : "memory");
  }

  // MO-1: the first release point of a submission.
  __device__ static void store_dbrec_after_wqes(std::uint32_t* dbrec, std::uint32_t v,
                                                FenceScope scope) {
    store_release(dbrec, v, scope);
  }
  // MO-2: the second. An MMIO store has no release of its own.
  __device__ static void ring_doorbell_after_dbrec(std::uint64_t* doorbell, std::uint64_t v,
                                                   FenceScope scope) {
    fence(scope);
    store_mmio(doorbell, v);
  }
  // MO-3
  __device__ static void ring_doorbell_after_wqes(std::uint64_t* doorbell, std::uint64_t v,
                                                  FenceScope scope) {
    fence(scope);
    store_mmio(doorbell, v);
  }
  // MO-11
  __device__ static void store_proxy_pi_release(std::uint64_t* pi, std::uint64_t v,
                                                FenceScope scope) {
    store_release(pi, v, scope);
  }

  // ---- NIC to producer -------------------------------------------------------------------------

  // MO-4, reading end. Its line is not kept in L1, where a poll would only find it stale.
  __device__ static std::uint32_t load_cqe_owner_acquire(const std::uint32_t* nic_owner_word,
                                                         FenceScope scope) {
    std::uint32_t v = 0;
#define PEAL_PTX_LOAD(s)                                        \
  asm volatile("ld.acquire." s ".L1::no_allocate.b32 %0, [%1];" \
               : "=r"(v)                                        \
               : "l"(nic_owner_word)                            \
               : "memory")
    PEAL_PTX_BY_SCOPE(scope, PEAL_PTX_LOAD)
#undef PEAL_PTX_LOAD
    return v;
  }
  __device__ static std::uint32_t load_cqe_body(const std::uint32_t* nic_word) {
    return load_relaxed(nic_word);
  }

  // ---- Between producers -----------------------------------------------------------------------

  // MO-5
  __device__ static void mark_ready_release(std::uint64_t* mark, std::uint64_t v,
                                            FenceScope scope) {
    store_release(mark, v, scope);
  }
  __device__ static std::uint64_t load_mark_acquire(const std::uint64_t* mark, FenceScope scope) {
    return load_acquire(mark, scope);
  }
  // MO-6
  __device__ static std::uint64_t add_pending_acq_rel(std::uint64_t* pending, std::uint64_t n,
                                                      FenceScope scope) {
    std::uint64_t old = 0;
#define PEAL_PTX_ADD(s)                                   \
  asm volatile("atom.acq_rel." s ".add.u64 %0, [%1], %2;" \
               : "=l"(old)                                \
               : "l"(pending), "l"(n)                     \
               : "memory")
    PEAL_PTX_BY_SCOPE(scope, PEAL_PTX_ADD)
#undef PEAL_PTX_ADD
    return old;
  }
  __device__ static std::uint64_t subtract_pending_acq_rel(std::uint64_t* pending, std::uint64_t n,
                                                           FenceScope scope) {
    return add_pending_acq_rel(pending, 0 - n, scope);
  }
  __device__ static std::uint64_t load_pending_acquire(const std::uint64_t* pending,
                                                       FenceScope scope) {
    return load_acquire(pending, scope);
  }
  // MO-7
  __device__ static void store_ready_release(std::uint64_t* ready, std::uint64_t v,
                                             FenceScope scope) {
    store_release(ready, v, scope);
  }
  __device__ static std::uint64_t load_ready_acquire(const std::uint64_t* ready, FenceScope scope) {
    return load_acquire(ready, scope);
  }
  // MO-8. Forward only: a maximum.
  __device__ static void advance_completed_release(std::uint64_t* completed, std::uint64_t v,
                                                   FenceScope scope){
#define PEAL_PTX_MAX(s) \
  asm volatile("red.release." s ".max.u64 [%0], %1;" ::"l"(completed), "l"(v) : "memory")
      PEAL_PTX_BY_SCOPE(scope, PEAL_PTX_MAX)
#undef PEAL_PTX_MAX
  } __device__ static std::uint64_t
      load_completed_acquire(const std::uint64_t* completed, FenceScope scope) {
    return load_acquire(completed, scope);
  }
  // MO-9
  __device__ static bool try_lock_acquire(std::uint32_t* lock, FenceScope scope) {
    std::uint32_t old = 0;
#define PEAL_PTX_EXCHANGE(s) \
  asm volatile("atom.acquire." s ".exch.b32 %0, [%1], 1;" : "=r"(old) : "l"(lock) : "memory")
    PEAL_PTX_BY_SCOPE(scope, PEAL_PTX_EXCHANGE)
#undef PEAL_PTX_EXCHANGE
    return old == 0;
  }
  __device__ static void unlock_release(std::uint32_t* lock, FenceScope scope) {
    store_release(lock, 0u, scope);
  }
  // MO-10
  __device__ static void latch_release(std::uint64_t* latch, std::uint64_t v, FenceScope scope) {
    [[maybe_unused]] std::uint64_t old = 0;
#define PEAL_PTX_SWAP(s)                                     \
  asm volatile("atom.release." s ".cas.b64 %0, [%1], 0, %2;" \
               : "=l"(old)                                   \
               : "l"(latch), "l"(v)                          \
               : "memory")
    PEAL_PTX_BY_SCOPE(scope, PEAL_PTX_SWAP)
#undef PEAL_PTX_SWAP
  }
  __device__ static std::uint64_t load_latch_acquire(const std::uint64_t* latch, FenceScope scope) {
    return load_acquire(latch, scope);
  }

  // MO-12, reading end.
  __device__ static std::uint64_t load_signal_acquire(const std::uint64_t* signal,
                                                      FenceScope scope) {
    return load_acquire(signal, scope);
  }

  // What orders nothing is at system scope: the other end may be the host.
  __device__ static std::uint32_t load_relaxed(const std::uint32_t* p) {
    std::uint32_t v = 0;
    asm volatile("ld.relaxed.sys.b32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
  }
  __device__ static std::uint64_t load_relaxed(const std::uint64_t* p) {
    std::uint64_t v = 0;
    asm volatile("ld.relaxed.sys.b64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
  }
  __device__ static void store_relaxed(std::uint64_t* p, std::uint64_t v) {
    asm volatile("st.relaxed.sys.b64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
  }
  __device__ static bool compare_swap_relaxed(std::uint64_t* p, std::uint64_t expected,
                                              std::uint64_t desired, FenceScope scope) {
    std::uint64_t old = 0;
#define PEAL_PTX_SWAP(s)                                      \
  asm volatile("atom.relaxed." s ".cas.b64 %0, [%1], %2, %3;" \
               : "=l"(old)                                    \
               : "l"(p), "l"(expected), "l"(desired)          \
               : "memory")
    PEAL_PTX_BY_SCOPE(scope, PEAL_PTX_SWAP)
#undef PEAL_PTX_SWAP
    return old == expected;
  }

  // ---- The NIC's ends, of a NIC on a GPU -------------------------------------------------------

  // MO-2 and MO-3, reading end: what the register holds, which orders nothing until what was new in
  // it has been acquired.
  __device__ static std::uint64_t look_at_doorbell(const std::uint64_t* doorbell) {
    return load_relaxed(doorbell);
  }
  __device__ static void acquire_doorbell() {
    fence(FenceScope::kSystem);
  }
  // MO-1, reading end.
  __device__ static std::uint32_t load_dbrec_acquire(const std::uint32_t* dbrec) {
    std::uint32_t v = 0;
    asm volatile("ld.acquire.sys.b32 %0, [%1];" : "=r"(v) : "l"(dbrec) : "memory");
    return v;
  }
  // MO-4, writing end: bytes 0-59 first, then the owner word.
  __device__ static void store_cqe(mlx5::Cqe* entry, const mlx5::Cqe& cqe) {
    auto* vectors = reinterpret_cast<uint4*>(entry);
    for (int i = 0; i < 3; ++i) {
      __stcg(vectors + i, make_uint4(cqe.word[4 * i], cqe.word[4 * i + 1], cqe.word[4 * i + 2],
                                     cqe.word[4 * i + 3]));
    }
    __stcg(reinterpret_cast<uint2*>(&entry->word[12]), make_uint2(cqe.word[12], cqe.word[13]));
    __stcg(&entry->word[14], cqe.word[14]);
    store_release(&entry->word[mlx5::kCqeOwnerWord], cqe.word[mlx5::kCqeOwnerWord],
                  FenceScope::kSystem);
  }

  // MO-12, writing end: what was placed before is visible before the atomic that follows.
  __device__ static void fence_before_atomic() {
    fence(FenceScope::kSystem);
  }

  // MO-14: counts of what the NIC's warps hand each other.
  __device__ static std::uint32_t load_count_acquire(const std::uint32_t* count, FenceScope scope) {
    std::uint32_t v = 0;
#define PEAL_PTX_LOAD(s) \
  asm volatile("ld.acquire." s ".b32 %0, [%1];" : "=r"(v) : "l"(count) : "memory")
    PEAL_PTX_BY_SCOPE(scope, PEAL_PTX_LOAD)
#undef PEAL_PTX_LOAD
    return v;
  }
  __device__ static void store_count_release(std::uint32_t* count, std::uint32_t v,
                                             FenceScope scope) {
    store_release(count, v, scope);
  }
  __device__ static void add_count_release(std::uint32_t* count, std::uint32_t n, FenceScope scope){
#define PEAL_PTX_ADD(s) \
  asm volatile("red.release." s ".add.u32 [%0], %1;" ::"l"(count), "r"(n) : "memory")
      PEAL_PTX_BY_SCOPE(scope, PEAL_PTX_ADD)
#undef PEAL_PTX_ADD
  }

  // MO-16: the epoch's reader says which tables it will read, and looks at the epoch again, before
  // it reads them; what it has done under the tables before is visible before its answer.
  __device__ static std::uint64_t look_at_epoch(const std::uint64_t* epoch) {
    return load_relaxed(epoch);
  }
  __device__ static void say_epoch_before_look(std::uint64_t* word, std::uint64_t v) {
    asm volatile("st.relaxed.sys.b64 [%0], %1;" ::"l"(word), "l"(v) : "memory");
    asm volatile("fence.sc.sys;" ::: "memory");
  }
  __device__ static void acquire_tables() {
    fence(FenceScope::kSystem);
  }
  __device__ static void answer_epoch_release(std::uint64_t* word, std::uint64_t v) {
    store_release(word, v, FenceScope::kSystem);
  }

  // ---- Time ------------------------------------------------------------------------------------

  // The GPU's global timer, which may tick as coarsely as a microsecond.
  __device__ static std::uint64_t now_ns() {
    std::uint64_t v = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(v));
    return v;
  }
  // Longer waits sleep, so that they leave the issue slots to others.
  __device__ static void pause(std::uint32_t turn, std::uint64_t /*until_ns*/) {
    if (turn >= kTurnsBeforeSleep) asm volatile("nanosleep.u32 %0;" ::"r"(kSleepNs));
  }

 private:
  static constexpr std::uint32_t kTurnsBeforeSleep = 4096;
  static constexpr std::uint32_t kSleepNs = 100;

  __device__ static void fence(FenceScope scope){
#define PEAL_PTX_FENCE(s) asm volatile("fence.acq_rel." s ";" ::: "memory")
      PEAL_PTX_BY_SCOPE(scope, PEAL_PTX_FENCE)
#undef PEAL_PTX_FENCE
  }  // One transaction, neither merged with others nor held back.
  __device__ static void store_mmio(std::uint64_t* p, std::uint64_t v) {
    asm volatile("st.mmio.relaxed.sys.global.b64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
  }
  __device__ static void store_release(std::uint32_t* p, std::uint32_t v, FenceScope scope){
#define PEAL_PTX_STORE(s) asm volatile("st.release." s ".b32 [%0], %1;" ::"l"(p), "r"(v) : "memory")
      PEAL_PTX_BY_SCOPE(scope, PEAL_PTX_STORE)
#undef PEAL_PTX_STORE
  } __device__ static void store_release(std::uint64_t* p, std::uint64_t v, FenceScope scope){
#define PEAL_PTX_STORE(s) asm volatile("st.release." s ".b64 [%0], %1;" ::"l"(p), "l"(v) : "memory")
      PEAL_PTX_BY_SCOPE(scope, PEAL_PTX_STORE)
#undef PEAL_PTX_STORE
  } __device__ static std::uint64_t load_acquire(const std::uint64_t* p, FenceScope scope) {
    std::uint64_t v = 0;
#define PEAL_PTX_LOAD(s) \
  asm volatile("ld.acquire." s ".b64 %0, [%1];" : "=l"(v) : "l"(p) : "memory")
    PEAL_PTX_BY_SCOPE(scope, PEAL_PTX_LOAD)
#undef PEAL_PTX_LOAD
    return v;
  }
};

}  // namespace peal

#undef PEAL_PTX_BY_SCOPE
