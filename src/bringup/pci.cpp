#include "bringup/pci.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace peal::bringup {
namespace {

namespace fs = std::filesystem;

// 0000:3b:00.0
bool is_address(std::string_view part) {
  const std::size_t dot = part.rfind('.');
  if (dot == std::string_view::npos || std::count(part.begin(), part.end(), ':') != 2) return false;
  return std::all_of(part.begin(), part.end(),
                     [](unsigned char c) { return std::isxdigit(c) != 0 || c == ':' || c == '.'; });
}

bool is_root(std::string_view part) {
  return part.substr(0, 3) == "pci" && part.find(':') != std::string_view::npos;
}

std::size_t common_parts(const PciPlace& a, const PciPlace& b) {
  const auto ends = std::mismatch(a.parts.begin(), a.parts.end(), b.parts.begin(), b.parts.end());
  return static_cast<std::size_t>(ends.first - a.parts.begin());
}

std::uint32_t little_endian(std::string_view bytes, std::size_t at, std::size_t count) {
  std::uint32_t value = 0;
  for (std::size_t i = count; i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  }
  return value;
}

}  // namespace

std::optional<PciPlace> place_of(const Machine& machine, const fs::path& file) {
  std::error_code error;
  const fs::path found = fs::canonical(machine.root / file.relative_path(), error);
  if (error) return std::nullopt;
  PciPlace place;
  fs::path folder;
  for (const fs::path& part : found) {
    folder /= part;
    if (!is_address(part.native()) && !is_root(part.native())) continue;
    place.parts.push_back(part);
    place.folder = folder;
  }
  if (place.parts.empty() || is_root(place.parts.back())) return std::nullopt;
  place.folder = "/" / place.folder.lexically_relative(fs::canonical(machine.root, error));
  if (const auto node = line_of(machine, place.folder / "numa_node")) {
    std::from_chars(node->data(), node->data() + node->size(), place.numa_node);
  }
  return place;
}

const char* distance_name(Distance distance) {
  switch (distance) {
    case Distance::kPix: return "PIX";
    case Distance::kPxb: return "PXB";
    case Distance::kPhb: return "PHB";
    case Distance::kNode: return "NODE";
    case Distance::kSys: return "SYS";
    case Distance::kUnknown: break;
  }
  return "unknown";
}

const char* distance_text(Distance distance) {
  switch (distance) {
    case Distance::kPix: return "one PCIe switch";
    case Distance::kPxb: return "several PCIe switches";
    case Distance::kPhb: return "the host bridge";
    case Distance::kNode: return "host bridges of one NUMA node";
    case Distance::kSys: return "across NUMA nodes";
    case Distance::kUnknown: break;
  }
  return "the NUMA nodes are not told";
}

Distance distance_between(const PciPlace& a, const PciPlace& b, bool one_node) {
  const std::size_t common = common_parts(a, b);
  if (common == 0) {
    if (a.numa_node >= 0 && b.numa_node >= 0) {
      return a.numa_node == b.numa_node ? Distance::kNode : Distance::kSys;
    }
    return one_node ? Distance::kNode : Distance::kUnknown;
  }
  if (common == 1) return Distance::kPhb;
  // Below the switch's upstream port, each has the downstream port and itself.
  const std::size_t below = std::max(a.parts.size(), b.parts.size()) - common;
  return below <= 2 ? Distance::kPix : Distance::kPxb;
}

std::vector<PciPlace> bridges_between(const PciPlace& a, const PciPlace& b) {
  const std::size_t common = common_parts(a, b);
  std::vector<PciPlace> bridges;
  for (const PciPlace* end : {&a, &b}) {
    PciPlace bridge = *end;
    while (bridge.parts.size() > common + 1) {
      bridge.parts.pop_back();
      bridge.folder = bridge.folder.parent_path();
      bridges.push_back(bridge);
    }
  }
  return bridges;
}

// PCIe: ACS is extended capability 0x0d, its control register at 6; P2P request and completion
// redirect are bits 2 and 3.
Setting redirects_peers(std::string_view config) {
  constexpr std::size_t kExtended = 0x100;
  if (config.size() <= kExtended) return Setting::kUnreadable;
  std::size_t at = kExtended;
  for (int i = 0; i < 256 && at >= kExtended && at + 8 <= config.size(); ++i) {
    const std::uint32_t header = little_endian(config, at, 4);
    if ((header & 0xffff) == 0x0d) {
      return (little_endian(config, at + 6, 2) & 0xc) != 0 ? Setting::kOn : Setting::kOff;
    }
    at = header >> 20;
  }
  return Setting::kAbsent;
}

// PCIe: capability 0x10, its device control register at 8; enable relaxed ordering is bit 4.
Setting relaxed_ordering(std::string_view config) {
  constexpr std::size_t kHeader = 64;
  if (config.size() <= kHeader) return Setting::kUnreadable;
  std::size_t at = little_endian(config, 0x34, 1) & 0xfc;
  for (int i = 0; i < 64 && at >= kHeader && at + 10 <= config.size(); ++i) {
    if (little_endian(config, at, 1) == 0x10) {
      return (little_endian(config, at + 8, 2) & 0x10) != 0 ? Setting::kOn : Setting::kOff;
    }
    at = little_endian(config, at + 1, 1) & 0xfc;
  }
  return Setting::kAbsent;
}

}  // namespace peal::bringup
