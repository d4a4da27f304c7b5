// The memory policy of simulated agents: every ordered operation of the queue protocol on the view
// machine of the current simulation. docs/MEMORY_MODEL.md explains the MO numbers. A plant makes
// one end of one of them relaxed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "peal/memory/planted.hpp"
#include "peal/memory/scope.hpp"
#include "peal/mlx5/cqe.hpp"
#include "peal/mlx5/wqe.hpp"
#include "sim/simulation.hpp"

namespace peal::sim {

class SimMemory {
 public:
  // ---- Producer to NIC -------------------------------------------------------------------------

  static void store_wqe_segment(mlx5::Words16* segment, mlx5::Words16 v, Sharing) {
    sim().scheduler().point();
    sim().store_here("store_wqe_segment", &segment->lo, 8, v.lo, Order::kRelaxed, kSystem);
    sim().store_here("store_wqe_segment", &segment->hi, 8, v.hi, Order::kRelaxed, kSystem);
  }
  static void store_dbrec_after_wqes(std::uint32_t* dbrec, std::uint32_t v, FenceScope scope) {
    store("store_dbrec_after_wqes", dbrec, v, release(Plant::kWqesBeforeRecord), outward(scope));
  }
  static void ring_doorbell_after_dbrec(std::uint64_t* doorbell, std::uint64_t v,
                                        FenceScope scope) {
    store("ring_doorbell_after_dbrec", doorbell, v, release(Plant::kRecordBeforeDoorbell),
          outward(scope));
  }
  static void ring_doorbell_after_wqes(std::uint64_t* doorbell, std::uint64_t v, FenceScope scope) {
    store("ring_doorbell_after_wqes", doorbell, v, release(Plant::kWqesBeforeDoorbell),
          outward(scope));
  }
  static void store_proxy_pi_release(std::uint64_t* pi, std::uint64_t v, FenceScope scope) {
    store("store_proxy_pi_release", pi, v, release(Plant::kProxyRelease), outward(scope));
  }

  // ---- NIC to producer -------------------------------------------------------------------------

  static std::uint32_t load_cqe_owner_acquire(const std::uint32_t* nic_owner_word,
                                              FenceScope scope) {
    return load("load_cqe_owner_acquire", nic_owner_word, acquire(Plant::kCqeAcquire),
                outward(scope));
  }
  static std::uint32_t load_cqe_body(const std::uint32_t* nic_word) {
    return load("load_cqe_body", nic_word, Order::kRelaxed, kSystem);
  }

  // ---- Between producers -----------------------------------------------------------------------

  static void mark_ready_release(std::uint64_t* mark, std::uint64_t v, FenceScope scope) {
    store("mark_ready_release", mark, v, release(Plant::kMarkRelease), scope);
  }
  static std::uint64_t load_mark_acquire(const std::uint64_t* mark, FenceScope scope) {
    return load("load_mark_acquire", mark, acquire(Plant::kMarkAcquire), scope);
  }
  static std::uint64_t add_pending_acq_rel(std::uint64_t* pending, std::uint64_t n,
                                           FenceScope scope) {
    return sim().update("add_pending_acq_rel", pending, 8, acq_rel(Plant::kPendingOrder), scope,
                        [n](std::uint64_t old) { return old + n; });
  }
  static std::uint64_t subtract_pending_acq_rel(std::uint64_t* pending, std::uint64_t n,
                                                FenceScope scope) {
    return sim().update("subtract_pending_acq_rel", pending, 8, acq_rel(Plant::kPendingOrder),
                        scope, [n](std::uint64_t old) { return old - n; });
  }
  static std::uint64_t load_pending_acquire(const std::uint64_t* pending, FenceScope scope) {
    return load("load_pending_acquire", pending, acquire(Plant::kPendingOrder), scope);
  }
  static void store_ready_release(std::uint64_t* ready, std::uint64_t v, FenceScope scope) {
    store("store_ready_release", ready, v, release(Plant::kReadyRelease), scope);
  }
  static std::uint64_t load_ready_acquire(const std::uint64_t* ready, FenceScope scope) {
    return load("load_ready_acquire", ready, acquire(Plant::kReadyAcquire), scope);
  }
  static void advance_completed_release(std::uint64_t* completed, std::uint64_t v,
                                        FenceScope scope) {
    const Order order = release(Plant::kCompletedRelease);
    if (sim().planted(Plant::kForwardOnly)) {
      return store("store_completed", completed, v, order, scope);
    }
    std::uint64_t seen = load_relaxed(completed);
    while (seen < v &&
           !sim().compare_swap("advance_completed_release", completed, 8, &seen, v, order, scope)) {
    }
  }
  static std::uint64_t load_completed_acquire(const std::uint64_t* completed, FenceScope scope) {
    return load("load_completed_acquire", completed, acquire(Plant::kCompletedAcquire), scope);
  }
  static bool try_lock_acquire(std::uint32_t* lock, FenceScope scope) {
    return sim().update("try_lock_acquire", lock, 4, acquire(Plant::kRingLock), scope,
                        [](std::uint64_t) { return std::uint64_t{1}; }) == 0;
  }
  static void unlock_release(std::uint32_t* lock, FenceScope scope) {
    store("unlock_release", lock, 0u, release(Plant::kRingLock), scope);
  }
  static void latch_release(std::uint64_t* latch, std::uint64_t v, FenceScope scope) {
    if (sim().planted(Plant::kErrorLatch)) {
      return store("store_latch", latch, v, Order::kRelease, scope);
    }
    std::uint64_t none = 0;
    sim().compare_swap("latch_release", latch, 8, &none, v, Order::kRelease, scope);
  }
  static std::uint64_t load_latch_acquire(const std::uint64_t* latch, FenceScope scope) {
    return load("load_latch_acquire", latch, Order::kAcquire, scope);
  }

  static std::uint64_t load_signal_acquire(const std::uint64_t* signal, FenceScope scope) {
    return load("load_signal_acquire", signal, acquire(Plant::kSignalAcquire), scope);
  }

  template <class T>
  static T load_relaxed(const T* p) {
    return load("load_relaxed", p, Order::kRelaxed, kSystem);
  }
  template <class T>
  static void store_relaxed(T* p, T v) {
    store("store_relaxed", p, v, Order::kRelaxed, kSystem);
  }
  static bool compare_swap_relaxed(std::uint64_t* p, std::uint64_t expected, std::uint64_t desired,
                                   FenceScope scope) {
    return sim().compare_swap("compare_swap_relaxed", p, 8, &expected, desired, Order::kRelaxed,
                              scope);
  }

  // ---- The proxy's end -------------------------------------------------------------------------

  static std::uint64_t load_proxy_pi_acquire(const std::uint64_t* pi) {
    return load("load_proxy_pi_acquire", pi, acquire(Plant::kProxyAcquire), kSystem);
  }

  // ---- The NIC's ends --------------------------------------------------------------------------

  static std::uint64_t take_doorbell_acquire(std::uint64_t* doorbell) {
    if (load("look at doorbell", doorbell, Order::kRelaxed, kSystem) == 0) return 0;
    return sim().update("take_doorbell_acquire", doorbell, 8, acquire(Plant::kDoorbellAcquire),
                        kSystem, [](std::uint64_t) { return std::uint64_t{0}; });
  }
  static std::uint32_t load_dbrec_acquire(const std::uint32_t* dbrec) {
    return load("load_dbrec_acquire", dbrec, acquire(Plant::kRecordAcquire), kSystem);
  }
  static mlx5::Slot fetch_slot(const mlx5::Slot* slot) {
    sim().scheduler().point();
    mlx5::Slot s;
    for (std::size_t i = 0; i < mlx5::kSlotBytes / mlx5::kSegmentBytes; ++i) {
      const mlx5::Words16& from = slot->segment[i];
      s.segment[i] = {sim().load_here("fetch_slot", &from.lo, 8, Order::kRelaxed, kSystem),
                      sim().load_here("fetch_slot", &from.hi, 8, Order::kRelaxed, kSystem)};
    }
    return s;
  }
  static void copy_payload(std::byte* to, const std::byte* from, std::size_t bytes) {
    sim().copy(to, from, static_cast<std::uint32_t>(bytes));
  }
  template <class T, class Next>
  static T update_signal_acq_rel(T* signal, const Next& next) {
    return static_cast<T>(sim().update(
        "update_signal_acq_rel", signal, sizeof(T), acq_rel(Plant::kSignalRelease), kSystem,
        [&next](std::uint64_t old) -> std::uint64_t { return next(static_cast<T>(old)); }));
  }
  static void store_cqe(mlx5::Cqe* entry, const mlx5::Cqe& cqe) {
    sim().scheduler().point();
    for (std::uint32_t i = 0; i < mlx5::kCqeOwnerWord; ++i) {
      sim().store_here("store_cqe", &entry->word[i], 4, cqe.word[i], Order::kRelaxed, kSystem);
    }
    store("store_cqe owner", &entry->word[mlx5::kCqeOwnerWord], cqe.word[mlx5::kCqeOwnerWord],
          release(Plant::kPayloadBeforeCqe), kSystem);
  }

  // ---- Time ------------------------------------------------------------------------------------

  static std::uint64_t now_ns() { return sim().scheduler().now_ns(); }
  static void pause(std::uint32_t, std::uint64_t until_ns) { sim().pause(until_ns); }

  // ---- Plants ----------------------------------------------------------------------------------

  static bool planted(LogicPlant plant) { return sim().planted(plant_of(plant)); }

 private:
  static constexpr FenceScope kSystem = FenceScope::kSystem;

  static Simulation& sim() { return Simulation::current(); }

  static Order release(Plant plant) {
    return sim().planted(plant) ? Order::kRelaxed : Order::kRelease;
  }
  static Order acquire(Plant plant) {
    return sim().planted(plant) ? Order::kRelaxed : Order::kAcquire;
  }
  static Order acq_rel(Plant plant) {
    return sim().planted(plant) ? Order::kRelaxed : Order::kAcqRel;
  }
  // Towards the NIC.
  static FenceScope outward(FenceScope scope) {
    return sim().planted(Plant::kFenceScope) ? FenceScope::kDevice : scope;
  }

  template <class T>
  static T load(const char* operation, const T* p, Order order, FenceScope scope) {
    return static_cast<T>(sim().load(operation, p, sizeof(T), order, scope));
  }
  template <class T>
  static void store(const char* operation, T* p, T v, Order order, FenceScope scope) {
    sim().store(operation, p, sizeof(T), v, order, scope);
  }

  static Plant plant_of(LogicPlant plant) {
    switch (plant) {
      case LogicPlant::kTryLockCombiner: return Plant::kTryLockCombiner;
      case LogicPlant::kCreditCheck: return Plant::kCreditCheck;
      case LogicPlant::kOwnerLap: return Plant::kOwnerLap;
      case LogicPlant::kFirstError: return Plant::kFirstError;
      case LogicPlant::kDuplicateAck: return Plant::kDuplicateAck;
    }
    return Plant::kNone;
  }
};

}  // namespace peal::sim
