// Who rings a context's queues: decided here, once per context, and nowhere else.
#pragma once

#include <functional>
#include <string>

#include "host/context_impl.hpp"

namespace peal::host {

// Tries on a UAR page of its own, which is given back, what every queue pair will do. `warn`, which
// may be empty, is called exactly once when automatic becomes proxy. Throws Error when there is no
// UAR page, whatever was requested, and when direct was and cannot be had.
HandlerChoice resolve_handler(Context::Impl& context, NicHandler requested,
                              const std::function<void(const std::string&)>& warn);

}  // namespace peal::host
