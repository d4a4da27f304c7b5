// What the bytes of a RoCEv2 packet say, what is wrong with them and how to mend it. Looks at
// nothing but the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "decode/decoded.hpp"

namespace peal::decode {

// With which header the bytes begin.
enum class PacketStart : std::uint8_t { kGuessed, kEthernet, kIp, kBth };

// One sentence where so many bytes cannot be those of a packet.
std::optional<std::string> refuse_packet_size(std::size_t bytes);

// `bytes` to the packet's ICRC, of a size that is not refused; more may follow behind an IP
// header's length. Without an IP header the ICRC is not checked.
Decoded decode_packet(std::span<const std::uint8_t> bytes,
                      PacketStart from = PacketStart::kGuessed);

}  // namespace peal::decode
