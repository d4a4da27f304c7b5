// The sockets of a RoceLink: UDP payloads out, UDP payloads or whole IP packets in. Knows nothing
// of what is in them. Never blocks.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "link/ip_address.hpp"
#include "link/roce_train.hpp"
#include "wire/bytes.hpp"

namespace peal::link {

struct RoceOptions;

// Closes a descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

struct Arrival {
  wire::Bytes bytes;  // a UDP payload, or, received raw, an IP packet; valid until the next call
  IpAddress source;   // not of what is received raw
  std::uint16_t source_port = 0;
  bool begins = true;  // false: it came in one train with the one before
};

class RoceSocket : public RoceSender {
 public:
  // Binds. Throws peal::Error.
  explicit RoceSocket(const RoceOptions& options);

  std::uint16_t udp_port() const { return udp_port_; }
  std::uint32_t interface_mtu() const { return interface_mtu_; }
  std::uint64_t receive_buffer_bytes() const;
  std::uint64_t overflowed() const;  // packets for which the kernel had no room
  bool receives_raw() const { return raw_.is_open(); }
  bool can_segment() const { return can_segment_; }

  void aim(const IpAddress& address, std::uint16_t udp_port);

  int send(std::span<const std::uint16_t> packet_bytes, const std::byte* bytes) override;
  int send_train(wire::Bytes bytes, std::uint16_t packet_bytes) override;

  // The next of what has arrived: 1, 0 for nothing now, or a negated errno.
  int receive(Arrival* arrival);
  // Has arrived and was not received, as far as is known without asking the kernel.
  bool has_arrivals() const { return at_ < filled_ || !rest_.empty(); }

  std::uint64_t received_calls() const { return received_calls_; }

 private:
  static constexpr std::size_t kSlots = 8;
  static constexpr std::size_t kSlotBytes = 65536;  // a train, or a packet
  static constexpr std::size_t kPacketsPerCall = 64;

  struct alignas(cmsghdr) Control {
    std::array<std::byte, 64> bytes;
  };

  void bind_udp(const RoceOptions& options);
  void open_raw();
  int fill();
  void take_slot(Arrival* arrival);

  Descriptor udp_;
  Descriptor raw_;
  IpAddress local_;
  std::uint32_t scope_id_ = 0;  // the interface, where a link-local address needs it
  std::uint32_t interface_mtu_ = 0;
  std::uint16_t udp_port_ = 0;
  bool can_segment_ = false;
  sockaddr_storage peer_{};
  socklen_t peer_bytes_ = 0;

  std::unique_ptr<std::byte[]> slots_;
  std::array<mmsghdr, kSlots> messages_{};
  std::array<iovec, kSlots> parts_{};
  std::array<sockaddr_storage, kSlots> sources_{};
  std::array<Control, kSlots> controls_{};
  std::size_t at_ = 0;
  std::size_t filled_ = 0;
  std::uint64_t received_calls_ = 0;
  // Of the slot that was taken last, what is still to be handed out in pieces of `piece_bytes_`.
  wire::Bytes rest_;
  std::size_t piece_bytes_ = 0;
  Arrival current_;
};

}  // namespace peal::link
