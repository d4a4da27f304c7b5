// Base transport header (IBTA 9.2), with the bits for congestion of annex A17.
#pragma once

#include "peal/core/types.hpp"
#include "wire/bytes.hpp"
#include "wire/opcode.hpp"

namespace peal::wire {

struct BthFormat {
  Be<1> opcode;
  Be<1> se_m_pad_tver;  // 1, 1, 2 and 4 bits
  Be<2> pkey;
  Be<1> fecn_becn_resv6;  // 1, 1 and 6 bits: no part of the ICRC
  Be<3> dest_qp;
  Be<1> ack_resv7;  // 1 and 7 bits
  Be<3> psn;
};
static_assert(sizeof(BthFormat) == 12);

struct Bth {
  Opcode opcode = Opcode::kSendFirst;
  bool solicited = false;
  bool mig_req = false;
  std::uint8_t pad_count = 0;  // bytes between payload and ICRC, 0 to 3
  std::uint8_t version = 0;    // of the transport, 4 bits: always 0
  std::uint16_t pkey = 0xffff;
  bool fecn = false;
  bool becn = false;
  std::uint8_t reserved6 = 0;
  Qpn dest_qp{};
  bool ack_request = false;
  std::uint8_t reserved7 = 0;
  Psn psn{};

  bool operator==(const Bth&) const = default;
};

constexpr BthFormat encode(const Bth& h) {
  const auto bits = [](unsigned value) { return Be<1>(static_cast<std::uint8_t>(value)); };
  return {Be<1>(static_cast<std::uint8_t>(h.opcode)),
          bits(unsigned{h.solicited} << 7 | unsigned{h.mig_req} << 6 | (h.pad_count & 3u) << 4 |
               (h.version & 0xfu)),
          Be<2>(h.pkey),
          bits(unsigned{h.fecn} << 7 | unsigned{h.becn} << 6 | (h.reserved6 & 0x3fu)),
          Be<3>(h.dest_qp.value),
          bits(unsigned{h.ack_request} << 7 | (h.reserved7 & 0x7fu)),
          Be<3>(h.psn.value)};
}
constexpr Bth decode(const BthFormat& f) {
  const unsigned flags = f.se_m_pad_tver.get();
  const unsigned congestion = f.fecn_becn_resv6.get();
  const unsigned ack = f.ack_resv7.get();
  return {.opcode = static_cast<Opcode>(f.opcode.get()),
          .solicited = (flags & 0x80) != 0,
          .mig_req = (flags & 0x40) != 0,
          .pad_count = static_cast<std::uint8_t>(flags >> 4 & 3),
          .version = static_cast<std::uint8_t>(flags & 0xf),
          .pkey = f.pkey.get(),
          .fecn = (congestion & 0x80) != 0,
          .becn = (congestion & 0x40) != 0,
          .reserved6 = static_cast<std::uint8_t>(congestion & 0x3f),
          .dest_qp = Qpn(f.dest_qp.get()),
          .ack_request = (ack & 0x80) != 0,
          .reserved7 = static_cast<std::uint8_t>(ack & 0x7f),
          .psn = Psn(f.psn.get())};
}

}  // namespace peal::wire
