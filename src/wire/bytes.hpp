// Big-endian integers at any alignment, of which every header is made, and the one way to look at a
// header in received bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace peal::wire {

using Bytes = std::span<const std::byte>;

// An integer of N bytes as it lies in a header.
template <std::size_t N>
class Be {
 public:
  using Value = std::conditional_t<
      N == 1, std::uint8_t,
      std::conditional_t<N == 2, std::uint16_t,
                         std::conditional_t<N <= 4, std::uint32_t, std::uint64_t>>>;
  static_assert(N >= 1 && N <= 8);

  constexpr Be() = default;
  // Of `value` the low 8 * N bits.
  constexpr explicit Be(Value value) {
    std::uint64_t rest = value;
    for (std::size_t i = N; i > 0; --i, rest >>= 8) bytes_[i - 1] = static_cast<std::byte>(rest);
  }
  constexpr Value get() const {
    std::uint64_t value = 0;
    for (const std::byte b : bytes_) value = value << 8 | std::to_integer<std::uint64_t>(b);
    return static_cast<Value>(value);
  }

 private:
  std::array<std::byte, N> bytes_{};
};

// The header of the layout `Format` at the beginning of `bytes`, in place; null where they end
// before it does.
template <class Format>
const Format* view_of(Bytes bytes) {
  static_assert(alignof(Format) == 1 && std::is_trivially_copyable_v<Format>);
  return bytes.size() < sizeof(Format) ? nullptr : reinterpret_cast<const Format*>(bytes.data());
}

}  // namespace peal::wire
