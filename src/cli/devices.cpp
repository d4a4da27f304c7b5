// `peal devices`: what a run would use, and who would ring its queues.
#include "cli/devices.hpp"

#include <fmt/format.h>

#include "engine/threads.hpp"
#include "ladder/nics.hpp"
#include "link/loopback.hpp"
#include "peal/host/rdma_core.hpp"

namespace peal::cli {
namespace {

void print_device(const Context& context, const char* what) {
  const HandlerChoice handler = context.handler();
  std::string address = fmt::format("LID {}", context.lid());
  if (const auto port = context.gid()) {
    address = fmt::format("GID {} {} ({})", port->index, gid_text(port->gid),
                          gid_type_name(port->gid.type));
  }
  fmt::print(
      "{} ({})\n"
      "  port        {}, active, {}, MTU {}\n"
      "  send queue  up to {} slots\n"
      "  handler     {} requested, {} resolved: {}\n",
      context.device_name(), what, context.port(), address, context.mtu_bytes(),
      context.max_sq_depth(), nic_handler_name(handler.requested),
      nic_handler_name(handler.resolved), handler_reason_text(handler.why));
}

}  // namespace

void print_devices(const ladder::LadderOptions& options, const ladder::RunEvents& events) {
  if (options.provider == ladder::ProviderKind::kRdmaCore) {
    const Context context = ladder::open_sender(rdma_core(), options, events);
    print_device(context, context.is_hardware() ? "a device, by the system's RDMA libraries"
                                                : "behind the system's RDMA libraries no device");
    return;
  }
  link::Loopback nobody;
  verbs::SoftwareNic nic(ladder::sender_options(options), nobody.a());
  engine::ThreadsEngine engine({nic.step()});
  print_device(ladder::open_sender(nic, engine, options, events),
               "software ConnectX; not a hardware device");
}

}  // namespace peal::cli
