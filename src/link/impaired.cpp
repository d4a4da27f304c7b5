#include "link/impaired.hpp"

#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>

namespace peal::link {
namespace {

std::uint64_t steady_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

void require_probability(double p, const char* of) {
  if (!(p >= 0 && p <= 1)) {
    throw std::invalid_argument(std::string("the probability to ") + of + " is not within 0 to 1");
  }
}

}  // namespace

ImpairedLink::ImpairedLink(Link& inner, Impairments impairments)
    : ForwardingLink(inner), impairments_(std::move(impairments)), random_(impairments_.seed) {
  require_probability(impairments_.drop, "drop");
  require_probability(impairments_.duplicate, "duplicate");
  require_probability(impairments_.reorder, "reorder");
  if (!impairments_.clock) impairments_.clock = steady_ns;
}

// Of the generator's own bits: what a standard distribution makes of them differs by library.
bool ImpairedLink::chance(double probability) {
  constexpr double kUnit = 1.0 / (std::uint64_t{1} << 53);
  return static_cast<double>(random_() >> 11) * kUnit < probability;
}

bool ImpairedLink::try_send(const Segment& segment) {
  if (closed()) return false;
  send_due();
  if (held_.size() + 2 > kHeldMax) return false;
  if (chance(impairments_.drop)) {
    ++counters_.dropped;
    return true;
  }
  const bool doubled = chance(impairments_.duplicate);
  const std::uint32_t later = chance(impairments_.reorder)
                                  ? 1 + static_cast<std::uint32_t>(random_() % kReorderSegments)
                                  : 0;
  counters_.duplicated += doubled ? 1 : 0;
  counters_.reordered += later != 0 ? 1 : 0;
  const std::uint64_t due_ns =
      impairments_.clock() + impairments_.delay_ns + (later != 0 ? kReorderNs : 0);

  const std::size_t overtaken = held_.size();
  for (int copies = doubled ? 2 : 1; copies > 0; --copies) hold(segment, due_ns, later);
  overtake(overtaken, later == 0 ? due_ns : due_ns - kReorderNs);
  send_due();
  return true;
}

void ImpairedLink::hold(const Segment& segment, std::uint64_t due_ns, std::uint32_t later) {
  Held held{segment, {}, due_ns, later};
  if (!payload_stays() && segment.payload_bytes != 0) {
    held.payload.assign(segment.payload, segment.payload + segment.payload_bytes);
  }
  held_.push_back(std::move(held));
}

// One more has overtaken the first `count`. Those that wait for no further one follow it.
void ImpairedLink::overtake(std::size_t count, std::uint64_t due_ns) {
  for (std::size_t i = 0; i < count;) {
    Held& held = held_[i];
    if (held.later == 0 || --held.later != 0) {
      ++i;
      continue;
    }
    Held follows = std::move(held);
    follows.due_ns = due_ns;
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
    held_.push_back(std::move(follows));
    --count;
  }
}

bool ImpairedLink::try_receive(Segment* segment) {
  send_due();
  return inner_.try_receive(segment);
}

// In order, but for those that are being overtaken. Behind the first other that is not due, none
// is.
void ImpairedLink::send_due() {
  if (held_.empty()) return;
  const std::uint64_t now_ns = impairments_.clock();
  for (std::size_t i = 0; i < held_.size();) {
    Held& held = held_[i];
    if (now_ns < held.due_ns) {
      if (held.later == 0) return;
      ++i;
      continue;
    }
    Segment segment = held.segment;
    if (!held.payload.empty()) segment.payload = held.payload.data();
    if (!inner_.try_send(segment)) return;
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

bool ImpairedLink::discard(Qpn source_qpn, SegmentRole role, Psn from, std::int32_t psns) {
  const std::size_t forgotten = std::erase_if(held_, [&](const Held& held) {
    return payload_stays() && is_discarded(held.segment, source_qpn, role, from, psns);
  });
  const bool inner = inner_.discard(source_qpn, role, from, psns);
  return inner || forgotten != 0;
}

}  // namespace peal::link
