// What the NICs of a run hold against its clients, brought from the engine's thread to the one that
// tells of it.
#pragma once

#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "nic/refusal.hpp"

namespace peal::ladder {

class Notices {
 public:
  Notices() = default;
  Notices(const Notices&) = delete;
  Notices& operator=(const Notices&) = delete;

  // For any number of NICs, none of which may outlive this.
  nic::Notify listener() {
    return [this](const nic::Notice& notice) { hear(notice); };
  }

  // Tells what has come since the last call: a sentence for each rule and QP, once.
  void tell(const std::function<void(const std::string&)>& note);

  // From here on QPs are new ones, whatever their numbers.
  void forget_told();

 private:
  void hear(const nic::Notice& notice);

  std::mutex mutex_;
  std::set<std::pair<nic::Refusal, std::uint32_t>> heard_;
  std::vector<nic::Notice> untold_;
};

}  // namespace peal::ladder
