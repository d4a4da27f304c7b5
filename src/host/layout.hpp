// Whether who asks for handles was built for those that this library makes.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdio>

#include "peal/device/queue_handle.hpp"
#include "peal/host/error.hpp"

namespace peal::host {

// `callers` is the kQueueHandleLayout of the code that called the library. Throws Error.
inline void require_layout(std::uint32_t callers) {
  if (callers == kQueueHandleLayout) return;
  char text[160];
  std::snprintf(text, sizeof text,
                "a handle of layout 0x%08x was asked for, but this library makes 0x%08x: build "
                "both from one version of Peal",
                callers, kQueueHandleLayout);
  throw Error(EINVAL, text);
}

}  // namespace peal::host
