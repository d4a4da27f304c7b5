#include "ladder/parse.hpp"

#include <fmt/format.h>

#include <charconv>

#include "ladder/usage_error.hpp"

namespace peal::ladder {
namespace {

struct Suffix {
  std::string_view text;
  unsigned shift;
};

// The longer ones first: "KiB" also ends a text, "K" must not be tried on it before.
constexpr Suffix kSuffixes[] = {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40},
                                {"K", 10},   {"M", 20},   {"G", 30},   {"T", 40}};

std::optional<std::uint64_t> try_parse_bytes(std::string_view text) {
  unsigned shift = 0;
  for (const Suffix& suffix : kSuffixes) {
    if (!text.ends_with(suffix.text)) continue;
    text.remove_suffix(suffix.text.size());
    shift = suffix.shift;
    break;
  }
  const auto number = try_parse_number(text);
  if (!number || *number > (std::numeric_limits<std::uint64_t>::max() >> shift)) {
    return std::nullopt;
  }
  return *number << shift;
}

bool within(std::optional<std::uint64_t> number, Limits limits) {
  return number && *number >= limits.min && *number <= limits.max;
}

}  // namespace

std::optional<std::uint64_t> try_parse_number(std::string_view text, Base base) {
  int radix = 10;
  if (base == Base::kDecimalOrHex && (text.starts_with("0x") || text.starts_with("0X"))) {
    text.remove_prefix(2);
    radix = 16;
  }
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number, radix);
  if (error != std::errc() || stopped != end) return std::nullopt;
  return number;
}

std::uint64_t parse_count(std::string_view option, std::string_view text, Limits limits) {
  const auto number = try_parse_number(text);
  if (!within(number, limits)) {
    throw UsageError(fmt::format("{} must be a whole number from {} to {}, not '{}'", option,
                                 limits.min, limits.max, text));
  }
  return *number;
}

std::uint64_t parse_bytes(std::string_view option, std::string_view text, Limits limits) {
  const auto number = try_parse_bytes(text);
  if (!within(number, limits)) {
    throw UsageError(
        fmt::format("{} must be a number of bytes from {} to {}, such as 4096 or 64KiB, not '{}'",
                    option, limits.min, limits.max, text));
  }
  return *number;
}

std::vector<std::uint64_t> parse_size_list(std::string_view option, std::string_view text,
                                           Limits limits) {
  std::vector<std::uint64_t> sizes;
  for (std::size_t begin = 0;;) {
    const std::size_t comma = text.find(',', begin);
    sizes.push_back(parse_bytes(option, text.substr(begin, comma - begin), limits));
    if (comma == std::string_view::npos) return sizes;
    begin = comma + 1;
  }
}

}  // namespace peal::ladder
