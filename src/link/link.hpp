// What travels between two NICs, and the one interface by which it does.
// A link knows nothing of queues or memory keys. One thread steps both its ends' NICs or one of
// them; each end of a link belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "peal/core/types.hpp"

namespace peal::link {

// Numbered as the RC opcodes of the BTH (IBTA 9.2), so that a wire format needs no table.
enum class SegmentKind : std::uint8_t {
  kWriteFirst = 6,
  kWriteMiddle = 7,
  kWriteLast = 8,
  kWriteOnly = 10,
  kAcknowledge = 17,
};

// AETH syndromes (IBTA 9.7.5.2).
inline constexpr std::uint8_t kAethAck = 0x1f;  // ACK, credit field "not limited"
inline constexpr std::uint8_t kAethNakSequence = 0x60;
inline constexpr std::uint8_t kAethNakInvalidRequest = 0x61;
inline constexpr std::uint8_t kAethNakRemoteAccess = 0x62;
inline constexpr std::uint8_t kAethNakRemoteOperation = 0x63;

// One transport segment. `payload` is a view: see Link for how long it must live.
struct Segment {
  SegmentKind kind = SegmentKind::kAcknowledge;
  bool ack_request = false;
  std::uint8_t aeth_syndrome = 0;  // acknowledge only
  Qpn source_qpn;                  // the sender's QP: a lossless link tells it, the wire does not
  Qpn destination_qpn;
  Psn psn;                          // of the segment's first packet
  std::uint32_t msn = 0;            // acknowledge only
  std::uint64_t address = 0;        // first and only: the RETH
  Rkey rkey;                        // first and only
  std::uint32_t message_bytes = 0;  // first and only: the whole message
  const std::byte* payload = nullptr;
  std::uint32_t payload_bytes = 0;
};

// One end of a link. Never blocks.
class Link {
 public:
  virtual ~Link() = default;

  // The most payload bytes that one segment may carry.
  virtual std::uint32_t max_payload_bytes() const = 0;

  // Takes one segment, or returns false when there is no room now: try again later. The payload
  // must stay readable until the segment has been acknowledged or discarded.
  virtual bool try_send(const Segment& segment) = 0;

  // Gives the next segment that has arrived. Its payload view is valid until the next call.
  virtual bool try_receive(Segment* segment) = 0;

  // Forgets the segments that this end has taken from `source_qpn`, with `from` and later PSNs, and
  // still refers to by pointer, so that their payload's memory may be freed.
  virtual void discard(Qpn source_qpn, Psn from) = 0;

  // True while something that this end took has not left it, or has arrived and was not received.
  virtual bool busy() const = 0;

  // True once the other end can never be heard again.
  virtual bool closed() const = 0;
};

}  // namespace peal::link
