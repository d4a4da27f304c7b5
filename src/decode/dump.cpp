#include "decode/dump.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <optional>

namespace peal::decode {
namespace {

constexpr std::size_t kShownDigits = 20;  // of a word in a sentence

std::uint8_t digit_value(char c) {
  if (c >= '0' && c <= '9') return static_cast<std::uint8_t>(c - '0');
  return static_cast<std::uint8_t>((c | 0x20) - 'a' + 10);
}

bool is_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

std::string shown(std::string_view word) {
  if (word.size() <= kShownDigits) return std::string(word);
  return fmt::format("{}...", word.substr(0, kShownDigits));
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Dump parse() {
    while (error_.empty() && at_ < text_.size()) {
      const char c = text_[at_];
      if (is_space(c) || c == ',' || c == ':') {
        ++at_;
      } else if (c == '|') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else {
        take_word();
      }
    }
    if (error_.empty() && bytes_.empty()) error_ = "the dump holds no hex digits";
    if (!error_.empty()) bytes_.clear();
    return {std::move(bytes_), std::move(error_)};
  }

 private:
  void take_word() {
    const std::size_t begin = at_;
    const bool prefixed =
        text_[at_] == '0' && at_ + 1 < text_.size() && (text_[at_ + 1] | 0x20) == 'x';
    if (prefixed) at_ += 2;
    const std::size_t first = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    const std::string_view digits = text_.substr(first, at_ - first);
    if (digits.empty()) {
      refuse_character(prefixed ? begin : at_, prefixed);
      return;
    }
    if (is_offset(digits, prefixed)) {
      check_offset(digits);
    } else if (digits.size() % 2 != 0) {
      // A character that is no digit may be what cut the word short.
      if (at_ < text_.size() && !is_space(text_[at_]) && text_[at_] != ',' && text_[at_] != ':' &&
          text_[at_] != '|') {
        refuse_character(at_, false);
        return;
      }
      error_ = fmt::format(
          "'{}' at {} is an odd number of hex digits: write two for each byte, leading zeros too",
          shown(digits), place(begin));
    } else {
      for (std::size_t i = 0; i < digits.size(); i += 2) {
        bytes_.push_back(
            static_cast<std::uint8_t>(digit_value(digits[i]) << 4 | digit_value(digits[i + 1])));
      }
    }
  }

  void refuse_character(std::size_t position, bool prefixed) {
    if (prefixed) {
      error_ = fmt::format("0x at {} is followed by no hex digit", place(position));
      return;
    }
    const auto c = static_cast<unsigned char>(text_[position]);
    const std::string name =
        c >= 0x20 && c < 0x7f ? std::string(1, text_[position]) : fmt::format("\\x{:02x}", c);
    error_ =
        fmt::format("'{}' at {} is neither a hex digit nor a separator", name, place(position));
  }

  // "00000010:" with a space behind it, or 8 digits before single bytes, or the number of bytes
  // with which `hexdump -C` ends.
  bool is_offset(std::string_view digits, bool prefixed) const {
    const bool colon = at_ < text_.size() && text_[at_] == ':';
    if (colon && digits.size() >= 4) {
      return at_ + 1 == text_.size() || is_space(text_[at_ + 1]);
    }
    if (colon || prefixed || digits.size() != 8) return false;
    const std::size_t next = text_.find_first_not_of(" \t", at_);
    if (next == std::string_view::npos || is_space(text_[next])) {
      return first_offset_ && text_.find_first_not_of(" \t\r\n", at_) == std::string_view::npos &&
             offset_value(digits) == *first_offset_ + bytes_.size();
    }
    const std::size_t end =
        std::min(text_.find_first_not_of("0123456789abcdefABCDEF", next), text_.size());
    return end - next == 2 && (end == text_.size() || is_space(text_[end]));
  }

  static std::optional<std::uint64_t> offset_value(std::string_view digits) {
    std::uint64_t value = 0;
    const char* const end = digits.data() + digits.size();
    const auto [stopped, error] = std::from_chars(digits.data(), end, value, 16);
    if (error != std::errc() || stopped != end) return std::nullopt;
    return value;
  }

  void check_offset(std::string_view digits) {
    const auto value = offset_value(digits);
    if (value && !first_offset_ && bytes_.empty()) first_offset_ = *value;
    if (value && first_offset_ && *value == *first_offset_ + bytes_.size()) return;
    error_ =
        fmt::format("the line at offset {} follows {} bytes, so lines are missing or out of order",
                    shown(digits), bytes_.size());
  }

  std::string place(std::size_t position) const {
    const std::string_view before = text_.substr(0, position);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const std::size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
    const std::size_t column = position - line_begin + 1;
    if (line == 1) return fmt::format("character {}", column);
    return fmt::format("character {} of line {}", column, line);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  Bytes bytes_;
  std::string error_;
  std::optional<std::uint64_t> first_offset_;
};

}  // namespace

Dump parse_dump(std::string_view text) {
  return Parser(text).parse();
}

void reorder(Bytes& bytes, Words words) {
  if (words == Words::kMemoryOrder) return;
  const std::ptrdiff_t step = words == Words::kLittle32 ? 4 : 8;
  for (auto word = bytes.begin(); bytes.end() - word >= step; word += step) {
    std::reverse(word, word + step);
  }
}

}  // namespace peal::decode
