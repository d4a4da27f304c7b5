#include "verbs/software_nic.hpp"

namespace peal::nic {

template class Core<CpuMemory>;

}  // namespace peal::nic
