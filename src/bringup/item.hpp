// One line of the bring-up list.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace peal::bringup {

enum class Status : std::uint8_t { kOk, kMissing, kUnknown };
// A run on hardware needs it, or does without.
enum class Need : std::uint8_t { kNeeded, kOptional };

struct Item {
  Status status;
  std::string name;
  std::string seen;
  std::string remedy;  // a command, a setting or a place to look; none for what is ok
  Need need = Need::kNeeded;
};

inline Item ok(std::string name, std::string seen) {
  return {Status::kOk, std::move(name), std::move(seen), ""};
}
inline Item missing(std::string name, std::string seen, std::string remedy,
                    Need need = Need::kNeeded) {
  return {Status::kMissing, std::move(name), std::move(seen), std::move(remedy), need};
}
// Counts neither as ok nor as missing.
inline Item unknown(std::string name, std::string seen, std::string remedy) {
  return {Status::kUnknown, std::move(name), std::move(seen), std::move(remedy)};
}

struct Section {
  std::string title;
  std::vector<Item> items;
};

}  // namespace peal::bringup
