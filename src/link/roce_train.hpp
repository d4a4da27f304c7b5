// What a RoceLink has taken and not yet sent: packets one behind the other, and how they leave.
// Knows of sockets only that they send some, none now, or refuse.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "link/ip_address.hpp"
#include "link/roce_counters.hpp"
#include "link/roce_packet.hpp"
#include "wire/packet.hpp"

namespace peal::link {

class RoceSender {
 public:
  virtual ~RoceSender() = default;
  // How many of the packets, one behind the other in `bytes`, have left; or a negated errno, then
  // of the first and none has left.
  virtual int send(std::span<const std::uint16_t> packet_bytes, const std::byte* bytes) = 0;
  // All of them by one call, cut by the kernel into packets of `packet_bytes`; 0, or a negated
  // errno.
  virtual int send_train(wire::Bytes bytes, std::uint16_t packet_bytes) = 0;
};

// Between which ends, and how, packets go.
struct RoceFlow {
  IpAddress local = {};
  IpAddress peer = {};
  wire::Udp udp = {};
  std::uint8_t traffic_class = 0;
  bool segments = false;  // the kernel cuts trains

  wire::Ip ip(std::size_t identification) const {
    return ip_between(local, peer, static_cast<std::uint16_t>(identification), traffic_class);
  }
};

class RoceTrain {
 public:
  // Each packet that leaves, with its header.
  using Left = std::function<void(const wire::Ip&, wire::Bytes)>;

  explicit RoceTrain(RoceSender& sender);

  // Forgets all that has not left.
  void begin(const RoceFlow& flow);
  void tell(Left left) { left_to_ = std::move(left); }

  // `bytes`: of the packet. False where there is no room now.
  bool take(const wire::Packet& packet, std::size_t bytes);
  // Sends what there is room for; 0, or the errno of a socket that can never send again.
  int flush();
  bool is_empty() const { return first_ == count_; }

  // What it counts: sent_*, too_long, unreachable.
  const RoceCounters& counters() const { return counters_; }

 private:
  bool joins(std::size_t packet_bytes) const;
  int send_as_train();
  int send_some();
  void leave(std::size_t packets, bool in_train);
  int lose(std::size_t packets, int error);
  void cut_by_hand();
  void step_over(std::size_t packets);

  RoceSender& sender_;
  RoceFlow flow_;
  IcrcShift shift_;
  Left left_to_;
  RoceCounters counters_;
  std::unique_ptr<std::byte[]> bytes_;
  std::array<std::uint16_t, kRoceIdentifications> sizes_{};
  // Of `count_` packets the `first_` have left.
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

// Whether an errno says that the socket itself is gone, not the way.
bool is_of_a_lost_socket(int error);

}  // namespace peal::link
