// What a RoCE link makes of whatever arrives. Input: bit 0 to make its ICRC right first, bit 1 for
// whole IP packets, bit 2 for a peer that is a Peal, bit 3 for IPv6 (1); the bytes.
#include <algorithm>
#include <cstring>
#include <vector>

#include "fuzz/fuzz.hpp"
#include "link/roce_packet.hpp"

namespace peal::link {
namespace {

using test::require;
using Buffer = std::vector<std::byte>;

constexpr std::uint16_t kPort = wire::kRocePort;
constexpr std::uint16_t kSourcePort = 49152;
constexpr std::uint16_t kPkey = 0xffff;

struct Ends {
  IpAddress local;
  IpAddress peer;
};

Ends ends_of(bool v6) {
  Ends ends{ip_address_from("10.0.0.1").value(), ip_address_from("10.0.0.2").value()};
  if (v6) ends = {ip_address_from("fe80::1").value(), ip_address_from("fe80::2").value()};
  return ends;
}

// Writes over the end of a UDP payload the ICRC that it should have there.
void make_right(Buffer* bytes, const Ends& ends, bool is_whole) {
  constexpr std::size_t kLeast = sizeof(wire::BthFormat) + sizeof(wire::IcrcFormat);
  const std::size_t headers = is_whole ? sizeof(wire::Ipv4Format) + sizeof(wire::UdpFormat) : 0;
  if (bytes->size() < headers + kLeast || bytes->size() > 65535) return;
  const wire::Ip ip = ip_between(ends.peer, ends.local);
  const wire::Udp udp{.source_port = kSourcePort, .destination_port = kPort};
  const std::size_t payload_bytes = bytes->size() - headers;
  std::array<std::byte, wire::kHeadersBytesMax> in_front;
  const std::size_t in_front_bytes = write_headers(ip, udp, payload_bytes, in_front);
  if (is_whole) std::copy_n(in_front.begin(), headers, bytes->begin());
  const wire::Bytes front = wire::Bytes(in_front).first(in_front_bytes);
  const wire::Bytes all = wire::Bytes(*bytes).subspan(headers);
  const auto& udp_format = *wire::view_of<wire::UdpFormat>(front.last(sizeof(wire::UdpFormat)));
  const auto& bth = *wire::view_of<wire::BthFormat>(all);
  const wire::Bytes rest = all.subspan(sizeof bth, all.size() - kLeast);
  const wire::IcrcFormat icrc =
      ends.local.is_v4() ? icrc_of(*wire::view_of<wire::Ipv4Format>(front), udp_format, bth, rest)
                         : icrc_of(*wire::view_of<wire::Ipv6Format>(front), udp_format, bth, rest);
  std::memcpy(bytes->data() + bytes->size() - sizeof icrc, &icrc, sizeof icrc);
}

void check_segment(const Segment& s, const Buffer& bytes) {
  require(s.source_qpn == Qpn(0), "a packet does not tell its source's QPN");
  require(s.payload_bytes <= kRoceMtuMax, "no payload is above the largest MTU");
  require((s.payload == nullptr) == (s.payload_bytes == 0), "a payload is of some bytes");
  require(
      is_atomic(s.kind) || s.payload == nullptr ||
          (s.payload >= bytes.data() && s.payload + s.payload_bytes <= bytes.data() + bytes.size()),
      "a payload lies within what arrived");
  require(!is_atomic(s.kind) || s.payload_bytes == kAtomicPayloadBytes, "an atomic has operands");
  wire::Packet packet;
  require(packet_of(s, kPkey, &packet) != 0, "what is received can be sent");
}

void check_arrival(Buffer bytes, unsigned how) {
  const bool is_whole = (how & 2) != 0;
  const Ends ends = ends_of(!is_whole && (how & 8) != 0);
  if ((how & 1) != 0) make_right(&bytes, ends, is_whole);
  RoceReader reader(ends.local, kPort, kPkey);
  Segment s;
  const auto read = [&] {
    return is_whole ? reader.read_ip(bytes, &s)
                    : reader.read_udp(bytes, ends.peer, kSourcePort, 0, &s);
  };
  require(!read(), "nothing is taken before there is a peer");
  reader.set_peer(ends.peer, (how & 4) != 0);
  const std::uint64_t dropped = reader.counters().all_dropped();
  require(dropped == 1, "what is dropped is counted once");
  const bool taken = read();
  require(reader.counters().received_packets == (taken ? 1u : 0u), "what is taken is counted");
  require(reader.counters().all_dropped() == dropped + (taken ? 0 : 1),
          "all else is counted by one reason");
  require(reader.identification() < kRoceIdentifications, "a train has an end");
  if (taken) check_segment(s, bytes);
}

}  // namespace
}  // namespace peal::link

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  if (bytes < 1) return 0;
  const auto* from = reinterpret_cast<const std::byte*>(data + 1);
  peal::link::check_arrival({from, from + bytes - 1}, data[0]);
  return 0;
}
