#include "link/stream.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace peal::link {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr std::size_t kSmallFrameBytes = 512;
constexpr std::uint8_t kFlagAckRequest = 1;

struct FrameHeader {
  Be32 frame_bytes;  // header and payload
  std::uint8_t kind;
  std::uint8_t flags;
  std::uint8_t aeth_syndrome;
  std::uint8_t zero;
  Be32 source_qpn;
  Be32 destination_qpn;
  Be32 psn;
  Be32 msn_or_immediate;
  Be64 address_or_original;
  Be32 rkey;
  Be32 message_bytes;
};
static_assert(sizeof(FrameHeader) == StreamLink::kHeaderBytes);
static_assert(offsetof(FrameHeader, source_qpn) == 8 &&
              offsetof(FrameHeader, address_or_original) == 24 &&
              offsetof(FrameHeader, message_bytes) == 36);
// The buffer must hold any frame, and enough more that a call to recv fetches several.
static_assert(kBufferBytes >= 2 * (StreamLink::kHeaderBytes + StreamLink::kMaxPayloadBytes));

bool is_known(SegmentKind kind) {
  switch (kind) {
    case SegmentKind::kWriteFirst:
    case SegmentKind::kWriteMiddle:
    case SegmentKind::kWriteLast:
    case SegmentKind::kWriteLastImmediate:
    case SegmentKind::kWriteOnly:
    case SegmentKind::kWriteOnlyImmediate:
    case SegmentKind::kReadRequest:
    case SegmentKind::kReadResponseFirst:
    case SegmentKind::kReadResponseMiddle:
    case SegmentKind::kReadResponseLast:
    case SegmentKind::kReadResponseOnly:
    case SegmentKind::kAcknowledge:
    case SegmentKind::kAtomicAcknowledge:
    case SegmentKind::kCompareSwap:
    case SegmentKind::kFetchAdd:
    case SegmentKind::kMaskedCompareSwap:
    case SegmentKind::kMaskedFetchAdd: return true;
  }
  return false;
}

bool has_no_payload(SegmentKind kind) {
  return kind == SegmentKind::kAcknowledge || kind == SegmentKind::kAtomicAcknowledge ||
         kind == SegmentKind::kReadRequest;
}

bool has_immediate(SegmentKind kind) {
  return kind == SegmentKind::kWriteLastImmediate || kind == SegmentKind::kWriteOnlyImmediate;
}

FrameHeader encode(const Segment& s) {
  FrameHeader h{};
  h.frame_bytes = Be32::from_host(StreamLink::kHeaderBytes + s.payload_bytes);
  h.kind = static_cast<std::uint8_t>(s.kind);
  h.flags = s.ack_request ? kFlagAckRequest : std::uint8_t{0};
  h.aeth_syndrome = s.aeth_syndrome;
  h.source_qpn = Be32::from_host(s.source_qpn.value);
  h.destination_qpn = Be32::from_host(s.destination_qpn.value);
  h.psn = Be32::from_host(s.psn.value);
  h.msn_or_immediate = Be32::from_host(has_immediate(s.kind) ? s.immediate : s.msn);
  h.address_or_original =
      Be64::from_host(s.kind == SegmentKind::kAtomicAcknowledge ? s.original : s.address);
  h.rkey = Be32::from_host(s.rkey.value);
  h.message_bytes = Be32::from_host(s.message_bytes);
  return h;
}

Segment decode(const FrameHeader& h, const std::byte* payload) {
  Segment s;
  s.kind = static_cast<SegmentKind>(h.kind);
  s.ack_request = (h.flags & kFlagAckRequest) != 0;
  s.aeth_syndrome = h.aeth_syndrome;
  s.source_qpn = Qpn(h.source_qpn.to_host());
  s.destination_qpn = Qpn(h.destination_qpn.to_host());
  s.psn = Psn(h.psn.to_host());
  (has_immediate(s.kind) ? s.immediate : s.msn) = h.msn_or_immediate.to_host();
  (s.kind == SegmentKind::kAtomicAcknowledge ? s.original : s.address) =
      h.address_or_original.to_host();
  s.rkey = Rkey(h.rkey.to_host());
  s.message_bytes = h.message_bytes.to_host();
  s.payload_bytes = h.frame_bytes.to_host() - StreamLink::kHeaderBytes;
  s.payload = s.payload_bytes == 0 ? nullptr : payload;
  return s;
}

bool is_frame_length(std::uint32_t bytes) {
  return bytes >= StreamLink::kHeaderBytes &&
         bytes <= StreamLink::kHeaderBytes + StreamLink::kMaxPayloadBytes;
}

// What is wrong with a header, or nullptr.
const char* find_fault(const FrameHeader& h) {
  if (!is_frame_length(h.frame_bytes.to_host())) return "a length out of range";
  const auto kind = static_cast<SegmentKind>(h.kind);
  if (!is_known(kind)) return "an unknown kind";
  if ((h.flags & ~kFlagAckRequest) != 0 || h.zero != 0) return "a reserved field that is not zero";
  const std::uint32_t numbers =
      h.source_qpn.to_host() | h.destination_qpn.to_host() | h.psn.to_host();
  if (numbers > Psn::kMask) return "a QPN or PSN beyond 24 bits";
  const std::uint32_t payload_bytes = h.frame_bytes.to_host() - StreamLink::kHeaderBytes;
  if (has_no_payload(kind) && payload_bytes != 0) return "a payload where there can be none";
  if (is_atomic(kind) && payload_bytes != kAtomicPayloadBytes) {
    return "operands of the wrong length";
  }
  return nullptr;
}

bool is_transient(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS || error == ENOMEM;
}

std::string reason(int error) {
  return std::generic_category().message(error);
}

ssize_t send_vector(int fd, iovec* parts, std::size_t count) {
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  ssize_t n = 0;
  do {
    n = ::sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  return n;
}

void append(std::vector<std::byte>* to, const void* from, std::size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(from);
  if (bytes != 0) to->insert(to->end(), begin, begin + bytes);
}

}  // namespace

StreamLink::StreamLink(int fd)
    : fd_(fd), buffer_(std::make_unique_for_overwrite<std::byte[]>(kBufferBytes)) {
  const int flags = ::fcntl(fd_, F_GETFL);
  if (flags < 0 || ::fcntl(fd_, F_SETFL, flags | O_NONBLOCK) < 0) {
    close_with("the link's descriptor cannot be used: " + reason(errno));
    return;
  }
  // Fails on a stream that is not TCP, which then has no such delay.
  const int on = 1;
  (void)::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

StreamLink::~StreamLink() {
  if (fd_ >= 0) ::close(fd_);
}

bool StreamLink::try_send(const Segment& segment) {
  if (closed_ || send_failed_) return false;
  FrameHeader header = encode(segment);
  const char* fault =
      segment.payload_bytes > kMaxPayloadBytes ? "a length out of range" : find_fault(header);
  if (fault != nullptr) {
    close_with(std::string("this end was to send a segment with ") + fault);
    return false;
  }
  if (pending_.empty() && kHeaderBytes + segment.payload_bytes <= kSmallFrameBytes) {
    append(&pending_, &header, sizeof header);
    append(&pending_, segment.payload, segment.payload_bytes);
    return true;
  }

  const std::size_t pending_bytes = pending_.size() - pending_begin_;
  std::array<iovec, 3> parts{{{pending_.data() + pending_begin_, pending_bytes},
                              {&header, sizeof header},
                              {const_cast<std::byte*>(segment.payload), segment.payload_bytes}}};
  const ssize_t n = send_vector(fd_, parts.data(), parts.size());
  if (n < 0) {
    if (!is_transient(errno)) fail_send(errno);
    return false;
  }
  std::size_t sent = static_cast<std::size_t>(n);
  if (sent < pending_bytes) {
    pending_begin_ += sent;
    return false;
  }
  pending_.clear();
  pending_begin_ = 0;
  sent -= pending_bytes;
  // Refused when none of it went out, so that only the rest of a begun segment is ever copied.
  if (sent == 0) return false;
  const std::size_t header_sent = std::min(sent, sizeof header);
  const std::size_t payload_sent = sent - header_sent;
  append(&pending_, reinterpret_cast<const std::byte*>(&header) + header_sent,
         sizeof header - header_sent);
  if (payload_sent < segment.payload_bytes) {
    append(&pending_, segment.payload + payload_sent, segment.payload_bytes - payload_sent);
  }
  return true;
}

bool StreamLink::try_receive(Segment* segment) {
  if (closed_) return false;
  flush();
  if (take(segment)) return true;
  if (closed_) return false;
  fill();
  return !closed_ && take(segment);
}

bool StreamLink::busy() const {
  if (closed_) return false;
  if (!pending_.empty()) return true;
  return buffered_bytes() >= kHeaderBytes && buffered_bytes() >= next_frame_bytes();
}

void StreamLink::flush() {
  if (pending_.empty()) return;
  iovec part{pending_.data() + pending_begin_, pending_.size() - pending_begin_};
  const ssize_t n = send_vector(fd_, &part, 1);
  if (n < 0) {
    if (!is_transient(errno)) fail_send(errno);
    return;
  }
  pending_begin_ += static_cast<std::size_t>(n);
  if (pending_begin_ < pending_.size()) return;
  pending_.clear();
  pending_begin_ = 0;
}

void StreamLink::fail_send(int error) {
  const std::string why = "the connection was lost while sending: " + reason(error);
  if (error != EPIPE && error != ECONNRESET && error != ETIMEDOUT) {
    close_with(why);
    return;
  }
  // What the peer sent before it went is still to be received; after that recv says that it left.
  send_failed_ = true;
  error_ = why;
  pending_.clear();
  pending_begin_ = 0;
}

void StreamLink::close_with(const std::string& why) {
  closed_ = true;
  if (error_.empty()) error_ = why;
  pending_.clear();
  pending_begin_ = 0;
}

// The length of the frame at buffer_begin_, of which at least four bytes are there.
std::uint32_t StreamLink::next_frame_bytes() const {
  Be32 frame_bytes;
  std::memcpy(&frame_bytes, &buffer_[buffer_begin_], sizeof frame_bytes);
  return frame_bytes.to_host();
}

bool StreamLink::take(Segment* segment) {
  if (buffered_bytes() < kHeaderBytes) return false;
  FrameHeader header;
  std::memcpy(&header, &buffer_[buffer_begin_], sizeof header);
  if (const char* fault = find_fault(header)) {
    close_with(std::string("the peer sent a segment with ") + fault);
    return false;
  }
  const std::uint32_t frame_bytes = header.frame_bytes.to_host();
  if (buffered_bytes() < frame_bytes) return false;
  *segment = decode(header, &buffer_[buffer_begin_] + kHeaderBytes);
  buffer_begin_ += frame_bytes;
  return true;
}

void StreamLink::fill() {
  make_room();
  ssize_t n = 0;
  do {
    n = ::recv(fd_, &buffer_[buffer_end_], kBufferBytes - buffer_end_, MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n > 0) {
    buffer_end_ += static_cast<std::size_t>(n);
  } else if (n == 0) {
    close_with(buffered_bytes() == 0 ? "the peer closed the connection"
                                     : "the peer closed the connection in the middle of a segment");
  } else if (!is_transient(errno)) {
    close_with("the connection was lost while receiving: " + reason(errno));
  }
}

// Moves what is buffered to the front only when the frame that it begins would not fit behind it:
// one move for several frames.
void StreamLink::make_room() {
  const std::size_t bytes = buffered_bytes();
  const std::size_t frame_bytes = bytes < kHeaderBytes ? kHeaderBytes : next_frame_bytes();
  if (bytes != 0 && buffer_begin_ + frame_bytes <= kBufferBytes) return;
  if (bytes != 0) std::memmove(&buffer_[0], &buffer_[buffer_begin_], bytes);
  buffer_begin_ = 0;
  buffer_end_ = bytes;
}

}  // namespace peal::link
