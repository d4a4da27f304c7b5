// The last operations on memory of a simulation, and names for what they touch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/view_machine.hpp"

namespace peal::sim {

struct Event {
  std::uint64_t now_ns = 0;
  const char* operation = "";  // of static duration
  const void* address = nullptr;
  std::uint64_t value = 0;
  std::uint32_t bytes = 0;
  std::uint32_t newer = 0;  // stores that a load passed over
  Agent agent = 0;
};

class Trace {
 public:
  // Keeps the last `events` from now on; 0: none, and costs nothing.
  void keep(std::size_t events) { room_ = events; }
  bool on() const { return room_ != 0 && !stopped_; }
  // Nothing more is added.
  void stop() { stopped_ = true; }

  // `element_bytes`, where it is not 0, makes it an array.
  void name(std::string what, const void* at, std::size_t bytes, std::size_t element_bytes = 0) {
    ranges_.push_back({std::move(what), static_cast<const std::byte*>(at), bytes, element_bytes});
  }

  void add(const Event& e) {
    if (events_.size() < room_) {
      events_.push_back(e);
    } else {
      events_[next_] = e;
    }
    next_ = (next_ + 1) % room_;
  }

  // Oldest first; the words of one operation are one line. `agent_name(a)` names an agent.
  template <class AgentName>
  std::vector<std::string> lines(const AgentName& agent_name) const {
    std::vector<std::string> all;
    for (std::size_t i = 0; i < events_.size();) {
      const Event& first = event(i);
      Event merged = first;
      std::size_t words = 0;
      for (; i < events_.size(); ++i, ++words) {
        const Event& e = event(i);
        const bool same =
            e.operation == first.operation && e.agent == first.agent && e.now_ns == first.now_ns;
        if (words != 0 && !same) break;
        if (e.newer > merged.newer) merged.newer = e.newer;
      }
      all.push_back(line(merged, words, agent_name(first.agent)));
    }
    return all;
  }

 private:
  struct Range {
    std::string name;
    const std::byte* at;
    std::size_t bytes;
    std::size_t element_bytes;
  };
  const Event& event(std::size_t i) const {
    return events_[events_.size() < room_ ? i : (next_ + i) % room_];
  }
  std::string line(const Event& e, std::size_t words, const std::string& agent) const;
  std::string name_of(const void* address) const;

  std::size_t room_ = 0;
  std::size_t next_ = 0;
  bool stopped_ = false;
  std::vector<Event> events_;
  std::vector<Range> ranges_;
};

}  // namespace peal::sim
