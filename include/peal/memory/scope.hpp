// How far an ordering reaches, and how the producers of a queue share it.
#pragma once

#include <cstdint>

#include "peal/core/config.hpp"

namespace peal {

// The agents that an ordering must hold between. Between CPU threads there is one coherent domain,
// whatever it says; on a GPU it is the PTX scope, and the simulator does not synchronise across a
// distance wider than it.
enum class FenceScope : std::uint8_t {
  kBlock,
  kDevice,
  kSystem,
  kBus,  // the same, and the NIC is behind a bus: a CPU needs more than coherence (MO-18)
};

// Who else produces on this queue. It is a type parameter of the data path, because an exclusive
// queue needs no read-modify-write at all.
enum class Sharing : std::uint8_t {
  kExclusive,  // one thread
  kBlock,      // the threads of one block
  kDevice,     // any thread of the device; on the CPU, any thread of the process
};

PEAL_HOST_DEVICE constexpr FenceScope scope_of(Sharing sharing) {
  return sharing == Sharing::kDevice ? FenceScope::kDevice : FenceScope::kBlock;
}

PEAL_HOST_DEVICE constexpr const char* sharing_name(Sharing s) {
  return s == Sharing::kExclusive ? "exclusive" : s == Sharing::kBlock ? "block" : "device";
}
PEAL_HOST_DEVICE constexpr const char* scope_name(FenceScope s) {
  return s == FenceScope::kBlock    ? "block"
         : s == FenceScope::kDevice ? "device"
         : s == FenceScope::kSystem ? "system"
                                    : "bus";
}

}  // namespace peal
