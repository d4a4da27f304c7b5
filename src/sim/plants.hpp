// Bugs that can be planted, to show that the checkers find them. An ordering plant makes SimMemory
// ignore one end of one ordering point; a logic plant takes a line out of the data path
// (peal/memory/planted.hpp). docs/SIMULATION.md has a line on each.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace peal::sim {

enum class Plant : std::uint8_t {
  kNone,
  // MO-1 to MO-3: producer to NIC.
  kWqesBeforeRecord,
  kRecordBeforeDoorbell,
  kWqesBeforeDoorbell,
  kDoorbellAcquire,
  kRecordAcquire,
  kFenceScope,
  // MO-4: NIC to producer.
  kPayloadBeforeCqe,
  kCqeAcquire,
  // MO-5 to MO-10: between producers.
  kMarkRelease,
  kMarkAcquire,
  kPendingOrder,
  kReadyRelease,
  kReadyAcquire,
  kCompletedRelease,
  kCompletedAcquire,
  kRingLock,
  // MO-11: the proxy.
  kProxyRelease,
  kProxyAcquire,
  // MO-12: the receiver.
  kSignalRelease,
  kSignalAcquire,
  // Logic.
  kTryLockCombiner,
  kCreditCheck,
  kOwnerLap,
  kErrorLatch,
  kFirstError,
  kForwardOnly,
  kDuplicateAck,
};

struct PlantName {
  Plant plant;
  std::string_view name;
  std::string_view what;  // that it takes away
};

std::span<const PlantName> all_plants();
std::string_view plant_name(Plant plant);  // "none" for kNone
std::optional<Plant> plant_of(std::string_view name);

}  // namespace peal::sim
