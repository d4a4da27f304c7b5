// Bytes of memory as people and drivers print them. No I/O.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace peal::decode {

using Bytes = std::vector<std::uint8_t>;

// What was printed: bytes in memory order (a big-endian word reads the same), or the words of a
// little-endian host as numbers.
enum class Words : std::uint8_t { kMemoryOrder, kLittle32, kLittle64 };

struct Dump {
  Bytes bytes;
  std::string error;  // one sentence, and then no bytes
};

// Hex digits with spaces, commas, colons, line breaks and 0x between them. Offsets before a line
// ("00000010: ...", or as `hexdump -C` prints them) are checked and left out, and so is what
// follows a '|'.
Dump parse_dump(std::string_view text);

// Into memory order. A last word that is not whole stays as it is.
void reorder(Bytes& bytes, Words words);

}  // namespace peal::decode
