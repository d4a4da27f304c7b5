#include "host/port.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>

namespace peal {

std::string gid_text(const Gid& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(AF_INET6, gid.bytes.data(), text, sizeof text);
  return text;
}

namespace host {
namespace {

std::optional<PortGid> read_slot(const Context::Impl& context, std::uint32_t index) {
  ibv_gid_entry entry{};
  if (context.verbs().query_gid(context.device, context.port, index, &entry) != 0) {
    return std::nullopt;
  }
  PortGid slot{.index = index, .gid = {}};
  std::memcpy(slot.gid.bytes.data(), entry.gid.raw, slot.gid.bytes.size());
  if (slot.gid.bytes == Gid{}.bytes) return std::nullopt;
  slot.gid.type = entry.gid_type == IBV_GID_TYPE_ROCE_V2   ? GidType::kRoceV2
                  : entry.gid_type == IBV_GID_TYPE_ROCE_V1 ? GidType::kRoceV1
                                                           : GidType::kInfiniBand;
  return slot;
}

bool starts_with(const Gid& gid, std::initializer_list<std::uint8_t> bytes) {
  return std::equal(bytes.begin(), bytes.end(), gid.bytes.begin());
}

// What reaches furthest comes first: routed by IPv4, as most fabrics are, by IPv6, on the link
// alone; then what no router passes on.
int rank(const Gid& gid) {
  if (gid.type != GidType::kRoceV2) return 3;
  if (starts_with(gid, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff})) return 0;
  return starts_with(gid, {0xfe, 0x80}) ? 2 : 1;
}

// Slots may be empty or unreadable, in containers most of them.
PortGid choose_gid(const Context::Impl& context, const std::string& where, std::uint32_t slots,
                   const ContextOptions& options) {
  if (options.gid_index) {
    const auto slot = read_slot(context, *options.gid_index);
    if (!slot) {
      throw Error(ENODATA, where + " has no GID at index " + std::to_string(*options.gid_index) +
                               " of " + std::to_string(slots));
    }
    if (options.gid_type && slot->gid.type != *options.gid_type) {
      throw Error(EINVAL, "GID index " + std::to_string(*options.gid_index) + " of " + where +
                              " is " + gid_type_name(slot->gid.type) + ", not " +
                              gid_type_name(*options.gid_type));
    }
    return *slot;
  }
  std::optional<PortGid> best;
  for (std::uint32_t i = 0; i < slots; ++i) {
    const auto slot = read_slot(context, i);
    if (!slot || (options.gid_type && slot->gid.type != *options.gid_type)) continue;
    if (!best || rank(slot->gid) < rank(best->gid)) best = slot;
  }
  if (best) return *best;
  throw Error(ENODATA,
              where + " has no" +
                  (options.gid_type ? std::string(" ") + gid_type_name(*options.gid_type) : "") +
                  " GID in " + std::to_string(slots) +
                  " slots: give its network interface an address, or name another port");
}

PortPkey read_pkey(const Context::Impl& context, const std::string& where, std::uint16_t index) {
  constexpr std::uint16_t kPartition = 0x7fff;
  PortPkey pkey{.index = index};
  const int error = context.verbs().query_pkey(context.device, context.port, index, &pkey.key);
  if (error == 0 && (pkey.key & kPartition) != 0) return pkey;
  const std::string what = where + " has no partition key at index " + std::to_string(index);
  if (error == 0) throw Error(ENODATA, what);
  throw system_error(error, what);
}

std::uint32_t mtu_bytes(ibv_mtu mtu) {
  return 128u << static_cast<unsigned>(mtu);
}

std::uint32_t choose_mtu(const std::string& where, std::uint32_t active, std::uint32_t wanted) {
  if (wanted == 0) return active;
  if (!std::has_single_bit(wanted) || wanted < 256 || wanted > 4096) {
    throw Error(EINVAL, "an MTU is 256, 512, 1024, 2048 or 4096, not " + std::to_string(wanted));
  }
  if (wanted <= active) return wanted;
  throw Error(EINVAL, "the MTU of " + where + " is " + std::to_string(active) + ": " +
                          std::to_string(wanted) + " is more");
}

}  // namespace

void open_port(Context::Impl& context, const ContextOptions& options) {
  context.port = options.port;
  const std::string where = "port " + std::to_string(options.port) + " of " + context.name;
  ibv_port_attr port{};
  if (const int error = context.verbs().query_port(context.device, options.port, &port)) {
    throw system_error(error, "querying " + where);
  }
  if (port.state != IBV_PORT_ACTIVE) throw Error(ENETDOWN, where + " is not active");
  context.lid = port.lid;
  context.ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
  context.pkey = read_pkey(context, where, options.pkey_index);
  context.mtu_bytes = choose_mtu(where, mtu_bytes(port.active_mtu), options.mtu_bytes);
  // On InfiniBand a LID is enough, unless a GID is asked for.
  if (!context.ethernet && !options.gid_index && !options.gid_type) return;
  context.gid = choose_gid(context, where,
                           static_cast<std::uint32_t>(std::max(port.gid_tbl_len, 0)), options);
}

}  // namespace host
}  // namespace peal
