#include "host/path.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

namespace peal::host {
namespace {

namespace devx = mlx5::devx;

constexpr std::uint8_t kHopLimit = 64;  // packets of 1 pass no router
// RoCE v2 sends from ports of the upper quarter; a queue pair keeps one, so that its packets keep
// their order, and each has another, so that they spread over equal routes.
constexpr std::uint32_t kFirstSourcePort = 0xc000;

std::uint32_t source_port(Qpn a, Qpn b) {
  const std::uint32_t mixed = a.value * 31 + b.value;
  return kFirstSourcePort | ((mixed ^ mixed >> 14) & 0x3fff);
}

void require_same_type(const Context::Impl& context, const QueuePairAddress& peer) {
  const char* here = gid_type_name(context.gid->gid.type);
  if (!peer.gid) {
    throw Error(EINVAL, std::string("this end is reached by its GID, of type ") + here +
                            ", and the peer gives none");
  }
  if (peer.gid->type == context.gid->gid.type) return;
  throw Error(EINVAL, std::string("this end's GID, at index ") +
                          std::to_string(context.gid->index) + ", is of type " + here +
                          ", the peer's of type " + gid_type_name(peer.gid->type) +
                          ": choose indices of one type");
}

}  // namespace

void require_same_partition(const PortPkey& here, std::uint16_t peer) {
  constexpr unsigned kFullMember = 0x8000;
  const bool same = (here.key | kFullMember) == (peer | kFullMember);
  if (same && ((here.key | peer) & kFullMember) != 0) return;
  char text[160];
  std::snprintf(text, sizeof text,
                "this end's partition key, at index %u, is 0x%04x, the peer's 0x%04x: %s",
                unsigned{here.index}, unsigned{here.key}, unsigned{peer},
                same ? "limited members of a partition do not hear each other"
                     : "choose indices of one partition");
  throw Error(EINVAL, text);
}

void set_path(const Context::Impl& context, const QueuePairOptions& options, Qpn qpn,
              const QueuePairAddress& peer, ModifyQp& rtr) {
  const auto set = [&rtr](devx::Field f, std::uint64_t value) {
    rtr.set(devx::within(devx::modify_qp::qpc, devx::within(devx::qpc::primary_address_path, f)),
            value);
  };
  set(devx::ads::vhca_port_num, context.port);
  if (!context.ethernet) set(devx::ads::rlid, peer.lid);
  if (!context.gid) return;

  require_same_type(context, peer);
  set(devx::ads::src_addr_index, context.gid->index);
  set(devx::ads::hop_limit, kHopLimit);
  set(devx::ads::tclass, options.traffic_class);
  std::memcpy(devx::at(rtr.in.data(), devx::within(devx::modify_qp::qpc,
                                                   devx::within(devx::qpc::primary_address_path,
                                                                devx::ads::rgid_rip))),
              peer.gid->bytes.data(), peer.gid->bytes.size());
  if (!context.ethernet) {
    set(devx::ads::grh, 1);
    return;
  }

  ibv_ah_attr attributes{};  // all of it: what is not set must be 0, the static rate among it
  std::memcpy(attributes.grh.dgid.raw, peer.gid->bytes.data(), sizeof attributes.grh.dgid.raw);
  attributes.grh.sgid_index = static_cast<std::uint8_t>(context.gid->index);
  attributes.grh.hop_limit = kHopLimit;
  attributes.grh.traffic_class = options.traffic_class;
  attributes.is_global = 1;
  attributes.port_num = context.port;
  std::uint8_t mac[6] = {};
  if (const int error = context.verbs().query_remote_mac(context.pd, &attributes, mac)) {
    throw system_error(error, "asking for the Ethernet address of the peer " + gid_text(*peer.gid));
  }
  set(devx::ads::rmac_47_32, std::uint64_t{mac[0]} << 8 | mac[1]);
  set(devx::ads::rmac_31_0, std::uint64_t{mac[2]} << 24 | std::uint64_t{mac[3]} << 16 |
                                std::uint64_t{mac[4]} << 8 | mac[5]);
  if (context.gid->gid.type == GidType::kRoceV2) {
    set(devx::ads::udp_sport, source_port(qpn, peer.qpn));
  }
}

}  // namespace peal::host
