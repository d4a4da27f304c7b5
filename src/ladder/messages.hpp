// The control messages as JSON, both ways. What is read is input: every field is checked for its
// type, and what is missing is a PeerError.
#pragma once

#include <nlohmann/json.hpp>

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
