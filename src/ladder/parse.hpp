// Numbers as users write them. Every refusal is a UsageError of one sentence that names the option,
// what it takes and what was given.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

namespace peal::ladder {

// Both ends included.
struct Limits {
  std::uint64_t min = 1;
  std::uint64_t max = std::numeric_limits<std::uint64_t>::max();
};

enum class Base : std::uint8_t { kDecimal, kDecimalOrHex };

// The whole of `text` as an unsigned number; nothing for a sign, a space, any other character, or
// a number of more than 64 bits. Hexadecimal starts with 0x.
std::optional<std::uint64_t> try_parse_number(std::string_view text, Base base = Base::kDecimal);

std::uint64_t parse_count(std::string_view option, std::string_view text, Limits limits = {});

// Bytes, with the suffixes K or KiB, M or MiB, G or GiB, T or TiB: powers of 1024.
std::uint64_t parse_bytes(std::string_view option, std::string_view text, Limits limits = {});

// One or more of them: "4096,64K".
std::vector<std::uint64_t> parse_size_list(std::string_view option, std::string_view text,
                                           Limits limits = {});

}  // namespace peal::ladder
