// Where devices sit on PCI, how far from each other, and what their configuration space says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bringup/machine.hpp"

namespace peal::bringup {

struct PciPlace {
  std::filesystem::path folder;    // below the root, links followed
  std::vector<std::string> parts;  // pci0000:3a, 0000:3a:00.0, 0000:3b:00.0
  int numa_node = -1;              // -1: the firmware does not say

  const std::string& address() const { return parts.back(); }
};

// Of the PCI device that `file` leads to, or that what it leads to is a part of.
std::optional<PciPlace> place_of(const Machine& machine, const std::filesystem::path& file);

// By the names that nvidia-smi topo has for them.
enum class Distance : std::uint8_t { kPix, kPxb, kPhb, kNode, kSys, kUnknown };
const char* distance_name(Distance distance);
const char* distance_text(Distance distance);
// `one_node`: the machine has no second NUMA node.
Distance distance_between(const PciPlace& a, const PciPlace& b, bool one_node);
// The addresses of those between the two that are not above both of them.
std::vector<PciPlace> bridges_between(const PciPlace& a, const PciPlace& b);

// Of a configuration space, as much of it as could be read: others than root get 64 bytes.
enum class Setting : std::uint8_t { kOff, kOn, kAbsent, kUnreadable };
Setting redirects_peers(std::string_view config);  // ACS sends peer traffic to the root complex
Setting relaxed_ordering(std::string_view config);

}  // namespace peal::bringup
