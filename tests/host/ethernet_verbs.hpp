// A software NIC that says its port is an Ethernet one, with a GID table of the test's, and keeps
// what each queue pair was told on its way to RTR.
#pragma once

#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "host/host_fixture.hpp"
#include "mlx5/layout.hpp"

namespace peal::test {

inline Gid gid_of(GidType type, std::initializer_list<std::uint8_t> first,
                  std::initializer_list<std::uint8_t> last) {
  Gid gid;
  gid.type = type;
  std::copy(first.begin(), first.end(), gid.bytes.begin());
  std::copy(last.begin(), last.end(), gid.bytes.end() - static_cast<std::ptrdiff_t>(last.size()));
  return gid;
}
inline Gid link_local(GidType type, std::uint8_t host) {
  return gid_of(type, {0xfe, 0x80}, {host});
}
inline Gid ipv6(GidType type, std::uint8_t host) {
  return gid_of(type, {0x20, 0x01, 0x0d, 0xb8}, {host});
}
inline Gid ipv4(GidType type, std::uint8_t host) {
  return gid_of(type, {}, {0xff, 0xff, 192, 0, 2, host});
}

class EthernetVerbs : public ForwardingVerbs {
 public:
  explicit EthernetVerbs(std::shared_ptr<verbs::Verbs> to) : ForwardingVerbs(std::move(to)) {}

  int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) override {
    const int error = ForwardingVerbs::query_port(context, port, attributes);
    attributes->link_layer = ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
    attributes->active_mtu = active_mtu;
    attributes->gid_tbl_len = slots;
    return error;
  }
  int query_gid(ibv_context*, std::uint8_t, std::uint32_t index, ibv_gid_entry* entry) override {
    const auto at = table.find(index);
    if (at == table.end()) return index % 2 == 0 ? ENODATA : EINVAL;  // empty, or not to be read
    *entry = ibv_gid_entry{};
    std::memcpy(entry->gid.raw, at->second.bytes.data(), at->second.bytes.size());
    entry->gid_type = static_cast<std::uint32_t>(at->second.type);
    return 0;
  }
  int query_pkey(ibv_context*, std::uint8_t, std::uint16_t index, std::uint16_t* pkey) override {
    if (index >= pkeys.size()) return EINVAL;
    *pkey = pkeys[index];
    return 0;
  }
  int query_remote_mac(ibv_pd*, ibv_ah_attr* path, std::uint8_t mac[6]) override {
    asked = *path;
    if (mac_error != 0) return mac_error;
    for (std::uint8_t i = 0; i < 6; ++i) mac[i] = static_cast<std::uint8_t>(0xa0 + i);
    return 0;
  }
  int devx_obj_modify(mlx5dv_devx_obj* object, const void* in, std::size_t in_bytes, void* out,
                      std::size_t out_bytes) override {
    const auto* bytes = static_cast<const std::byte*>(in);
    const auto opcode = mlx5::devx::get(bytes, mlx5::devx::header::opcode);
    if (opcode == static_cast<std::uint64_t>(mlx5::devx::CommandOpcode::kInit2RtrQp)) {
      rtr.emplace_back(bytes, bytes + in_bytes);
    }
    if (opcode == static_cast<std::uint64_t>(mlx5::devx::CommandOpcode::kRst2InitQp)) {
      init.emplace_back(bytes, bytes + in_bytes);
    }
    return ForwardingVerbs::devx_obj_modify(object, in, in_bytes, out, out_bytes);
  }

  std::uint64_t in_path(std::size_t qp, mlx5::devx::Field f) const {
    return in_path_of(rtr[qp], f);
  }
  static std::uint64_t in_path_of(const std::vector<std::byte>& command, mlx5::devx::Field f) {
    namespace devx = mlx5::devx;
    return devx::get(
        command.data(),
        devx::within(devx::modify_qp::qpc, devx::within(devx::qpc::primary_address_path, f)));
  }
  // The peer's GID.
  std::array<std::uint8_t, 16> rgid(std::size_t qp) const {
    namespace devx = mlx5::devx;
    std::array<std::uint8_t, 16> bytes;
    std::memcpy(bytes.data(),
                devx::at(rtr[qp].data(), devx::within(devx::modify_qp::qpc,
                                                      devx::within(devx::qpc::primary_address_path,
                                                                   devx::ads::rgid_rip))),
                bytes.size());
    return bytes;
  }
  std::uint64_t in_context(std::size_t qp, mlx5::devx::Field f) const {
    namespace devx = mlx5::devx;
    return devx::get(rtr[qp].data(), devx::within(devx::modify_qp::qpc, f));
  }

  bool ethernet = true;
  ibv_mtu active_mtu = IBV_MTU_4096;
  int slots = 8;
  std::map<std::uint32_t, Gid> table;
  std::vector<std::uint16_t> pkeys = {0xffff};
  int mac_error = 0;
  ibv_ah_attr asked{};
  std::vector<std::vector<std::byte>> init;
  std::vector<std::vector<std::byte>> rtr;  // by the order of their going there
};

}  // namespace peal::test
