// How many threads act as one producer.
#pragma once

#include <cstdint>

namespace peal::ladder {

enum class Exec : std::uint8_t { kThread, kWarp, kBlock };

constexpr const char* exec_name(Exec e) {
  return e == Exec::kThread ? "thread" : e == Exec::kWarp ? "warp" : "block";
}

inline constexpr std::uint32_t kWarpThreads = 32;
inline constexpr std::uint32_t kBlockThreads = 128;

constexpr std::uint32_t threads_of(Exec e) {
  return e == Exec::kThread ? 1 : e == Exec::kWarp ? kWarpThreads : kBlockThreads;
}

}  // namespace peal::ladder
