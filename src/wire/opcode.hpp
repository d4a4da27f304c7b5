// What each opcode of the BTH is called and what follows it (IBTA 9.2, tables of opcodes): reliable
// and unreliable connections, and the congestion notification of annex A17.
#pragma once

#include <cstdint>

namespace peal::wire {

// Those of reliable connections; those of unreliable ones are kUc plus the first twelve.
enum class Opcode : std::uint8_t {
  kSendFirst = 0,
  kSendMiddle = 1,
  kSendLast = 2,
  kSendLastImmediate = 3,
  kSendOnly = 4,
  kSendOnlyImmediate = 5,
  kWriteFirst = 6,
  kWriteMiddle = 7,
  kWriteLast = 8,
  kWriteLastImmediate = 9,
  kWriteOnly = 10,
  kWriteOnlyImmediate = 11,
  kReadRequest = 12,
  kReadResponseFirst = 13,
  kReadResponseMiddle = 14,
  kReadResponseLast = 15,
  kReadResponseOnly = 16,
  kAcknowledge = 17,
  kAtomicAcknowledge = 18,
  kCompareSwap = 19,
  kFetchAdd = 20,
  kSendLastInvalidate = 22,
  kSendOnlyInvalidate = 23,
  kCongestionNotification = 0x81,
};
inline constexpr std::uint8_t kUc = 0x20;

// Extended headers, in the order in which they follow a BTH.
enum Headers : std::uint8_t {
  kNoHeaders = 0,
  kHasReth = 1,
  kHasAtomicEth = 2,
  kHasAeth = 4,
  kHasAtomicAckEth = 8,
  kHasImmDt = 16,
  kHasIeth = 32,
};

// What follows the headers: nothing, payload, or payload of exactly an MTU.
enum class Carries : std::uint8_t { kNothing, kPayload, kWholeMtu };

struct OpcodeFormat {
  const char* name = nullptr;  // as IBTA writes it, after the transport's
  std::uint8_t headers = kNoHeaders;
  Carries carries = Carries::kNothing;

  constexpr bool has(Headers header) const { return (headers & header) != 0; }
};

namespace detail {
inline constexpr OpcodeFormat kConnected[24] = {
    {"SEND First", kNoHeaders, Carries::kWholeMtu},
    {"SEND Middle", kNoHeaders, Carries::kWholeMtu},
    {"SEND Last", kNoHeaders, Carries::kPayload},
    {"SEND Last with Immediate", kHasImmDt, Carries::kPayload},
    {"SEND Only", kNoHeaders, Carries::kPayload},
    {"SEND Only with Immediate", kHasImmDt, Carries::kPayload},
    {"RDMA WRITE First", kHasReth, Carries::kWholeMtu},
    {"RDMA WRITE Middle", kNoHeaders, Carries::kWholeMtu},
    {"RDMA WRITE Last", kNoHeaders, Carries::kPayload},
    {"RDMA WRITE Last with Immediate", kHasImmDt, Carries::kPayload},
    {"RDMA WRITE Only", kHasReth, Carries::kPayload},
    {"RDMA WRITE Only with Immediate", kHasReth | kHasImmDt, Carries::kPayload},
    {"RDMA READ Request", kHasReth, Carries::kNothing},
    {"RDMA READ response First", kHasAeth, Carries::kWholeMtu},
    {"RDMA READ response Middle", kNoHeaders, Carries::kWholeMtu},
    {"RDMA READ response Last", kHasAeth, Carries::kPayload},
    {"RDMA READ response Only", kHasAeth, Carries::kPayload},
    {"Acknowledge", kHasAeth, Carries::kNothing},
    {"ATOMIC Acknowledge", kHasAeth | kHasAtomicAckEth, Carries::kNothing},
    {"CmpSwap", kHasAtomicEth, Carries::kNothing},
    {"FetchAdd", kHasAtomicEth, Carries::kNothing},
    {},
    {"SEND Last with Invalidate", kHasIeth, Carries::kPayload},
    {"SEND Only with Invalidate", kHasIeth, Carries::kPayload},
};
// Its 16 bytes are reserved.
inline constexpr OpcodeFormat kCnp = {"CNP", kNoHeaders, Carries::kPayload};
}  // namespace detail

// Null for an opcode that is not known here.
constexpr const OpcodeFormat* format_of(std::uint8_t opcode) {
  if (opcode == static_cast<std::uint8_t>(Opcode::kCongestionNotification)) return &detail::kCnp;
  const unsigned operation = opcode & 0x1fu;
  const unsigned transport = opcode & 0xe0u;
  const bool reliable = transport == 0 && operation < 24;
  const bool unreliable = transport == kUc && operation < 12;
  if (!reliable && !unreliable) return nullptr;
  const OpcodeFormat& format = detail::kConnected[operation];
  return format.name == nullptr ? nullptr : &format;
}

// "RC", of the three highest bits.
constexpr const char* transport_name(std::uint8_t opcode) {
  constexpr const char* kNames[] = {"RC", "UC", "RD", "UD", "CNP", "XRC", "vendor's", "vendor's"};
  return kNames[opcode >> 5];
}

}  // namespace peal::wire
