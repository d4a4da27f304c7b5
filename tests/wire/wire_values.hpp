// Headers and packets of random values, and bytes from hex, for the tests of wire formats.
#pragma once

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "wire/packet.hpp"

namespace peal::test {

using Buffer = std::vector<std::byte>;

// Of hex digits with spaces.
inline Buffer from_hex(const std::string& text) {
  std::string digits;
  for (const char c : text) {
    if (c != ' ') digits += c;
  }
  Buffer bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::strtoul(digits.substr(i, 2).c_str(), nullptr, 16)));
  }
  return bytes;
}

class WireValues {
 public:
  explicit WireValues(std::uint64_t seed) : random_(seed) {}

  template <class T>
  T any() {
    return static_cast<T>(random_());
  }
  std::uint32_t bits(unsigned n) { return static_cast<std::uint32_t>(random_() & ((1u << n) - 1)); }
  bool flag() { return bits(1) != 0; }
  Buffer buffer(std::size_t n) {
    Buffer bytes(n);
    for (std::byte& b : bytes) b = any<std::byte>();
    return bytes;
  }
  template <std::size_t N>
  std::array<std::byte, N> address() {
    std::array<std::byte, N> bytes;
    for (std::byte& b : bytes) b = any<std::byte>();
    return bytes;
  }

  wire::Bth bth() {
    return {.opcode = static_cast<wire::Opcode>(any<std::uint8_t>()),
            .solicited = flag(),
            .mig_req = flag(),
            .pad_count = static_cast<std::uint8_t>(bits(2)),
            .version = static_cast<std::uint8_t>(bits(4)),
            .pkey = any<std::uint16_t>(),
            .fecn = flag(),
            .becn = flag(),
            .reserved6 = static_cast<std::uint8_t>(bits(6)),
            .dest_qp = Qpn(bits(24)),
            .ack_request = flag(),
            .reserved7 = static_cast<std::uint8_t>(bits(7)),
            .psn = Psn(bits(24))};
  }
  wire::Reth reth() {
    return {any<std::uint64_t>(), Rkey(any<std::uint32_t>()), any<std::uint32_t>()};
  }
  wire::AtomicEth atomic_eth() {
    return {any<std::uint64_t>(), Rkey(any<std::uint32_t>()), any<std::uint64_t>(),
            any<std::uint64_t>()};
  }
  wire::Aeth aeth() { return {any<std::uint8_t>(), bits(24)}; }
  wire::AtomicAckEth atomic_ack_eth() { return {any<std::uint64_t>()}; }
  wire::ImmDt imm_dt() { return {any<std::uint32_t>()}; }
  wire::Ieth ieth() { return {Rkey(any<std::uint32_t>())}; }
  wire::Udp udp() {
    return {any<std::uint16_t>(), any<std::uint16_t>(), any<std::uint16_t>(), any<std::uint16_t>()};
  }
  wire::Ipv4 ipv4() {
    return {.tos = any<std::uint8_t>(),
            .total_length = any<std::uint16_t>(),
            .identification = any<std::uint16_t>(),
            .flags_fragment = any<std::uint16_t>(),
            .ttl = any<std::uint8_t>(),
            .protocol = any<std::uint8_t>(),
            .checksum = any<std::uint16_t>(),
            .source = address<4>(),
            .destination = address<4>()};
  }
  wire::Ipv6 ipv6() {
    return {.traffic_class = any<std::uint8_t>(),
            .flow_label = bits(20),
            .payload_length = any<std::uint16_t>(),
            .next_header = any<std::uint8_t>(),
            .hop_limit = any<std::uint8_t>(),
            .source = address<16>(),
            .destination = address<16>()};
  }

  // What can be written and read: `payload` has to outlive it.
  wire::Datagram datagram(std::uint8_t opcode, wire::Bytes payload, bool over_ipv6) {
    wire::Datagram d;
    if (over_ipv6) {
      d.ip = ipv6();
      std::get<wire::Ipv6>(d.ip).next_header = wire::kIpProtocolUdp;
    } else {
      wire::Ipv4 ip = ipv4();
      ip.flags_fragment &= 0xc000;
      ip.protocol = wire::kIpProtocolUdp;
      d.ip = ip;
    }
    d.udp = udp();
    d.udp.destination_port = wire::kRocePort;
    d.packet = {bth(), reth(), atomic_eth(), aeth(), atomic_ack_eth(), imm_dt(), ieth(), payload};
    d.packet.bth.opcode = static_cast<wire::Opcode>(opcode);
    d.packet.bth.version = 0;
    return d;
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace peal::test
