// The control messages of a run over two ends: JSON objects, each in a frame with a length.
// Knows how a message travels, not what it means. A channel belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "ladder/socket.hpp"

namespace peal::ladder {

inline constexpr std::uint16_t kProtocolVersion = 1;

// A frame is: "PEAL", version, zero, bytes of text (u32), text. Integers are big-endian, 16 bits
// where nothing else is said.
inline constexpr std::size_t kFrameHeaderBytes = 12;
inline constexpr std::size_t kMessageBytesMax = std::size_t{1} << 20;

// The peer ended the run by an "error" message. what() is its text, status() the exit status that
// the peer ends with.
class PeerRefusal : public std::runtime_error {
 public:
  PeerRefusal(int status, const std::string& message)
      : std::runtime_error(message), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

// Somebody else's text, fit for a terminal: no control characters, and not a page of it.
std::string printable(std::string_view text);

class Channel {
 public:
  explicit Channel(Socket socket, std::uint16_t version = kProtocolVersion)
      : socket_(std::move(socket)), version_(version) {}

  // Sends one object, which must have a string "type". Throws PeerError; after one the channel is
  // of no more use, except when the message itself was too long (kProtocol).
  void send(const nlohmann::json& message, Wait wait);

  // Receives the next message, of any type but "error". `what` says what is awaited. Otherwise as
  // receive.
  nlohmann::json receive_any(std::string_view what, Wait wait);

  // Receives the next message, which must be of `type`. Reads no byte beyond it. Throws PeerError,
  // or PeerRefusal for an "error" message; after a PeerError the channel is of no more use.
  nlohmann::json receive(std::string_view type, Wait wait);

  Socket& socket() { return socket_; }

 private:
  Socket socket_;
  std::uint16_t version_;
};

// The first name, in sorted order, that two flat objects of parameters do not agree on, as in "qps
// differs: 4 here, 2 at the peer".
std::optional<std::string> first_difference(const nlohmann::json& mine,
                                            const nlohmann::json& theirs);

}  // namespace peal::ladder
