// What the bytes of an mlx5 send WQE say, what is wrong with them and how to mend it. Looks at
// nothing but the bytes and what the user expects of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "decode/decoded.hpp"

namespace peal::decode {

inline constexpr std::size_t kMaxWqeBytes = 1024;

struct WqeExpectations {
  std::optional<std::uint64_t> index;  // as software counts, never wrapping
  std::optional<std::uint32_t> depth;  // slots of the queue
  std::optional<std::uint32_t> qpn;
  std::optional<std::uint32_t> lkey;  // host order
  std::optional<std::uint32_t> rkey;
};

// One sentence where so many bytes cannot be those of a WQE.
std::optional<std::string> refuse_wqe_size(std::size_t bytes);

// `bytes` from the beginning of a WQE, of a size that is not refused.
Decoded decode_wqe(std::span<const std::uint8_t> bytes, const WqeExpectations& expected = {});

}  // namespace peal::decode
