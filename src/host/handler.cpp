#include "host/handler.hpp"

#include <cerrno>
#include <string>

#include "host/log.hpp"
#include "host/uar.hpp"

namespace peal::host {

namespace {

// A proxy reads what producers write: it needs memory that both reach.
void require_proxy(const Context::Impl& context, const std::string& why) {
  void* probe = context.memory().allocate_shared(sizeof(ProxyWord));
  if (probe != nullptr) {
    context.memory().release_shared(probe, sizeof(ProxyWord));
    return;
  }
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
  std::string remedy = context.memory().uar_remedy();
  if (!remedy.empty()) remedy = " (" + remedy + ")";
  if (requested == NicHandler::kDirect) {
    if (error != 0) {
      const Error cause = system_error(error, "mapping a UAR page of " + context.name +
                                                  " for the producers, which the direct handler "
                                                  "needs");
      throw Error(error, cause.what() + remedy);
    }
    return {requested, NicHandler::kDirect, HandlerReason::kRequested};
  }
  if (error == 0) return {requested, NicHandler::kDirect, HandlerReason::kUarMapped};
  const Error refused =
      system_error(error, "mapping a UAR page of " + context.name + " for the producers");
  const std::string cause = refused.what() + remedy;
  require_proxy(context, cause + "; ");
  const std::string told = cause + "; a CPU proxy rings its queues instead";
  log(LogLevel::kWarning, told);
  if (warn) warn(told);
  return {requested, NicHandler::kProxy, HandlerReason::kUarNotMapped};
}

}  // namespace peal::host
