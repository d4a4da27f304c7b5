#include "ladder/notices.hpp"

#include <fmt/format.h>

namespace peal::ladder {
namespace {

std::string sentence(const nic::Notice& n) {
  const std::string qp = n.qpn.value == 0 ? "" : fmt::format("QPN 0x{:06x}: ", n.qpn.value);
  return fmt::format("the NIC {}: {}{} ({})",
                     n.level == nic::Strictness::kWarn ? "warns" : "refuses", qp,
                     nic::refusal_text(n.reason), nic::refusal_name(n.reason));
}

}  // namespace

void Notices::hear(const nic::Notice& notice) {
  // Somebody asked for it.
  if (notice.reason == nic::Refusal::kInjected) return;
  const std::lock_guard lock(mutex_);
  if (heard_.emplace(notice.reason, notice.qpn.value).second) untold_.push_back(notice);
}

void Notices::tell(const std::function<void(const std::string&)>& note) {
  std::vector<nic::Notice> notices;
  {
    const std::lock_guard lock(mutex_);
    notices.swap(untold_);
  }
  for (const nic::Notice& n : notices) note(sentence(n));
}

void Notices::forget_told() {
  const std::lock_guard lock(mutex_);
  heard_.clear();
}

}  // namespace peal::ladder
