// The threads that act as one producer. All of them make the same calls with the same arguments,
// and each holds the same counters; one, the leader, reserves, publishes and waits, and all write
// WQEs.
//
//   struct Group {
//     std::uint32_t rank() const;           // 0 is the leader
//     std::uint32_t size() const;
//     void sync() const;                    // MO-13
//     T from_leader(T value) const;         // of 4 or 8 bytes
//     std::uint32_t leading(n, pred) const; // how many of pred(0) to pred(n - 1) hold before one
//     does not
//   };
//
// Groups of GPU threads are in peal/memory/gpu_group.hpp.
#pragma once

#include <cstdint>

#include "peal/core/config.hpp"

namespace peal {

struct OneThread {
  PEAL_HOST_DEVICE std::uint32_t rank() const { return 0; }
  PEAL_HOST_DEVICE std::uint32_t size() const { return 1; }
  PEAL_HOST_DEVICE void sync() const {}
  template <class T>
  PEAL_HOST_DEVICE T from_leader(T value) const {
    return value;
  }
  template <class Pred>
  PEAL_HOST_DEVICE std::uint32_t leading(std::uint32_t n, Pred pred) const {
    std::uint32_t k = 0;
    while (k < n && pred(k)) ++k;
    return k;
  }
};

}  // namespace peal
