// One function for each ordering point and scope, and the submissions that are made of them:
// compiled to PTX, which tests/gpu/ptx_test.cpp reads. Never run.
#include "peal/device/put.hpp"
#include "peal/memory/gpu_bulk.hpp"
#include "peal/memory/gpu_memory.hpp"

namespace {

using M = peal::GpuMemory;
using peal::FenceScope;

}  // namespace

#define PEAL_FOR_SCOPES(name, parameters, call)       \
  extern "C" __global__ void name##_cta parameters {  \
    constexpr FenceScope scope = FenceScope::kBlock;  \
    call;                                             \
  }                                                   \
  extern "C" __global__ void name##_gpu parameters {  \
    constexpr FenceScope scope = FenceScope::kDevice; \
    call;                                             \
  }                                                   \
  extern "C" __global__ void name##_sys parameters {  \
    constexpr FenceScope scope = FenceScope::kSystem; \
    call;                                             \
  }

PEAL_FOR_SCOPES(store_dbrec_after_wqes, (std::uint32_t * p, std::uint32_t v),
                M::store_dbrec_after_wqes(p, v, scope))
PEAL_FOR_SCOPES(ring_doorbell_after_dbrec, (std::uint64_t * p, std::uint64_t v),
                M::ring_doorbell_after_dbrec(p, v, scope))
PEAL_FOR_SCOPES(ring_doorbell_after_wqes, (std::uint64_t * p, std::uint64_t v),
                M::ring_doorbell_after_wqes(p, v, scope))
PEAL_FOR_SCOPES(load_cqe_owner_acquire, (const std::uint32_t* p, std::uint32_t* to),
                *to = M::load_cqe_owner_acquire(p, scope))
PEAL_FOR_SCOPES(mark_ready_release, (std::uint64_t * p, std::uint64_t v),
                M::mark_ready_release(p, v, scope))
PEAL_FOR_SCOPES(load_mark_acquire, (const std::uint64_t* p, std::uint64_t* to),
                *to = M::load_mark_acquire(p, scope))
PEAL_FOR_SCOPES(add_pending_acq_rel, (std::uint64_t * p, std::uint64_t* to),
                *to = M::add_pending_acq_rel(p, 1, scope))
PEAL_FOR_SCOPES(subtract_pending_acq_rel, (std::uint64_t * p, std::uint64_t* to),
                *to = M::subtract_pending_acq_rel(p, 1, scope))
PEAL_FOR_SCOPES(load_pending_acquire, (const std::uint64_t* p, std::uint64_t* to),
                *to = M::load_pending_acquire(p, scope))
PEAL_FOR_SCOPES(store_ready_release, (std::uint64_t * p, std::uint64_t v),
                M::store_ready_release(p, v, scope))
PEAL_FOR_SCOPES(load_ready_acquire, (const std::uint64_t* p, std::uint64_t* to),
                *to = M::load_ready_acquire(p, scope))
PEAL_FOR_SCOPES(advance_completed_release, (std::uint64_t * p, std::uint64_t v),
                M::advance_completed_release(p, v, scope))
PEAL_FOR_SCOPES(load_completed_acquire, (const std::uint64_t* p, std::uint64_t* to),
                *to = M::load_completed_acquire(p, scope))
PEAL_FOR_SCOPES(try_lock_acquire, (std::uint32_t * p, std::uint64_t* to),
                *to = M::try_lock_acquire(p, scope) ? 1 : 0)
PEAL_FOR_SCOPES(unlock_release, (std::uint32_t * p), M::unlock_release(p, scope))
PEAL_FOR_SCOPES(latch_release, (std::uint64_t * p, std::uint64_t v), M::latch_release(p, v, scope))
PEAL_FOR_SCOPES(load_latch_acquire, (const std::uint64_t* p, std::uint64_t* to),
                *to = M::load_latch_acquire(p, scope))
PEAL_FOR_SCOPES(store_proxy_pi_release, (std::uint64_t * p, std::uint64_t v),
                M::store_proxy_pi_release(p, v, scope))
PEAL_FOR_SCOPES(load_signal_acquire, (const std::uint64_t* p, std::uint64_t* to),
                *to = M::load_signal_acquire(p, scope))

PEAL_FOR_SCOPES(load_count_acquire, (const std::uint32_t* p, std::uint64_t* to),
                *to = M::load_count_acquire(p, scope))
PEAL_FOR_SCOPES(store_count_release, (std::uint32_t * p, std::uint32_t v),
                M::store_count_release(p, v, scope))
PEAL_FOR_SCOPES(add_count_release, (std::uint32_t * p, std::uint32_t n),
                M::add_count_release(p, n, scope))

// The ends of a NIC on a GPU that know only one scope.
extern "C" __global__ void acquire_doorbell() {
  M::acquire_doorbell();
}
extern "C" __global__ void fence_before_atomic() {
  M::fence_before_atomic();
}
extern "C" __global__ void say_epoch_before_look(std::uint64_t* word, std::uint64_t v) {
  M::say_epoch_before_look(word, v);
}
extern "C" __global__ void acquire_tables() {
  M::acquire_tables();
}
extern "C" __global__ void answer_epoch_release(std::uint64_t* word, std::uint64_t v) {
  M::answer_epoch_release(word, v);
}

// A bulk copy, from what was acquired to what is released.
extern "C" __global__ void bulk_begin() {
  __shared__ std::uint64_t barrier;
  peal::GpuBulk::begin(&barrier);
}
extern "C" __global__ void bulk_copy(std::byte* to, const std::byte* from, std::uint32_t* count) {
  __shared__ alignas(128) std::byte buffer[64];
  __shared__ std::uint64_t barrier;
  M::load_count_acquire(count, FenceScope::kBlock);
  peal::GpuBulk::fence_after_acquire();
  peal::GpuBulk::load(buffer, from, sizeof buffer, &barrier);
  peal::GpuBulk::wait_load(&barrier, 0);
  peal::GpuBulk::store(to, buffer, sizeof buffer);
  peal::GpuBulk::wait_stores_read<0>();
  peal::GpuBulk::wait_stores<0>();
  M::add_count_release(count, 1, FenceScope::kBlock);
}

extern "C" __global__ void store_wqe_segment(peal::mlx5::Words16* p, peal::mlx5::Words16 v) {
  M::store_wqe_segment(p, v, peal::Sharing::kDevice);
}

// A whole submission of one WQE, where the queue's handle says system scope.
template <peal::DoorbellOrder D>
__device__ void submit(peal::QueueHandle q, peal::Put put) {
  q.fence_scope = FenceScope::kSystem;
  q.proxy = nullptr;
  peal::SendQueue<M, peal::Sharing::kExclusive> queue(q, {D, peal::PublishOrder::kCombine});
  peal::write_wqe(queue, 0, put);
  queue.publish({0, 1});
}
extern "C" __global__ void submit_record_ring(peal::QueueHandle q, peal::Put put) {
  submit<peal::DoorbellOrder::kRecordRing>(q, put);
}
extern "C" __global__ void submit_ring_only(peal::QueueHandle q, peal::Put put) {
  submit<peal::DoorbellOrder::kRingOnly>(q, put);
}
extern "C" __global__ void submit_ring_record_ring(peal::QueueHandle q, peal::Put put) {
  submit<peal::DoorbellOrder::kRingRecordRing>(q, put);
}
