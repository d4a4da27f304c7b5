#include "bringup/devx.hpp"

#include <fmt/format.h>

#include <cerrno>

#include "host/capabilities.hpp"

namespace peal::bringup {
namespace {

namespace devx = mlx5::devx;

DevxAnswer ask(verbs::Verbs& verbs, ibv_context* context) {
  try {
    const host::Capabilities caps(verbs, context, devx::query_hca_cap::kGeneral, "QUERY_HCA_CAP");
    if (caps.get(devx::hca_cap::rc) == 0) {
      return {false, "the device has no reliable-connected queue pairs"};
    }
    return {true, fmt::format("opened; send queues of up to 2^{} slots of 64 bytes",
                              caps.get(devx::hca_cap::log_max_qp_sz))};
  } catch (const Error& e) {
    return {false, e.what()};
  }
}

}  // namespace

DevxAnswer ask_devx(verbs::Verbs& verbs, const std::string& device) {
  int count = 0;
  ibv_device** list = verbs.get_device_list(&count);
  if (list == nullptr) return {false, system_error(errno, "listing RDMA devices").what()};
  ibv_context* context = nullptr;
  int error = ENODEV;
  for (int i = 0; i < count && context == nullptr; ++i) {
    if (verbs.get_device_name(list[i]) != device) continue;
    context = verbs.open_device(list[i]);
    error = errno;
  }
  verbs.free_device_list(list);
  if (context == nullptr) return {false, system_error(error, "opening it with DevX").what()};
  const DevxAnswer answer = ask(verbs, context);
  verbs.close_device(context);
  return answer;
}

}  // namespace peal::bringup
