// What a Context holds, for the other objects of the control path.
#pragma once

#include <memory>
#include <optional>

#include "host/proxy.hpp"
#include "peal/host/context.hpp"
#include "peal/mlx5/wqe.hpp"
#include "verbs/verbs.hpp"

namespace peal {

struct Context::Impl {
  Provider provider;
  ibv_context* device = nullptr;
  ibv_pd* pd = nullptr;
  std::uint32_t pdn = 0;
  std::string name;
  bool hardware = false;
  std::uint8_t port = 1;
  std::uint16_t lid = 0;
  std::uint32_t mtu_bytes = 0;
  bool ethernet = false;
  PortPkey pkey;
  std::optional<PortGid> gid;  // where paths are made by it
  std::uint32_t max_sq_depth = 0;
  bool offers_recordless = false;  // queue pairs without a doorbell record
  HandlerChoice handler;
  std::unique_ptr<host::Proxy> proxy;  // null when the handler is direct

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  verbs::Verbs& verbs() const { return *provider.verbs; }
  verbs::DeviceMemory& memory() const { return *provider.memory; }
};

}  // namespace peal
