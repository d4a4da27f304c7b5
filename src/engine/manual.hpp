// An engine that does nothing by itself: a test steps it, with a clock of its own.
#pragma once

#include <utility>
#include <vector>

#include "engine/engine.hpp"

namespace peal::engine {

class ManualEngine final : public Engine {
 public:
  void add(Step step) { steps_.push_back(std::move(step)); }

  void call(const std::function<void()>& f) override { f(); }

  std::uint64_t now_ns() const { return now_ns_; }
  void advance(std::uint64_t ns) { now_ns_ += ns; }

  // Steps every core once.
  bool step() {
    bool worked = false;
    for (const Step& s : steps_) worked |= s(now_ns_);
    return worked;
  }
  // Steps until nothing is left to do at this time; at most `limit` rounds. False if more was left.
  bool settle(std::uint32_t limit = 1'000'000) {
    for (std::uint32_t i = 0; i < limit; ++i) {
      if (!step()) return true;
    }
    return false;
  }

 private:
  std::vector<Step> steps_;
  std::uint64_t now_ns_ = 1;
};

}  // namespace peal::engine
