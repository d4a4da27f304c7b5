#include "verbs/staged_nic.hpp"

namespace peal::nic {

template class Core<verbs::StagedMemory>;

}  // namespace peal::nic

namespace peal::verbs {

bool StagedLink::try_send(const link::Segment& segment) {
  if (inner_.payload_stays() || segment.payload_bytes == 0 ||
      !StagedMemory::in_a_range(segment.payload)) {
    return inner_.try_send(segment);
  }
  staged_.resize(segment.payload_bytes);
  StagedMemory::copy_payload(staged_.data(), segment.payload, segment.payload_bytes);
  link::Segment copy = segment;
  copy.payload = staged_.data();
  return inner_.try_send(copy);
}

}  // namespace peal::verbs
