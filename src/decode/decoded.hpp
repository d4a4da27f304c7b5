// What bytes say, and what is wrong with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "peal/mlx5/wqe.hpp"

namespace peal::decode {

// Bytes of memory from `base` on, the offset of the first within its WQE or CQE.
class View {
 public:
  explicit View(std::span<const std::uint8_t> bytes, std::uint32_t base = 0)
      : bytes_(bytes), base_(base) {}

  std::uint32_t end() const { return base_ + static_cast<std::uint32_t>(bytes_.size()); }
  bool has(std::uint32_t offset, std::uint32_t size) const {
    return offset >= base_ && offset <= end() && size <= end() - offset;
  }
  // All of these need has(offset, size).
  std::uint64_t be(std::uint32_t offset, std::uint32_t size) const;
  std::uint8_t u8(std::uint32_t offset) const { return static_cast<std::uint8_t>(be(offset, 1)); }
  std::uint16_t u16(std::uint32_t offset) const {
    return static_cast<std::uint16_t>(be(offset, 2));
  }
  std::uint32_t u32(std::uint32_t offset) const {
    return static_cast<std::uint32_t>(be(offset, 4));
  }
  mlx5::Words16 words(std::uint32_t offset) const;
  std::string hex(std::uint32_t offset, std::uint32_t size) const;
  bool all(std::uint32_t offset, std::uint32_t size, std::uint8_t value) const;

 private:
  std::span<const std::uint8_t> at(std::uint32_t offset, std::uint32_t size) const {
    return bytes_.subspan(offset - base_, size);
  }

  std::span<const std::uint8_t> bytes_;
  std::uint32_t base_;
};

struct Field {
  std::uint32_t offset = 0;
  std::string raw;  // hex, memory order
  std::string name;
  std::string meaning;
};

// Wrong, and how to mend it; or only worth knowing, and then there is nothing to mend.
struct Finding {
  std::string what;
  std::string mend;

  bool wrong() const { return !mend.empty(); }
};

struct Decoded {
  std::string title;
  std::vector<Field> fields;
  std::vector<Finding> findings;

  bool wrong() const;
};

// A title, a line for each field, a line for each finding.
std::string to_text(const Decoded& decoded);

}  // namespace peal::decode
