// The control messages as JSON, both ways. What is read is input: every field is checked for its
// type and range, and what is missing or wrong is a PeerError from read_message.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ladder/receiver.hpp"

namespace peal::ladder {

nlohmann::json to_json(const QueuePairAddress& a);
nlohmann::json to_json(const RowSetup& setup);
nlohmann::json to_json(const Destination& d);
nlohmann::json to_json(const SegmentPlan& plan);
nlohmann::json to_json(const Verdict& verdict);

RowSetup row_setup_from(const nlohmann::json& j);
Destination destination_from(const nlohmann::json& j);
SegmentPlan segment_plan_from(const nlohmann::json& j);
Verdict verdict_from(const nlohmann::json& j);

// The whole number `name` of `j`, from 0 to `max`: the JSON library would cut off what does not
// fit.
std::uint64_t number_up_to(std::uint64_t max, const nlohmann::json& j, const char* name);

template <class T>
T number_from(const nlohmann::json& j, const char* name) {
  return static_cast<T>(number_up_to(std::numeric_limits<T>::max(), j, name));
}

std::vector<std::uint64_t> numbers_from(const nlohmann::json& j, const char* name);

// Runs `f`, turning what a malformed message makes the JSON library throw into a PeerError.
template <class F>
auto read_message(F f) -> decltype(f()) {
  try {
    return f();
  } catch (const nlohmann::json::exception& e) {
    throw PeerError(PeerError::Kind::kProtocol,
                    std::string("the peer sent a message that is not understood: ") + e.what());
  }
}

}  // namespace peal::ladder
