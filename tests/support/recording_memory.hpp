// ManualMemory that writes down every store the NIC can see, in program order: WQE segments, the
// doorbell record and the doorbell; and the producer index that a proxy reads.
#pragma once

#include <cstdint>
#include <vector>

#include "support/manual_memory.hpp"

namespace peal::test {

struct RecordedStore {
  enum Kind : std::uint8_t { kWqeSegment, kDbrec, kDoorbell, kProxyPi } kind;
  const void* address;
  // A segment as it lies in memory; a record, doorbell or index value in `lo`.
  mlx5::Words16 value;

  bool operator==(const RecordedStore& o) const {
    return kind == o.kind && address == o.address && value.lo == o.value.lo &&
           value.hi == o.value.hi;
  }
};

struct RecordingMemory : ManualMemory {
  static std::vector<RecordedStore>& log() {
    static thread_local std::vector<RecordedStore> stores;
    return stores;
  }

  static void store_wqe_segment(mlx5::Words16* segment, mlx5::Words16 v, Sharing sharing) {
    log().push_back({RecordedStore::kWqeSegment, segment, v});
    ManualMemory::store_wqe_segment(segment, v, sharing);
  }
  static void store_dbrec_after_wqes(std::uint32_t* dbrec, std::uint32_t v, FenceScope scope) {
    log().push_back({RecordedStore::kDbrec, dbrec, {v, 0}});
    ManualMemory::store_dbrec_after_wqes(dbrec, v, scope);
  }
  static void ring_doorbell_after_dbrec(std::uint64_t* doorbell, std::uint64_t v,
                                        FenceScope scope) {
    log().push_back({RecordedStore::kDoorbell, doorbell, {v, 0}});
    ManualMemory::ring_doorbell_after_dbrec(doorbell, v, scope);
  }
  static void ring_doorbell_after_wqes(std::uint64_t* doorbell, std::uint64_t v, FenceScope scope) {
    log().push_back({RecordedStore::kDoorbell, doorbell, {v, 0}});
    ManualMemory::ring_doorbell_after_wqes(doorbell, v, scope);
  }
  static void store_proxy_pi_release(std::uint64_t* pi, std::uint64_t v, FenceScope scope) {
    log().push_back({RecordedStore::kProxyPi, pi, {v, 0}});
    ManualMemory::store_proxy_pi_release(pi, v, scope);
  }
};

}  // namespace peal::test
