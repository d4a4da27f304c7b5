// What a RoceLink has sent and received, and why it dropped what it dropped.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "wire/packet.hpp"

namespace peal::link {

// Why a packet is not taken that is not malformed. In the order in which they are looked for: a
// stranger's before it is read at all.
enum class RoceDrop : std::uint8_t {
  kStranger,     // not from the peer's address, or before there is a peer
  kDestination,  // not for this link's address
  kPartition,    // of another partition, or of this one's limited members to another
  kOpcode,       // known, but no segment of a link: SEND, unreliable, congestion notification
  kOversized,    // more payload than the largest MTU
  kCount,
};

// One clause, without a full stop.
const char* drop_text(RoceDrop drop);

struct RoceCounters {
  std::uint64_t sent_packets = 0;      // that the kernel took
  std::uint64_t sent_bytes = 0;        // of UDP payload
  std::uint64_t sent_calls = 0;        // system calls that sent them
  std::uint64_t received_packets = 0;  // handed on
  std::uint64_t received_bytes = 0;
  std::uint64_t received_calls = 0;  // system calls that brought any

  // Dropped on arrival.
  std::array<std::uint64_t, static_cast<std::size_t>(wire::Malformed::kCount)> malformed{};
  std::array<std::uint64_t, static_cast<std::size_t>(RoceDrop::kCount)> dropped{};
  std::uint64_t overflowed = 0;  // by the kernel, as its buffer was full

  // Lost before they left.
  std::uint64_t unsendable = 0;   // no RoCE packet, or there was no peer yet
  std::uint64_t too_long = 0;     // for the path's MTU
  std::uint64_t unreachable = 0;  // sends that an ICMP error or a missing route refused

  std::uint64_t of(wire::Malformed m) const { return malformed[static_cast<std::size_t>(m)]; }
  std::uint64_t of(RoceDrop d) const { return dropped[static_cast<std::size_t>(d)]; }
  // All that arrived and was not handed on, without what overflowed.
  std::uint64_t all_dropped() const;
};

}  // namespace peal::link
