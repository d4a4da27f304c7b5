#include "ladder/messages.hpp"

#include <gtest/gtest.h>

#include <string>

namespace peal::ladder {
namespace {

using nlohmann::json;

json plan_message() {
  return json::parse(R"({"seed":1,"producers":2,"first_sequence":0,"puts_per_producer":3,
                         "payload_bytes":64,"first_timed_sequence":1})");
}

template <class F>
std::string message_refusal(F read) {
  try {
    read_message(read);
  } catch (const PeerError& e) {
    EXPECT_EQ(e.kind(), PeerError::Kind::kProtocol);
    return e.what();
  }
  return "accepted";
}

TEST(Messages, RefusesNumbersThatWouldBeCutOff) {
  EXPECT_EQ(segment_plan_from(plan_message()).producers, 2u);
  for (const char* value : {"-1", "2.0", "2.5", "4294967296", "1e300", "true", "null", "\"2\""}) {
    json message = plan_message();
    message["producers"] = json::parse(value);
    EXPECT_EQ(message_refusal([&] { return segment_plan_from(message); }),
              "the peer sent a message that is not understood: producers must be a whole number "
              "from 0 to 4294967295")
        << value;
  }
}

TEST(Messages, RefusesQueuesThatAreNoListOrHaveNumbersAbove24Bits) {
  const auto with = [](const char* qps) {
    return json{{"address", 0u}, {"rkey", 1u}, {"qps", json::parse(qps)}};
  };
  const auto why = [&](const char* qps) {
    return message_refusal([&] { return destination_from(with(qps)); });
  };
  EXPECT_EQ(why(R"([{"qpn":16777215,"psn":16777215,"lid":65535,"mtu":4096}])"), "accepted");
  EXPECT_NE(why("null").find("qps must be a list"), std::string::npos);
  EXPECT_NE(why("{}").find("qps must be a list"), std::string::npos);
  EXPECT_NE(why(R"([{"qpn":16777216,"psn":0,"lid":0,"mtu":4096}])").find("16777215"),
            std::string::npos);
  EXPECT_NE(why(R"([{"qpn":1,"psn":16777216,"lid":0,"mtu":4096}])").find("16777215"),
            std::string::npos);
}

TEST(Messages, RefusesAMismatchOfAKindThatThereIsNot) {
  Verdict verdict;
  verdict.first = Mismatch{.kind = Wrong::kGuard};
  json message = json::parse(to_json(verdict).dump());
  EXPECT_EQ(verdict_from(message).first->kind, Wrong::kGuard);
  message["first"]["kind"] = 6;
  EXPECT_NE(
      message_refusal([&] { return verdict_from(json::parse(message.dump())); }).find("kind must"),
      std::string::npos);
}

}  // namespace
}  // namespace peal::ladder
