#include "link/ip_address.hpp"

#include <arpa/inet.h>

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

}  // namespace peal::link
