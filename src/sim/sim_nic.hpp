// A software ConnectX of simulated memory.
#pragma once

#include "sim/sim_memory.hpp"
#include "verbs/software_nic.hpp"

namespace peal::nic {
// Compiled once, in sim_nic.cpp.
extern template class Core<sim::SimMemory>;
}  // namespace peal::nic

namespace peal::sim {
using SimNic = verbs::SoftwareNicOf<SimMemory>;
}  // namespace peal::sim
