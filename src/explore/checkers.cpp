#include "explore/checkers.hpp"

namespace peal::explore {

void CounterChecker::fail(const char* what) {
  const QueueState& s = *queue_.state;
  findings_.add("counters",
                name_ + ": " + what + " (completed " + std::to_string(s.completed) + ", rung " +
                    std::to_string(s.rung) + ", ready " + std::to_string(s.ready) + ", reserved " +
                    std::to_string(s.reserved) + ", depth " + std::to_string(queue_.depth) + ")");
}

void CounterChecker::look() {
  const QueueState& s = *queue_.state;
  if (s.completed < before_.completed) fail("`completed` went back");
  if (s.rung < before_.rung) fail("`rung` went back");
  if (s.ready < before_.ready) fail("`ready` went back");
  if (s.reserved < before_.reserved) fail("`reserved` went back");
  if (s.completed > s.rung) fail("more was completed than rung");
  if (s.rung > s.ready) fail("more was rung than written");
  if (s.ready > s.reserved) fail("more was written than reserved");
  if (s.reserved - s.completed > queue_.depth) fail("more was reserved than the ring holds");
  if (before_.error != 0 && s.error != before_.error) fail("the first error did not stay latched");
  before_.error = s.error;
  before_.completed = s.completed;
  before_.rung = s.rung;
  before_.ready = s.ready;
  before_.reserved = s.reserved;
}

void LandingChecker::landed(const std::byte* at, std::uint32_t bytes) {
  const auto offset = static_cast<std::size_t>(at - memory_);
  for (std::size_t i = offset; i < offset + bytes; ++i) {
    if (i >= times_.size() || times_[i] == 0) {
      findings_.add("landing", "destination byte " + std::to_string(i) +
                                   " was written though no operation that may write it is open");
      return;
    }
    --times_[i];
  }
}

void LandingChecker::ask(std::size_t offset, std::uint32_t bytes) {
  for (std::size_t i = offset; i < offset + bytes; ++i) ++times_[i];
}

void LandingChecker::acknowledge(std::size_t offset, std::uint32_t bytes, const std::string& what) {
  for (std::size_t i = offset; i < offset + bytes; ++i) {
    if (times_[i] == 0) continue;
    findings_.add("landing", what + " was acknowledged, but destination byte " + std::to_string(i) +
                                 " was never written");
    return;
  }
}

}  // namespace peal::explore
