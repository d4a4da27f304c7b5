// What a proxy does for one queue: whoever drives it, and whatever memory it works on.
#pragma once

#include <cstdint>

#include "peal/core/types.hpp"
#include "peal/device/queue_handle.hpp"
#include "peal/mlx5/doorbell.hpp"

namespace peal::host {

// What the proxy rings, and from which index on. The words must live until it has let go of them.
struct ProxyQueue {
  ProxyWord* word = nullptr;
  std::uint32_t* dbrec = nullptr;     // null: the queue has no record
  std::uint64_t* doorbell = nullptr;  // as the CPU reaches it
  Qpn qpn;
  std::uint64_t rung = 0;  // the last index that the NIC knows
  FenceScope fence_scope = FenceScope::kSystem;
};

// Rings if the producers have moved their index: any change counts, as indices that agree in their
// low bits are different indices. By one thread at a time.
template <class M>
bool ring_if_told(ProxyQueue& q) {
  const std::uint64_t pi = M::load_proxy_pi_acquire(&q.word->pi);  // MO-11
  if (pi == q.rung) return false;
  q.rung = pi;
  // Before the doorbell, so that nobody who learns of these WQEs from the NIC finds it uncounted.
  M::store_relaxed(&q.word->doorbells, q.word->doorbells + 1);
  const std::uint64_t value = mlx5::encode_doorbell(pi, q.qpn);
  if (q.dbrec == nullptr) {
    M::ring_doorbell_after_wqes(q.doorbell, value, q.fence_scope);  // MO-3
    return true;
  }
  M::store_dbrec_after_wqes(q.dbrec, mlx5::encode_dbrec(pi), q.fence_scope);  // MO-1
  M::ring_doorbell_after_dbrec(q.doorbell, value, q.fence_scope);             // MO-2
  return true;
}

}  // namespace peal::host
