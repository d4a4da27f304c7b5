#include "host/handler.hpp"

#include <cerrno>

#include "host/uar.hpp"

namespace peal::host {

HandlerChoice resolve_handler(Context::Impl& context, NicHandler requested,
                              const std::function<void(const std::string&)>& warn) {
  const std::shared_ptr<Uar> probe = Uar::allocate(context);
  if (requested == NicHandler::kProxy) {
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
  if (warn) {
    const Error cause =
        system_error(error, "mapping a UAR page of " + context.name + " for the producers");
    warn(std::string(cause.what()) + "; a CPU proxy rings its queues instead");
  }
  return {requested, NicHandler::kProxy, HandlerReason::kUarNotMapped};
}

}  // namespace peal::host
