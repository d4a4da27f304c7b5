#include "link/roce.hpp"

#include <algorithm>
#include <cerrno>

#include "link/capture.hpp"
#include "link/roce_packet.hpp"
#include "link/roce_socket.hpp"
#include "link/roce_train.hpp"
#include "peal/host/error.hpp"

namespace peal::link {
namespace {

static_assert(RoceLink::kMaxPayloadBytes == kRoceMtuMax);

// A stranger's flood must not keep the owner from its other work.
constexpr int kDropsPerCall = 64;

// What Linux takes from a receive buffer: at most this for any packet, and twice the payload. Half
// of the buffer is left for what the other end sends besides: acknowledges and read responses.
constexpr std::uint64_t kChargePerPacket = 1280;
constexpr std::uint64_t kChargePerPayloadByte = 2;
constexpr std::uint32_t kPacketsInFlightMin = 4;

std::uint32_t largest_mtu(std::uint32_t interface_mtu, bool v4) {
  const std::size_t headers = (v4 ? sizeof(wire::Ipv4Format) : sizeof(wire::Ipv6Format)) +
                              sizeof(wire::UdpFormat) + kRocePacketBytesMax - kRoceMtuMax;
  for (std::uint32_t mtu = kRoceMtuMax; mtu >= 256; mtu /= 2) {
    if (mtu + headers <= interface_mtu) return mtu;
  }
  return 0;
}

}  // namespace

class RoceLink::Impl {
 public:
  explicit Impl(const RoceOptions& options)
      : options_(options),
        socket_(options),
        reader_(options.local, socket_.udp_port(), options.pkey),
        train_(socket_) {
    mtu_bytes_ = largest_mtu(socket_.interface_mtu(), options.local.is_v4());
    if (mtu_bytes_ == 0) {
      throw Error(EMSGSIZE, "the interface of " + to_text(options.local) + " has an MTU of " +
                                std::to_string(socket_.interface_mtu()) +
                                " bytes: a RoCE packet of 256 bytes does not fit");
    }
  }

  void connect(const RocePeer& peer);
  bool try_send(const Segment& segment);
  bool try_receive(Segment* segment);
  RoceCounters counters() const;

  const RoceSocket& socket() const { return socket_; }
  const RocePeer& peer() const { return peer_; }
  std::uint32_t mtu_bytes() const { return mtu_bytes_; }
  void capture_to(Capture* capture);
  bool busy() const { return !train_.is_empty() || socket_.has_arrivals(); }
  bool closed() const { return !error_.empty(); }
  const std::string& error() const { return error_; }

 private:
  void flush();
  void close_with(const char* doing, int error);
  bool read(const Arrival& arrival, Segment* segment);

  RoceOptions options_;
  RoceSocket socket_;
  RoceReader reader_;
  RoceTrain train_;
  std::uint32_t mtu_bytes_ = 0;
  bool connected_ = false;
  RocePeer peer_;
  std::string error_;
  std::uint64_t unsendable_ = 0;
  std::uint64_t refused_ = 0;  // ICMP errors that earlier packets met
  Capture* capture_ = nullptr;
};

void RoceLink::Impl::connect(const RocePeer& peer) {
  if (peer.address.is_v4() != options_.local.is_v4()) {
    throw Error(EAFNOSUPPORT, to_text(options_.local) + " and its peer's " + to_text(peer.address) +
                                  " are not of the same IP version");
  }
  peer_ = peer;
  connected_ = true;
  train_.begin({.local = options_.local,
                .peer = peer.address,
                .udp = {.source_port = socket_.udp_port(), .destination_port = peer.udp_port},
                .traffic_class = options_.traffic_class,
                .segments = socket_.can_segment() && peer.is_peal});
  socket_.aim(peer.address, peer.udp_port);
  reader_.set_peer(peer.address, peer.is_peal);
}

// ---- sending ----

bool RoceLink::Impl::try_send(const Segment& segment) {
  if (closed()) return false;
  wire::Packet packet;
  const std::size_t bytes = connected_ ? packet_of(segment, options_.pkey, &packet) : 0;
  if (bytes == 0) {
    ++unsendable_;
    return true;
  }
  if (train_.take(packet, bytes)) return true;
  flush();  // says why, where it never can
  return false;
}

void RoceLink::Impl::flush() {
  if (closed()) return;
  if (const int error = train_.flush(); error != 0) close_with("sending", error);
}

void RoceLink::Impl::close_with(const char* doing, int error) {
  error_ = system_error(error, std::string("the RoCE link's socket failed while ") + doing).what();
  train_.begin({});
}

void RoceLink::Impl::capture_to(Capture* capture) {
  capture_ = capture;
  if (capture == nullptr) return train_.tell({});
  train_.tell([this](const wire::Ip& ip, wire::Bytes bytes) {
    capture_->add(ip, {.source_port = socket_.udp_port(), .destination_port = peer_.udp_port},
                  bytes);
  });
}

// ---- receiving ----

bool RoceLink::Impl::try_receive(Segment* segment) {
  flush();
  for (int drops = 0; drops < kDropsPerCall && !closed(); ++drops) {
    Arrival arrival;
    const int received = socket_.receive(&arrival);
    if (received == 0) {
      if (capture_ != nullptr) capture_->flush();
      return false;
    }
    if (received < 0) {
      if (is_of_a_lost_socket(-received)) {
        close_with("receiving", -received);
      } else {
        ++refused_;
      }
      continue;
    }
    if (read(arrival, segment)) return true;
  }
  return false;
}

bool RoceLink::Impl::read(const Arrival& arrival, Segment* segment) {
  if (socket_.receives_raw()) {
    if (capture_ != nullptr) capture_->add(arrival.bytes);
    return reader_.read_ip(arrival.bytes, segment);
  }
  const std::uint16_t likeliest =
      arrival.begins
          ? std::uint16_t{0}
          : static_cast<std::uint16_t>((reader_.identification() + 1) % kRoceIdentifications);
  const bool taken =
      reader_.read_udp(arrival.bytes, arrival.source, arrival.source_port, likeliest, segment);
  if (capture_ != nullptr) {
    capture_->add(ip_between(arrival.source, options_.local, reader_.identification()),
                  {.source_port = arrival.source_port, .destination_port = socket_.udp_port()},
                  arrival.bytes);
  }
  return taken;
}

RoceCounters RoceLink::Impl::counters() const {
  RoceCounters all = reader_.counters();
  const RoceCounters& sent = train_.counters();
  all.sent_packets = sent.sent_packets;
  all.sent_bytes = sent.sent_bytes;
  all.sent_calls = sent.sent_calls;
  all.too_long = sent.too_long;
  all.unreachable = sent.unreachable + refused_;
  all.unsendable = unsendable_;
  all.received_calls = socket_.received_calls();
  all.overflowed = socket_.overflowed();
  return all;
}

// ---- the link ----

RoceLink::RoceLink(const RoceOptions& options) : impl_(std::make_unique<Impl>(options)) {}
RoceLink::~RoceLink() = default;

std::uint16_t RoceLink::udp_port() const {
  return impl_->socket().udp_port();
}
std::uint64_t RoceLink::receive_buffer_bytes() const {
  return impl_->socket().receive_buffer_bytes();
}
std::uint32_t RoceLink::mtu_bytes() const {
  return impl_->mtu_bytes();
}
void RoceLink::connect(const RocePeer& peer) {
  impl_->connect(peer);
}
RoceCounters RoceLink::counters() const {
  return impl_->counters();
}
void RoceLink::capture_to(Capture* capture) {
  impl_->capture_to(capture);
}
const std::string& RoceLink::error() const {
  return impl_->error();
}

InFlight RoceLink::most_in_flight() const {
  const std::uint64_t room = impl_->peer().receive_buffer_bytes / 4;  // for each of the two
  const std::uint64_t packets =
      std::clamp<std::uint64_t>(room / kChargePerPacket, kPacketsInFlightMin, InFlight{}.packets);
  return {.packets = static_cast<std::uint32_t>(packets),
          .payload_bytes = std::max<std::uint64_t>(room / kChargePerPayloadByte,
                                                   kPacketsInFlightMin * kMaxPayloadBytes)};
}

bool RoceLink::try_send(const Segment& segment) {
  return impl_->try_send(segment);
}
bool RoceLink::try_receive(Segment* segment) {
  return impl_->try_receive(segment);
}
bool RoceLink::busy() const {
  return impl_->busy();
}
bool RoceLink::closed() const {
  return impl_->closed();
}

}  // namespace peal::link
