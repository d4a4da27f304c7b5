#include "host/handler.hpp"

#include <cerrno>
#include <string>

#include "host/uar.hpp"

namespace peal::host {

namespace {

// A proxy reads what producers write.
void require_proxy(const Context::Impl& context, const std::string& why) {
  if (context.memory().reached_by_cpu()) return;
  throw Error(ENOTSUP, why + "a CPU proxy cannot ring the queues of " + context.name +
                           ": the CPU does not reach the memory that they lie in");
}

}  // namespace

HandlerChoice resolve_handler(Context::Impl& context, NicHandler requested,
                              const std::function<void(const std::string&)>& warn) {
  const std::shared_ptr<Uar> probe = Uar::allocate(context);
  if (requested == NicHandler::kProxy) {
    require_proxy(context, "");
    return {requested, NicHandler::kProxy, HandlerReason::kRequested};
  }
  const int error = probe->map();
  if (requested == NicHandler::kDirect) {
    if (error != 0) {
      throw system_error(error, "mapping a UAR page of " + context.name +
                                    " for the producers, which the direct handler needs");
    }
    return {requested, NicHandler::kDirect, HandlerReason::kRequested};
  }
  if (error == 0) return {requested, NicHandler::kDirect, HandlerReason::kUarMapped};
  const Error cause =
      system_error(error, "mapping a UAR page of " + context.name + " for the producers");
  require_proxy(context, std::string(cause.what()) + "; ");
  if (warn) warn(std::string(cause.what()) + "; a CPU proxy rings its queues instead");
  return {requested, NicHandler::kProxy, HandlerReason::kUarNotMapped};
}

}  // namespace peal::host
