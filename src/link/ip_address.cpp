#include "link/ip_address.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace peal::link {
namespace {

constexpr std::array<std::uint8_t, 12> kMappedV4 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

}  // namespace

bool IpAddress::is_v4() const {
  return std::equal(kMappedV4.begin(), kMappedV4.end(), bytes.begin());
}

std::optional<IpAddress> ip_address_from(const std::string& text) {
  IpAddress address;
  if (::inet_pton(AF_INET6, text.c_str(), address.bytes.data()) == 1) return address;
  std::copy(kMappedV4.begin(), kMappedV4.end(), address.bytes.begin());
  if (::inet_pton(AF_INET, text.c_str(), &address.bytes[kMappedV4.size()]) == 1) return address;
  return std::nullopt;
}

std::string to_text(const IpAddress& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.is_v4()) {
    ::inet_ntop(AF_INET, &address.bytes[kMappedV4.size()], text, sizeof text);
  } else {
    ::inet_ntop(AF_INET6, address.bytes.data(), text, sizeof text);
  }
  return text;
}

IpAddress ip_address_of(const sockaddr& address, std::uint16_t* port) {
  IpAddress ip;
  in_port_t network_port = 0;
  if (address.sa_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &address, sizeof v4);
    std::copy(kMappedV4.begin(), kMappedV4.end(), ip.bytes.begin());
    std::memcpy(&ip.bytes[kMappedV4.size()], &v4.sin_addr, sizeof v4.sin_addr);
    network_port = v4.sin_port;
  } else if (address.sa_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, &address, sizeof v6);
    std::memcpy(ip.bytes.data(), &v6.sin6_addr, sizeof v6.sin6_addr);
    network_port = v6.sin6_port;
  }
  if (port != nullptr) *port = ntohs(network_port);
  return ip;
}

}  // namespace peal::link
