#include "link/stream.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "ladder/slow_relay.hpp"
#include "link/owned_segment.hpp"
#include "support/scale.hpp"

namespace peal::link {
namespace {

using Clock = std::chrono::steady_clock;
using test::difference;
using test::make_socket_pair;
using test::OwnedSegment;

// Long enough for the slowest machine; no test waits for it unless it fails.
class Deadline {
 public:
  bool passed() const { return Clock::now() >= end_; }

 private:
  Clock::time_point end_ = Clock::now() + std::chrono::seconds(60);
};

std::array<int, 2> make_tcp_pair() {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t bytes = sizeof address;
  int server = -1;
  if (::bind(listener, generic, bytes) == 0 && ::listen(listener, 1) == 0 &&
      ::getsockname(listener, generic, &bytes) == 0 && ::connect(client, generic, bytes) == 0) {
    server = ::accept(listener, nullptr, nullptr);
  }
  ::close(listener);
  if (server < 0) throw std::runtime_error("no TCP connection over loopback");
  return {client, server};
}

void set_buffer_bytes(int fd, int option, int bytes) {
  ASSERT_EQ(::setsockopt(fd, SOL_SOCKET, option, &bytes, sizeof bytes), 0);
}

class RandomSegments {
 public:
  explicit RandomSegments(std::uint64_t seed, std::uint32_t payload_bytes_max)
      : random_(seed), payload_bytes_max_(payload_bytes_max) {}

  OwnedSegment next() {
    constexpr std::array kKinds{SegmentKind::kWriteFirst,        SegmentKind::kWriteMiddle,
                                SegmentKind::kWriteLast,         SegmentKind::kWriteLastImmediate,
                                SegmentKind::kWriteOnly,         SegmentKind::kWriteOnlyImmediate,
                                SegmentKind::kReadRequest,       SegmentKind::kReadResponseFirst,
                                SegmentKind::kReadResponseLast,  SegmentKind::kReadResponseOnly,
                                SegmentKind::kAcknowledge,       SegmentKind::kAtomicAcknowledge,
                                SegmentKind::kCompareSwap,       SegmentKind::kFetchAdd,
                                SegmentKind::kMaskedCompareSwap, SegmentKind::kMaskedFetchAdd};
    OwnedSegment owned;
    Segment& s = owned.segment;
    s.kind = kKinds[random_() % kKinds.size()];
    s.ack_request = random_() % 2 == 0;
    s.aeth_syndrome = static_cast<std::uint8_t>(random_());
    s.source_qpn = Qpn(static_cast<std::uint32_t>(random_() & Psn::kMask));
    s.destination_qpn = Qpn(static_cast<std::uint32_t>(random_() & Psn::kMask));
    s.psn = Psn(static_cast<std::uint32_t>(random_()));
    // The two of each pair share a field of the frame.
    const bool immediate =
        s.kind == SegmentKind::kWriteLastImmediate || s.kind == SegmentKind::kWriteOnlyImmediate;
    (immediate ? s.immediate : s.msn) = static_cast<std::uint32_t>(random_());
    (s.kind == SegmentKind::kAtomicAcknowledge ? s.original : s.address) = random_();
    s.rkey = Rkey(static_cast<std::uint32_t>(random_()));
    s.message_bytes = static_cast<std::uint32_t>(random_());
    if (is_atomic(s.kind)) {
      owned.payload = bytes(kAtomicPayloadBytes);
    } else if (s.kind != SegmentKind::kAcknowledge && s.kind != SegmentKind::kAtomicAcknowledge &&
               s.kind != SegmentKind::kReadRequest) {
      owned.payload = bytes(next_size());
    }
    return owned;
  }

  std::vector<std::byte> bytes(std::size_t count) {
    std::vector<std::byte> result(count);
    std::uint64_t word = random_();
    for (std::size_t i = 0; i < count; ++i) {
      result[i] = static_cast<std::byte>(word >> (i % 8 * 8));
      if (i % 8 == 7) word = word * 6364136223846793005u + 1442695040888963407u;
    }
    return result;
  }

  std::uint64_t number() { return random_(); }

 private:
  std::uint32_t next_size() {
    switch (random_() % 6) {
      case 0: return 0;
      case 1: return 1;
      case 2: return std::min(4096u, payload_bytes_max_);
      case 3: return payload_bytes_max_;
      case 4: return static_cast<std::uint32_t>(random_() % 1024) % (payload_bytes_max_ + 1);
      default: return static_cast<std::uint32_t>(random_() % (payload_bytes_max_ + 1));
    }
  }

  std::mt19937_64 random_;
  std::uint32_t payload_bytes_max_;
};

// Random steps at both ends against two queues, until each end has sent `count`.
struct RoundTrip {
  RoundTrip(std::array<int, 2> fds, std::uint64_t seed, std::uint32_t payload_bytes_max)
      : ends{std::make_unique<StreamLink>(fds[0]), std::make_unique<StreamLink>(fds[1])},
        segments(seed, payload_bytes_max) {}

  void run(std::size_t count) {
    const Deadline deadline;
    while (received[0] < count || received[1] < count) {
      ASSERT_FALSE(deadline.passed()) << received[0] << " and " << received[1] << " received";
      const std::size_t end = segments.number() % 2;
      if (segments.number() % 2 == 0) {
        if (sent[end] < count) send(end);
      } else {
        ASSERT_NO_FATAL_FAILURE(receive(end));
      }
    }
    for (const auto& end : ends) {
      EXPECT_FALSE(end->busy());
      EXPECT_FALSE(end->closed());
      EXPECT_EQ(end->error(), "");
    }
  }

  void send(std::size_t end) {
    if (!refused[end]) refused[end] = std::make_unique<OwnedSegment>(segments.next());
    {
      // A copy that is overwritten after the call: the link must not refer to it any more.
      OwnedSegment offered = *refused[end];
      const bool taken = ends[end]->try_send(offered.view());
      std::fill(offered.payload.begin(), offered.payload.end(), std::byte{0xee});
      if (!taken) {
        ++refusals;
        return;
      }
    }
    in_flight[end].push_back(std::move(*refused[end]));
    refused[end].reset();
    ++sent[end];
  }

  void receive(std::size_t end) {
    Segment segment;
    if (!ends[end]->try_receive(&segment)) return;
    auto& expected = in_flight[1 - end];
    ASSERT_FALSE(expected.empty());
    ASSERT_EQ(difference(segment, expected.front().view()), "") << "after " << received[end];
    expected.pop_front();
    ++received[end];
  }

  std::array<std::unique_ptr<StreamLink>, 2> ends;
  RandomSegments segments;
  std::array<std::unique_ptr<OwnedSegment>, 2> refused;
  std::array<std::deque<OwnedSegment>, 2> in_flight;
  std::array<std::size_t, 2> sent{};
  std::array<std::size_t, 2> received{};
  std::size_t refusals = 0;
};

// The other end of the link as bytes.
struct RawPeer {
  RawPeer() : RawPeer(make_socket_pair()) {}
  explicit RawPeer(std::array<int, 2> fds) : fd(fds[0]), link(fds[1]) {}
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;
  ~RawPeer() { close(); }

  void close() {
    if (fd >= 0) ::close(fd);
    fd = -1;
  }

  void write(const std::vector<std::byte>& bytes) {
    ASSERT_EQ(::send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }

  std::vector<std::byte> read() {
    std::vector<std::byte> bytes(65536);
    const ssize_t n = ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    bytes.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
    return bytes;
  }

  int fd;
  StreamLink link;
};

OwnedSegment sample_write() {
  OwnedSegment owned;
  Segment& s = owned.segment;
  s.kind = SegmentKind::kWriteOnly;
  s.ack_request = true;
  s.source_qpn = Qpn(0x010203);
  s.destination_qpn = Qpn(0x040506);
  s.psn = Psn(0x070809);
  s.rkey = Rkey(0x21222324);
  s.message_bytes = 3;
  s.address = 0x1112131415161718;
  owned.payload = {std::byte{0xa0}, std::byte{0xa1}, std::byte{0xa2}};
  return owned;
}

// sample_write, spelt out.
std::vector<std::byte> sample_frame() {
  constexpr std::array<std::uint8_t, 43> kBytes{
      0,    0,    0,    43,   10,   1,    0,    0,                             // length .. zero
      0,    1,    2,    3,    0,    4,    5,    6,    0,    7,    8,    9,     // QPNs, PSN
      0,    0,    0,    0,    0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,  // msn, address
      0x21, 0x22, 0x23, 0x24, 0,    0,    0,    3,    0xa0, 0xa1, 0xa2};
  std::vector<std::byte> frame(kBytes.size());
  std::memcpy(frame.data(), kBytes.data(), kBytes.size());
  return frame;
}

void expect_closed_by(std::vector<std::byte> frame, const std::string& text) {
  RawPeer peer;
  peer.write(frame);
  Segment segment;
  EXPECT_FALSE(peer.link.try_receive(&segment));
  EXPECT_TRUE(peer.link.closed());
  EXPECT_FALSE(peer.link.busy());
  EXPECT_NE(peer.link.error().find(text), std::string::npos) << peer.link.error();
  EXPECT_FALSE(peer.link.try_send(sample_write().view()));
}

// Reads every payload byte. Returns the number of segments; at most ten calls.
int receive_until_closed(StreamLink* link, std::uint64_t* sum) {
  int delivered = 0;
  Segment segment;
  for (int calls = 0; calls < 10 && !link->closed(); ++calls) {
    if (!link->try_receive(&segment)) continue;
    ++delivered;
    for (std::uint32_t i = 0; i < segment.payload_bytes; ++i) {
      *sum += static_cast<std::uint64_t>(segment.payload[i]);
    }
  }
  return delivered;
}

TEST(StreamLink, WritesTheBytesOfTheFormat) {
  RawPeer peer;
  ASSERT_TRUE(peer.link.try_send(sample_write().view()));
  Segment segment;
  EXPECT_FALSE(peer.link.try_receive(&segment));
  EXPECT_EQ(peer.read(), sample_frame());
}

TEST(StreamLink, ReadsTheBytesOfTheFormat) {
  RawPeer peer;
  peer.write(sample_frame());
  Segment segment;
  ASSERT_TRUE(peer.link.try_receive(&segment));
  EXPECT_EQ(difference(segment, sample_write().view()), "");
}

TEST(StreamLink, SendsASmallSegmentAtTheLatestDuringTheNextCall) {
  RawPeer peer;
  OwnedSegment large = sample_write();
  large.payload.resize(4096);
  ASSERT_TRUE(peer.link.try_send(large.view()));
  EXPECT_EQ(peer.read().size(), 40u + 4096u);
  EXPECT_FALSE(peer.link.busy());

  ASSERT_TRUE(peer.link.try_send(sample_write().view()));
  EXPECT_TRUE(peer.link.busy());
  Segment segment;
  EXPECT_FALSE(peer.link.try_receive(&segment));
  EXPECT_EQ(peer.read().size(), 43u);
  EXPECT_FALSE(peer.link.busy());

  ASSERT_TRUE(peer.link.try_send(sample_write().view()));
  ASSERT_TRUE(peer.link.try_send(sample_write().view()));
  EXPECT_EQ(peer.read().size(), 2 * 43u);
  EXPECT_FALSE(peer.link.busy());
}

TEST(StreamLink, CarriesAllSegmentsWhenTheyAreRandomOverTcp) {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    SCOPED_TRACE(seed);
    RoundTrip trip(make_tcp_pair(), seed, StreamLink::kMaxPayloadBytes);
    ASSERT_NO_FATAL_FAILURE(trip.run(200));
  }
}

TEST(StreamLink, CarriesAllSegmentsWhenTheyAreRandomOverASocketPair) {
  for (const std::uint64_t seed : {4u, 5u, 6u}) {
    SCOPED_TRACE(seed);
    RoundTrip trip(make_socket_pair(), seed, 5000);
    ASSERT_NO_FATAL_FAILURE(trip.run(1000));
  }
}

TEST(StreamLink, LosesNothingWhenTheSendBufferIsTiny) {
  for (const std::uint64_t seed : {7u, 8u}) {
    SCOPED_TRACE(seed);
    const auto fds = make_socket_pair();
    for (const int fd : fds) set_buffer_bytes(fd, SO_SNDBUF, 4096);
    RoundTrip trip(fds, seed, 60000);
    ASSERT_NO_FATAL_FAILURE(trip.run(300));
    EXPECT_GT(trip.refusals, 0u);
  }
}

TEST(StreamLink, RefusesWhenThePeerDoesNotReadAndGoesOnWhenItDoes) {
  const auto fds = make_socket_pair();
  set_buffer_bytes(fds[0], SO_SNDBUF, 4096);
  StreamLink sender(fds[0]);
  StreamLink receiver(fds[1]);
  RandomSegments segments(9, 3000);
  std::vector<OwnedSegment> sent;
  for (;;) {
    OwnedSegment next = segments.next();
    if (!sender.try_send(next.view())) break;
    sent.push_back(std::move(next));
    ASSERT_LT(sent.size(), 10000u);
  }
  EXPECT_FALSE(sender.closed());
  const Deadline deadline;
  Segment segment;
  for (std::size_t i = 0; i < sent.size();) {
    ASSERT_FALSE(deadline.passed());
    Segment none;
    EXPECT_FALSE(sender.try_receive(&none));  // flushes
    if (!receiver.try_receive(&segment)) continue;
    ASSERT_EQ(difference(segment, sent[i++].view()), "");
  }
  EXPECT_FALSE(sender.busy());
  EXPECT_TRUE(sender.try_send(sample_write().view()));
}

TEST(StreamLink, ReceivesWhenBytesComeSinglyAmongSignals) {
  const auto left = make_socket_pair();
  const auto right = make_socket_pair();
  test::SlowRelay relay({left[1], right[1]});
  test::SignalStorm storm(::pthread_self());
  RoundTrip trip({left[0], right[0]}, 10, 50);
  ASSERT_NO_FATAL_FAILURE(trip.run(8));
}

TEST(StreamLink, ReceivesMoreThanTheBufferHoldsWhenTheFramesStraddleItsEnd) {
  RoundTrip trip(make_tcp_pair(), 11, 100000);
  ASSERT_NO_FATAL_FAILURE(trip.run(150));
}

TEST(StreamLink, IsBusyWhileACompleteSegmentIsUndelivered) {
  RawPeer peer;
  auto two = sample_frame();
  const auto frame = sample_frame();
  two.insert(two.end(), frame.begin(), frame.end());
  peer.write(two);
  Segment segment;
  ASSERT_TRUE(peer.link.try_receive(&segment));
  EXPECT_TRUE(peer.link.busy());
  ASSERT_TRUE(peer.link.try_receive(&segment));
  EXPECT_FALSE(peer.link.busy());
}

TEST(StreamLink, DeliversCompleteSegmentsFirstWhenThePeerEnds) {
  for (const bool truncated : {false, true}) {
    RawPeer peer;
    peer.write(sample_frame());
    peer.write(sample_frame());
    auto part = sample_frame();
    part.resize(truncated ? 42 : 0);
    peer.write(part);
    peer.close();
    Segment segment;
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(peer.link.try_receive(&segment));
      EXPECT_FALSE(peer.link.closed());
      EXPECT_EQ(difference(segment, sample_write().view()), "");
    }
    EXPECT_FALSE(peer.link.try_receive(&segment));
    EXPECT_TRUE(peer.link.closed());
    EXPECT_FALSE(peer.link.busy());
    EXPECT_EQ(peer.link.error(), truncated
                                     ? "the peer closed the connection in the middle of a segment"
                                     : "the peer closed the connection");
    EXPECT_FALSE(peer.link.try_receive(&segment));
    EXPECT_FALSE(peer.link.try_send(sample_write().view()));
  }
}

TEST(StreamLink, DeliversWhatArrivedWhenSendingFails) {
  RawPeer peer;
  peer.write(sample_frame());
  peer.write(sample_frame());
  peer.close();
  OwnedSegment large = sample_write();
  large.payload.resize(4096);
  EXPECT_FALSE(peer.link.try_send(large.view()));
  EXPECT_FALSE(peer.link.closed());
  Segment segment;
  EXPECT_TRUE(peer.link.try_receive(&segment));
  EXPECT_TRUE(peer.link.try_receive(&segment));
  EXPECT_FALSE(peer.link.closed());
  EXPECT_FALSE(peer.link.try_receive(&segment));
  EXPECT_TRUE(peer.link.closed());
  EXPECT_NE(peer.link.error().find("while sending"), std::string::npos) << peer.link.error();
}

TEST(StreamLink, ClosesWhenTheConnectionIsReset) {
  RawPeer peer(make_tcp_pair());
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ASSERT_EQ(::setsockopt(peer.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
  peer.close();
  const Deadline deadline;
  Segment segment;
  while (!peer.link.closed()) {
    ASSERT_FALSE(deadline.passed());
    EXPECT_FALSE(peer.link.try_receive(&segment));
  }
  EXPECT_NE(peer.link.error(), "");
}

TEST(StreamLink, ClosesWhenTheDescriptorIsInvalid) {
  StreamLink link(-1);
  EXPECT_TRUE(link.closed());
  EXPECT_NE(link.error(), "");
  Segment segment;
  EXPECT_FALSE(link.try_receive(&segment));
  EXPECT_FALSE(link.try_send(sample_write().view()));
}

TEST(StreamLink, ClosesWhenAHeaderIsMalformed) {
  const auto frame = sample_frame();
  const auto with = [&](std::size_t offset, int value) {
    auto changed = frame;
    changed[offset] = static_cast<std::byte>(value);
    return changed;
  };
  expect_closed_by(with(3, 39), "length");
  expect_closed_by(with(0, 0x80), "length");
  for (const int kind : {0, 5, 21, 0xd2, 255}) {
    expect_closed_by(with(4, kind), "kind");
  }
  for (const int kind : {12, 17, 18}) {
    expect_closed_by(with(4, kind), "payload where there can be none");
  }
  for (const int kind : {19, 20, 0xd3, 0xd4}) expect_closed_by(with(4, kind), "operands");
  expect_closed_by(with(5, 2), "reserved");
  expect_closed_by(with(7, 1), "reserved");
  expect_closed_by(with(8, 1), "24 bits");
  expect_closed_by(with(12, 1), "24 bits");
  expect_closed_by(with(16, 1), "24 bits");
}

TEST(StreamLink, AcceptsTheLongestFrameAndRefusesOneByteMore) {
  auto frame = sample_frame();
  frame.resize(StreamLink::kHeaderBytes);
  // 262184 = 40 + 262144.
  frame[0] = std::byte{0x00};
  frame[1] = std::byte{0x04};
  frame[2] = std::byte{0x00};
  frame[3] = std::byte{0x28};
  RawPeer peer;
  peer.write(frame);
  Segment segment;
  EXPECT_FALSE(peer.link.try_receive(&segment));
  EXPECT_FALSE(peer.link.closed()) << peer.link.error();
  frame[3] = std::byte{0x29};
  expect_closed_by(frame, "length");
}

TEST(StreamLink, DeliversWhatCameBeforeAMalformedHeader) {
  RawPeer peer;
  peer.write(sample_frame());
  peer.write(std::vector<std::byte>(100, std::byte{0xff}));
  Segment segment;
  ASSERT_TRUE(peer.link.try_receive(&segment));
  EXPECT_FALSE(peer.link.closed());
  EXPECT_FALSE(peer.link.try_receive(&segment));
  EXPECT_TRUE(peer.link.closed());
}

TEST(StreamLink, StaysInBoundsWhenAnyHeaderByteIsCorrupt) {
  for (std::size_t offset = 0; offset < StreamLink::kHeaderBytes; ++offset) {
    const std::uint64_t values = test::scaled(256);
    for (std::uint64_t i = 0; i < values; ++i) {
      auto bytes = sample_frame();
      bytes[offset] = static_cast<std::byte>(offset + i * 256 / values);
      const auto frame = sample_frame();
      bytes.insert(bytes.end(), frame.begin(), frame.end());
      RawPeer peer;
      peer.write(bytes);
      peer.close();
      std::uint64_t sum = 0;
      const int delivered = receive_until_closed(&peer.link, &sum);
      ASSERT_LE(delivered, 2);
      ASSERT_LE(sum, 255u * bytes.size());
      ASSERT_TRUE(peer.link.closed());
    }
  }
}

TEST(StreamLink, StaysInBoundsWhenTheBytesAreRandom) {
  RandomSegments random(12, 0);
  for (int i = 0; i < 2000; ++i) {
    RawPeer peer;
    peer.write(random.bytes(1 + random.number() % 300));
    peer.close();
    std::uint64_t sum = 0;
    receive_until_closed(&peer.link, &sum);
    ASSERT_TRUE(peer.link.closed());
  }
}

TEST(StreamLink, ClosesWhenTheOwnerSendsWhatNoPeerWouldAccept) {
  OwnedSegment too_long = sample_write();
  too_long.payload.resize(StreamLink::kMaxPayloadBytes + 1);
  OwnedSegment acknowledge = sample_write();
  acknowledge.segment.kind = SegmentKind::kAcknowledge;
  for (const OwnedSegment& segment : {too_long, acknowledge}) {
    RawPeer peer;
    EXPECT_FALSE(peer.link.try_send(segment.view()));
    EXPECT_TRUE(peer.link.closed());
    EXPECT_NE(peer.link.error(), "");
    EXPECT_TRUE(peer.read().empty());
  }
}

}  // namespace
}  // namespace peal::link
