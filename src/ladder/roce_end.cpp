#include "ladder/roce_end.hpp"

#include <fmt/format.h>

#include <bit>

#include "ladder/messages.hpp"

namespace peal::ladder {
namespace {

constexpr std::uint64_t kMaxReceiveBufferBytes = std::uint64_t{1} << 30;
constexpr std::uint32_t kLeastMtu = 256;
constexpr std::uint32_t kMostMtu = 4096;

[[noreturn]] void throw_unusable(const std::string& why) {
  throw PeerError(PeerError::Kind::kProtocol, "the peer's RoCE address cannot be used: " + why);
}

link::IpAddress ip_from(const nlohmann::json& j) {
  link::IpAddress ip;
  const std::vector<std::uint64_t> bytes = numbers_from(j, "address");
  bool wrong = bytes.size() != ip.bytes.size();
  for (std::size_t i = 0; !wrong && i < ip.bytes.size(); ++i) {
    wrong = bytes[i] > 255;
    ip.bytes[i] = static_cast<std::uint8_t>(bytes[i]);
  }
  if (wrong) throw_unusable("it must be of 16 bytes");
  return ip;
}

link::RoceOptions roce_options(const LadderOptions& options, const link::IpAddress& local,
                               std::uint16_t udp_port) {
  return {.local = local, .udp_port = udp_port, .traffic_class = options.path.traffic_class};
}

// None where no fault is of the link.
std::optional<link::Impairments> impairments(const LadderOptions& options, RunEnd end) {
  link::Impairments i;
  bool any = false;
  for (const FaultSpec& f : options.faults) {
    any |= is_of_link(f.kind);
    if (f.kind == FaultSpec::Kind::kDrop) i.drop = f.probability;
    if (f.kind == FaultSpec::Kind::kDup) i.duplicate = f.probability;
    if (f.kind == FaultSpec::Kind::kReorder) i.reorder = f.probability;
    if (f.kind == FaultSpec::Kind::kLinkDelay) i.delay_ns = f.value * 1000;
  }
  if (!any) return std::nullopt;
  // The two ends must not lose alike.
  i.seed = options.seed * 2 + (end == RunEnd::kReceiver ? 1 : 0);
  return i;
}

}  // namespace

nlohmann::json to_json(const RoceAddress& a) {
  return {{"address", a.address.bytes},
          {"port", a.udp_port},
          {"receive_buffer", a.receive_buffer_bytes},
          {"mtu", a.mtu_bytes}};
}

RoceAddress roce_address_from(const nlohmann::json& j, const link::IpAddress& mine,
                              const link::IpAddress& its) {
  RoceAddress a;
  a.address = ip_from(j);
  a.udp_port = number_from<std::uint16_t>(j, "port");
  a.receive_buffer_bytes = number_from<std::uint64_t>(j, "receive_buffer");
  a.mtu_bytes = number_from<std::uint32_t>(j, "mtu");
  if (a.address.is_v4() != mine.is_v4()) {
    throw_unusable(fmt::format("{} and this end's {} are of two IP versions",
                               link::to_text(a.address), link::to_text(mine)));
  }
  // Its packets are checked by their addresses, and nobody else shall be sent any.
  if (a.address != its) {
    throw_unusable(fmt::format("it is {}, but the control connection is with {}",
                               link::to_text(a.address), link::to_text(its)));
  }
  if (a.udp_port == 0) throw_unusable("its UDP port is 0");
  if (a.receive_buffer_bytes == 0 || a.receive_buffer_bytes > kMaxReceiveBufferBytes) {
    throw_unusable(fmt::format("its receive buffer must be of 1 to {} bytes, not {}",
                               kMaxReceiveBufferBytes, a.receive_buffer_bytes));
  }
  if (!std::has_single_bit(a.mtu_bytes) || a.mtu_bytes < kLeastMtu || a.mtu_bytes > kMostMtu) {
    throw_unusable(
        fmt::format("its MTU must be 256, 512, 1024, 2048 or 4096, not {}", a.mtu_bytes));
  }
  return a;
}

RoceEnd::RoceEnd(const LadderOptions& options, const link::IpAddress& local, std::uint16_t udp_port,
                 RunEnd end, link::Capture* capture)
    : local_(local), roce_(roce_options(options, local, udp_port)) {
  roce_.capture_to(capture);
  if (const auto i = impairments(options, end)) impaired_.emplace(roce_, *i);
}

RoceAddress RoceEnd::address() const {
  return {local_, roce_.udp_port(), roce_.receive_buffer_bytes(), roce_.mtu_bytes()};
}

void RoceEnd::connect(const RoceAddress& peer) {
  roce_.connect({.address = peer.address,
                 .udp_port = peer.udp_port,
                 .is_peal = true,
                 .receive_buffer_bytes = peer.receive_buffer_bytes});
}

verbs::SoftwarePort RoceEnd::port() const {
  return {.roce_gid = local_.bytes, .mtu_bytes = roce_.mtu_bytes()};
}

void RoceEnd::tell(const std::function<void(const std::string&)>& note) const {
  const std::string drops = text_of_drops(roce_.counters());
  if (!drops.empty()) note(drops);
  if (!roce_.error().empty()) note(roce_.error());
}

std::string text_of_drops(const link::RoceCounters& c) {
  std::string reasons;
  std::uint64_t all = 0;
  const auto add = [&](std::uint64_t n, const char* why) {
    if (n == 0) return;
    all += n;
    reasons += fmt::format("{} {} ({})", reasons.empty() ? "" : ",", n, why);
  };
  for (std::size_t i = 0; i < c.malformed.size(); ++i) {
    add(c.malformed[i], wire::malformed_text(static_cast<wire::Malformed>(i)));
  }
  for (std::size_t i = 0; i < c.dropped.size(); ++i) {
    add(c.dropped[i], link::drop_text(static_cast<link::RoceDrop>(i)));
  }
  add(c.overflowed, "the kernel's buffer was full");
  add(c.unsendable, "no RoCE packet, not sent");
  add(c.too_long, "longer than the path's MTU, not sent");
  add(c.unreachable, "the network refused to send them");
  if (all == 0) return {};
  return fmt::format("{} packet{} dropped:{}", all, all == 1 ? "" : "s", reasons);
}

void close_capture(link::Capture& capture, const std::function<void(const std::string&)>& note) {
  capture.flush();
  if (!capture.error().empty()) note(capture.error());
}

}  // namespace peal::ladder
