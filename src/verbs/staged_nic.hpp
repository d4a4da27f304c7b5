// A software ConnectX on a CPU thread whose queues, payload or both may lie in GPU memory.
#pragma once

#include <cstdint>
#include <vector>

#include "link/forwarding.hpp"
#include "verbs/software_nic.hpp"
#include "verbs/staged_memory.hpp"

namespace peal::nic {
// Compiled once, in staged_nic.cpp.
extern template class Core<verbs::StagedMemory>;
}  // namespace peal::nic

namespace peal::verbs {

// A link that gives another one only payload that the CPU reaches. A link whose payload stays reads
// none itself; any other has copied a segment when it has taken it.
class StagedLink final : public link::ForwardingLink {
 public:
  using ForwardingLink::ForwardingLink;

  bool try_send(const link::Segment& segment) override;

 private:
  std::vector<std::byte> staged_;
};

struct StagedLinkHolder {
  StagedLink staged_link;
};

// What lies in GPU memory is in a StagedMemory::Range as long as the NIC may touch it. Once a copy
// has failed, the engine's calls throw its cause, and producers wait until their deadlines.
class StagedNic : private StagedLinkHolder, public SoftwareNicOf<StagedMemory> {
 public:
  StagedNic(const nic::CoreOptions& options, link::Link& link, const SoftwarePort& port = {})
      : StagedLinkHolder{StagedLink(link)}, SoftwareNicOf(options, staged_link, port) {}
};

}  // namespace peal::verbs
