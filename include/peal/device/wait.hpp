// The one polling loop's clockwork: a deadline that costs nothing while there is nothing to wait
// for.
#pragma once

#include <cstdint>

#include "peal/core/config.hpp"

namespace peal {

inline constexpr std::uint64_t kDefaultTimeoutNs = 5'000'000'000u;

// Starts its clock at the first unsuccessful turn, so a wait that ends at once reads no clock.
template <class M>
class Wait {
 public:
  PEAL_HOST_DEVICE explicit Wait(std::uint64_t timeout_ns) : timeout_ns_(timeout_ns) {}

  // Pauses one turn; true once `timeout_ns` have passed since the first turn. The clock is read on
  // the first turns and then every 16th, so a wait may outlive its deadline by 16 pauses.
  PEAL_HOST_DEVICE bool turn_until_deadline() {
    if (!started_) start_ns_ = M::now_ns();
    started_ = true;
    M::pause(turn_, deadline_ns());
    ++turn_;
    if (turn_ > kTurnsPerClock && turn_ % kTurnsPerClock != 0) return false;
    return M::now_ns() - start_ns_ >= timeout_ns_;
  }

 private:
  static constexpr std::uint32_t kTurnsPerClock = 16;

  PEAL_HOST_DEVICE std::uint64_t deadline_ns() const {
    const std::uint64_t end = start_ns_ + timeout_ns_;
    return end < start_ns_ ? ~std::uint64_t{0} : end;
  }

  std::uint64_t timeout_ns_;
  std::uint64_t start_ns_ = 0;
  std::uint32_t turn_ = 0;  // may wrap
  bool started_ = false;
};

}  // namespace peal
