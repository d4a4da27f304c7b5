#include "ladder/channel.hpp"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "ladder/peer_error.hpp"
#include "ladder/slow_relay.hpp"

namespace peal::ladder {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;
using test::expect_error;
using test::long_wait;
using test::short_wait;

struct Ends {
  Ends() {
    const auto fds = test::make_socket_pair();
    raw = Socket(fds[0]);
    channel = Channel(Socket(fds[1]));
  }

  void write(std::string_view bytes) {
    send_all(raw, std::as_bytes(std::span(bytes)), "the test's bytes", long_wait());
  }

  Socket raw;
  Channel channel{Socket()};
};

// A frame spelt out, independent of the encoder.
std::string frame_of(std::string_view text) {
  std::string frame("PEAL\0\1\0\0", 8);
  for (const int shift : {24, 16, 8, 0}) {
    frame += static_cast<char>((text.size() >> shift) & 0xff);
  }
  return frame.append(text);
}

void expect_protocol_error(std::string_view bytes, const std::string& text) {
  Ends ends;
  ends.write(bytes);
  expect_error(PeerError::Kind::kProtocol, text,
               [&] { ends.channel.receive("hello", long_wait()); });
}

TEST(Channel, SendsTheBytesOfTheFormat) {
  Ends ends;
  ends.channel.send({{"type", "hello"}}, long_wait());
  const std::string expected("PEAL\0\1\0\0\0\0\0\x10{\"type\":\"hello\"}", 28);
  std::string received(expected.size(), '\0');
  receive_all(ends.raw, std::as_writable_bytes(std::span(received)), "a frame", long_wait());
  EXPECT_EQ(received, expected);
  EXPECT_EQ(received, frame_of("{\"type\":\"hello\"}"));
}

TEST(Channel, ReceivesWhatWasSentInOrder) {
  const auto fds = test::make_socket_pair();
  Channel a{Socket(fds[0])};
  Channel b{Socket(fds[1])};
  const json hello{{"type", "hello"}, {"qps", 4}, {"rate", 0.5}, {"name", "caf\xc3\xa9"}};
  const json ready{{"type", "ready"}, {"keys", {1, 2, 3}}};
  a.send(hello, long_wait());
  a.send(ready, long_wait());
  EXPECT_EQ(b.receive("hello", long_wait()), hello);
  EXPECT_EQ(b.receive("ready", long_wait()), ready);
}

TEST(Channel, ReadsNoByteBeyondTheMessage) {
  Ends ends;
  ends.write(frame_of("{\"type\":\"hello\"}") + "x");
  ends.channel.receive("hello", long_wait());
  char next = 0;
  receive_all(ends.channel.socket(), std::as_writable_bytes(std::span(&next, 1)), "a byte",
              long_wait());
  EXPECT_EQ(next, 'x');
}

TEST(Channel, ReceivesWhenBytesComeSinglyAmongSignals) {
  const auto left = test::make_socket_pair();
  const auto right = test::make_socket_pair();
  Channel a{Socket(left[0])};
  Channel b{Socket(right[0])};
  test::SlowRelay relay({left[1], right[1]});
  test::SignalStorm storm(::pthread_self());
  const json there{{"type", "hello"}, {"text", std::string(500, 'x')}};
  const json back{{"type", "ready"}};
  a.send(there, long_wait());
  EXPECT_EQ(b.receive("hello", long_wait()), there);
  b.send(back, long_wait());
  EXPECT_EQ(a.receive("ready", long_wait()), back);
}

TEST(Channel, TimesOutWhereverThePeerStops) {
  const std::string frame = frame_of("{\"type\":\"hello\"}");
  for (const std::size_t bytes : {0u, 3u, 12u, 13u, 27u}) {
    Ends ends;
    ends.write(frame.substr(0, bytes));
    const Wait wait = short_wait();
    expect_error(PeerError::Kind::kTimeout, "the peer's hello message",
                 [&] { ends.channel.receive("hello", wait); });
    EXPECT_GE(Clock::now(), wait.deadline);
  }
}

TEST(Channel, SaysClosedWhereverThePeerEnds) {
  const std::string frame = frame_of("{\"type\":\"hello\"}");
  for (std::size_t bytes = 0; bytes < frame.size(); ++bytes) {
    Ends ends;
    ends.write(frame.substr(0, bytes));
    ends.raw = Socket();
    expect_error(PeerError::Kind::kClosed, "the peer's hello message",
                 [&] { ends.channel.receive("hello", long_wait()); });
  }
}

TEST(Channel, EndsWhenInterrupted) {
  Ends ends;
  Socket interrupt(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  Wait wait = long_wait();
  wait.interrupt_fd = interrupt.fd();
  expect_error(PeerError::Kind::kInterrupted, "the peer's hello message",
               [&] { ends.channel.receive("hello", wait); });
}

TEST(Channel, RefusesWhatIsNotAPeal) {
  expect_protocol_error("HTTP/1.1 400 Bad Request\r\n", "not a Peal: it sent \"HTTP\"");
  expect_protocol_error(std::string("\x16\x03\x01\xff\0\0\0\0\0\0\0\0", 12), "not a Peal");
}

TEST(Channel, NamesBothVersionsWhenTheyDiffer) {
  const auto fds = test::make_socket_pair();
  Channel newer{Socket(fds[0]), 258};
  Channel older{Socket(fds[1])};
  newer.send({{"type", "hello"}}, long_wait());
  expect_error(PeerError::Kind::kProtocol, "version 258, this end version 1",
               [&] { older.receive("hello", long_wait()); });
}

TEST(Channel, RefusesUnknownFlags) {
  std::string frame = frame_of("{\"type\":\"hello\"}");
  frame[7] = 1;
  expect_protocol_error(frame, "flags");
}

TEST(Channel, AcceptsTheLongestMessageAndRefusesOneByteMore) {
  const std::string head = "{\"type\":\"hello\",\"x\":\"";
  const std::string text = head + std::string(kMessageBytesMax - head.size() - 2, 'x') + "\"}";
  ASSERT_EQ(text.size(), kMessageBytesMax);
  {
    Ends ends;
    std::thread writer([&] { EXPECT_NO_THROW(ends.write(frame_of(text))); });
    json received;
    EXPECT_NO_THROW(received = ends.channel.receive("hello", long_wait()));
    writer.join();
    EXPECT_EQ(received.dump(), text);
  }
  expect_protocol_error(frame_of(text + " ").substr(0, kFrameHeaderBytes), "1048577 bytes");
  expect_protocol_error("PEAL" + std::string("\0\1\0\0\xff\xff\xff\xff", 8), "4294967295 bytes");
}

TEST(Channel, RefusesToSendAMessageThatIsTooLong) {
  Ends ends;
  const json message{{"type", "hello"}, {"x", std::string(kMessageBytesMax, 'x')}};
  expect_error(PeerError::Kind::kProtocol, "the hello message has",
               [&] { ends.channel.send(message, long_wait()); });
}

TEST(Channel, RefusesTextThatIsNotAnObjectWithAType) {
  expect_protocol_error(frame_of(""), "not JSON");
  expect_protocol_error(frame_of("{\"type\":\"hello\""), "not JSON");
  expect_protocol_error(frame_of("{\"type\":\"hello\"}{}"), "not JSON");
  expect_protocol_error(frame_of("{\"type\":\"\xff\"}"), "not JSON");
  expect_protocol_error(frame_of("[\"hello\"]"), "not an object");
  expect_protocol_error(frame_of("null"), "not an object");
  expect_protocol_error(frame_of("{}"), "without a type");
  expect_protocol_error(frame_of("{\"type\":1}"), "without a type");
}

TEST(Channel, SurvivesDeepNesting) {
  const std::size_t depth = 50000;
  expect_protocol_error(frame_of(std::string(depth, '[')), "not JSON");
  expect_protocol_error(frame_of(std::string(depth, '[') + std::string(depth, ']')), "not JSON");
}

TEST(Channel, NamesBothTypesWhenAnotherOneComes) {
  Ends ends;
  ends.write(frame_of("{\"type\":\"result\"}"));
  expect_error(PeerError::Kind::kProtocol,
               "expected the peer's hello message, but it sent \"result\"",
               [&] { ends.channel.receive("hello", long_wait()); });
}

TEST(Channel, ThrowsThePeersRefusalWhenAnErrorComes) {
  Ends ends;
  ends.write(frame_of(R"({"type":"error","message":"no room\u001b[2J here","status":5})"));
  try {
    ends.channel.receive("hello", long_wait());
    ADD_FAILURE() << "no PeerRefusal";
  } catch (const PeerRefusal& refusal) {
    EXPECT_EQ(refusal.status(), 5);
    EXPECT_STREQ(refusal.what(), "no room [2J here");
  }
}

TEST(Channel, RefusesAnErrorWithoutTextOrStatus) {
  for (const char* text :
       {R"({"type":"error"})", R"({"type":"error","message":"x"})",
        R"({"type":"error","status":1})", R"({"type":"error","message":1,"status":1})",
        R"({"type":"error","message":"x","status":1.5})",
        R"({"type":"error","message":"x","status":-1})",
        R"({"type":"error","message":"x","status":18446744073709551615})"}) {
    expect_protocol_error(frame_of(text), "error message without");
  }
}

TEST(Channel, RejectsACallersMessageWithoutAType) {
  Ends ends;
  EXPECT_THROW(ends.channel.send({{"qps", 1}}, long_wait()), std::invalid_argument);
  EXPECT_THROW(ends.channel.send("hello", long_wait()), std::invalid_argument);
}

TEST(FirstDifference, IsNoneWhenAllAgree) {
  const json mine{{"qps", 4}, {"size", 4096}, {"order", "strict"}};
  EXPECT_EQ(first_difference(mine, json::parse(mine.dump())), std::nullopt);
  EXPECT_EQ(first_difference(json::object(), json::object()), std::nullopt);
}

TEST(FirstDifference, NamesTheFirstInSortedOrderWithBothValues) {
  const json mine{{"window", 1}, {"qps", 4}, {"size", 1}};
  const json theirs{{"window", 2}, {"qps", 2}, {"size", 1}};
  EXPECT_EQ(first_difference(mine, theirs), "qps differs: 4 here, 2 at the peer");
}

TEST(FirstDifference, NamesWhatIsMissingAtEitherSide) {
  EXPECT_EQ(first_difference({{"a", "x"}}, json::object()),
            "a differs: \"x\" here, missing at the peer");
  EXPECT_EQ(first_difference({{"b", 1}}, {{"a", true}, {"b", 1}}),
            "a differs: missing here, true at the peer");
}

TEST(FirstDifference, SaysSoWhenThePeersAreNoObject) {
  EXPECT_NE(first_difference({{"a", 1}}, json::array({1})), std::nullopt);
}

}  // namespace
}  // namespace peal::ladder
