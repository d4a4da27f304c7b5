// What a stream link makes of a peer's bytes. Input: how many bytes come at a time (1), the bytes.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>

#include "fuzz/fuzz.hpp"
#include "link/stream.hpp"

namespace peal::link {
namespace {

using test::require;

// A link and the bare other end of its connection.
struct End {
  End() {
    int fds[2];
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0,
            "the machine has a pair of sockets");
    raw = fds[0];
    link = std::make_unique<StreamLink>(fds[1]);
  }
  ~End() { ::close(raw); }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  int raw = -1;
  std::unique_ptr<StreamLink> link;
};

// The bytes that a link sends for `segment`.
std::string encoded(End* end, const Segment& segment) {
  std::string bytes(StreamLink::kHeaderBytes + segment.payload_bytes, '\0');
  require(end->link->try_send(segment), "what was received can be sent");
  Segment none;
  require(!end->link->try_receive(&none), "nothing comes from a silent peer");
  const ssize_t n = ::recv(end->raw, bytes.data(), bytes.size(), MSG_DONTWAIT);
  require(n == static_cast<ssize_t>(bytes.size()), "a segment leaves by the next call");
  return bytes;
}

void check_stream(std::string_view stream, std::size_t piece) {
  End end;
  static End sender;         // silent between segments
  std::size_t received = 0;  // bytes of the segments so far
  const auto receive_all = [&] {
    for (Segment s; end.link->try_receive(&s);) {
      require(!end.link->closed(), "a link that is closed receives nothing");
      require(s.payload_bytes <= StreamLink::kMaxPayloadBytes, "no payload is above the limit");
      require((s.payload == nullptr) == (s.payload_bytes == 0), "a payload is of some bytes");
      require(s.kind != SegmentKind::kAcknowledge || s.payload_bytes == 0,
              "an acknowledge carries nothing");
      const std::string bytes = encoded(&sender, s);
      require(stream.substr(received, bytes.size()) == bytes,
              "a segment that is received is sent as the same bytes");
      received += bytes.size();
    }
  };
  for (std::size_t at = 0; at < stream.size() && !end.link->closed(); at += piece) {
    const std::string_view part = stream.substr(at, piece);
    require(::send(end.raw, part.data(), part.size(), MSG_NOSIGNAL) ==
                static_cast<ssize_t>(part.size()),
            "a socket takes a few bytes");
    receive_all();
  }
  require(end.link->closed() == !end.link->error().empty(), "a link that closes says why");
  const bool refused = end.link->closed();
  ::shutdown(end.raw, SHUT_WR);
  receive_all();
  require(end.link->closed() && !end.link->busy(), "a link closes when its peer has gone");
  require(refused || (received == stream.size()) ==
                         (end.link->error() == "the peer closed the connection"),
          "a link tells an end between segments from one within");
}

}  // namespace
}  // namespace peal::link

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  constexpr std::size_t kStreamBytesMax = 16384;  // each takes a place of its own in the socket
  if (bytes < 2 || bytes > kStreamBytesMax) return 0;
  // 0: all at once. Few pieces, as each is a call of the system.
  const std::size_t piece = data[0] == 0 ? bytes : std::max<std::size_t>(data[0], bytes / 8);
  peal::link::check_stream(peal::test::text_of(data + 1, bytes - 1), piece);
  return 0;
}
