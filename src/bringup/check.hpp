// The bring-up list: what a run on a ConnectX needs of this machine, what of it is there, and what
// mends the rest. Everything but opening a device for DevX is looked up without using the NIC.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bringup/item.hpp"
#include "bringup/machine.hpp"

namespace peal::bringup {

struct Wanted {
  std::string device;                // empty: any; a run takes one
  std::uint32_t port = 1;            // of the device
  std::optional<std::uint32_t> gpu;  // whose threads shall produce; none: a CPU's
};

struct Report {
  std::vector<Section> sections;
  // Of what is needed; empty when nothing is. Where there are several NICs, of the best of them.
  std::vector<std::string> lacking;
};

Report check(const Machine& machine, const Wanted& wanted);

// Lines for a terminal or a file: each item with its status first, its remedy below it.
std::string text_of(const Report& report);

}  // namespace peal::bringup
