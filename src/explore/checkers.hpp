// What must hold of every run, whatever the NIC does inside: seen from the producers' memory, the
// receiver's memory, and the queue's counters. Each finding is kept once, the first.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "explore/run.hpp"
#include "peal/device/queue_handle.hpp"

namespace peal::explore {

class Findings {
 public:
  // `on_first` is called with the first one.
  explicit Findings(std::function<void()> on_first) : on_first_(std::move(on_first)) {}

  void add(const char* checker, std::string sentence) {
    if (first_) return;
    first_ = {checker, std::move(sentence)};
    on_first_();
  }
  const Finding& first() const { return first_; }

 private:
  Finding first_;
  std::function<void()> on_first_;
};

// DESIGN's rules on a queue's counters, looked at whenever another agent goes on.
class CounterChecker {
 public:
  CounterChecker(Findings& findings, const QueueHandle& queue, std::string name)
      : findings_(findings), queue_(queue), name_(std::move(name)), before_(*queue.state) {}

  void look();

 private:
  void fail(const char* what);

  Findings& findings_;
  QueueHandle queue_;
  std::string name_;
  QueueState before_;
};

// How often each byte of the destination may still be written.
class LandingChecker {
 public:
  LandingChecker(Findings& findings, const std::byte* memory, std::size_t bytes)
      : findings_(findings), memory_(memory), times_(bytes) {}

  bool covers(const std::byte* at) const { return at >= memory_ && at < memory_ + times_.size(); }
  // Somebody wrote there.
  void landed(const std::byte* at, std::uint32_t bytes);
  // An operation that writes there has been posted; it may land once.
  void ask(std::size_t offset, std::uint32_t bytes);
  // It has been acknowledged, so it has landed.
  void acknowledge(std::size_t offset, std::uint32_t bytes, const std::string& what);

 private:
  Findings& findings_;
  const std::byte* memory_;
  std::vector<std::int8_t> times_;
};

}  // namespace peal::explore
