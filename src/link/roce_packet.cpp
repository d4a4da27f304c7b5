#include "link/roce_packet.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "nic/atomic.hpp"

namespace peal::link {
namespace {

constexpr std::uint16_t kFullMember = 0x8000;
constexpr std::size_t kV4Prefix = 12;  // of an IPv4 address as a GID

wire::Ipv4Address v4_of(const IpAddress& address) {
  wire::Ipv4Address v4;
  std::memcpy(v4.data(), address.bytes.data() + kV4Prefix, v4.size());
  return v4;
}
wire::Ipv6Address v6_of(const IpAddress& address) {
  return std::bit_cast<wire::Ipv6Address>(address.bytes);
}
IpAddress address_of(const wire::Ipv4Address& v4) {
  IpAddress address;
  address.bytes[10] = address.bytes[11] = 0xff;
  std::memcpy(address.bytes.data() + kV4Prefix, v4.data(), v4.size());
  return address;
}
IpAddress address_of(const wire::Ipv6Address& v6) {
  return {std::bit_cast<std::array<std::uint8_t, 16>>(v6)};
}

bool is_in_partition(std::uint16_t a, std::uint16_t b) {
  return ((a ^ b) & ~unsigned{kFullMember}) == 0 && ((a | b) & kFullMember) != 0;
}

bool is_segment(wire::Opcode opcode) {
  return opcode >= wire::Opcode::kWriteFirst && opcode <= wire::Opcode::kFetchAdd;
}

}  // namespace

wire::Ip ip_between(const IpAddress& source, const IpAddress& destination,
                    std::uint16_t identification, std::uint8_t traffic_class) {
  if (source.is_v4()) {
    return wire::Ipv4{.tos = traffic_class,
                      .identification = identification,
                      .source = v4_of(source),
                      .destination = v4_of(destination)};
  }
  return wire::Ipv6{
      .traffic_class = traffic_class, .source = v6_of(source), .destination = v6_of(destination)};
}

std::size_t packet_of(const Segment& s, std::uint16_t pkey, wire::Packet* out) {
  const wire::OpcodeFormat* format = wire::format_of(static_cast<std::uint8_t>(s.kind));
  if (format == nullptr || s.payload_bytes > kRoceMtuMax) return 0;
  out->bth = {.opcode = static_cast<wire::Opcode>(s.kind),
              .mig_req = true,
              .pkey = pkey,
              .dest_qp = s.destination_qpn,
              .ack_request = s.ack_request,
              .psn = s.psn};
  out->payload = wire::Bytes(s.payload, s.payload_bytes);
  if (is_atomic(s.kind)) {
    if (s.payload_bytes != kAtomicPayloadBytes) return 0;
    const nic::AtomicOperands o = nic::decode_operands(s.payload);
    const bool compares = s.kind == SegmentKind::kCompareSwap;
    out->atomic_eth = {.address = s.address,
                       .rkey = s.rkey,
                       .swap_or_add = o.swap_or_add,
                       .compare = compares ? o.compare : 0};
    out->payload = {};
  }
  out->reth = {.address = s.address, .rkey = s.rkey, .length = s.message_bytes};
  out->aeth = {.syndrome = s.aeth_syndrome, .msn = s.msn};
  out->atomic_ack_eth = {.original = s.original};
  out->imm_dt = {.data = s.immediate};
  return wire::bytes_of(*out);
}

// ---- IcrcShift ----

IcrcShift::IcrcShift() : by_words_(kRocePacketBytesMax / 4 + 1) {}

std::uint32_t IcrcShift::between(std::uint16_t a, std::uint16_t b, std::size_t udp_payload_bytes) {
  const Basis& basis = basis_of(udp_payload_bytes);
  std::uint32_t difference = 0;
  for (unsigned bits = (unsigned{a} ^ b) % kRoceIdentifications; bits != 0; bits &= bits - 1) {
    difference ^= basis[static_cast<std::size_t>(std::countr_zero(bits))];
  }
  return difference;
}

std::uint16_t IcrcShift::identification(std::uint16_t a, std::uint32_t difference,
                                        std::size_t udp_payload_bytes) {
  std::uint16_t b = 0;
  while (b < kRoceIdentifications && between(a, b, udp_payload_bytes) != difference) ++b;
  return b;
}

const IcrcShift::Basis& IcrcShift::basis_of(std::size_t udp_payload_bytes) {
  static constexpr std::array<std::byte, kRocePacketBytesMax> kZeros{};
  Basis& basis = by_words_[udp_payload_bytes / 4];
  if (basis[0] != 0) return basis;
  const wire::Bytes rest = wire::Bytes(kZeros).first(udp_payload_bytes - sizeof(wire::BthFormat) -
                                                     sizeof(wire::IcrcFormat));
  const auto crc_with = [&](std::uint16_t identification) {
    return wire::icrc_of(encode(wire::Ipv4{.identification = identification}), {}, {}, rest).get();
  };
  for (std::size_t bit = 0; bit < kBits; ++bit) {
    basis[bit] = crc_with(static_cast<std::uint16_t>(1u << bit)) ^ crc_with(0);
  }
  return basis;
}

// ---- RoceReader ----

RoceReader::RoceReader(const IpAddress& local, std::uint16_t udp_port, std::uint16_t pkey)
    : local_(local), udp_port_(udp_port), pkey_(pkey) {}

void RoceReader::set_peer(const IpAddress& address, bool is_peal) {
  has_peer_ = true;
  peer_ = address;
  peer_is_peal_ = is_peal;
}

bool RoceReader::read_udp(wire::Bytes udp_payload, const IpAddress& source,
                          std::uint16_t source_port, std::uint16_t identification, Segment* out) {
  identification_ = identification;
  if (!is_peers(source)) return drop(RoceDrop::kStranger);
  const wire::Udp udp{.source_port = source_port, .destination_port = udp_port_};
  wire::Packet packet;
  std::uint32_t difference = 0;
  wire::Malformed malformed = wire::read_packet(
      udp_payload, ip_between(source, local_, identification), udp, &packet, &difference);
  if (malformed == wire::Malformed::kIcrc && peer_is_peal_ && local_.is_v4() &&
      udp_payload.size() <= kRocePacketBytesMax) {
    const std::uint16_t found =
        shift_.identification(identification, difference, udp_payload.size());
    if (found < kRoceIdentifications) {
      identification_ = found;
      malformed = wire::Malformed::kNot;
    }
  }
  if (malformed != wire::Malformed::kNot) return drop(malformed);
  return take(packet, udp_payload.size(), out);
}

bool RoceReader::read_ip(wire::Bytes bytes, Segment* out) {
  // Looked at before all else, as a UDP socket's is.
  const auto* v4 = wire::view_of<wire::Ipv4Format>(bytes);
  if (v4 != nullptr && local_.is_v4() && !is_peers(address_of(v4->source))) {
    return drop(RoceDrop::kStranger);
  }
  wire::Datagram datagram;
  const wire::Malformed malformed = wire::read_datagram(bytes, &datagram, udp_port_);
  if (malformed != wire::Malformed::kNot) return drop(malformed);
  const auto [source, destination] = std::visit(
      [](const auto& ip) { return std::pair(address_of(ip.source), address_of(ip.destination)); },
      datagram.ip);
  if (!is_peers(source)) return drop(RoceDrop::kStranger);
  if (!(destination == local_)) return drop(RoceDrop::kDestination);
  return take(datagram.packet, datagram.udp.length - sizeof(wire::UdpFormat), out);
}

bool RoceReader::take(const wire::Packet& p, std::size_t udp_payload_bytes, Segment* out) {
  if (!is_in_partition(p.bth.pkey, pkey_)) return drop(RoceDrop::kPartition);
  if (!is_segment(p.bth.opcode)) return drop(RoceDrop::kOpcode);
  if (p.payload.size() > kRoceMtuMax) return drop(RoceDrop::kOversized);
  const wire::OpcodeFormat& format = *wire::format_of(static_cast<std::uint8_t>(p.bth.opcode));
  Segment s;
  s.kind = static_cast<SegmentKind>(p.bth.opcode);
  s.ack_request = p.bth.ack_request;
  s.destination_qpn = p.bth.dest_qp;
  s.psn = p.bth.psn;
  s.payload_bytes = static_cast<std::uint32_t>(p.payload.size());
  s.payload = p.payload.empty() ? nullptr : p.payload.data();
  if (format.has(wire::kHasReth)) {
    s.address = p.reth.address;
    s.rkey = p.reth.rkey;
    s.message_bytes = p.reth.length;
  }
  if (format.has(wire::kHasAtomicEth)) {
    // Of a fetch-add the rest would be a boundary: it has none.
    nic::AtomicOperands operands{.swap_or_add = p.atomic_eth.swap_or_add};
    if (s.kind == SegmentKind::kCompareSwap) {
      operands.compare = p.atomic_eth.compare;
      operands.swap_mask = operands.compare_mask = ~std::uint64_t{0};
    }
    encode(operands, operands_.data());
    s.address = p.atomic_eth.address;
    s.rkey = p.atomic_eth.rkey;
    s.message_bytes = sizeof p.atomic_eth.swap_or_add;
    s.payload_bytes = kAtomicPayloadBytes;
    s.payload = operands_.data();
  }
  if (format.has(wire::kHasAeth)) {
    s.aeth_syndrome = p.aeth.syndrome;
    s.msn = p.aeth.msn;
  }
  if (format.has(wire::kHasAtomicAckEth)) s.original = p.atomic_ack_eth.original;
  if (format.has(wire::kHasImmDt)) s.immediate = p.imm_dt.data;
  ++counters_.received_packets;
  counters_.received_bytes += udp_payload_bytes;
  *out = s;
  return true;
}

bool RoceReader::drop(RoceDrop reason) {
  ++counters_.dropped[static_cast<std::size_t>(reason)];
  return false;
}
bool RoceReader::drop(wire::Malformed reason) {
  ++counters_.malformed[static_cast<std::size_t>(reason)];
  return false;
}

// ---- Counters ----

const char* drop_text(RoceDrop drop) {
  switch (drop) {
    case RoceDrop::kStranger: return "the packet is not from the peer's address";
    case RoceDrop::kDestination: return "the packet is not for this end's address";
    case RoceDrop::kPartition: return "the packet is of another partition";
    case RoceDrop::kOpcode: return "no queue pair here takes the opcode";
    case RoceDrop::kOversized: return "there is more payload than the largest MTU";
    case RoceDrop::kCount: break;
  }
  return "unknown reason";
}

std::uint64_t RoceCounters::all_dropped() const {
  std::uint64_t all = 0;
  for (const std::uint64_t n : malformed) all += n;
  for (const std::uint64_t n : dropped) all += n;
  return all;
}

}  // namespace peal::link
