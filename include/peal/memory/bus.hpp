// What a CPU adds to MO-1 to MO-4 where the NIC is a device behind a bus (FenceScope::kBus, MO-18):
// the same barriers in the same places as rdma-core has them. Coherence is enough between CPU
// threads; a device sees memory by another path, and its register may be write-combining.
#pragma once

namespace peal::bus {

// Stores to memory before it come before stores to memory after it, for a device that reads both.
inline void memory_before_memory() {
#if defined(__x86_64__)
  asm volatile("" ::: "memory");  // stores to ordinary memory are seen in order
#elif defined(__aarch64__)
  asm volatile("dmb oshst" ::: "memory");
#else
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

// Stores to memory before it come before a store to the register after it, and what the register's
// write buffer holds leaves for the device. To be put in front of a ring, and behind it.
inline void around_register() {
#if defined(__x86_64__)
  asm volatile("sfence" ::: "memory");
#elif defined(__aarch64__)
  asm volatile("dsb st" ::: "memory");
#else
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

// What the device wrote before the word that was loaded in front of this is loaded after it.
inline void loads_after_load() {
#if defined(__x86_64__)
  asm volatile("" ::: "memory");  // loads of ordinary memory are made in order
#elif defined(__aarch64__)
  asm volatile("dmb oshld" ::: "memory");
#else
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

}  // namespace peal::bus
