// What both ends of a run make of a peer's messages. Input: texts of messages, one a line, each of
// which is put in a frame; or, where it begins with "PEAL", the bytes as they arrive.
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <string>

#include "fuzz/fuzz.hpp"
#include "ladder/channel.hpp"
#include "ladder/messages.hpp"
#include "ladder/options.hpp"
#include "ladder/usage_error.hpp"

namespace peal::ladder {
namespace {

using nlohmann::json;
using test::require;

bool printed_plainly(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) == 0x7f;
  });
}

// What `read` makes of a message, or nothing where it refuses. Nothing but a PeerError may leave
// it.
template <class F>
auto understood(F read) -> std::optional<decltype(read())> {
  try {
    return read_message(read);
  } catch (const PeerError& e) {
    require(e.kind() == PeerError::Kind::kProtocol, "a message that is refused is a wrong message");
    return std::nullopt;
  }
}

// Whether `message` says all that `read` does, and the same.
void require_same(const json& read, const json& message) {
  for (const auto& [name, value] : read.items()) {
    const auto found = message.find(name);
    require(found != message.end(), "what is read from a message was in it");
    if (value.is_object()) {
      require_same(value, *found);
    } else if (value.is_array()) {
      require(found->is_array() && value.size() == found->size(), "a list is read in whole");
      for (std::size_t i = 0; i < value.size(); ++i) require_same(value[i], (*found)[i]);
    } else {
      require(value == *found, "what is read from a message is what it says");
    }
  }
}

void check_arguments(const json& message) {
  const auto arguments = understood([&] { return arguments_from(message.at("arguments")); });
  if (!arguments) return;
  try {
    make_options(*arguments);
  } catch (const UsageError& e) {
    require(!std::string_view(e.what()).empty(), "a refusal says why");
    return;
  }
  const json printed = to_json(*arguments);
  require(to_json(arguments_from(printed)) == printed, "arguments that are sent are read the same");
  const json parameters = parameters_of(*arguments);
  require(!first_difference(parameters, parameters), "parameters agree with themselves");
  require_same(given_parameters(*arguments), parameters);
}

void check_message(const json& message) {
  check_arguments(message);
  if (const auto setup = understood([&] { return row_setup_from(message); })) {
    require_same(to_json(*setup), message);
  }
  if (const auto destination = understood([&] { return destination_from(message); })) {
    require_same(to_json(*destination), message);
  }
  if (const auto plan = understood([&] { return segment_plan_from(message); })) {
    require_same(to_json(*plan), message);
  }
  if (const auto verdict = understood([&] { return verdict_from(message); })) {
    require_same(to_json(*verdict), message);
    if (verdict->first) {
      require(std::string_view(wrong_name(verdict->first->kind)) != "unknown",
              "what is wrong has a name");
      require(!describe(*verdict->first).empty(), "a mismatch can be described");
    }
  }
}

std::string frames_of(std::string_view input) {
  if (input.starts_with("PEAL")) return std::string(input);
  std::string frames;
  test::for_each_line(input, [&frames](std::string_view text) {
    frames += std::string("PEAL\0\1\0\0", 8);
    for (const int shift : {24, 16, 8, 0}) {
      frames += static_cast<char>((text.size() >> shift) & 0xff);
    }
    frames += text;
  });
  return frames;
}

void check_stream(std::string_view frames) {
  int fds[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0,
          "the machine has a pair of sockets");
  Channel channel{Socket(fds[1])};
  const Wait wait{std::chrono::steady_clock::now() + std::chrono::minutes(1)};
  {
    Socket peer(fds[0]);
    send_all(peer, std::as_bytes(std::span(frames)), "the peer's bytes", wait);
  }
  for (;;) {
    try {
      const json message = channel.receive_any("the peer's message", wait);
      require(message.is_object() && message.at("type").is_string(), "a message has a type");
      check_message(message);
    } catch (const PeerRefusal& refusal) {
      require(refusal.status() >= 0 && printed_plainly(refusal.what()),
              "a peer's refusal is a status and a text fit for a terminal");
    } catch (const PeerError& e) {
      require(e.kind() == PeerError::Kind::kProtocol || e.kind() == PeerError::Kind::kClosed,
              "bytes are a wrong message or end too soon");
      require(printed_plainly(e.what()), "an error's text is fit for a terminal");
      return;
    }
  }
}

}  // namespace
}  // namespace peal::ladder

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  constexpr std::size_t kInputBytesMax = 4096;  // with a frame for each, less than a socket holds
  if (bytes > kInputBytesMax) return 0;
  peal::ladder::check_stream(peal::ladder::frames_of(peal::test::text_of(data, bytes)));
  return 0;
}
