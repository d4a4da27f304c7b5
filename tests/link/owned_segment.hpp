// A segment that owns its payload, and what differs between two.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "link/link.hpp"

namespace peal::test {

struct OwnedSegment {
  link::Segment segment;
  std::vector<std::byte> payload;

  link::Segment view() const {
    link::Segment s = segment;
    s.payload = payload.data();
    s.payload_bytes = static_cast<std::uint32_t>(payload.size());
    return s;
  }
};

inline OwnedSegment owned(const link::Segment& s) {
  OwnedSegment copy{s, {}};
  if (s.payload_bytes != 0) copy.payload.assign(s.payload, s.payload + s.payload_bytes);
  return copy;
}

// Compares every field; says which one differs.
inline std::string difference(const link::Segment& a, const link::Segment& b) {
  if (a.kind != b.kind) return "kind";
  if (a.ack_request != b.ack_request) return "ack_request";
  if (a.aeth_syndrome != b.aeth_syndrome) return "aeth_syndrome";
  if (a.source_qpn != b.source_qpn) return "source_qpn";
  if (a.destination_qpn != b.destination_qpn) return "destination_qpn";
  if (!(a.psn == b.psn)) return "psn";
  if (a.msn != b.msn) return "msn";
  if (a.address != b.address) return "address";
  if (a.rkey != b.rkey) return "rkey";
  if (a.message_bytes != b.message_bytes) return "message_bytes";
  if (a.original != b.original) return "original";
  if (a.immediate != b.immediate) return "immediate";
  if (a.payload_bytes != b.payload_bytes) return "payload_bytes";
  if (a.payload_bytes != 0 && std::memcmp(a.payload, b.payload, a.payload_bytes) != 0) {
    return "payload";
  }
  return "";
}

}  // namespace peal::test
