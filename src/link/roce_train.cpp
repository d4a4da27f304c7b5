#include "link/roce_train.hpp"

#include <cerrno>
#include <cstring>

namespace peal::link {
namespace {

constexpr std::size_t kPacketsPerTrain = kRoceIdentifications;
// Of a UDP datagram behind either IP header.
constexpr std::size_t kTrainBytesMax = 65535 - sizeof(wire::Ipv6Format) - sizeof(wire::UdpFormat);

bool has_no_room(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS || error == ENOMEM;
}
bool refuses_trains(int error) {
  return error == EINVAL || error == EIO || error == EOPNOTSUPP || error == EMSGSIZE;
}

}  // namespace

bool is_of_a_lost_socket(int error) {
  return error == EBADF || error == ENOTSOCK || error == EFAULT || error == EPIPE;
}

RoceTrain::RoceTrain(RoceSender& sender)
    : sender_(sender),
      bytes_(std::make_unique_for_overwrite<std::byte[]>(kPacketsPerTrain * kRocePacketBytesMax)) {}

void RoceTrain::begin(const RoceFlow& flow) {
  flow_ = flow;
  first_ = count_ = begin_ = end_ = 0;
}

bool RoceTrain::take(const wire::Packet& packet, std::size_t bytes) {
  if (!joins(bytes)) {
    if (flush() != 0 || !is_empty()) return false;
  }
  write_packet(packet, flow_.ip(flow_.segments ? count_ : 0), flow_.udp, {&bytes_[end_], bytes});
  sizes_[count_++] = static_cast<std::uint16_t>(bytes);
  end_ += bytes;
  return true;
}

// A train's packets are of one size; a shorter one ends it.
bool RoceTrain::joins(std::size_t packet_bytes) const {
  if (first_ != 0 || count_ == kPacketsPerTrain) return false;
  if (!flow_.segments || count_ == 0) return true;
  return sizes_[count_ - 1] == sizes_[0] && packet_bytes <= sizes_[0] &&
         end_ + packet_bytes <= kTrainBytesMax;
}

int RoceTrain::flush() {
  while (!is_empty()) {
    const int error = flow_.segments && count_ > 1 ? send_as_train() : send_some();
    if (error != 0) return has_no_room(error) ? 0 : error;
  }
  return 0;
}

// These three: 0, or an errno after which there is nothing to be done now.
int RoceTrain::send_as_train() {
  const int error = -sender_.send_train({&bytes_[0], end_}, sizes_[0]);
  if (error == 0) {
    leave(count_, true);
  } else if (has_no_room(error)) {
    return error;
  } else if (refuses_trains(error)) {
    cut_by_hand();
  } else {
    return lose(count_, error);
  }
  return 0;
}

int RoceTrain::send_some() {
  const int sent =
      sender_.send(std::span(sizes_).subspan(first_, count_ - first_), &bytes_[begin_]);
  if (sent < 0) return has_no_room(-sent) ? -sent : lose(1, -sent);
  leave(static_cast<std::size_t>(sent), false);
  return 0;
}

int RoceTrain::lose(std::size_t packets, int error) {
  if (is_of_a_lost_socket(error)) return error;
  (error == EMSGSIZE ? counters_.too_long : counters_.unreachable) += packets;
  step_over(packets);
  return 0;
}

void RoceTrain::leave(std::size_t packets, bool in_train) {
  ++counters_.sent_calls;
  counters_.sent_packets += packets;
  std::size_t at = begin_;
  for (std::size_t i = 0; i < packets; ++i) {
    const std::size_t bytes = sizes_[first_ + i];
    if (left_to_) left_to_(flow_.ip(in_train ? i : 0), {&bytes_[at], bytes});
    counters_.sent_bytes += bytes;
    at += bytes;
  }
  step_over(packets);
}

void RoceTrain::step_over(std::size_t packets) {
  for (; packets > 0; --packets) begin_ += sizes_[first_++];
  if (is_empty()) first_ = count_ = begin_ = end_ = 0;
}

// The kernel cuts no more: each packet leaves by itself, with the identification of such ones.
void RoceTrain::cut_by_hand() {
  flow_.segments = false;
  if (!flow_.local.is_v4()) return;
  std::byte* end = &bytes_[0];
  for (std::size_t i = 0; i < count_; ++i) {
    end += sizes_[i];
    wire::IcrcFormat icrc;
    std::memcpy(&icrc, end - sizeof icrc, sizeof icrc);
    icrc =
        wire::IcrcFormat(icrc.get() ^ shift_.between(static_cast<std::uint16_t>(i), 0, sizes_[i]));
    std::memcpy(end - sizeof icrc, &icrc, sizeof icrc);
  }
}

}  // namespace peal::link
