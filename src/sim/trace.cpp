#include "sim/trace.hpp"

#include <cinttypes>
#include <cstdio>

namespace peal::sim {

std::string Trace::name_of(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  for (const Range& r : ranges_) {
    if (at < r.at || at >= r.at + r.bytes) continue;
    const auto offset = static_cast<std::size_t>(at - r.at);
    if (r.element_bytes == 0) {
      return offset == 0 ? r.name : r.name + "+" + std::to_string(offset);
    }
    const std::size_t rest = offset % r.element_bytes;
    return r.name + "[" + std::to_string(offset / r.element_bytes) + "]" +
           (rest == 0 ? "" : "+" + std::to_string(rest));
  }
  return "?";
}

std::string Trace::line(const Event& e, std::size_t words, const std::string& agent) const {
  char text[160];
  std::snprintf(text, sizeof text, "%12" PRIu64 " ns  %-10s  %-26s", e.now_ns, agent.c_str(),
                e.operation);
  std::string all = text;
  if (e.address == nullptr) return all;
  all += "  " + name_of(e.address);
  if (words > 1) {
    std::snprintf(text, sizeof text, ", %zu words", words);
  } else if (e.bytes <= 8) {
    std::snprintf(text, sizeof text, " = 0x%" PRIx64, e.value);
  } else {
    std::snprintf(text, sizeof text, ", %" PRIu32 " bytes", e.bytes);
  }
  all += text;
  if (e.newer != 0) all += "  (" + std::to_string(e.newer) + " newer not seen)";
  return all;
}

}  // namespace peal::sim
