// Memory for payload, taken only where the machine has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace peal::ladder {

// Bytes that this process may still take: what the machine has free, within the limits of its
// control group and of RLIMIT_AS.
std::uint64_t available_memory_bytes();

// Throws MachineError with both numbers when `bytes` for `what` are more than that.
void require_memory(std::uint64_t bytes, const std::string& what);

// Page-aligned memory, zeroed; move-only.
class Buffer {
 public:
  Buffer() = default;
  // Throws MachineError with both numbers.
  explicit Buffer(std::uint64_t bytes);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::span<std::byte> bytes() const { return {memory_, bytes_}; }

 private:
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace peal::ladder
