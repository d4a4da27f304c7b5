// `peal devices`: what a run would use, and who would ring its queues.
#include "cli/devices.hpp"

#include <fmt/format.h>

#include "engine/threads.hpp"
#include "ladder/nics.hpp"
#include "link/loopback.hpp"

namespace peal::cli {

void print_devices(const ladder::LadderOptions& options, const ladder::RunEvents& events) {
  link::Loopback nobody;
  verbs::SoftwareNic nic(ladder::sender_options(options), nobody.a());
  engine::ThreadsEngine engine({nic.step()});
  const Context context = ladder::open_sender(nic, engine, options, events);
  const HandlerChoice handler = context.handler();
  fmt::print(
      "{} (software ConnectX; not a hardware device)\n"
      "  port        1, active, LID {}, MTU {}\n"
      "  send queue  up to {} slots\n"
      "  handler     {} requested, {} resolved: {}\n",
      context.device_name(), context.lid(), context.mtu_bytes(), context.max_sq_depth(),
      nic_handler_name(handler.requested), nic_handler_name(handler.resolved),
      handler_reason_text(handler.why));
}

}  // namespace peal::cli
