// What a CPU does at MO-1 to MO-4 towards a NIC behind a bus: compiled to assembly, which a test
// reads. Never run.
#ifdef PEAL_BUS_ALONE  // for a processor whose system headers are not here
#include "peal/memory/bus.hpp"

extern "C" void memory_before_memory() {
  peal::bus::memory_before_memory();
}
extern "C" void around_register() {
  peal::bus::around_register();
}
extern "C" void loads_after_load() {
  peal::bus::loads_after_load();
}
#else
#include "peal/memory/cpu_memory.hpp"

using peal::CpuMemory;
using peal::FenceScope;

extern "C" void mo1_bus(std::uint32_t* dbrec, std::uint32_t v) {
  CpuMemory::store_dbrec_after_wqes(dbrec, v, FenceScope::kBus);
}
extern "C" void mo2_bus(std::uint64_t* doorbell, std::uint64_t v) {
  CpuMemory::ring_doorbell_after_dbrec(doorbell, v, FenceScope::kBus);
}
extern "C" void mo3_bus(std::uint64_t* doorbell, std::uint64_t v) {
  CpuMemory::ring_doorbell_after_wqes(doorbell, v, FenceScope::kBus);
}
extern "C" void mo2_system(std::uint64_t* doorbell, std::uint64_t v) {
  CpuMemory::ring_doorbell_after_dbrec(doorbell, v, FenceScope::kSystem);
}
#endif
