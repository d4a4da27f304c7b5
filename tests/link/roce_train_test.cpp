#include "link/roce_train.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <deque>
#include <string>
#include <vector>

#include "link/roce_ends.hpp"
#include "wire/wire_values.hpp"

namespace peal::link {
namespace {

using test::address;
using test::Buffer;

// Answers as it is told, and otherwise takes all.
class ScriptedSender : public RoceSender {
 public:
  int send(std::span<const std::uint16_t> packet_bytes, const std::byte* bytes) override {
    ++calls;
    const int answer = next(static_cast<int>(packet_bytes.size()));
    for (int i = 0; i < answer; ++i) {
      sent.emplace_back(bytes, bytes + packet_bytes[static_cast<std::size_t>(i)]);
      bytes += packet_bytes[static_cast<std::size_t>(i)];
    }
    return answer;
  }
  int send_train(wire::Bytes bytes, std::uint16_t packet_bytes) override {
    ++calls;
    const int answer = next(0);
    if (answer == 0) {
      ++trains;
      for (; !bytes.empty(); bytes = bytes.subspan(sent.back().size())) {
        const wire::Bytes packet = bytes.first(std::min<std::size_t>(packet_bytes, bytes.size()));
        sent.emplace_back(packet.begin(), packet.end());
      }
    }
    return answer;
  }

  std::deque<int> answers;
  std::vector<Buffer> sent;
  int calls = 0;
  int trains = 0;

 private:
  int next(int otherwise) {
    if (answers.empty()) return otherwise;
    const int answer = answers.front();
    answers.pop_front();
    return answer;
  }
};

struct Train {
  explicit Train(bool segments) {
    train.begin({.local = address("10.0.0.1"),
                 .peer = address("10.0.0.2"),
                 .udp = {.source_port = 7},
                 .segments = segments});
  }
  bool take(std::size_t payload_bytes) {
    Buffer payload(payload_bytes, std::byte{1});
    wire::Packet p;
    p.bth.opcode = wire::Opcode::kWriteOnly;
    p.payload = payload;
    return train.take(p, wire::bytes_of(p));
  }
  // Whether the ICRC of a packet that was sent is that with this identification.
  bool has_identification(std::size_t packet, std::uint16_t identification) const {
    wire::Packet p;
    const wire::Ip ip = ip_between(address("10.0.0.1"), address("10.0.0.2"), identification);
    return read_packet(sender.sent[packet], ip, {.source_port = 7}, &p) == wire::Malformed::kNot;
  }

  ScriptedSender sender;
  RoceTrain train{sender};
};

TEST(RoceTrain, KeepsWhatThereIsNoRoomFor) {
  for (const bool segments : {false, true}) {
    Train t(segments);
    for (int i = 0; i < 64; ++i) EXPECT_TRUE(t.take(8));
    t.sender.answers = {-EAGAIN, -ENOBUFS, -ENOMEM};
    EXPECT_EQ(t.train.flush(), 0);
    EXPECT_FALSE(t.train.is_empty());
    EXPECT_FALSE(t.take(8)) << "there is no place behind them";
    EXPECT_EQ(t.train.flush(), 0);
    EXPECT_EQ(t.sender.calls, 3);
    EXPECT_TRUE(t.sender.sent.empty());
    EXPECT_TRUE(t.take(8));
    EXPECT_EQ(t.sender.sent.size(), 64u);
    EXPECT_EQ(t.train.flush(), 0);
    EXPECT_EQ(t.sender.sent.size(), 65u);
    EXPECT_TRUE(t.train.is_empty());
    EXPECT_EQ(t.train.counters().sent_packets, 65u);
    EXPECT_EQ(t.train.counters().sent_calls, 2u);
  }
}

TEST(RoceTrain, GoesOnWhereAPartHasLeft) {
  Train t(false);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_TRUE(t.take(4 * i));
  t.sender.answers = {2, -EAGAIN};
  EXPECT_EQ(t.train.flush(), 0);
  EXPECT_EQ(t.sender.sent.size(), 2u);
  t.sender.answers = {-EAGAIN};
  EXPECT_FALSE(t.take(1)) << "it would leave before its turn";
  EXPECT_EQ(t.train.flush(), 0);
  ASSERT_EQ(t.sender.sent.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(t.sender.sent[i].size(), 32 + 4 * i);
    EXPECT_TRUE(t.has_identification(i, 0));
  }
}

TEST(RoceTrain, LosesWhatTheWayRefuses) {
  for (const int error : {ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, EPERM, EMSGSIZE}) {
    Train t(false);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(t.take(8));
    t.sender.answers = {1, -error};
    EXPECT_EQ(t.train.flush(), 0);
    EXPECT_EQ(t.sender.sent.size(), 2u);
    EXPECT_EQ(t.train.counters().unreachable, error == EMSGSIZE ? 0u : 1u);
    EXPECT_EQ(t.train.counters().too_long, error == EMSGSIZE ? 1u : 0u);
    EXPECT_EQ(t.train.counters().sent_packets, 2u);
  }
  Train t(true);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(t.take(8));
  t.sender.answers = {-EHOSTUNREACH};
  EXPECT_EQ(t.train.flush(), 0);
  EXPECT_TRUE(t.train.is_empty());
  EXPECT_EQ(t.train.counters().unreachable, 3u);
}

TEST(RoceTrain, SaysThatTheSocketIsLost) {
  for (const bool segments : {false, true}) {
    Train t(segments);
    EXPECT_TRUE(t.take(8));
    EXPECT_TRUE(t.take(8));
    t.sender.answers = {-EBADF};
    EXPECT_EQ(t.train.flush(), EBADF);
    EXPECT_FALSE(t.train.is_empty());
  }
}

TEST(RoceTrain, CutsByHandWhatTheKernelDoesNot) {
  for (const int error : {EINVAL, EIO, EOPNOTSUPP, EMSGSIZE}) {
    Train t(true);
    for (int i = 0; i < 64; ++i) EXPECT_TRUE(t.take(8));
    t.sender.answers = {-error, 10, -EAGAIN};
    EXPECT_EQ(t.train.flush(), 0);
    EXPECT_EQ(t.sender.sent.size(), 10u);
    EXPECT_EQ(t.train.flush(), 0);
    EXPECT_TRUE(t.take(8));
    EXPECT_TRUE(t.take(80)) << "there are no trains any more";
    EXPECT_EQ(t.train.flush(), 0);
    ASSERT_EQ(t.sender.sent.size(), 66u);
    for (std::size_t i = 0; i < 66; ++i) EXPECT_TRUE(t.has_identification(i, 0)) << i;
    EXPECT_EQ(t.sender.trains, 0);
    EXPECT_EQ(t.train.counters().too_long, 0u);
  }
}

TEST(RoceTrain, NumbersThePacketsOfATrain) {
  Train t(true);
  for (int i = 0; i < 63; ++i) EXPECT_TRUE(t.take(8));
  EXPECT_TRUE(t.take(4));  // a shorter one ends it
  EXPECT_EQ(t.sender.calls, 0);
  EXPECT_TRUE(t.take(4));
  EXPECT_EQ(t.sender.trains, 1);
  ASSERT_EQ(t.sender.sent.size(), 64u);
  for (std::uint16_t i = 0; i < 64; ++i) EXPECT_TRUE(t.has_identification(i, i)) << i;
  EXPECT_TRUE(t.take(8));  // a longer one begins another
  EXPECT_EQ(t.sender.sent.size(), 65u);
  EXPECT_TRUE(t.has_identification(64, 0));
}

}  // namespace
}  // namespace peal::link
