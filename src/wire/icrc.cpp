#include "wire/icrc.hpp"

#include <libdeflate.h>

namespace peal::wire {
namespace {

// The local route header that InfiniBand has in front counts as ones.
constexpr std::array<std::uint8_t, 8> kNoLrh = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

template <class Format>
std::uint32_t crc_over(std::uint32_t crc, const Format& format) {
  return libdeflate_crc32(crc, &format, sizeof format);
}

// `ip` is masked already.
template <class Ip>
IcrcFormat icrc_of_masked(const Ip& ip, UdpFormat udp, BthFormat bth, Bytes rest) {
  udp.checksum = Be<2>(0xffff);
  bth.fecn_becn_resv6 = Be<1>(0xff);
  std::uint32_t crc = crc_over(crc_over(crc_over(crc_over(0, kNoLrh), ip), udp), bth);
  // Null would begin anew.
  if (!rest.empty()) crc = libdeflate_crc32(crc, rest.data(), rest.size());
  return IcrcFormat(crc);
}

}  // namespace

IcrcFormat icrc_of(Ipv4Format ip, UdpFormat udp, BthFormat bth, Bytes rest) {
  ip.tos = Be<1>(0xff);
  ip.ttl = Be<1>(0xff);
  ip.checksum = Be<2>(0xffff);
  return icrc_of_masked(ip, udp, bth, rest);
}

IcrcFormat icrc_of(Ipv6Format ip, UdpFormat udp, BthFormat bth, Bytes rest) {
  ip.version_class_flow = Be<4>(ip.version_class_flow.get() | 0x0fffffff);
  ip.hop_limit = Be<1>(0xff);
  return icrc_of_masked(ip, udp, bth, rest);
}

}  // namespace peal::wire
