// A link that speaks RoCEv2 by sockets: each segment is one packet of a reliable connection. It may
// lose, repeat and reorder, as a network does. Owned by one thread; never blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "link/ip_address.hpp"
#include "link/link.hpp"
#include "link/roce_counters.hpp"

namespace peal::link {

class Capture;

struct RoceOptions {
  IpAddress local = {};        // of an interface of this host
  std::uint16_t udp_port = 0;  // 0: one that the kernel chooses. Other implementations send to 4791
  // Receive whole IP packets. An IPv4 peer whose identifications are its own needs it, as its ICRCs
  // can be checked in no other way. Needs CAP_NET_RAW, and IPv4.
  bool receives_raw = false;
  std::uint16_t pkey = 0xffff;
  std::uint8_t traffic_class = 0;    // DSCP above ECN, of all that is sent
  bool segmentation_offload = true;  // where kernel and peer have it
};

struct RocePeer {
  IpAddress address = {};  // of the same IP version as ours
  std::uint16_t udp_port = 4791;
  // A RoceLink without receives_raw, and ours is one too: then the kernel may cut trains of
  // packets, whose identifications are 0 to 63.
  bool is_peal = false;
  // What its kernel holds of arriving packets, as its receive_buffer_bytes() said. For others: what
  // Linux gives a socket that asks for nothing.
  std::uint64_t receive_buffer_bytes = 212992;
};

class RoceLink : public Link {
 public:
  static constexpr std::uint32_t kMaxPayloadBytes = 4096;  // the largest MTU

  // Binds. Throws peal::Error, in one sentence: the address is no interface's, the port is taken, a
  // capability is missing, or the interface's MTU is too small for any RoCE MTU.
  explicit RoceLink(const RoceOptions& options);
  ~RoceLink() override;
  RoceLink(const RoceLink&) = delete;
  RoceLink& operator=(const RoceLink&) = delete;

  // ---- before connect() ----
  std::uint16_t udp_port() const;              // that packets must be sent to, and ours come from
  std::uint64_t receive_buffer_bytes() const;  // for the other end's RocePeer
  // The largest of 256, 512, ..., 4096 that the interface of `local` carries: 1024 at 1500 bytes,
  // 4096 from 4160 on, or 4180 with IPv6.
  std::uint32_t mtu_bytes() const;

  // From now on the other end is `peer`; what arrived before is dropped as a stranger's. May be
  // called again. Throws peal::Error where it is of the other IP version.
  void connect(const RocePeer& peer);

  // ---- any time, by the owner ----
  RoceCounters counters() const;
  // Writes there all packets that leave or arrive, whatever becomes of them, with their IP and UDP
  // headers; null ends it. `capture` must live until then.
  void capture_to(Capture* capture);
  // Why closed(), in one sentence; empty while it is not.
  const std::string& error() const;

  bool lossless() const override { return false; }
  // So many that the peer's kernel has room for them, whatever else it counts.
  InFlight most_in_flight() const override;
  bool carries_masked_atomics() const override { return false; }
  std::uint32_t max_payload_bytes() const override { return kMaxPayloadBytes; }

  // Copies the payload. What is taken leaves at the latest during the owner's next call; what can
  // never leave (no peer yet, no RoCE packet, longer than the path's MTU) is taken and lost.
  bool try_send(const Segment& segment) override;
  // Source QPN 0: a packet does not tell. A payload is valid until the next call.
  bool try_receive(Segment* segment) override;
  bool payload_stays() const override { return false; }
  bool discard(Qpn, SegmentRole, Psn, std::int32_t) override { return false; }
  bool busy() const override;
  // Only once the socket can never work again: what a network does to packets closes nothing.
  bool closed() const override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace peal::link
