#include "sim/sim_nic.hpp"

namespace peal::nic {

template class Core<sim::SimMemory>;

}  // namespace peal::nic
