#include "decode/packet.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <variant>

#include "wire/ethernet.hpp"
#include "wire/packet.hpp"

namespace peal::decode {
namespace {

using wire::AethKind;
using wire::Carries;

constexpr std::size_t kLeastBytes = sizeof(wire::BthFormat) + sizeof(wire::IcrcFormat);
constexpr std::uint32_t kVlanTagBytes = 4;
constexpr std::size_t kMostBytes = 65535 + sizeof(wire::EthernetFormat) + kVlanTagBytes;
constexpr std::uint32_t kPayloadLineBytes = 16;

std::string bytes_text(std::uint64_t n) {
  return fmt::format("{} byte{}", n, n == 1 ? "" : "s");
}

std::string mac_text(const wire::MacAddress& a) {
  std::string text;
  for (const std::byte b : a) {
    text += fmt::format("{}{:02x}", text.empty() ? "" : ":", std::to_integer<unsigned>(b));
  }
  return text;
}

template <class Address>
std::string ip_text(const Address& a) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(sizeof a == sizeof(wire::Ipv4Address) ? AF_INET : AF_INET6, a.data(), text,
            sizeof text);
  return text;
}

std::string dscp_text(unsigned traffic_class) {
  return fmt::format("DSCP {}, ECN {}", traffic_class >> 2, traffic_class & 3);
}

std::string protocol_text(unsigned protocol) {
  return fmt::format("{}, {}", protocol, protocol == wire::kIpProtocolUdp ? "UDP" : "not UDP");
}

std::string icrc_text(const wire::IcrcFormat& icrc) {
  std::string text;
  for (const std::byte b : icrc.bytes) {
    text += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  }
  return text;
}

std::string syndrome_text(std::uint8_t syndrome) {
  const unsigned value = wire::aeth_value(syndrome);
  switch (wire::aeth_kind(syndrome)) {
    case AethKind::kAck:
      return value == wire::kCreditNotLimited
                 ? fmt::format("0x{:02x}: ACK, credit not limited", syndrome)
                 : fmt::format("0x{:02x}: ACK, credit code {}", syndrome, value);
    case AethKind::kRnrNak:
      return fmt::format("0x{:02x}: RNR NAK, no receive was posted; wait {} us", syndrome,
                         wire::rnr_timer_us(wire::aeth_value(syndrome)));
    case AethKind::kReserved: return fmt::format("0x{:02x}: reserved", syndrome);
    case AethKind::kNak:
      return fmt::format("0x{:02x}: NAK, {}", syndrome, wire::nak_text(wire::aeth_value(syndrome)));
  }
  return "";
}

const char* mend_of_nak(std::uint8_t code) {
  switch (static_cast<wire::NakCode>(code)) {
    case wire::NakCode::kPsnSequence:
      return "send again from this PSN on: the packet that had it did not arrive";
    case wire::NakCode::kInvalidRequest:
      return "check that the responder's QP allows the operation, and that opcodes and lengths of "
             "the message's packets follow each other";
    case wire::NakCode::kRemoteAccess:
      return "check that the request's rkey is that of a region which covers address and length "
             "and "
             "may be accessed so";
    case wire::NakCode::kRemoteOperation: return "look at the responder's own errors";
    case wire::NakCode::kInvalidRdRequest: break;
  }
  return "check the responder: it does not send this to an RC QP";
}

class PacketDecoder {
 public:
  PacketDecoder(std::span<const std::uint8_t> bytes, PacketStart from)
      : view_(bytes), bytes_(std::as_bytes(bytes)), from_(from), end_(view_.end()) {
    out_.title = "packet: its BTH is not reached";
  }

  Decoded run() {
    if (from_ == PacketStart::kGuessed) guess();
    if ((from_ != PacketStart::kEthernet || ethernet()) && (from_ == PacketStart::kBth || ip())) {
      transport();
    }
    return std::move(out_);
  }

 private:
  void field(std::uint32_t offset, std::uint32_t size, const char* name, std::string meaning) {
    out_.fields.push_back({offset, view_.hex(offset, size), name, std::move(meaning)});
  }
  void wrong(std::string what, std::string mend) {
    out_.findings.push_back({std::move(what), std::move(mend)});
  }
  void note(std::string what) { out_.findings.push_back({std::move(what), ""}); }

  // The header at the place that is reached, which is passed; null and said where it is cut off.
  template <class Format>
  const Format* take(const char* name) {
    const Format* header = wire::view_of<Format>(bytes_.subspan(at_, end_ - at_));
    if (header == nullptr) {
      wrong(
          fmt::format("the {} at byte {} has {} bytes, but {} left there", name, at_,
                      sizeof(Format), end_ - at_ == 1 ? "1 is" : fmt::format("{} are", end_ - at_)),
          "give the packet to its end, and check where it begins (--from) and its lengths");
      return nullptr;
    }
    at_ += static_cast<std::uint32_t>(sizeof(Format));
    return header;
  }

  void guess() {
    const unsigned version = view_.u8(0) >> 4;
    const auto holds_ip = [this](std::uint32_t type_at) {
      if (!view_.has(type_at, 3)) return false;
      const unsigned type = view_.u16(type_at);
      const unsigned inner = view_.u8(type_at + 2) >> 4;
      return (type == wire::kEtherTypeIpv4 && inner == 4) ||
             (type == wire::kEtherTypeIpv6 && inner == 6);
    };
    if (holds_ip(12) || (view_.u16(12) == wire::kEtherTypeVlan && holds_ip(16))) {
      from_ = PacketStart::kEthernet;
      note("the bytes were taken to begin with an Ethernet header; --from says otherwise");
    } else if (version == 4 || version == 6) {
      from_ = PacketStart::kIp;
      note("the bytes were taken to begin with an IP header; --from says otherwise");
    } else {
      from_ = PacketStart::kBth;
      note("the bytes were taken to begin with a BTH; --from says otherwise");
    }
  }

  // ---- up to the UDP payload ----

  // Whether IP follows.
  bool ethernet() {
    const auto* h = take<wire::EthernetFormat>("Ethernet header");
    if (h == nullptr) return false;
    field(0, 6, "eth_destination", mac_text(h->destination));
    field(6, 6, "eth_source", mac_text(h->source));
    unsigned type = h->ether_type.get();
    if (type == wire::kEtherTypeVlan && view_.has(at_, kVlanTagBytes)) {
      const unsigned tag = view_.u16(at_);
      field(12, 4, "vlan_tag", fmt::format("VLAN {}, priority {}", tag & 0xfff, tag >> 13));
      at_ += kVlanTagBytes;
      type = view_.u16(at_ - 2);
    }
    const bool v4 = type == wire::kEtherTypeIpv4;
    const bool v6 = type == wire::kEtherTypeIpv6;
    field(at_ - 2, 2, "ether_type",
          fmt::format("0x{:04x}, {}", type,
                      v4   ? "IPv4"
                      : v6 ? "IPv6"
                           : "neither IPv4 nor IPv6"));
    if (!v4 && !v6) {
      wrong(
          fmt::format("the Ethernet type 0x{:04x} is neither that of IPv4 nor of IPv6", type),
          "give the frame of a RoCEv2 packet; RoCE v1 (0x8915) and other tunnels are not decoded");
    }
    return v4 || v6;
  }

  // Whether a UDP payload was reached.
  bool ip() {
    if (at_ == end_) return take<wire::Ipv4Format>("IP header") != nullptr;
    const unsigned version = view_.u8(at_) >> 4;
    if (version == 4) return ipv4() && udp();
    if (version == 6) return ipv6() && udp();
    field(at_, 1, "version", fmt::format("{}", version));
    wrong(fmt::format("the IP version is {}, neither 4 nor 6", version),
          "check where the bytes begin, and say it by --from");
    return false;
  }

  bool ipv4() {
    const std::uint32_t at = at_;
    const auto* f = take<wire::Ipv4Format>("IPv4 header");
    if (f == nullptr) return false;
    const wire::Ipv4 h = wire::decode(*f);
    const unsigned header_bytes = (f->version_ihl.get() & 0xfu) * 4;
    const unsigned offset = (h.flags_fragment & wire::kFragmentOffsetMask) * 8u;
    const bool more = (h.flags_fragment & wire::kMoreFragments) != 0;
    const std::uint16_t sum = checksum_of(*f);
    field(at, 1, "version_ihl", fmt::format("version 4, header of {} bytes", header_bytes));
    field(at + 1, 1, "tos", dscp_text(h.tos));
    field(at + 2, 2, "total_length", bytes_text(h.total_length));
    field(at + 4, 2, "identification", fmt::format("0x{:04x}", h.identification));
    field(at + 6, 2, "flags_fragment",
          fmt::format("don't fragment {}, more fragments {}, offset {}",
                      (h.flags_fragment & wire::kDontFragment) != 0 ? 1 : 0, more ? 1 : 0, offset));
    field(at + 8, 1, "ttl", fmt::format("{}", h.ttl));
    field(at + 9, 1, "protocol", protocol_text(h.protocol));
    field(at + 10, 2, "header_checksum",
          fmt::format("0x{:04x}, {}", h.checksum, h.checksum == sum ? "right" : "wrong"));
    field(at + 12, 4, "ip_source", ip_text(h.source));
    field(at + 16, 4, "ip_destination", ip_text(h.destination));
    if (h.checksum != sum) {
      wrong(fmt::format("the IPv4 header's checksum is 0x{:04x}, but 0x{:04x} is right", h.checksum,
                        sum),
            "compute it last, over the header as it is sent");
    }
    if (header_bytes != sizeof(wire::Ipv4Format)) {
      wrong(fmt::format("the IPv4 header counts {}, not 20", bytes_text(header_bytes)),
            "send it without options: byte 0 is 0x45");
      return false;
    }
    if (more || offset != 0) {
      wrong("the IP packet is a fragment",
            "send with don't-fragment, and no more than the path MTU");
      return false;
    }
    ip_ = *f;
    return is_udp(h.protocol) && has_length("total_length", h.total_length, at, 28);
  }

  bool ipv6() {
    const std::uint32_t at = at_;
    const auto* f = take<wire::Ipv6Format>("IPv6 header");
    if (f == nullptr) return false;
    const wire::Ipv6 h = wire::decode(*f);
    field(at, 4, "version_class_flow",
          fmt::format("version 6, {}, flow label 0x{:05x}", dscp_text(h.traffic_class),
                      h.flow_label));
    field(at + 4, 2, "payload_length", bytes_text(h.payload_length));
    field(at + 6, 1, "next_header", protocol_text(h.next_header));
    field(at + 7, 1, "hop_limit", fmt::format("{}", h.hop_limit));
    field(at + 8, 16, "ip_source", ip_text(h.source));
    field(at + 24, 16, "ip_destination", ip_text(h.destination));
    ip_ = *f;
    return is_udp(h.next_header) && has_length("payload_length", h.payload_length, at_, 8);
  }

  bool is_udp(unsigned protocol) {
    if (protocol == wire::kIpProtocolUdp) return true;
    wrong(fmt::format("the IP packet is of protocol {}, not 17", protocol),
          "give a packet of UDP: RoCEv2 is sent without IPv6 extension headers too");
    return false;
  }

  // `length` counts from byte `from` on and must be `least`.
  bool has_length(const char* name, std::uint32_t length, std::uint32_t from, std::uint32_t least) {
    if (length < least) {
      wrong(fmt::format("{} is {}, too few for a UDP header", name, length),
            "set it to all bytes up to the end of the ICRC");
      return false;
    }
    if (length > end_ - from) {
      wrong(fmt::format("{} counts {}, but {} given", name, bytes_text(length),
                        end_ - from == 1 ? "1 is" : fmt::format("{} are", end_ - from)),
            "give the whole packet: a capture may have cut it off");
      cut_off_ = true;
      return true;
    }
    if (length < end_ - from) {
      note(fmt::format("{} behind the IP packet were not decoded",
                       bytes_text(end_ - from - length)));
    }
    end_ = from + length;
    return true;
  }

  bool udp() {
    const std::uint32_t at = at_;
    const auto* f = take<wire::UdpFormat>("UDP header");
    if (f == nullptr) return false;
    const wire::Udp h = wire::decode(*f);
    const bool roce = h.destination_port == wire::kRocePort;
    field(at, 2, "udp_source_port", fmt::format("{}", h.source_port));
    field(at + 2, 2, "udp_destination_port",
          fmt::format("{}, {}", h.destination_port, roce ? "RoCEv2" : "not RoCEv2"));
    field(at + 4, 2, "udp_length", bytes_text(h.length));
    field(at + 6, 2, "udp_checksum",
          h.checksum == 0 ? "none" : fmt::format("0x{:04x}, not checked", h.checksum));
    if (!roce) {
      wrong(fmt::format("the UDP destination port is {}, not 4791", h.destination_port),
            "send to 4791");
    }
    if (!cut_off_ && h.length != end_ - at) {
      wrong(
          fmt::format("udp_length is {}, but the IP header leaves {} for UDP", h.length, end_ - at),
          "let both count all bytes up to the end of the ICRC");
    }
    udp_ = *f;
    return true;
  }

  // ---- from the BTH on ----

  void transport() {
    const std::uint32_t at = at_;
    const auto* f = take<wire::BthFormat>("BTH");
    if (f == nullptr) return;
    bth_ = wire::decode(*f);
    const std::uint8_t opcode = f->opcode.get();
    const wire::OpcodeFormat* format = wire::format_of(opcode);
    name_ = format == nullptr ? fmt::format("unknown opcode 0x{:02x}", opcode)
            : opcode == static_cast<std::uint8_t>(wire::Opcode::kCongestionNotification)
                ? std::string(format->name)
                : fmt::format("{} {}", wire::transport_name(opcode), format->name);
    out_.title =
        fmt::format("packet: {}, QPN 0x{:x}, PSN {}", name_, bth_.dest_qp.value, bth_.psn.value);
    bth_fields(at, opcode);
    if (bth_.version != 0) {
      wrong(fmt::format("the transport version is {}, not 0", bth_.version),
            "clear the low 4 bits of the BTH's second byte");
    }
    if (format == nullptr) {
      wrong(fmt::format("opcode 0x{:02x} ({}) is none of RC, UC or CNP", opcode,
                        wire::transport_name(opcode)),
            "check where the bytes begin (--from) and how they were printed (--words); UD, RD and "
            "XRC are not decoded");
      return;
    }
    if (headers(*format)) behind_headers(*f, *format, at);
  }

  void bth_fields(std::uint32_t at, std::uint8_t opcode) {
    const auto bit = [](bool b) { return b ? 1 : 0; };
    field(at, 1, "opcode", fmt::format("0x{:02x}, {}", opcode, name_));
    field(at + 1, 1, "se_m_pad_tver",
          fmt::format("solicited {}, mig_req {}, pad {}, version {}", bit(bth_.solicited),
                      bit(bth_.mig_req), bth_.pad_count, bth_.version));
    field(at + 2, 2, "pkey", fmt::format("0x{:04x}", bth_.pkey));
    field(at + 4, 1, "fecn_becn", fmt::format("FECN {}, BECN {}", bit(bth_.fecn), bit(bth_.becn)));
    field(at + 5, 3, "dest_qp", fmt::format("0x{:x} ({})", bth_.dest_qp.value, bth_.dest_qp.value));
    field(at + 8, 1, "ack_request", fmt::format("{}", bit(bth_.ack_request)));
    field(at + 9, 3, "psn", fmt::format("{}", bth_.psn.value));
  }

  // Whether all those of the opcode are there.
  bool headers(const wire::OpcodeFormat& format) {
    return (!format.has(wire::kHasReth) || reth()) &&
           (!format.has(wire::kHasAtomicEth) || atomic_eth()) &&
           (!format.has(wire::kHasAeth) || aeth()) &&
           (!format.has(wire::kHasAtomicAckEth) || atomic_ack_eth()) &&
           (!format.has(wire::kHasImmDt) || imm_dt()) && (!format.has(wire::kHasIeth) || ieth());
  }

  bool reth() {
    const std::uint32_t at = at_;
    const auto* f = take<wire::RethFormat>("RETH");
    if (f == nullptr) return false;
    reth_ = wire::decode(*f);
    field(at, 8, "remote_address", fmt::format("0x{:x}", reth_->address));
    field(at + 8, 4, "rkey", fmt::format("0x{:08x}", reth_->rkey.value));
    field(at + 12, 4, "dma_length", bytes_text(reth_->length) + ", of the whole message");
    return true;
  }

  bool atomic_eth() {
    const std::uint32_t at = at_;
    const auto* f = take<wire::AtomicEthFormat>("AtomicETH");
    if (f == nullptr) return false;
    const wire::AtomicEth h = wire::decode(*f);
    const bool add = bth_.opcode == wire::Opcode::kFetchAdd;
    field(at, 8, "remote_address", fmt::format("0x{:x}", h.address));
    field(at + 8, 4, "rkey", fmt::format("0x{:08x}", h.rkey.value));
    field(at + 12, 8, add ? "add" : "swap",
          fmt::format("0x{:x} ({})", h.swap_or_add, h.swap_or_add));
    field(at + 20, 8, "compare",
          add ? "not used by this opcode" : fmt::format("0x{:x} ({})", h.compare, h.compare));
    if (h.address % 8 != 0) {
      wrong(
          fmt::format("the remote address 0x{:x} of the atomic is not a multiple of 8", h.address),
          "align the target to 8 bytes");
    }
    return true;
  }

  bool aeth() {
    const std::uint32_t at = at_;
    const auto* f = take<wire::AethFormat>("AETH");
    if (f == nullptr) return false;
    const wire::Aeth h = wire::decode(*f);
    field(at, 1, "syndrome", syndrome_text(h.syndrome));
    field(at + 1, 3, "msn", fmt::format("{}", h.msn));
    if (wire::aeth_kind(h.syndrome) == AethKind::kNak) {
      const std::uint8_t code = wire::aeth_value(h.syndrome);
      wrong(fmt::format("the responder refuses: {} (syndrome 0x{:02x}) at PSN {}",
                        wire::nak_text(code), h.syndrome, bth_.psn.value),
            mend_of_nak(code));
    } else if (wire::aeth_kind(h.syndrome) == AethKind::kReserved) {
      wrong(fmt::format("syndrome 0x{:02x} is reserved", h.syndrome),
            "send an ACK (0x00-0x1f), an RNR NAK (0x20-0x3f) or a NAK (0x60-0x64)");
    }
    return true;
  }

  bool atomic_ack_eth() {
    const std::uint32_t at = at_;
    const auto* f = take<wire::AtomicAckEthFormat>("AtomicAckETH");
    if (f == nullptr) return false;
    field(at, 8, "original",
          fmt::format("0x{:x} ({})", wire::decode(*f).original, wire::decode(*f).original));
    return true;
  }

  bool imm_dt() {
    const std::uint32_t at = at_;
    const auto* f = take<wire::ImmDtFormat>("ImmDt");
    if (f == nullptr) return false;
    field(at, 4, "imm", fmt::format("0x{:08x}", wire::decode(*f).data));
    return true;
  }

  bool ieth() {
    const std::uint32_t at = at_;
    const auto* f = take<wire::IethFormat>("IETH");
    if (f == nullptr) return false;
    field(at, 4, "rkey", fmt::format("0x{:08x}, to be invalidated", wire::decode(*f).rkey.value));
    return true;
  }

  // Payload, pad and ICRC; `bth_at`: where the BTH `bth` lies.
  void behind_headers(const wire::BthFormat& bth, const wire::OpcodeFormat& format,
                      std::uint32_t bth_at) {
    if (cut_off_) {
      payload(end_ - at_);
      note("the packet is cut off: pad and ICRC are not known");
      return;
    }
    constexpr auto kIcrcBytes = static_cast<std::uint32_t>(sizeof(wire::IcrcFormat));
    if (end_ - at_ < kIcrcBytes) {
      take<wire::IcrcFormat>("ICRC");
      return;
    }
    const std::uint32_t rest = end_ - at_ - kIcrcBytes;
    const std::uint32_t pad = std::min<std::uint32_t>(bth_.pad_count, rest);
    check_payload(format, rest);
    payload(rest - pad);
    if (pad > 0) field(at_, pad, "pad", bytes_text(pad));
    at_ += pad;
    icrc(bth, bytes_.subspan(bth_at + sizeof bth, at_ - bth_at - sizeof bth));
  }

  // `rest`: bytes of payload and pad.
  void check_payload(const wire::OpcodeFormat& format, std::uint32_t rest) {
    if (format.carries == Carries::kNothing && rest > 0) {
      wrong(fmt::format("{} has no payload, but {} lie between its headers and the ICRC", name_,
                        bytes_text(rest)),
            "leave them out, or correct the opcode");
      return;
    }
    if (bth_.pad_count > rest) {
      wrong(fmt::format("pad is {}, but {} between headers and ICRC", bth_.pad_count,
                        rest == 1 ? "1 byte is" : fmt::format("{} bytes are", rest)),
            "set pad to what fills the last word of the payload");
      return;
    }
    if (rest % 4 != 0) {
      wrong(fmt::format("payload and pad are {}, not whole words of 4", bytes_text(rest)),
            fmt::format("fill the payload up with {}, and count them in pad",
                        bytes_text(4 - (rest - bth_.pad_count) % 4)));
    }
    const std::uint32_t bytes = rest - bth_.pad_count;
    out_.title += format.carries == Carries::kNothing ? "" : ", " + bytes_text(bytes);
    if (format.carries == Carries::kWholeMtu) {
      check_part(bytes);
    } else if (reth_ && format.carries == Carries::kPayload && reth_->length != bytes) {
      wrong(fmt::format("dma_length is {}, but the only packet of the message carries {}",
                        reth_->length, bytes_text(bytes)),
            "set dma_length to the payload without its pad, or split the message");
    }
  }

  // Of a First or Middle.
  void check_part(std::uint32_t bytes) {
    if (bth_.pad_count != 0) {
      wrong(fmt::format("pad is {}, but more of the message has to follow", bth_.pad_count),
            "pad the last packet of a message only");
    } else if (bytes < 256 || bytes > 4096 || (bytes & (bytes - 1)) != 0) {
      wrong(fmt::format("{} carries {}, which is no path MTU", name_, bytes_text(bytes)),
            "send 256, 512, 1024, 2048 or 4096 bytes in each packet but the last");
    }
    if (reth_ && reth_->length <= bytes) {
      wrong(fmt::format("dma_length is {}, but the first of several packets carries {}",
                        reth_->length, bytes_text(bytes)),
            "send it as RDMA WRITE Only, or set dma_length to all of the message");
    }
  }

  void payload(std::uint32_t bytes) {
    const std::uint32_t from = at_;
    for (const std::uint32_t last = at_ + bytes; at_ < last;) {
      const std::uint32_t line = std::min(last - at_, kPayloadLineBytes);
      field(at_, line, "payload", fmt::format("bytes {}-{}", at_ - from, at_ - from + line - 1));
      at_ += line;
    }
  }

  void icrc(const wire::BthFormat& bth, wire::Bytes covered) {
    const std::uint32_t at = at_;
    const auto* found = take<wire::IcrcFormat>("ICRC");
    const auto right = right_icrc(bth, covered);
    if (!right) {
      field(at, 4, "icrc", "not checked");
      note("the ICRC covers the IP header too, and can be checked only with it");
      return;
    }
    if (*found == *right) {
      field(at, 4, "icrc", "right");
      return;
    }
    field(at, 4, "icrc", "wrong: " + icrc_text(*right) + " is right");
    wire::IcrcFormat swapped = *right;
    std::reverse(swapped.bytes.begin(), swapped.bytes.end());
    if (*found == swapped) {
      wrong(fmt::format("the ICRC is {}, the right one with its bytes swapped", icrc_text(*found)),
            "store it little-endian");
      return;
    }
    wrong(fmt::format("the ICRC is {}, but {} is right", icrc_text(*found), icrc_text(*right)),
          "compute it last, over all that is sent: identification, flags and length of an IPv4 "
          "header "
          "count");
  }

  std::optional<wire::IcrcFormat> right_icrc(const wire::BthFormat& bth,
                                             wire::Bytes covered) const {
    if (const auto* v4 = std::get_if<wire::Ipv4Format>(&ip_)) {
      return icrc_of(*v4, udp_, bth, covered);
    }
    if (const auto* v6 = std::get_if<wire::Ipv6Format>(&ip_)) {
      return icrc_of(*v6, udp_, bth, covered);
    }
    return std::nullopt;
  }

  View view_;
  wire::Bytes bytes_;
  PacketStart from_;
  std::uint32_t at_ = 0;  // what is decoded up to
  std::uint32_t end_;     // of the packet, as far as its headers have said
  bool cut_off_ = false;  // before the end that the IP header says
  std::variant<std::monostate, wire::Ipv4Format, wire::Ipv6Format> ip_;
  wire::UdpFormat udp_{};
  wire::Bth bth_;
  std::optional<wire::Reth> reth_;
  std::string name_;  // of the opcode
  Decoded out_;
};

}  // namespace

std::optional<std::string> refuse_packet_size(std::size_t bytes) {
  if (bytes >= kLeastBytes && bytes <= kMostBytes) return std::nullopt;
  return fmt::format("a packet is given as {} to {} bytes, and not as {}", kLeastBytes, kMostBytes,
                     bytes);
}

Decoded decode_packet(std::span<const std::uint8_t> bytes, PacketStart from) {
  return PacketDecoder(bytes, from).run();
}

}  // namespace peal::decode
