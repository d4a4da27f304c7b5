// The memory policy of a NIC on the CPU whose queues or payload may lie where the CPU has no
// addresses, in GPU memory: each access to a registered range is a copy by that range's table, any
// other is CpuMemory's. docs/MEMORY_MODEL.md says what carries each ordering.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "peal/memory/cpu_memory.hpp"
#include "verbs/verbs.hpp"

namespace peal::verbs {

// Any thread. A copy that fails throws Error with its cause, and whatever the NIC was doing ends
// there: nothing is completed after it.
class StagedMemory {
 public:
  // The `bytes` from `begin` on are reached by `table`, as long as this lives: longer than what is
  // registered there with a NIC. Throws Error (EINVAL) if another range shares some of them.
  class Range {
   public:
    Range(void* begin, std::size_t bytes, std::shared_ptr<DeviceMemory> table);
    ~Range();
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;

   private:
    std::uintptr_t begin_;
  };

  static bool in_a_range(const void* p);

  // ---- The NIC's ends --------------------------------------------------------------------------

  // A doorbell is always in memory that the CPU reaches: taking it by two copies would lose rings.
  static std::uint64_t take_doorbell_acquire(std::uint64_t* doorbell) {
    return CpuMemory::take_doorbell_acquire(doorbell);
  }
  static std::uint32_t load_dbrec_acquire(const std::uint32_t* dbrec);
  static mlx5::Slot fetch_slot(const mlx5::Slot* slot);
  template <class T>
  static T load_relaxed(const T* p) {
    T v{};
    return read(&v, p, sizeof v) ? v : CpuMemory::load_relaxed(p);
  }
  static void copy_payload(std::byte* to, const std::byte* from, std::size_t bytes);
  // In a range it is a read and a write: atomic among what the NICs of one engine do, and with
  // nobody else (as IBV_ATOMIC_HCA says of a device).
  template <class T, class Next>
  static T update_signal_acq_rel(T* signal, const Next& next) {
    T seen{};
    if (!read(&seen, signal, sizeof seen)) return CpuMemory::update_signal_acq_rel(signal, next);
    const T then = next(seen);
    write(signal, &then, sizeof then);
    return seen;
  }
  // The body has been copied before the owner word is.
  static void store_cqe(mlx5::Cqe* entry, const mlx5::Cqe& cqe);

 private:
  // False where the address lies in no range: nothing was copied.
  static bool read(void* to, const void* from, std::size_t bytes);
  static bool write(void* to, const void* from, std::size_t bytes);
};

}  // namespace peal::verbs
