// Who stores the doorbells of a queue, and why it is that one. Plain data: it travels in the
// handle.
#pragma once

#include <cstdint>

#include "peal/core/config.hpp"

namespace peal {

enum class NicHandler : std::uint8_t {
  kAutomatic,  // a request only: direct where the UAR page can be mapped, else proxy
  kDirect,     // the producers: they write the record and the UAR register themselves
  kProxy,      // a CPU thread, which the producers tell of their producer index
};

enum class HandlerReason : std::uint8_t {
  kRequested,
  kUarMapped,
  kUarNotMapped,
};

PEAL_HOST_DEVICE constexpr const char* nic_handler_name(NicHandler h) {
  switch (h) {
    case NicHandler::kAutomatic: return "automatic";
    case NicHandler::kDirect: return "direct";
    case NicHandler::kProxy: return "proxy";
  }
  return "unknown handler";
}
PEAL_HOST_DEVICE constexpr const char* handler_reason_text(HandlerReason r) {
  switch (r) {
    case HandlerReason::kRequested: return "requested";
    case HandlerReason::kUarMapped: return "the UAR page can be mapped";
    case HandlerReason::kUarNotMapped: return "the UAR page cannot be mapped";
  }
  return "unknown reason";
}

// What was asked for and what it became, decided once per context. `resolved` is direct or proxy.
struct HandlerChoice {
  NicHandler requested = NicHandler::kDirect;
  NicHandler resolved = NicHandler::kDirect;
  HandlerReason why = HandlerReason::kRequested;

  PEAL_HOST_DEVICE friend constexpr bool operator==(const HandlerChoice& a,
                                                    const HandlerChoice& b) {
    return a.requested == b.requested && a.resolved == b.resolved && a.why == b.why;
  }
};

}  // namespace peal
