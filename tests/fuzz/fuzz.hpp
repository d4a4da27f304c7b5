// What the fuzz targets share: how a property fails, and an input as a row of integers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace peal::test {

// `property` says what has to hold.
inline void require(bool holds, const char* property) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: this does not hold: %s\n", property);
  std::abort();
}

// The bytes of an input, front to back; behind their end they are zeros.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t bytes) : next_(data), left_(bytes) {}

  bool empty() const { return left_ == 0; }

  void read(void* to, std::size_t bytes) {
    const std::size_t taken = std::min(bytes, left_);
    if (bytes > taken) std::memset(static_cast<std::byte*>(to) + taken, 0, bytes - taken);
    if (taken > 0) std::memcpy(to, next_, taken);
    next_ += taken;
    left_ -= taken;
  }

  // Little-endian.
  template <class T>
  T take() {
    T value{};
    read(&value, sizeof value);
    return value;
  }

 private:
  const std::uint8_t* next_;
  std::size_t left_;
};

inline std::string_view text_of(const std::uint8_t* data, std::size_t bytes) {
  return {reinterpret_cast<const char*>(data), bytes};
}

// Calls `f` with each line of `text`, without its end.
template <class F>
void for_each_line(std::string_view text, F f) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    f(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace peal::test
