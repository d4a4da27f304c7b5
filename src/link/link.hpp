// What travels between two NICs, and the one interface by which it does.
// A link knows nothing of queues or memory keys. One thread steps both its ends' NICs or one of
// them; each end of a link belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "peal/core/types.hpp"
#include "wire/opcode.hpp"
#include "wire/syndrome.hpp"

namespace peal::link {

constexpr std::uint8_t number_of(wire::Opcode opcode) {
  return static_cast<std::uint8_t>(opcode);
}

// Numbered as the opcodes of a reliable connection, so that a wire format needs no table. Masked
// atomics have none: they use two that are left to manufacturers.
enum class SegmentKind : std::uint8_t {
  kWriteFirst = number_of(wire::Opcode::kWriteFirst),
  kWriteMiddle = number_of(wire::Opcode::kWriteMiddle),
  kWriteLast = number_of(wire::Opcode::kWriteLast),
  kWriteLastImmediate = number_of(wire::Opcode::kWriteLastImmediate),
  kWriteOnly = number_of(wire::Opcode::kWriteOnly),
  kWriteOnlyImmediate = number_of(wire::Opcode::kWriteOnlyImmediate),
  kReadRequest = number_of(wire::Opcode::kReadRequest),
  kReadResponseFirst = number_of(wire::Opcode::kReadResponseFirst),
  kReadResponseMiddle = number_of(wire::Opcode::kReadResponseMiddle),
  kReadResponseLast = number_of(wire::Opcode::kReadResponseLast),
  kReadResponseOnly = number_of(wire::Opcode::kReadResponseOnly),
  kAcknowledge = number_of(wire::Opcode::kAcknowledge),
  kAtomicAcknowledge = number_of(wire::Opcode::kAtomicAcknowledge),
  kCompareSwap = number_of(wire::Opcode::kCompareSwap),
  kFetchAdd = number_of(wire::Opcode::kFetchAdd),
  kMaskedCompareSwap = 0xd3,
  kMaskedFetchAdd = 0xd4,
};

// Which half of the other end a segment is for: its responder, or its requester.
enum class SegmentRole : std::uint8_t { kRequest, kResponse };

constexpr SegmentRole role_of(SegmentKind kind) {
  return kind >= SegmentKind::kReadResponseFirst && kind <= SegmentKind::kAtomicAcknowledge
             ? SegmentRole::kResponse
             : SegmentRole::kRequest;
}
constexpr bool is_masked(SegmentKind kind) {
  return kind == SegmentKind::kMaskedCompareSwap || kind == SegmentKind::kMaskedFetchAdd;
}
constexpr bool is_atomic(SegmentKind kind) {
  return kind == SegmentKind::kCompareSwap || kind == SegmentKind::kFetchAdd || is_masked(kind);
}

// AETH syndromes.
inline constexpr std::uint8_t kAethAck =
    wire::aeth_syndrome(wire::AethKind::kAck, wire::kCreditNotLimited);
inline constexpr std::uint8_t kAethKindMask = 0xe0;
inline constexpr std::uint8_t kAethNakNoReceive =  // in its low bits the RNR timer
    wire::aeth_syndrome(wire::AethKind::kRnrNak, 0);
inline constexpr std::uint8_t kAethNakSequence = wire::aeth_syndrome(wire::NakCode::kPsnSequence);
inline constexpr std::uint8_t kAethNakInvalidRequest =
    wire::aeth_syndrome(wire::NakCode::kInvalidRequest);
inline constexpr std::uint8_t kAethNakRemoteAccess =
    wire::aeth_syndrome(wire::NakCode::kRemoteAccess);
inline constexpr std::uint8_t kAethNakRemoteOperation =
    wire::aeth_syndrome(wire::NakCode::kRemoteOperation);

// An atomic's operands as a payload; nic/atomic.hpp says what they are.
inline constexpr std::uint32_t kAtomicPayloadBytes = 32;

// One transport segment. `payload` is a view: see Link for how long it must live.
struct Segment {
  SegmentKind kind = SegmentKind::kAcknowledge;
  bool ack_request = false;
  std::uint8_t aeth_syndrome = 0;  // acknowledges only
  Qpn source_qpn;                  // the sender's; 0 once it came by a link that cannot tell
  Qpn destination_qpn;
  Psn psn;                          // of the segment's first packet
  std::uint32_t msn = 0;            // acknowledges only
  std::uint32_t immediate = 0;      // the kinds that have one in their name
  Rkey rkey;                        // first, only, read request and atomics: the RETH
  std::uint32_t message_bytes = 0;  // likewise: the whole message, or an atomic's operand
  std::uint64_t address = 0;        // likewise
  std::uint64_t original = 0;       // atomic acknowledge only: what was there before
  std::uint32_t payload_bytes = 0;
  const std::byte* payload = nullptr;  // an atomic's are its operands
};

static_assert(sizeof(Segment) == 64, "one line: a loopback hands millions over in a second");

// To discard(): as many as can be told to be later.
inline constexpr std::int32_t kAllLaterPsns = 1 << 23;

// Whether it is one that discard() of these forgets, where it is referred to by pointer.
constexpr bool is_discarded(const Segment& s, Qpn source_qpn, SegmentRole role, Psn from,
                            std::int32_t psns) {
  return s.source_qpn == source_qpn && s.payload != nullptr && role_of(s.kind) == role &&
         s.psn.since(from) >= 0 && s.psn.since(from) < psns;
}

// False where it tells that another QP has sent it.
constexpr bool may_be_from(const Segment& s, Qpn qpn) {
  return s.source_qpn == Qpn() || s.source_qpn == qpn;
}

// How much of what one NIC has sent may be unanswered at once, over all its QPs.
struct InFlight {
  std::uint32_t packets = 1u << 22;
  std::uint64_t payload_bytes = std::uint64_t{1} << 62;
};

// One end of a link. Never blocks.
class Link {
 public:
  virtual ~Link() = default;

  // False where segments may be lost, come twice or overtake each other. Each is one packet of its
  // QP's MTU then, and is sent again until it is answered.
  virtual bool lossless() const { return true; }

  // What the way to the other end, and its room, hold.
  virtual InFlight most_in_flight() const { return {}; }

  // Whether masked atomics can be told to the other end: RoCE has no opcodes for them.
  virtual bool carries_masked_atomics() const { return true; }

  // The most payload bytes that one segment may carry.
  virtual std::uint32_t max_payload_bytes() const = 0;

  // Takes one segment, or returns false when there is no room now: try again later. The payload
  // must stay readable until the segment has been answered or discarded.
  virtual bool try_send(const Segment& segment) = 0;

  // Gives the next segment that has arrived. Its payload view is valid until the next call, or, if
  // payload_stays(), until the segment has been answered or discarded.
  virtual bool try_receive(Segment* segment) = 0;
  virtual bool payload_stays() const = 0;

  // Forgets the segments of this role that this end has taken from `source_qpn`, with one of the
  // `psns` PSNs from `from` on, and still refers to by pointer, so that their payload's memory may
  // be freed. True if there were any.
  virtual bool discard(Qpn source_qpn, SegmentRole role, Psn from, std::int32_t psns) = 0;

  // True while something that this end took has not left it, or has arrived and was not received.
  virtual bool busy() const = 0;

  // True once the other end can never be heard again.
  virtual bool closed() const = 0;
};

}  // namespace peal::link
