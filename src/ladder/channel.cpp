#include "ladder/channel.hpp"

#include <fmt/format.h>

#include <array>
#include <climits>
#include <cstring>
#include <set>
#include <span>
#include <vector>

#include "ladder/shallow_json.hpp"
#include "peal/core/types.hpp"

namespace peal::ladder {
namespace {

using nlohmann::json;

constexpr std::array<char, 4> kMagic{'P', 'E', 'A', 'L'};
constexpr std::size_t kShownBytesMax = 400;

struct FrameHeader {
  std::array<char, 4> magic;
  Be16 version;
  Be16 zero;
  Be32 text_bytes;
};
static_assert(sizeof(FrameHeader) == kFrameHeaderBytes);
static_assert(offsetof(FrameHeader, version) == 4 && offsetof(FrameHeader, text_bytes) == 8);

[[noreturn]] void throw_protocol(const std::string& message) {
  throw PeerError(PeerError::Kind::kProtocol, message);
}

// As printable, and in ASCII whatever the bytes are.
std::string in_ascii(std::string_view bytes) {
  return printable(json(bytes).dump(-1, ' ', true, json::error_handler_t::replace));
}

void check_header(const FrameHeader& header, std::uint16_t version) {
  if (header.magic != kMagic) {
    throw_protocol(fmt::format("the peer is not a Peal: it sent {} where a message begins",
                               in_ascii({header.magic.data(), header.magic.size()})));
  }
  if (header.version.to_host() != version) {
    throw_protocol(fmt::format("the peer speaks protocol version {}, this end version {}",
                               header.version.to_host(), version));
  }
  if (header.zero.to_host() != 0) {
    throw_protocol("the peer sent a message with unknown flags");
  }
  if (header.text_bytes.to_host() > kMessageBytesMax) {
    throw_protocol(fmt::format("the peer announced a message of {} bytes, the limit is {}",
                               header.text_bytes.to_host(), kMessageBytesMax));
  }
}

const std::string* string_member(const json& object, const char* name) {
  const auto it = object.find(name);
  return it == object.end() ? nullptr : it->get_ptr<const std::string*>();
}

[[noreturn]] void throw_refusal(const json& message) {
  const std::string* text = string_member(message, "message");
  const auto status = message.find("status");
  if (text == nullptr || status == message.end() || !status->is_number_integer() || *status < 0 ||
      *status > INT_MAX) {
    throw_protocol("the peer sent an error message without a text and a status");
  }
  throw PeerRefusal(status->get<int>(), printable(*text));
}

std::string shown_value(const json& parameters, const std::string& name) {
  const auto it = parameters.find(name);
  if (it == parameters.end()) return "missing";
  return printable(it->dump(-1, ' ', true, json::error_handler_t::replace));
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  for (const char c : text.substr(0, kShownBytesMax)) {
    const auto byte = static_cast<unsigned char>(c);
    shown += byte < 0x20 || byte == 0x7f ? ' ' : c;
  }
  if (text.size() > kShownBytesMax) shown += "...";
  return shown;
}

void Channel::send(const json& message, Wait wait) {
  const std::string* type = message.is_object() ? string_member(message, "type") : nullptr;
  if (type == nullptr) throw std::invalid_argument("a message needs a string \"type\"");
  // Text that is not UTF-8, as a host name can be, must not end the run: it is replaced.
  const std::string text = message.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > kMessageBytesMax) {
    throw_protocol(fmt::format("the {} message has {} bytes, the limit is {}", *type, text.size(),
                               kMessageBytesMax));
  }
  const FrameHeader header{kMagic, Be16::from_host(version_), Be16{},
                           Be32::from_host(static_cast<std::uint32_t>(text.size()))};
  std::vector<std::byte> frame(sizeof header + text.size());
  std::memcpy(frame.data(), &header, sizeof header);
  std::memcpy(frame.data() + sizeof header, text.data(), text.size());
  send_all(socket_, frame, fmt::format("the {} message", *type), wait);
}

json Channel::receive_any(std::string_view what, Wait wait) {
  FrameHeader header{};
  receive_all(socket_, std::as_writable_bytes(std::span(&header, 1)), what, wait);
  check_header(header, version_);
  std::string text(header.text_bytes.to_host(), '\0');
  receive_all(socket_, std::as_writable_bytes(std::span(text)), fmt::format("the rest of {}", what),
              wait);

  json message = parse_shallow_json<json>(text);
  if (message.is_discarded()) throw_protocol("the peer sent a message that is not JSON");
  if (!message.is_object()) throw_protocol("the peer sent a message that is not an object");
  const std::string* type = string_member(message, "type");
  if (type == nullptr) throw_protocol("the peer sent a message without a type");
  if (*type == "error") throw_refusal(message);
  return message;
}

json Channel::receive(std::string_view type, Wait wait) {
  json message = receive_any(fmt::format("the peer's {} message", type), wait);
  const std::string& actual = message["type"].get_ref<const std::string&>();
  if (actual != type) {
    throw_protocol(
        fmt::format("expected the peer's {} message, but it sent {}", type, in_ascii(actual)));
  }
  return message;
}

std::optional<std::string> first_difference(const json& mine, const json& theirs) {
  if (!mine.is_object() || !theirs.is_object()) {
    if (mine == theirs) return std::nullopt;
    return "parameters differ: they are not objects at both ends";
  }
  std::set<std::string> names;
  for (const auto& item : mine.items()) names.insert(item.key());
  for (const auto& item : theirs.items()) names.insert(item.key());
  for (const std::string& name : names) {
    const auto here = mine.find(name);
    const auto there = theirs.find(name);
    if (here != mine.end() && there != theirs.end() && *here == *there) continue;
    return fmt::format("{} differs: {} here, {} at the peer", printable(name),
                       shown_value(mine, name), shown_value(theirs, name));
  }
  return std::nullopt;
}

}  // namespace peal::ladder
