// An IP address of either version, in the form of a GID.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace peal::link {

// 16 bytes in network order; an IPv4 address a.b.c.d as ::ffff:a.b.c.d.
struct IpAddress {
  std::array<std::uint8_t, 16> bytes{};

  bool is_v4() const;
  bool operator==(const IpAddress&) const = default;
};

// "192.0.2.1", "2001:db8::1". Nothing where `text` is no address; never asks a name service.
std::optional<IpAddress> ip_address_from(const std::string& text);
std::string to_text(const IpAddress& address);
// Of a socket's address, which must be as long as its family says, and its port; `port` may be
// null. Of a family that is not IP: zeros, and no port.
IpAddress ip_address_of(const sockaddr& address, std::uint16_t* port = nullptr);

}  // namespace peal::link
