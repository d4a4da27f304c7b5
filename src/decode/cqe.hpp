// What the bytes of an mlx5 CQE say, what went wrong and how to mend it. Looks at nothing but the
// bytes and what the user expects of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "decode/decoded.hpp"

namespace peal::decode {

// The last bytes of a CQE, with all that an error says: drivers' logs are often cut to them.
inline constexpr std::size_t kCqeTailBytes = 16;

struct CqeExpectations {
  std::optional<std::uint64_t> number;   // of the CQE, as software counts, from 0
  std::optional<std::uint64_t> entries;  // of the ring, a power of two; with `number`
  std::optional<std::uint32_t> qpn;
};

// One sentence where so many bytes cannot be those of a CQE.
std::optional<std::string> refuse_cqe_size(std::size_t bytes);

// All 64 `bytes` of a CQE, or the last 16.
Decoded decode_cqe(std::span<const std::uint8_t> bytes, const CqeExpectations& expected = {});

}  // namespace peal::decode
