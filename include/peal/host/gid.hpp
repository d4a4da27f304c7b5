// The address of a port on its network, as RoCE and routed InfiniBand name it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace peal {

// How its packets look. Ends whose types differ cannot talk.
enum class GidType : std::uint8_t {
  kInfiniBand,
  kRoceV1,  // Ethernet alone
  kRoceV2,  // over UDP
};

constexpr const char* gid_type_name(GidType t) {
  return t == GidType::kInfiniBand ? "ib" : t == GidType::kRoceV1 ? "roce_v1" : "roce_v2";
}

struct Gid {
  std::array<std::uint8_t, 16> bytes{};
  GidType type = GidType::kInfiniBand;

  friend bool operator==(const Gid&, const Gid&) = default;
};

// As an IPv6 address is written: "::ffff:192.0.2.1", "fe80::1".
std::string gid_text(const Gid& gid);

// Of the port that a context uses.
struct PortGid {
  std::uint32_t index = 0;
  Gid gid;
};

}  // namespace peal
