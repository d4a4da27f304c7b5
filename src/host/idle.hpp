// How a polling thread passes the time while there is nothing to do. Pure: who follows it brings
// the clock.
#pragma once

#include <cstdint>

namespace peal::host {

struct IdleTurn {
  enum Kind : std::uint8_t { kSpin, kYield, kSleep } kind;
  std::uint64_t sleep_ns;
};

// Work most often follows work within microseconds. A yield lets whoever brings it run where CPUs
// are few.
inline constexpr std::uint32_t kSpinTurns = 256;
inline constexpr std::uint32_t kYieldTurns = 4096;
// Sleeps end late, by the kernel's timer slack of 50 us and more, and work must not wait for 1 ms.
// 1400 looks a second stay below 5 % of a core even where going to sleep and waking cost 30 us.
inline constexpr std::uint64_t kSleepNs = 700'000;

// What to do after the `idle_looks`-th look in a row (from 1) that found nothing.
constexpr IdleTurn idle_turn(std::uint32_t idle_looks) {
  if (idle_looks <= kSpinTurns) return {IdleTurn::kSpin, 0};
  if (idle_looks <= kSpinTurns + kYieldTurns) return {IdleTurn::kYield, 0};
  return {IdleTurn::kSleep, kSleepNs};
}

}  // namespace peal::host
