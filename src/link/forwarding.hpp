// A link in front of another one, which does what that does: for those that change a part of it.
#pragma once

#include "link/link.hpp"

namespace peal::link {

// `inner` must outlive it.
class ForwardingLink : public Link {
 public:
  explicit ForwardingLink(Link& inner) : inner_(inner) {}

  bool lossless() const override { return inner_.lossless(); }
  InFlight most_in_flight() const override { return inner_.most_in_flight(); }
  bool carries_masked_atomics() const override { return inner_.carries_masked_atomics(); }
  std::uint32_t max_payload_bytes() const override { return inner_.max_payload_bytes(); }
  bool try_send(const Segment& segment) override { return inner_.try_send(segment); }
  bool try_receive(Segment* segment) override { return inner_.try_receive(segment); }
  bool payload_stays() const override { return inner_.payload_stays(); }
  bool discard(Qpn source_qpn, SegmentRole role, Psn from, std::int32_t psns) override {
    return inner_.discard(source_qpn, role, from, psns);
  }
  bool busy() const override { return inner_.busy(); }
  bool closed() const override { return inner_.closed(); }

 protected:
  Link& inner_;
};

}  // namespace peal::link
