// How long the long loops of the tests run: PEAL_TEST_SCALE multiplies their counts.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace peal::test {

// `n` times the scale (1 unless the environment says otherwise), at least 1.
inline std::uint64_t scaled(std::uint64_t n) {
  static const double scale = [] {
    const char* text = std::getenv("PEAL_TEST_SCALE");
    const double value = text == nullptr ? 1.0 : std::strtod(text, nullptr);
    return value > 0 ? value : 1.0;
  }();
  const double count = static_cast<double>(n) * scale;
  return count < 1 ? 1 : static_cast<std::uint64_t>(count);
}

}  // namespace peal::test
