// How a message is cut into segments: all but the last end at a packet's end.
#pragma once

#include <cstdint>

#include "nic/tables.hpp"

namespace peal::nic {

struct Cut {
  bool first;
  bool last;
  std::uint32_t bytes;
};

// The next segment of a message of `bytes`, of which `sent` have gone, where one carries at most
// `most`.
inline Cut next_cut(const QpEntry& qp, std::uint32_t bytes, std::uint32_t sent,
                    std::uint32_t most) {
  const std::uint32_t whole_packets = most / qp.mtu_bytes() * qp.mtu_bytes();
  const std::uint32_t left = bytes - sent;
  const bool last = left <= whole_packets;
  return {sent == 0, last, last ? left : whole_packets};
}

// Whether a segment of `bytes` can be one of a message of which `left` are still to come.
inline bool is_cut(const QpEntry& qp, std::uint32_t left, bool last, std::uint32_t bytes) {
  if (last) return bytes == left;
  return bytes > 0 && bytes < left && bytes % qp.mtu_bytes() == 0;
}

}  // namespace peal::nic
