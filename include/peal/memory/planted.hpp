// What the simulator can take out of the data path, to show that its checkers would find it
// missing. Only a memory policy that has a member `planted` has plants; for every other one this is
// a constant and the code is as if it were not named.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "peal/core/config.hpp"

namespace peal {

enum class LogicPlant : std::uint8_t {
  kTryLockCombiner,
  kCreditCheck,
  kOwnerLap,
  kFirstError,
  kDuplicateAck,
};

namespace detail {
template <class M, class = void>
struct HasPlants : std::false_type {};
template <class M>
struct HasPlants<M, std::void_t<decltype(M::planted(std::declval<LogicPlant>()))>>
    : std::true_type {};
}  // namespace detail

template <class M>
PEAL_HOST_DEVICE constexpr bool planted([[maybe_unused]] LogicPlant plant) {
  if constexpr (detail::HasPlants<M>::value) {
    return M::planted(plant);
  } else {
    return false;
  }
}

}  // namespace peal
