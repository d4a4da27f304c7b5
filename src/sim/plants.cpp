#include "sim/plants.hpp"

#include <algorithm>

namespace peal::sim {
namespace {

constexpr PlantName kPlants[] = {
    {Plant::kWqesBeforeRecord, "wqes-before-record", "MO-1: the record does not release the WQEs"},
    {Plant::kRecordBeforeDoorbell, "record-before-doorbell",
     "MO-2: the doorbell releases neither record nor WQEs"},
    {Plant::kWqesBeforeDoorbell, "wqes-before-doorbell",
     "MO-3: a doorbell without a record in front does not release the WQEs"},
    {Plant::kDoorbellAcquire, "doorbell-acquire",
     "MO-2, MO-3: the NIC does not acquire a doorbell"},
    {Plant::kRecordAcquire, "record-acquire", "MO-1: the NIC does not acquire the record"},
    {Plant::kFenceScope, "fence-scope", "MO-1 to MO-4: device scope, where the NIC is farther"},
    {Plant::kPayloadBeforeCqe, "payload-before-cqe", "MO-4: the CQE does not release the payload"},
    {Plant::kCqeAcquire, "cqe-acquire", "MO-4: the poller does not acquire the CQE"},
    {Plant::kMarkRelease, "mark-release", "MO-5: a mark does not release its WQEs"},
    {Plant::kMarkAcquire, "mark-acquire", "MO-5: the combiner does not acquire a mark"},
    {Plant::kPendingOrder, "pending-order", "MO-6: the count of publishers orders nothing"},
    {Plant::kReadyRelease, "ready-release", "MO-7: a publisher does not release its WQEs"},
    {Plant::kReadyAcquire, "ready-acquire", "MO-7: a publisher does not acquire its predecessor's"},
    {Plant::kCompletedRelease, "completed-release", "MO-8: completions are not released"},
    {Plant::kCompletedAcquire, "completed-acquire", "MO-8: completions are not acquired"},
    {Plant::kRingLock, "ring-lock", "MO-9: the ring lock orders nothing"},
    {Plant::kProxyRelease, "proxy-release", "MO-11: the index does not release the WQEs"},
    {Plant::kProxyAcquire, "proxy-acquire", "MO-11: the proxy does not acquire the index"},
    {Plant::kSignalRelease, "signal-release", "MO-12: a signal does not release the payload"},
    {Plant::kSignalAcquire, "signal-acquire", "MO-12: the receiver does not acquire the signal"},
    {Plant::kTryLockCombiner, "try-lock-combiner",
     "the combiner is a lock that is tried, and a look after it is released, not a count"},
    {Plant::kCreditCheck, "credit-check", "a reservation does not wait for room in the ring"},
    {Plant::kOwnerLap, "owner-lap", "a CQE of an earlier lap is taken for this one's"},
    {Plant::kErrorLatch, "error-latch", "a later error takes the place of the first"},
    {Plant::kFirstError, "first-error", "the error that was met is latched, not the first"},
    {Plant::kForwardOnly, "forward-only", "`completed` may go back"},
    {Plant::kDuplicateAck, "duplicate-ack", "a write that comes again is not acknowledged again"},
};

}  // namespace

std::span<const PlantName> all_plants() {
  return kPlants;
}

std::string_view plant_name(Plant plant) {
  for (const PlantName& p : kPlants) {
    if (p.plant == plant) return p.name;
  }
  return "none";
}

std::optional<Plant> plant_of(std::string_view name) {
  for (const PlantName& p : kPlants) {
    if (p.name == name) return p.plant;
  }
  return std::nullopt;
}

}  // namespace peal::sim
