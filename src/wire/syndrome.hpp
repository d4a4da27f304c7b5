// What the syndrome of an AETH says (IBTA 9.7.5.2). C++17, as a GPU's NIC needs it too.
#pragma once

#include <cstdint>

namespace peal::wire {

// Bits 6 and 5 of the syndrome; bit 7 is reserved.
enum class AethKind : std::uint8_t { kAck = 0, kRnrNak = 1, kReserved = 2, kNak = 3 };

enum class NakCode : std::uint8_t {
  kPsnSequence = 0,
  kInvalidRequest = 1,
  kRemoteAccess = 2,
  kRemoteOperation = 3,
  kInvalidRdRequest = 4,
};

constexpr AethKind aeth_kind(std::uint8_t syndrome) {
  return static_cast<AethKind>(syndrome >> 5 & 3);
}
// The low 5 bits: an ACK's credit, an RNR NAK's timer, a NAK's code.
constexpr std::uint8_t aeth_value(std::uint8_t syndrome) {
  return syndrome & 0x1f;
}
inline constexpr std::uint8_t kCreditNotLimited = 0x1f;

constexpr std::uint8_t aeth_syndrome(AethKind kind, std::uint8_t value) {
  return static_cast<std::uint8_t>(static_cast<unsigned>(kind) << 5 | (value & 0x1fu));
}
constexpr std::uint8_t aeth_syndrome(NakCode code) {
  return aeth_syndrome(AethKind::kNak, static_cast<std::uint8_t>(code));
}

constexpr const char* nak_text(std::uint8_t code) {
  switch (static_cast<NakCode>(code)) {
    case NakCode::kPsnSequence: return "PSN sequence error";
    case NakCode::kInvalidRequest: return "invalid request";
    case NakCode::kRemoteAccess: return "remote access error";
    case NakCode::kRemoteOperation: return "remote operational error";
    case NakCode::kInvalidRdRequest: return "invalid RD request";
  }
  return "reserved code";
}

// How long an RNR NAK asks to wait, in microseconds.
constexpr std::uint32_t rnr_timer_us(std::uint8_t value) {
  constexpr std::uint32_t kMicroseconds[32] = {
      655360, 10,    20,    30,    40,    60,     80,     120,    160,    240,   320,
      480,    640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240, 15360,
      20480,  30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520};
  return kMicroseconds[value & 0x1f];
}

}  // namespace peal::wire
