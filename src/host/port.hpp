// The port of an open device: checked, with the GID that its queue pairs will use.
#pragma once

#include "host/context_impl.hpp"

namespace peal::host {

// Fills what `context` knows of its port. Throws Error that names the port and what it lacks.
void open_port(Context::Impl& context, const ContextOptions& options);

}  // namespace peal::host
