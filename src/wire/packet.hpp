// A whole RoCEv2 packet: read from received bytes, or written. Knows formats only: no queue pair,
// no MTU, no order of packets. What is received is input: it is refused by a reason, never
// asserted.
#pragma once

#include <variant>

#include "wire/aeth.hpp"
#include "wire/atomic_ack_eth.hpp"
#include "wire/atomic_eth.hpp"
#include "wire/bth.hpp"
#include "wire/icrc.hpp"
#include "wire/ieth.hpp"
#include "wire/imm_dt.hpp"
#include "wire/ipv4.hpp"
#include "wire/ipv6.hpp"
#include "wire/reth.hpp"
#include "wire/udp.hpp"

namespace peal::wire {

// Of the extended headers only those mean something that format_of(bth.opcode) has.
struct Packet {
  Bth bth;
  Reth reth;
  AtomicEth atomic_eth;
  Aeth aeth;
  AtomicAckEth atomic_ack_eth;
  ImmDt imm_dt;
  Ieth ieth;
  Bytes payload;  // without pad; of whoever owns the bytes that were read
};

using Ip = std::variant<Ipv4, Ipv6>;

struct Datagram {
  Ip ip;
  Udp udp;
  Packet packet;
};

// Why bytes are no packet that may be taken. In the order in which they are looked for.
enum class Malformed : std::uint8_t {
  kNot,
  kTooShort,
  kIpVersion,
  kIpHeaderLength,
  kTotalLength,
  kIpChecksum,
  kFragment,
  kNotUdp,
  kUdpPort,
  kUdpLength,
  kBthVersion,
  kOpcode,
  kHeaderCutOff,
  kPayload,
  kPad,
  kPaddedPart,
  kWords,
  kIcrc,
  kCount,
};

// One clause, without a full stop.
const char* malformed_text(Malformed malformed);

// From the IP header on. Behind the datagram more may follow, such as an Ethernet frame's filling.
// `out` is whole where nothing is malformed, and otherwise undefined. A UDP checksum is not looked
// at, as the ICRC covers what it does. `port`: the only destination that is taken.
Malformed read_datagram(Bytes bytes, Datagram* out, std::uint16_t port = kRocePort);

// What a UDP socket receives, with the facts of the headers that it was behind: of `ip` and `udp`
// all but lengths and checksums. Where an ICRC alone is wrong `out` is whole too, and
// `icrc_difference`, if it is given, says which bits are: a header that is not known shows in them.
Malformed read_packet(Bytes udp_payload, const Ip& ip, const Udp& udp, Packet* out,
                      std::uint32_t* icrc_difference = nullptr);

// How many bytes the packet takes from its BTH to its ICRC, and the datagram from its IP header on;
// 0 where it cannot be written: its opcode is not known, or does not go with payload of that
// length, or the datagram is above 65535 bytes.
std::size_t bytes_of(const Packet& packet);
std::size_t bytes_of(const Datagram& datagram);

// Writes the headers in front of a UDP payload of so many bytes; returns how many bytes they take,
// which `to` must have.
std::size_t write_headers(const Ip& ip, const Udp& udp, std::size_t udp_payload_bytes,
                          std::span<std::byte> to);
inline constexpr std::size_t kHeadersBytesMax = sizeof(Ipv6Format) + sizeof(UdpFormat);

// Write all of it: lengths, IPv4 checksum, pad and ICRC are made here, whatever the values say.
// `to` must have bytes_of of them, which must not be 0; what is written is that many.
void write_datagram(const Datagram& datagram, std::span<std::byte> to);
// The UDP payload alone, to be sent behind `ip` and `udp`.
void write_packet(const Packet& packet, const Ip& ip, const Udp& udp, std::span<std::byte> to);

}  // namespace peal::wire
