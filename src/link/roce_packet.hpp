// What a segment is as a packet, and what a packet that has arrived is as a segment. Pure: knows
// addresses, and no sockets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "link/ip_address.hpp"
#include "link/link.hpp"
#include "link/roce_counters.hpp"
#include "wire/packet.hpp"

namespace peal::link {

inline constexpr std::uint32_t kRoceMtuMax = 4096;
// From the BTH to the ICRC, of a segment.
inline constexpr std::size_t kRocePacketBytesMax =
    sizeof(wire::BthFormat) + sizeof(wire::RethFormat) + sizeof(wire::ImmDtFormat) + kRoceMtuMax +
    sizeof(wire::IcrcFormat);
// The kernel numbers the packets of a train from 0 on.
inline constexpr std::uint16_t kRoceIdentifications = 64;

// The header of a packet between the two, which are of the same IP version. With IPv6 there is no
// identification.
wire::Ip ip_between(const IpAddress& source, const IpAddress& destination,
                    std::uint16_t identification = 0, std::uint8_t traffic_class = 0);

// How many bytes the segment's packet takes from its BTH to its ICRC; 0 where RoCEv2 has none.
std::size_t packet_of(const Segment& segment, std::uint16_t pkey, wire::Packet* out);

// By which bits the ICRC of an IPv4 packet with one identification differs from that with another.
// A CRC is linear, so that this is a matter of the length alone.
class IcrcShift {
 public:
  IcrcShift();
  // Identifications below kRoceIdentifications; at most kRocePacketBytesMax bytes, in words of 4.
  std::uint32_t between(std::uint16_t a, std::uint16_t b, std::size_t udp_payload_bytes);
  // The one by which the ICRC differs so from that with `a`; kRoceIdentifications where there is
  // none.
  std::uint16_t identification(std::uint16_t a, std::uint32_t difference,
                               std::size_t udp_payload_bytes);

 private:
  static constexpr std::size_t kBits = 6;
  using Basis = std::array<std::uint32_t, kBits>;  // of each bit of an identification; 0: not known
  const Basis& basis_of(std::size_t udp_payload_bytes);

  std::vector<Basis> by_words_;
};

// Takes what arrives at one end, or drops it and counts why.
class RoceReader {
 public:
  RoceReader(const IpAddress& local, std::uint16_t udp_port, std::uint16_t pkey);

  // Before it, all that arrives is a stranger's.
  void set_peer(const IpAddress& address, bool is_peal);

  // What a UDP socket received. Of a Peal's packets `identification` is the likeliest; other peers'
  // must have none, or 0. The segment's payload lies in the bytes or in this reader.
  bool read_udp(wire::Bytes udp_payload, const IpAddress& source, std::uint16_t source_port,
                std::uint16_t identification, Segment* out);
  // What came from the IP header on.
  bool read_ip(wire::Bytes datagram, Segment* out);

  // Of the last packet that read_udp took; otherwise what was given.
  std::uint16_t identification() const { return identification_; }

  // What it counts: received_packets and bytes, malformed, dropped.
  const RoceCounters& counters() const { return counters_; }

 private:
  bool take(const wire::Packet& packet, std::size_t udp_payload_bytes, Segment* out);
  bool drop(RoceDrop reason);
  bool drop(wire::Malformed reason);
  bool is_peers(const IpAddress& source) const { return has_peer_ && source == peer_; }

  IpAddress local_;
  std::uint16_t udp_port_;
  std::uint16_t pkey_;
  bool has_peer_ = false;
  bool peer_is_peal_ = false;
  IpAddress peer_;
  std::uint16_t identification_ = 0;
  std::array<std::byte, kAtomicPayloadBytes> operands_{};
  IcrcShift shift_;
  RoceCounters counters_;
};

}  // namespace peal::link
