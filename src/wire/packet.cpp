#include "wire/packet.hpp"

#include <cstring>

namespace peal::wire {
namespace {

constexpr std::size_t kUdpLengthMax = 65535 - sizeof(Ipv4Format);

// ---- reading ----

// Takes the header at the front of `*rest`, where it is whole.
template <class Value, class Format>
bool take(Bytes* rest, const Format* header, Value* out) {
  if (header == nullptr) return false;
  *out = decode(*header);
  *rest = rest->subspan(sizeof *header);
  return true;
}

bool take_headers(const OpcodeFormat& format, Bytes* rest, Packet* out) {
  if (format.has(kHasReth) && !take(rest, view_of<RethFormat>(*rest), &out->reth)) return false;
  if (format.has(kHasAtomicEth) && !take(rest, view_of<AtomicEthFormat>(*rest), &out->atomic_eth)) {
    return false;
  }
  if (format.has(kHasAeth) && !take(rest, view_of<AethFormat>(*rest), &out->aeth)) return false;
  if (format.has(kHasAtomicAckEth) &&
      !take(rest, view_of<AtomicAckEthFormat>(*rest), &out->atomic_ack_eth)) {
    return false;
  }
  if (format.has(kHasImmDt) && !take(rest, view_of<ImmDtFormat>(*rest), &out->imm_dt)) return false;
  return !format.has(kHasIeth) || take(rest, view_of<IethFormat>(*rest), &out->ieth);
}

// `bytes`: all of a UDP payload.
template <class IpFormat>
Malformed read_transport(const IpFormat& ip, const UdpFormat& udp, Bytes bytes, Packet* out,
                         std::uint32_t* icrc_difference = nullptr) {
  const auto* bth = view_of<BthFormat>(bytes);
  if (bth == nullptr || bytes.size() < sizeof *bth + sizeof(IcrcFormat)) {
    return Malformed::kTooShort;
  }
  const Bytes covered = bytes.subspan(sizeof *bth, bytes.size() - sizeof *bth - sizeof(IcrcFormat));
  out->bth = decode(*bth);
  if (out->bth.version != 0) return Malformed::kBthVersion;
  const OpcodeFormat* format = format_of(bth->opcode.get());
  if (format == nullptr) return Malformed::kOpcode;
  Bytes rest = covered;
  if (!take_headers(*format, &rest, out)) return Malformed::kHeaderCutOff;
  if (format->carries == Carries::kNothing && !rest.empty()) return Malformed::kPayload;
  if (rest.size() < out->bth.pad_count) return Malformed::kPad;
  if (format->carries == Carries::kWholeMtu && out->bth.pad_count != 0) {
    return Malformed::kPaddedPart;
  }
  if (rest.size() % 4 != 0) return Malformed::kWords;
  out->payload = rest.first(rest.size() - out->bth.pad_count);
  const auto* icrc = view_of<IcrcFormat>(bytes.last(sizeof(IcrcFormat)));
  const IcrcFormat right = icrc_of(ip, udp, *bth, covered);
  if (right == *icrc) return Malformed::kNot;
  if (icrc_difference != nullptr) *icrc_difference = right.get() ^ icrc->get();
  return Malformed::kIcrc;
}

std::size_t length_of(const Ipv4Format& ip) {
  return ip.total_length.get();
}
std::size_t length_of(const Ipv6Format& ip) {
  return sizeof ip + ip.payload_length.get();
}

template <class IpFormat>
bool has_length(const IpFormat& ip, std::size_t given) {
  return length_of(ip) >= sizeof ip + sizeof(UdpFormat) && length_of(ip) <= given;
}

Malformed check(const Ipv4Format& ip, std::size_t given) {
  if (ip.version_ihl.get() != kIpv4VersionIhl) return Malformed::kIpHeaderLength;
  if (!has_length(ip, given)) return Malformed::kTotalLength;
  if (ip.checksum.get() != checksum_of(ip)) return Malformed::kIpChecksum;
  if ((ip.flags_fragment.get() & (kMoreFragments | kFragmentOffsetMask)) != 0) {
    return Malformed::kFragment;
  }
  return ip.protocol.get() == kIpProtocolUdp ? Malformed::kNot : Malformed::kNotUdp;
}

Malformed check(const Ipv6Format& ip, std::size_t given) {
  if (!has_length(ip, given)) return Malformed::kTotalLength;
  if (ip.next_header.get() == kIpv6FragmentHeader) return Malformed::kFragment;
  return ip.next_header.get() == kIpProtocolUdp ? Malformed::kNot : Malformed::kNotUdp;
}

template <class IpFormat>
Malformed read_ip(Bytes bytes, std::uint16_t port, Datagram* out) {
  const auto* ip = view_of<IpFormat>(bytes);
  if (ip == nullptr) return Malformed::kTooShort;
  if (const Malformed m = check(*ip, bytes.size()); m != Malformed::kNot) return m;
  const Bytes inside = bytes.first(length_of(*ip)).subspan(sizeof *ip);
  const auto* udp = view_of<UdpFormat>(inside);
  if (udp == nullptr) return Malformed::kTooShort;
  if (udp->destination_port.get() != port) return Malformed::kUdpPort;
  if (udp->length.get() != inside.size()) return Malformed::kUdpLength;
  out->ip = decode(*ip);
  out->udp = decode(*udp);
  return read_transport(*ip, *udp, inside.subspan(sizeof *udp), &out->packet);
}

// ---- writing ----

// The headers in front of a UDP payload of so many bytes.
Ipv4Format in_front_of(Ipv4 ip, std::size_t payload_bytes) {
  ip.total_length =
      static_cast<std::uint16_t>(sizeof(Ipv4Format) + sizeof(UdpFormat) + payload_bytes);
  Ipv4Format format = encode(ip);
  format.checksum = Be<2>(checksum_of(format));
  return format;
}
Ipv6Format in_front_of(Ipv6 ip, std::size_t payload_bytes) {
  ip.payload_length = static_cast<std::uint16_t>(sizeof(UdpFormat) + payload_bytes);
  return encode(ip);
}
UdpFormat in_front_of(Udp udp, std::size_t payload_bytes) {
  udp.length = static_cast<std::uint16_t>(sizeof(UdpFormat) + payload_bytes);
  return encode(udp);
}

std::size_t pad_of(const Packet& packet) {
  return (4 - packet.payload.size() % 4) % 4;
}

std::size_t headers_bytes(const OpcodeFormat& f) {
  return (f.has(kHasReth) ? sizeof(RethFormat) : 0) +
         (f.has(kHasAtomicEth) ? sizeof(AtomicEthFormat) : 0) +
         (f.has(kHasAeth) ? sizeof(AethFormat) : 0) +
         (f.has(kHasAtomicAckEth) ? sizeof(AtomicAckEthFormat) : 0) +
         (f.has(kHasImmDt) ? sizeof(ImmDtFormat) : 0) + (f.has(kHasIeth) ? sizeof(IethFormat) : 0);
}

template <class Format>
std::byte* put(std::byte* to, const Format& format) {
  std::memcpy(to, &format, sizeof format);
  return to + sizeof format;
}

template <class IpFormat>
void write_transport(const Packet& p, const IpFormat& ip, const UdpFormat& udp, std::byte* to) {
  Bth bth = p.bth;
  bth.pad_count = static_cast<std::uint8_t>(pad_of(p));
  const BthFormat bth_format = encode(bth);
  const OpcodeFormat& format = *format_of(bth_format.opcode.get());
  to = put(to, bth_format);
  const std::byte* covered = to;
  if (format.has(kHasReth)) to = put(to, encode(p.reth));
  if (format.has(kHasAtomicEth)) to = put(to, encode(p.atomic_eth));
  if (format.has(kHasAeth)) to = put(to, encode(p.aeth));
  if (format.has(kHasAtomicAckEth)) to = put(to, encode(p.atomic_ack_eth));
  if (format.has(kHasImmDt)) to = put(to, encode(p.imm_dt));
  if (format.has(kHasIeth)) to = put(to, encode(p.ieth));
  if (!p.payload.empty()) std::memcpy(to, p.payload.data(), p.payload.size());
  to += p.payload.size();
  std::memset(to, 0, bth.pad_count);
  to += bth.pad_count;
  put(to, icrc_of(ip, udp, bth_format, Bytes(covered, to)));
}

std::size_t ip_bytes(const Ip& ip) {
  return std::holds_alternative<Ipv4>(ip) ? sizeof(Ipv4Format) : sizeof(Ipv6Format);
}

}  // namespace

const char* malformed_text(Malformed malformed) {
  switch (malformed) {
    case Malformed::kNot: return "nothing is wrong";
    case Malformed::kTooShort: return "the bytes end before the headers and the ICRC do";
    case Malformed::kIpVersion: return "the IP version is neither 4 nor 6";
    case Malformed::kIpHeaderLength:
      return "the IPv4 header is not 20 bytes long: options are not taken";
    case Malformed::kTotalLength:
      return "the length in the IP header is above the bytes that are there, or too small for UDP";
    case Malformed::kIpChecksum: return "the checksum of the IPv4 header is wrong";
    case Malformed::kFragment: return "the IP packet is a fragment";
    case Malformed::kNotUdp: return "the IP packet is not UDP";
    case Malformed::kUdpPort: return "the UDP destination port is not 4791";
    case Malformed::kUdpLength: return "the UDP length is not what the IP header leaves for it";
    case Malformed::kBthVersion: return "the transport version in the BTH is not 0";
    case Malformed::kOpcode: return "the opcode is not known";
    case Malformed::kHeaderCutOff: return "the packet ends within an extended header of its opcode";
    case Malformed::kPayload: return "the opcode has no payload, but some is there";
    case Malformed::kPad: return "the pad is longer than what lies between headers and ICRC";
    case Malformed::kPaddedPart:
      return "the packet is padded, but more of its message has to follow";
    case Malformed::kWords: return "payload and pad are not whole words of 4 bytes";
    case Malformed::kIcrc: return "the ICRC is wrong";
    case Malformed::kCount: break;
  }
  return "unknown reason";
}

Malformed read_datagram(Bytes bytes, Datagram* out, std::uint16_t port) {
  if (bytes.empty()) return Malformed::kTooShort;
  switch (std::to_integer<unsigned>(bytes[0]) >> 4) {
    case 4: return read_ip<Ipv4Format>(bytes, port, out);
    case 6: return read_ip<Ipv6Format>(bytes, port, out);
    default: return Malformed::kIpVersion;
  }
}

Malformed read_packet(Bytes udp_payload, const Ip& ip, const Udp& udp, Packet* out,
                      std::uint32_t* icrc_difference) {
  const std::size_t n = udp_payload.size();
  if (n > kUdpLengthMax - sizeof(UdpFormat)) return Malformed::kTotalLength;
  return std::visit(
      [&](const auto& v) {
        return read_transport(in_front_of(v, n), in_front_of(udp, n), udp_payload, out,
                              icrc_difference);
      },
      ip);
}

std::size_t bytes_of(const Packet& packet) {
  const OpcodeFormat* format = format_of(static_cast<std::uint8_t>(packet.bth.opcode));
  if (format == nullptr) return 0;
  if (format->carries == Carries::kNothing && !packet.payload.empty()) return 0;
  if (format->carries == Carries::kWholeMtu && pad_of(packet) != 0) return 0;
  if (packet.payload.size() > kUdpLengthMax) return 0;
  const std::size_t bytes = sizeof(BthFormat) + headers_bytes(*format) + packet.payload.size() +
                            pad_of(packet) + sizeof(IcrcFormat);
  return bytes > kUdpLengthMax - sizeof(UdpFormat) ? 0 : bytes;
}

std::size_t bytes_of(const Datagram& datagram) {
  const std::size_t bytes = bytes_of(datagram.packet);
  return bytes == 0 ? 0 : ip_bytes(datagram.ip) + sizeof(UdpFormat) + bytes;
}

std::size_t write_headers(const Ip& ip, const Udp& udp, std::size_t udp_payload_bytes,
                          std::span<std::byte> to) {
  std::byte* end = std::visit(
      [&](const auto& v) { return put(to.data(), in_front_of(v, udp_payload_bytes)); }, ip);
  return static_cast<std::size_t>(put(end, in_front_of(udp, udp_payload_bytes)) - to.data());
}

void write_datagram(const Datagram& d, std::span<std::byte> to) {
  write_packet(d.packet, d.ip, d.udp,
               to.subspan(write_headers(d.ip, d.udp, bytes_of(d.packet), to)));
}

void write_packet(const Packet& packet, const Ip& ip, const Udp& udp, std::span<std::byte> to) {
  const std::size_t n = bytes_of(packet);
  std::visit(
      [&](const auto& v) {
        write_transport(packet, in_front_of(v, n), in_front_of(udp, n), to.data());
      },
      ip);
}

}  // namespace peal::wire
