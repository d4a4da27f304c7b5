#include "verbs/host_memory.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "peal/memory/cpu_memory.hpp"

namespace peal::verbs {

bool refused_by(const RefuseHook& refuse, std::string_view operation) {
  const int error = refuse ? refuse(operation) : 0;
  if (error != 0) errno = error;
  return error != 0;
}

void* HostMemory::allocate(std::size_t bytes) {
  if (refused_by(refuse_, "allocate")) return nullptr;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

void HostMemory::release(void* memory, std::size_t bytes) {
  munmap(memory, bytes);
}

void* HostMemory::map_uar(void* reg_addr) {
  return refused_by(refuse_, "map_uar") ? nullptr : reg_addr;
}

int HostMemory::copy_to_device(void* to, const void* from, std::size_t bytes) {
  if (refused_by(refuse_, "copy_to_device")) return errno;
  std::memcpy(to, from, bytes);
  return 0;
}

// By words, as a producer would read them while the NIC writes.
int HostMemory::copy_from_device(void* to, const void* from, std::size_t bytes) {
  const auto* words = static_cast<const std::uint32_t*>(from);
  for (std::size_t i = 0; i < bytes / sizeof *words; ++i) {
    const std::uint32_t word = CpuMemory::load_cqe_owner_acquire(&words[i], FenceScope::kSystem);
    std::memcpy(static_cast<std::byte*>(to) + i * sizeof word, &word, sizeof word);
  }
  return 0;
}

}  // namespace peal::verbs
