// The doorbell record (in memory) and the doorbell (a UAR register). No behaviour.
#pragma once

#include <cstdint>

#include "peal/core/config.hpp"
#include "peal/core/types.hpp"

namespace peal::mlx5 {

// The record is two big-endian words: receive at 0, send at 4.
inline constexpr std::uint32_t kDbrecReceiveWord = 0;
inline constexpr std::uint32_t kDbrecSendWord = 1;
inline constexpr std::uint32_t kDbrecBytes = 8;

// Where the doorbell registers lie in a 4 KiB UAR page: of queues with a record, and without.
inline constexpr std::uint32_t kUarPageBytes = 4096;
inline constexpr std::uint32_t kUarDoorbellOffset = 0x800;
inline constexpr std::uint32_t kUarRecordlessDoorbellOffset = 0x600;
PEAL_HOST_DEVICE constexpr std::uint32_t uar_doorbell_offset(bool has_record) {
  return has_record ? kUarDoorbellOffset : kUarRecordlessDoorbellOffset;
}

// `pi` is the index after the last posted slot; 16 bits of it travel.
PEAL_HOST_DEVICE constexpr std::uint32_t encode_dbrec(std::uint64_t pi) {
  return swap_bytes(static_cast<std::uint32_t>(pi & 0xffff));
}
PEAL_HOST_DEVICE constexpr std::uint16_t decode_dbrec(std::uint32_t memory_word) {
  return static_cast<std::uint16_t>(swap_bytes(memory_word));
}

// One 8-byte store: BE32((pi & 0xffff) << 8), BE32(qpn << 8). A BlueFlame write puts a whole WQE
// here instead; then ds is not 0 and the index is the WQE's own.
struct Doorbell {
  std::uint16_t index;
  Qpn qpn;
  std::uint8_t ds;

  // The producer index that this doorbell announces.
  PEAL_HOST_DEVICE constexpr std::uint16_t pi() const {
    return static_cast<std::uint16_t>(index + (ds + 3) / 4);
  }
};

PEAL_HOST_DEVICE constexpr std::uint64_t encode_doorbell(std::uint64_t pi, Qpn qpn) {
  return std::uint64_t{swap_bytes(static_cast<std::uint32_t>(pi & 0xffff) << 8)} |
         (std::uint64_t{swap_bytes(qpn.value << 8)} << 32);
}
PEAL_HOST_DEVICE constexpr Doorbell decode_doorbell(std::uint64_t memory_word) {
  const std::uint32_t d0 = swap_bytes(static_cast<std::uint32_t>(memory_word));
  const std::uint32_t d1 = swap_bytes(static_cast<std::uint32_t>(memory_word >> 32));
  return {static_cast<std::uint16_t>(d0 >> 8), Qpn(d1 >> 8), static_cast<std::uint8_t>(d1 & 0x3f)};
}

}  // namespace peal::mlx5
