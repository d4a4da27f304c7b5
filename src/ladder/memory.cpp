#include "ladder/memory.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <utility>

#include "ladder/outcome.hpp"

namespace peal::ladder {
namespace {

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

std::uint64_t meminfo_available() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::string unit;
  for (std::uint64_t kib = 0; file >> name >> kib; std::getline(file, unit)) {
    if (name == "MemAvailable:") return kib * 1024;
  }
  return kNoLimit;
}

std::uint64_t cgroup_available() {
  std::uint64_t most = 0;
  std::uint64_t used = 0;
  std::ifstream limit("/sys/fs/cgroup/memory.max");  // "max" where there is none
  std::ifstream current("/sys/fs/cgroup/memory.current");
  if (!(limit >> most) || !(current >> used)) return kNoLimit;
  return most > used ? most - used : 0;
}

std::uint64_t address_space_available() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNoLimit;
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const std::uint64_t used = pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

}  // namespace

std::uint64_t available_memory_bytes() {
  return std::min({meminfo_available(), cgroup_available(), address_space_available()});
}

void require_memory(std::uint64_t bytes, const std::string& what) {
  const std::uint64_t available = available_memory_bytes();
  if (bytes <= available) return;
  throw MachineError(what + " needs " + std::to_string(bytes) +
                     " bytes of memory, and this machine has " + std::to_string(available) +
                     " to give");
}

Buffer::Buffer(std::uint64_t bytes) {
  require_memory(bytes, "a payload region");
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw MachineError("a payload region of " + std::to_string(bytes) +
                       " bytes could not be mapped; this machine has " +
                       std::to_string(available_memory_bytes()) + " to give");
  }
  memory_ = static_cast<std::byte*>(memory);
  bytes_ = bytes;
}

Buffer::Buffer(Buffer&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Buffer::~Buffer() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

}  // namespace peal::ladder
