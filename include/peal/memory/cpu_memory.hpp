// The memory policy of CPU threads: every ordering of the queue protocol as a named operation.
// docs/MEMORY_MODEL.md explains each MO number once. Release stores and acquire loads on the word
// that carries the ordering, so that ThreadSanitizer sees true edges; fences only for a NIC behind
// a bus, beside those.
#pragma once

#include <sched.h>
#include <time.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "peal/memory/bus.hpp"
#include "peal/memory/scope.hpp"
#include "peal/mlx5/cqe.hpp"
#include "peal/mlx5/wqe.hpp"

namespace peal {

struct CpuMemory {
  // ---- Producer to NIC -------------------------------------------------------------------------

  // A WQE segment, seen by nobody until a later operation publishes it.
  static void store_wqe_segment(mlx5::Words16* segment, mlx5::Words16 v, Sharing sharing) {
    if (sharing == Sharing::kExclusive) {
      *segment = v;
    } else {
      // 8-byte stores: a 16-byte atomic would take a lock.
      word(&segment->lo).store(v.lo, std::memory_order_relaxed);
      word(&segment->hi).store(v.hi, std::memory_order_relaxed);
    }
  }

  // MO-1: the WQEs are visible to whoever reads this record value.
  static void store_dbrec_after_wqes(std::uint32_t* dbrec, std::uint32_t v, FenceScope scope) {
    if (scope == FenceScope::kBus) bus::memory_before_memory();  // MO-18
    word(dbrec).store(v, std::memory_order_release);
  }
  // MO-2: the record, and the WQEs before it, are visible to whoever reads this doorbell value.
  static void ring_doorbell_after_dbrec(std::uint64_t* doorbell, std::uint64_t v,
                                        FenceScope scope) {
    ring(doorbell, v, scope);
  }
  // MO-3: as MO-2, where no record has been written yet for these WQEs.
  static void ring_doorbell_after_wqes(std::uint64_t* doorbell, std::uint64_t v, FenceScope scope) {
    ring(doorbell, v, scope);
  }

  // MO-11: the WQEs are visible to the proxy that reads this producer index, and so to whom it
  // rings.
  static void store_proxy_pi_release(std::uint64_t* pi, std::uint64_t v, FenceScope) {
    word(pi).store(v, std::memory_order_release);
  }

  // ---- NIC to producer -------------------------------------------------------------------------

  // MO-4, reading end: what the NIC wrote before this word, payload included, is visible after it.
  static std::uint32_t load_cqe_owner_acquire(const std::uint32_t* nic_owner_word,
                                              FenceScope scope) {
    const std::uint32_t v = word(nic_owner_word).load(std::memory_order_acquire);
    if (scope == FenceScope::kBus) bus::loads_after_load();  // MO-18
    return v;
  }
  // A word of a CQE whose owner word has been acquired. In a collapsed CQ the next one may be on
  // its way over it.
  static std::uint32_t load_cqe_body(const std::uint32_t* nic_word) {
    return word(nic_word).load(std::memory_order_relaxed);
  }

  // ---- Between producers -----------------------------------------------------------------------

  // MO-5: a reservation's WQEs before its mark.
  static void mark_ready_release(std::uint64_t* mark, std::uint64_t v, FenceScope) {
    word(mark).store(v, std::memory_order_release);
  }
  static std::uint64_t load_mark_acquire(const std::uint64_t* mark, FenceScope) {
    return word(mark).load(std::memory_order_acquire);
  }
  // MO-6: the count of publishers that wait to be combined. Every step is a read-modify-write, so
  // each sees all before it and no publisher is missed.
  static std::uint64_t add_pending_acq_rel(std::uint64_t* pending, std::uint64_t n, FenceScope) {
    return word(pending).fetch_add(n, std::memory_order_acq_rel);
  }
  static std::uint64_t subtract_pending_acq_rel(std::uint64_t* pending, std::uint64_t n,
                                                FenceScope) {
    return word(pending).fetch_sub(n, std::memory_order_acq_rel);
  }
  static std::uint64_t load_pending_acquire(const std::uint64_t* pending, FenceScope) {
    return word(pending).load(std::memory_order_acquire);
  }
  // MO-7: in-order publishing; whoever continues at `v` sees all WQEs before it.
  static void store_ready_release(std::uint64_t* ready, std::uint64_t v, FenceScope) {
    word(ready).store(v, std::memory_order_release);
  }
  static std::uint64_t load_ready_acquire(const std::uint64_t* ready, FenceScope) {
    return word(ready).load(std::memory_order_acquire);
  }
  // MO-8: completions before the reuse of their slots. Forward only.
  static void advance_completed_release(std::uint64_t* completed, std::uint64_t v, FenceScope) {
    auto w = word(completed);
    std::uint64_t seen = w.load(std::memory_order_relaxed);
    while (seen < v && !w.compare_exchange_weak(seen, v, std::memory_order_release,
                                                std::memory_order_relaxed)) {
    }
  }
  static std::uint64_t load_completed_acquire(const std::uint64_t* completed, FenceScope) {
    return word(completed).load(std::memory_order_acquire);
  }
  // MO-9: the ring lock of in-order publishing.
  static bool try_lock_acquire(std::uint32_t* lock, FenceScope) {
    return word(lock).exchange(1, std::memory_order_acquire) == 0;
  }
  static void unlock_release(std::uint32_t* lock, FenceScope) {
    word(lock).store(0, std::memory_order_release);
  }
  // MO-10: the error latch. The first value stays.
  static void latch_release(std::uint64_t* latch, std::uint64_t v, FenceScope) {
    std::uint64_t none = 0;
    word(latch).compare_exchange_strong(none, v, std::memory_order_release,
                                        std::memory_order_relaxed);
  }
  static std::uint64_t load_latch_acquire(const std::uint64_t* latch, FenceScope) {
    return word(latch).load(std::memory_order_acquire);
  }

  // MO-12, reading end: the receiver of a signal sees the payload that was placed before it.
  static std::uint64_t load_signal_acquire(const std::uint64_t* signal, FenceScope) {
    return word(signal).load(std::memory_order_acquire);
  }

  // Counters that order nothing. `reserved` needs no order of its own: slots are disjoint, and
  // their reuse is ordered by MO-8.
  template <class T>
  static T load_relaxed(const T* p) {
    return word(p).load(std::memory_order_relaxed);
  }
  template <class T>
  static void store_relaxed(T* p, T v) {
    word(p).store(v, std::memory_order_relaxed);
  }
  static bool compare_swap_relaxed(std::uint64_t* p, std::uint64_t expected, std::uint64_t desired,
                                   FenceScope) {
    return word(p).compare_exchange_weak(expected, desired, std::memory_order_relaxed);
  }

  // ---- The proxy's end -------------------------------------------------------------------------

  // MO-11, reading end. Ringing on is MO-1 and MO-2.
  static std::uint64_t load_proxy_pi_acquire(const std::uint64_t* pi) {
    return word(pi).load(std::memory_order_acquire);
  }

  // ---- The NIC's ends --------------------------------------------------------------------------

  // MO-2 and MO-3, reading end: takes what was rung since the last time, or 0. A ring is an event
  // on hardware; taking it makes a later ring of the same value a new one.
  static std::uint64_t take_doorbell_acquire(std::uint64_t* doorbell) {
    // Looked at first, so that an idle register is not taken from its producer's cache.
    if (word(doorbell).load(std::memory_order_relaxed) == 0) return 0;
    return word(doorbell).exchange(0, std::memory_order_acquire);
  }
  // MO-1, reading end.
  static std::uint32_t load_dbrec_acquire(const std::uint32_t* dbrec) {
    return word(dbrec).load(std::memory_order_acquire);
  }
  static mlx5::Slot fetch_slot(const mlx5::Slot* slot) { return *slot; }
  // Payload moves by library calls, which ThreadSanitizer intercepts.
  static void copy_payload(std::byte* to, const std::byte* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
  }
  // MO-12, writing end: what was placed before is visible to whoever reads the new value. Of 4 or 8
  // bytes; returns the old value.
  template <class T, class Next>
  static T update_signal_acq_rel(T* signal, const Next& next) {
    auto w = word(signal);
    T seen = w.load(std::memory_order_relaxed);
    while (!w.compare_exchange_weak(seen, next(seen), std::memory_order_acq_rel,
                                    std::memory_order_relaxed)) {
    }
    return seen;
  }
  // MO-4, writing end: bytes 0-59 first, then the owner word. Relaxed stores, as a copy of constant
  // size is expanded where ThreadSanitizer does not see it.
  static void store_cqe(mlx5::Cqe* entry, const mlx5::Cqe& cqe) {
    for (std::uint32_t i = 0; i < mlx5::kCqeOwnerWord; ++i) {
      word(&entry->word[i]).store(cqe.word[i], std::memory_order_relaxed);
    }
    word(&entry->word[mlx5::kCqeOwnerWord])
        .store(cqe.word[mlx5::kCqeOwnerWord], std::memory_order_release);
  }

  // ---- Time ------------------------------------------------------------------------------------

  // Monotonic nanoseconds.
  static std::uint64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u +
           static_cast<std::uint64_t>(t.tv_nsec);
  }
  // One turn of a polling loop, the `turn`-th in a row without success, that ends at `until_ns`; a
  // policy may sleep until then if nothing that was polled changes. Yields when the wait grows
  // long: with fewer cores than threads, what is waited for may need this one.
  static void pause(std::uint32_t turn, std::uint64_t /*until_ns*/ = 0) {
    if (kProcessHasOneCpu) {
      // Whoever is waited for runs while this thread does not; to yield, the kernel does not heed
      // for milliseconds.
      constexpr timespec kShortest{0, 1};
      nanosleep(&kShortest, nullptr);
    } else if (turn < kTurnsBeforeYield) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    } else {
      sched_yield();
    }
  }

 private:
  static constexpr std::uint32_t kTurnsBeforeYield = 256;

  // As the process was when it loaded this, mostly at its start: a thread that later pins itself to
  // one CPU waits for threads on others.
  static inline const bool kProcessHasOneCpu = [] {
    cpu_set_t cpus;
    return sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) == 1;
  }();

  static void ring(std::uint64_t* doorbell, std::uint64_t v, FenceScope scope) {
    const bool behind_bus = scope == FenceScope::kBus;
    if (behind_bus) bus::around_register();  // MO-18
    word(doorbell).store(v, std::memory_order_release);
    if (behind_bus) bus::around_register();
  }

  template <class T>
  static std::atomic_ref<T> word(T* p) {
    return std::atomic_ref<T>(*p);
  }
  // std::atomic_ref<const T> arrives with C++26; loading through it changes nothing.
  template <class T>
  static std::atomic_ref<T> word(const T* p) {
    return std::atomic_ref<T>(*const_cast<T*>(p));
  }
};

}  // namespace peal
