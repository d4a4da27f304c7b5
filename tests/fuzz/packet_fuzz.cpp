// A RoCEv2 datagram as a network brings it. Input: 1 to make its checksum and ICRC right first, so
// that what lies behind them is reached (1), the bytes from its IP header on.
#include <algorithm>
#include <vector>

#include "fuzz/fuzz.hpp"
#include "wire/packet.hpp"

namespace peal::wire {
namespace {

using test::require;
using Buffer = std::vector<std::byte>;

// Where a refused datagram could be whole: an ICRC at its end for what is in front of it.
template <class IpFormat>
void make_icrc_right(Buffer* bytes, IpFormat ip, std::size_t length) {
  const std::size_t end = std::min(length, bytes->size());
  constexpr std::size_t kHeaders = sizeof ip + sizeof(UdpFormat) + sizeof(BthFormat);
  if (end < kHeaders + sizeof(IcrcFormat)) return;
  const Bytes all(bytes->data(), end);
  const auto* udp = view_of<UdpFormat>(all.subspan(sizeof ip));
  const auto* bth = view_of<BthFormat>(all.subspan(sizeof ip + sizeof *udp));
  const Bytes rest = all.subspan(kHeaders, end - kHeaders - sizeof(IcrcFormat));
  const IcrcFormat icrc = icrc_of(ip, *udp, *bth, rest);
  std::memcpy(bytes->data() + end - sizeof icrc, &icrc, sizeof icrc);
}

void make_right(Buffer* bytes) {
  if (const auto* ip = view_of<Ipv4Format>(*bytes);
      ip && ip->version_ihl.get() == kIpv4VersionIhl) {
    const Be<2> sum(checksum_of(*ip));
    std::memcpy(bytes->data() + offsetof(Ipv4Format, checksum), &sum, sizeof sum);
    make_icrc_right(bytes, *view_of<Ipv4Format>(*bytes), ip->total_length.get());
  } else if (const auto* ip6 = view_of<Ipv6Format>(*bytes)) {
    make_icrc_right(bytes, *ip6, sizeof *ip6 + ip6->payload_length.get());
  }
}

void check_packet(const Datagram& d, Bytes bytes) {
  const std::size_t length = bytes_of(d);
  require(length != 0, "what is read can be written");
  require(length <= bytes.size(), "a datagram lies within the bytes that were given");
  const Bytes payload = d.packet.payload;
  require(payload.empty() || (payload.data() >= bytes.data() &&
                              payload.data() + payload.size() <= bytes.data() + length),
          "a payload lies within its datagram");
  const std::size_t pad = (4 - payload.size() % 4) % 4;
  require(pad == d.packet.bth.pad_count, "pad fills the last word");
  Buffer written(length);
  write_datagram(d, written);
  const Bytes sent = bytes.first(length);
  const Bytes sent_pad = sent.subspan(length - sizeof(IcrcFormat) - pad, pad);
  const bool zeros = std::ranges::all_of(sent_pad, [](std::byte b) { return b == std::byte{0}; });
  require(!zeros || std::ranges::equal(written, sent), "what is read is written as the same bytes");

  const std::size_t transport = bytes_of(d.packet);
  Packet p;
  require(read_packet(sent.last(transport), d.ip, d.udp, &p) == Malformed::kNot,
          "the UDP payload alone is read as the datagram is");
  require(p.bth == d.packet.bth && p.payload.data() == payload.data() &&
              p.payload.size() == payload.size(),
          "the UDP payload alone says the same");
}

void check(Buffer bytes) {
  Datagram d;
  const Malformed m = read_datagram(bytes, &d);
  require(m < Malformed::kCount, "a reason is one that has a sentence");
  if (m == Malformed::kNot) check_packet(d, bytes);
  // Whatever it is, as the payload of a UDP socket.
  Packet p;
  require(read_packet(bytes, Ipv6{}, Udp{}, &p) < Malformed::kCount, "a reason is one of packets");
}

}  // namespace
}  // namespace peal::wire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  if (bytes < 1) return 0;
  const auto* from = reinterpret_cast<const std::byte*>(data + 1);
  peal::wire::Buffer datagram(from, from + bytes - 1);
  if (data[0] == 1) peal::wire::make_right(&datagram);
  peal::wire::check(std::move(datagram));
  return 0;
}
