#include "peal/host/context.hpp"

#include <cerrno>
#include <cstring>

#include "host/capabilities.hpp"
#include "host/context_impl.hpp"
#include "host/handler.hpp"
#include "host/log.hpp"
#include "host/port.hpp"

namespace peal {
namespace {

namespace devx = mlx5::devx;

ibv_context* open_by_name(verbs::Verbs& verbs, const std::string& wanted, std::string* name) {
  int count = 0;
  ibv_device** list = verbs.get_device_list(&count);
  if (list == nullptr) {
    const int cause = errno;
    throw Error(cause, std::string(system_error(cause, "listing RDMA devices").what()) +
                           (cause == ENOSYS ? " (is the kernel's module ib_uverbs loaded?)" : ""));
  }
  std::string seen;
  ibv_context* opened = nullptr;
  int error = ENODEV;
  for (int i = 0; i < count && opened == nullptr; ++i) {
    const std::string candidate = verbs.get_device_name(list[i]);
    seen += (seen.empty() ? "" : ", ") + candidate;
    if (!wanted.empty() && candidate != wanted) continue;
    *name = candidate;
    opened = verbs.open_device(list[i]);
    error = errno;
  }
  verbs.free_device_list(list);
  if (opened != nullptr) return opened;
  if (name->empty()) {
    throw Error(ENODEV, count == 0
                            ? "there is no RDMA device"
                            : "there is no RDMA device '" + wanted + "'; there are: " + seen);
  }
  const Error refused = system_error(error, "opening device " + *name);
  if (error != EOPNOTSUPP) throw refused;
  throw Error(error, std::string(refused.what()) +
                         " (it is no mlx5 device, or its driver was built without DevX)");
}

}  // namespace

Context::Impl::~Impl() {
  proxy.reset();  // its thread ends before what it may ring
  if (pd != nullptr) host::log_kept(verbs().dealloc_pd(pd), name, "a protection domain");
  if (device != nullptr) verbs().close_device(device);
}

Context Context::open(Provider provider, const ContextOptions& options) {
  auto impl = std::make_shared<Impl>();
  impl->provider = std::move(provider);
  verbs::Verbs& verbs = impl->verbs();
  impl->device = open_by_name(verbs, options.device, &impl->name);

  impl->hardware = verbs.is_hardware(impl->device);
  host::open_port(*impl, options);

  const std::string query = "QUERY_HCA_CAP on " + impl->name;
  const host::Capabilities caps(verbs, impl->device, devx::query_hca_cap::kGeneral, query);
  if (caps.get(devx::hca_cap::rc) == 0) {
    throw Error(ENOTSUP, impl->name + " has no reliable-connected queue pairs");
  }
  const auto log_depth = caps.get(devx::hca_cap::log_max_qp_sz);
  impl->max_sq_depth = log_depth < 15 ? 1u << log_depth : mlx5::kMaxSqDepth;
  if (caps.get(devx::hca_cap::hca_cap_2) == 1) {
    const host::Capabilities more(verbs, impl->device, devx::query_hca_cap::kGeneral2, query);
    impl->offers_recordless = more.get(devx::hca_cap_2::send_dbr_mode_no_dbr_ext) == 1;
  }

  impl->pd = verbs.alloc_pd(impl->device);
  if (impl->pd == nullptr) throw system_error(errno, "allocating a protection domain");
  if (const int error = verbs.query_pdn(impl->pd, &impl->pdn)) {
    throw system_error(error, "asking for the protection domain's number");
  }
  impl->handler = host::resolve_handler(*impl, options.handler, options.warn);
  if (impl->handler.resolved == NicHandler::kProxy) impl->proxy = std::make_unique<host::Proxy>();
  host::log(LogLevel::kInfo, "opened ", impl->name,
            "; who rings: ", nic_handler_name(impl->handler.resolved),
            ", because: ", handler_reason_text(impl->handler.why));
  return Context(std::move(impl));
}

const std::string& Context::device_name() const {
  return impl_->name;
}
std::uint16_t Context::lid() const {
  return impl_->lid;
}
std::uint8_t Context::port() const {
  return impl_->port;
}
std::uint32_t Context::mtu_bytes() const {
  return impl_->mtu_bytes;
}
std::optional<PortGid> Context::gid() const {
  return impl_->gid;
}
PortPkey Context::pkey() const {
  return impl_->pkey;
}
bool Context::is_hardware() const {
  return impl_->hardware;
}
std::uint32_t Context::max_sq_depth() const {
  return impl_->max_sq_depth;
}
bool Context::offers_recordless() const {
  return impl_->offers_recordless;
}
HandlerChoice Context::handler() const {
  return impl_->handler;
}

}  // namespace peal
