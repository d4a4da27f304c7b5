#include "link/roce.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "link/capture.hpp"
#include "link/roce_packet.hpp"
#include "link/roce_socket.hpp"
#include "peal/host/error.hpp"

namespace peal::link {
namespace {

constexpr std::size_t kPacketsPerTrain = kRoceIdentifications;
// Of a UDP datagram behind either IP header.
constexpr std::size_t kTrainBytesMax = 65535 - sizeof(wire::Ipv6Format) - sizeof(wire::UdpFormat);
// A stranger's flood must not keep the owner from its other work.
constexpr int kDropsPerCall = 64;

// What Linux takes from a receive buffer: at most this for any packet, and twice the payload. Half
// of the buffer is left for what the other end sends besides: acknowledges and read responses.
constexpr std::uint64_t kChargePerPacket = 1280;
constexpr std::uint64_t kChargePerPayloadByte = 2;
constexpr std::uint32_t kPacketsInFlightMin = 4;

bool has_no_room(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS || error == ENOMEM;
}
// The socket itself is gone, not the way.
bool cannot_pass(int error) {
  return error == EBADF || error == ENOTSOCK || error == EFAULT || error == EPIPE;
}
bool refuses_trains(int error) {
  return error == EINVAL || error == EIO || error == EOPNOTSUPP || error == EMSGSIZE;
}

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
        train_(
            std::make_unique_for_overwrite<std::byte[]>(kPacketsPerTrain * kRocePacketBytesMax)) {
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
  void capture_to(Capture* capture) { capture_ = capture; }
  bool has_pending() const { return first_ != count_; }
  bool closed() const { return !error_.empty(); }
  const std::string& error() const { return error_; }

 private:
  bool joins(std::size_t packet_bytes) const;
  void flush();
  bool send_train();
  bool send_some();
  void left(std::size_t packets, bool in_train);
  void lose(std::size_t packets, int error);
  void close_with(const char* doing, int error);
  void cut_by_hand();
  bool read(const Arrival& arrival, Segment* segment);

  wire::Ip ip_to_peer(std::size_t identification) const {
    return ip_between(options_.local, peer_.address, static_cast<std::uint16_t>(identification),
                      options_.traffic_class);
  }
  wire::Udp udp_to_peer() const {
    return {.source_port = socket_.udp_port(), .destination_port = peer_.udp_port};
  }

  RoceOptions options_;
  RoceSocket socket_;
  RoceReader reader_;
  IcrcShift shift_;
  std::uint32_t mtu_bytes_ = 0;
  bool connected_ = false;
  RocePeer peer_;
  bool segments_ = false;  // the kernel cuts trains
  std::string error_;
  RoceCounters counters_;  // of what is sent
  Capture* capture_ = nullptr;

  // What was taken, one packet behind the other: `count_` of them, of which the `first_` have left.
  std::unique_ptr<std::byte[]> train_;
  std::array<std::uint16_t, kPacketsPerTrain> sizes_{};
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

void RoceLink::Impl::connect(const RocePeer& peer) {
  if (peer.address.is_v4() != options_.local.is_v4()) {
    throw Error(EAFNOSUPPORT, to_text(options_.local) + " and its peer's " + to_text(peer.address) +
                                  " are not of the same IP version");
  }
  peer_ = peer;
  connected_ = true;
  segments_ = socket_.can_segment() && peer.is_peal;
  first_ = count_ = begin_ = end_ = 0;
  socket_.aim(peer.address, peer.udp_port);
  reader_.set_peer(peer.address, peer.is_peal);
}

// ---- sending ----

bool RoceLink::Impl::try_send(const Segment& segment) {
  if (closed()) return false;
  wire::Packet packet;
  const std::size_t bytes = connected_ ? packet_of(segment, options_.pkey, &packet) : 0;
  if (bytes == 0) {
    ++counters_.unsendable;
    return true;
  }
  if (!joins(bytes)) {
    flush();
    if (closed() || has_pending()) return false;
  }
  const std::size_t identification = segments_ ? count_ : 0;
  wire::write_packet(packet, ip_to_peer(identification), udp_to_peer(), {&train_[end_], bytes});
  sizes_[count_++] = static_cast<std::uint16_t>(bytes);
  end_ += bytes;
  return true;
}

// A train's packets are of one size; a shorter one ends it.
bool RoceLink::Impl::joins(std::size_t packet_bytes) const {
  if (first_ != 0 || count_ == kPacketsPerTrain) return false;
  if (!segments_ || count_ == 0) return true;
  return sizes_[count_ - 1] == sizes_[0] && packet_bytes <= sizes_[0] &&
         end_ + packet_bytes <= kTrainBytesMax;
}

void RoceLink::Impl::flush() {
  while (has_pending() && !closed()) {
    const bool is_train = segments_ && count_ - first_ > 1;
    if (!(is_train ? send_train() : send_some())) return;
  }
}

// These two: false where there is no room now.
bool RoceLink::Impl::send_train() {
  const int error = -socket_.send_train(&train_[begin_], end_ - begin_, sizes_[first_]);
  if (error == 0) {
    left(count_, true);
  } else if (has_no_room(error)) {
    return false;
  } else if (refuses_trains(error)) {
    cut_by_hand();
  } else {
    lose(count_, error);
  }
  return true;
}

bool RoceLink::Impl::send_some() {
  const int sent =
      socket_.send(std::span(sizes_).subspan(first_, count_ - first_), &train_[begin_]);
  if (sent >= 0) {
    left(static_cast<std::size_t>(sent), false);
    return true;
  }
  if (has_no_room(-sent)) return false;
  lose(1, -sent);
  return true;
}

void RoceLink::Impl::left(std::size_t packets, bool in_train) {
  ++counters_.sent_calls;
  for (std::size_t i = 0; i < packets; ++i) {
    const std::size_t bytes = sizes_[first_];
    if (capture_ != nullptr) {
      capture_->add(ip_to_peer(in_train ? i : 0), udp_to_peer(), {&train_[begin_], bytes});
    }
    counters_.sent_bytes += bytes;
    begin_ += bytes;
    ++first_;
  }
  counters_.sent_packets += packets;
  if (!has_pending()) first_ = count_ = begin_ = end_ = 0;
}

void RoceLink::Impl::lose(std::size_t packets, int error) {
  if (cannot_pass(error)) return close_with("sending", error);
  (error == EMSGSIZE ? counters_.too_long : counters_.unreachable) += packets;
  for (; packets > 0; --packets) begin_ += sizes_[first_++];
  if (!has_pending()) first_ = count_ = begin_ = end_ = 0;
}

// The kernel cuts no more: each packet leaves by itself, with the identification of such ones.
void RoceLink::Impl::cut_by_hand() {
  segments_ = false;
  std::byte* end = &train_[begin_];
  for (std::size_t i = 0; i < count_ && options_.local.is_v4(); ++i) {
    end += sizes_[i];
    wire::IcrcFormat icrc;
    std::memcpy(&icrc, end - sizeof icrc, sizeof icrc);
    icrc =
        wire::IcrcFormat(icrc.get() ^ shift_.between(static_cast<std::uint16_t>(i), 0, sizes_[i]));
    std::memcpy(end - sizeof icrc, &icrc, sizeof icrc);
  }
}

void RoceLink::Impl::close_with(const char* doing, int error) {
  error_ = system_error(error, std::string("the RoCE link's socket failed while ") + doing).what();
  first_ = count_ = begin_ = end_ = 0;
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
      if (cannot_pass(-received)) {
        close_with("receiving", -received);
      } else {
        ++counters_.unreachable;  // an ICMP error that an earlier packet met
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
  all.sent_packets = counters_.sent_packets;
  all.sent_bytes = counters_.sent_bytes;
  all.sent_calls = counters_.sent_calls;
  all.unsendable = counters_.unsendable;
  all.too_long = counters_.too_long;
  all.unreachable = counters_.unreachable;
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
  return impl_->has_pending() || impl_->socket().has_arrivals();
}
bool RoceLink::closed() const {
  return impl_->closed();
}

}  // namespace peal::link
