#include "decode/decoded.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

namespace peal::decode {

std::uint64_t View::be(std::uint32_t offset, std::uint32_t size) const {
  std::uint64_t value = 0;
  for (const std::uint8_t byte : at(offset, size)) value = value << 8 | byte;
  return value;
}

mlx5::Words16 View::words(std::uint32_t offset) const {
  mlx5::Words16 w;
  std::memcpy(&w, at(offset, sizeof w).data(), sizeof w);
  return w;
}

std::string View::hex(std::uint32_t offset, std::uint32_t size) const {
  std::string text;
  for (const std::uint8_t byte : at(offset, size)) {
    fmt::format_to(std::back_inserter(text), "{:02x}", byte);
  }
  return text;
}

bool View::all(std::uint32_t offset, std::uint32_t size, std::uint8_t value) const {
  const auto bytes = at(offset, size);
  return std::all_of(bytes.begin(), bytes.end(), [value](std::uint8_t b) { return b == value; });
}

bool Decoded::wrong() const {
  return std::any_of(findings.begin(), findings.end(), [](const Finding& f) { return f.wrong(); });
}

std::string to_text(const Decoded& decoded) {
  std::string text = decoded.title + "\n";
  const auto out = std::back_inserter(text);
  std::size_t raw_width = 0;
  std::size_t name_width = 0;
  for (const Field& f : decoded.fields) {
    raw_width = std::max(raw_width, f.raw.size());
    name_width = std::max(name_width, f.name.size());
  }
  for (const Field& f : decoded.fields) {
    fmt::format_to(out, "{:>5}  {:<{}}  {:<{}}  {}\n", f.offset, f.raw, raw_width, f.name,
                   name_width, f.meaning);
  }
  for (const Finding& f : decoded.findings) {
    if (f.wrong()) {
      fmt::format_to(out, "wrong: {}; mend: {}\n", f.what, f.mend);
    } else {
      fmt::format_to(out, "note: {}\n", f.what);
    }
  }
  if (!decoded.wrong()) text += "nothing wrong found\n";
  return text;
}

}  // namespace peal::decode
