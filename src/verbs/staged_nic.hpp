// A software ConnectX on a CPU thread whose queues, payload or both may lie in GPU memory.
#pragma once

#include <cstdint>
#include <vector>

#include "link/link.hpp"
#include "verbs/software_nic.hpp"
#include "verbs/staged_memory.hpp"

namespace peal::nic {
// Compiled once, in staged_nic.cpp.
extern template class Core<verbs::StagedMemory>;
}  // namespace peal::nic

namespace peal::verbs {

// A link that gives another one only payload that the CPU reaches. A link whose payload stays reads
// none itself; any other has copied a segment when it has taken it.
class StagedLink final : public link::Link {
 public:
  explicit StagedLink(link::Link& link) : link_(link) {}

  bool lossless() const override { return link_.lossless(); }
  link::InFlight most_in_flight() const override { return link_.most_in_flight(); }
  bool carries_masked_atomics() const override { return link_.carries_masked_atomics(); }
  std::uint32_t max_payload_bytes() const override { return link_.max_payload_bytes(); }
  bool try_send(const link::Segment& segment) override;
  bool try_receive(link::Segment* segment) override { return link_.try_receive(segment); }
  bool payload_stays() const override { return link_.payload_stays(); }
  bool discard(Qpn source_qpn, link::SegmentRole role, Psn from, std::int32_t psns) override {
    return link_.discard(source_qpn, role, from, psns);
  }
  bool busy() const override { return link_.busy(); }
  bool closed() const override { return link_.closed(); }

 private:
  link::Link& link_;
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
