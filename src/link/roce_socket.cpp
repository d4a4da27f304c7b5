#include "link/roce_socket.hpp"

#include <ifaddrs.h>
#include <linux/filter.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "link/roce.hpp"
#include "peal/host/error.hpp"

namespace peal::link {
namespace {

constexpr int kSocketBufferBytes = 4 << 20;

// ---- addresses ----

sockaddr_storage socket_address(const IpAddress& address, std::uint16_t port,
                                std::uint32_t scope_id, socklen_t* bytes) {
  sockaddr_storage storage{};
  if (address.is_v4()) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(storage);
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    std::memcpy(&v4.sin_addr, &address.bytes[12], sizeof v4.sin_addr);
    *bytes = sizeof v4;
  } else {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(storage);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    std::memcpy(&v6.sin6_addr, address.bytes.data(), sizeof v6.sin6_addr);
    if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr)) v6.sin6_scope_id = scope_id;
    *bytes = sizeof v6;
  }
  return storage;
}

// The loopback interface has all of its network's addresses.
bool has_address(const ifaddrs& interface, const IpAddress& wanted) {
  if (interface.ifa_addr == nullptr) return false;
  const IpAddress address = ip_address_of(*interface.ifa_addr);
  if (address == wanted) return true;
  if ((interface.ifa_flags & IFF_LOOPBACK) == 0 || interface.ifa_netmask == nullptr ||
      !wanted.is_v4() || !address.is_v4()) {
    return false;
  }
  const IpAddress mask = ip_address_of(*interface.ifa_netmask);
  for (std::size_t i = 12; i < 16; ++i) {
    if (((address.bytes[i] ^ wanted.bytes[i]) & mask.bytes[i]) != 0) return false;
  }
  return true;
}

// The name of the interface that has the address; empty where none has.
std::string interface_of(const IpAddress& address) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) throw system_error(errno, "asking for this host's addresses");
  std::string name;
  for (const ifaddrs* i = all; i != nullptr && name.empty(); i = i->ifa_next) {
    if (has_address(*i, address)) name = i->ifa_name;
  }
  ::freeifaddrs(all);
  return name;
}

// ---- options ----

void set_option(int fd, int level, int name, int value, const char* what) {
  if (::setsockopt(fd, level, name, &value, sizeof value) != 0) throw system_error(errno, what);
}
bool try_option(int fd, int level, int name, int value) {
  return ::setsockopt(fd, level, name, &value, sizeof value) == 0;
}

// As large as the kernel lets it be; then as large as it said it would.
void enlarge(int fd, int forced, int asked) {
  if (!try_option(fd, SOL_SOCKET, forced, kSocketBufferBytes)) {
    try_option(fd, SOL_SOCKET, asked, kSocketBufferBytes);
  }
}

void attach_filter(int fd, std::span<sock_filter> program) {
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  if (::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) != 0) {
    throw system_error(errno, "attaching a filter to a socket");
  }
}

Descriptor open_socket(int family, int type, int protocol, const char* what) {
  Descriptor fd(::socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol));
  if (!fd.is_open()) throw system_error(errno, what);
  return fd;
}

template <class Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}
Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

RoceSocket::RoceSocket(const RoceOptions& options)
    : local_(options.local),
      slots_(std::make_unique_for_overwrite<std::byte[]>(kSlots * kSlotBytes)) {
  if (options.receives_raw && !local_.is_v4()) {
    throw Error(EINVAL, "packets are received raw with IPv4 only, and " + to_text(local_) +
                            " is an IPv6 address: a UDP socket can check all of IPv6's");
  }
  const std::string interface = interface_of(local_);
  if (interface.empty()) {
    throw Error(EADDRNOTAVAIL, to_text(local_) + " is no address of an interface of this host");
  }
  scope_id_ = ::if_nametoindex(interface.c_str());
  bind_udp(options);
  ifreq request{};
  interface.copy(request.ifr_name, sizeof request.ifr_name - 1);
  if (::ioctl(udp_.get(), SIOCGIFMTU, &request) != 0) {
    throw system_error(errno, "asking for the MTU of " + interface);
  }
  interface_mtu_ = static_cast<std::uint32_t>(request.ifr_mtu);
  if (options.receives_raw) open_raw();

  for (std::size_t i = 0; i < kSlots; ++i) {
    parts_[i] = {slots_.get() + i * kSlotBytes, kSlotBytes};
  }
}

void RoceSocket::bind_udp(const RoceOptions& options) {
  const bool v4 = local_.is_v4();
  udp_ = open_socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM, 0, "opening a UDP socket");
  const int fd = udp_.get();
  enlarge(fd, SO_RCVBUFFORCE, SO_RCVBUF);
  enlarge(fd, SO_SNDBUFFORCE, SO_SNDBUF);
  // Only so, and unconnected, is an IPv4 packet's identification one that is known: 0.
  if (v4) {
    set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO, "forbidding fragments");
    set_option(fd, IPPROTO_IP, IP_TOS, options.traffic_class, "setting the traffic class");
  } else {
    set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1, "opening a socket of IPv6 alone");
    set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO, "forbidding fragments");
    set_option(fd, IPPROTO_IPV6, IPV6_TCLASS, options.traffic_class, "setting the traffic class");
  }

  socklen_t bytes = 0;
  sockaddr_storage address = socket_address(local_, options.udp_port, scope_id_, &bytes);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(fd, generic, bytes) != 0) {
    const int error = errno;
    throw system_error(
        error, "binding UDP port " + std::to_string(options.udp_port) + " of " + to_text(local_));
  }
  if (::getsockname(fd, generic, &bytes) != 0) throw system_error(errno, "asking for a port");
  (void)ip_address_of(*generic, &udp_port_);

  // 0 cuts nothing: this asks whether the kernel knows it.
  can_segment_ = options.segmentation_offload && try_option(fd, SOL_UDP, UDP_SEGMENT, 0);
  if (options.receives_raw) {
    // It only keeps the kernel from answering that the port is unreachable.
    std::array drop_all{sock_filter BPF_STMT(BPF_RET | BPF_K, 0)};
    attach_filter(fd, drop_all);
  } else if (options.segmentation_offload) {
    try_option(fd, SOL_UDP, UDP_GRO, 1);
  }
}

void RoceSocket::open_raw() {
  raw_ = open_socket(AF_INET, SOCK_RAW, IPPROTO_UDP, "opening a raw socket (needs CAP_NET_RAW)");
  std::array to_our_port{
      sock_filter BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0),  // the IP header's length
      sock_filter BPF_STMT(BPF_LD | BPF_H | BPF_IND, 2),   // the destination port behind it
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, udp_port_, 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, 0xffff),
      sock_filter BPF_STMT(BPF_RET | BPF_K, 0),
  };
  attach_filter(raw_.get(), to_our_port);
  enlarge(raw_.get(), SO_RCVBUFFORCE, SO_RCVBUF);
  socklen_t bytes = 0;
  const sockaddr_storage address = socket_address(local_, 0, 0, &bytes);
  if (::bind(raw_.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0) {
    throw system_error(errno, "binding a raw socket to " + to_text(local_));
  }
}

std::uint64_t RoceSocket::receive_buffer_bytes() const {
  int bytes = 0;
  socklen_t size = sizeof bytes;
  const int fd = raw_.is_open() ? raw_.get() : udp_.get();
  if (::getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &size) != 0) return 0;
  return static_cast<std::uint64_t>(bytes);
}

std::uint64_t RoceSocket::overflowed() const {
  std::uint32_t facts[SK_MEMINFO_VARS] = {};
  socklen_t size = sizeof facts;
  const int fd = raw_.is_open() ? raw_.get() : udp_.get();
  if (::getsockopt(fd, SOL_SOCKET, SO_MEMINFO, facts, &size) != 0) return 0;
  return facts[SK_MEMINFO_DROPS];
}

void RoceSocket::aim(const IpAddress& address, std::uint16_t udp_port) {
  peer_ = socket_address(address, udp_port, scope_id_, &peer_bytes_);
}

// ---- sending ----

int RoceSocket::send(std::span<const std::uint16_t> packet_bytes, const std::byte* bytes) {
  std::array<mmsghdr, kPacketsPerCall> messages{};
  std::array<iovec, kPacketsPerCall> parts;
  const std::size_t count = std::min(packet_bytes.size(), messages.size());
  for (std::size_t i = 0; i < count; bytes += packet_bytes[i++]) {
    parts[i] = {const_cast<std::byte*>(bytes), packet_bytes[i]};
    messages[i].msg_hdr.msg_name = &peer_;
    messages[i].msg_hdr.msg_namelen = peer_bytes_;
    messages[i].msg_hdr.msg_iov = &parts[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  const int sent = uninterrupted([&] {
    return ::sendmmsg(udp_.get(), messages.data(), static_cast<unsigned>(count),
                      MSG_DONTWAIT | MSG_NOSIGNAL);
  });
  return sent < 0 ? -errno : sent;
}

int RoceSocket::send_train(wire::Bytes bytes, std::uint16_t packet_bytes) {
  Control control{};
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_name = &peer_;
  message.msg_namelen = peer_bytes_;
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = &control;
  message.msg_controllen = CMSG_SPACE(sizeof packet_bytes);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_UDP;
  header->cmsg_type = UDP_SEGMENT;
  header->cmsg_len = CMSG_LEN(sizeof packet_bytes);
  std::memcpy(CMSG_DATA(header), &packet_bytes, sizeof packet_bytes);
  const ssize_t sent =
      uninterrupted([&] { return ::sendmsg(udp_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL); });
  return sent < 0 ? -errno : 0;
}

// ---- receiving ----

int RoceSocket::receive(Arrival* arrival) {
  if (rest_.empty()) {
    if (at_ == filled_) {
      const int filled = fill();
      if (filled <= 0) return filled;
    }
    take_slot(&current_);
    // An empty datagram is one too.
    current_.bytes = rest_.first(std::min(piece_bytes_, rest_.size()));
    current_.begins = true;
  } else {
    current_.bytes = rest_.first(std::min(piece_bytes_, rest_.size()));
    current_.begins = false;
  }
  rest_ = rest_.subspan(current_.bytes.size());
  *arrival = current_;
  return 1;
}

int RoceSocket::fill() {
  for (std::size_t i = 0; i < kSlots; ++i) {
    msghdr& m = messages_[i].msg_hdr;
    m.msg_name = &sources_[i];
    m.msg_namelen = sizeof sources_[i];
    m.msg_iov = &parts_[i];
    m.msg_iovlen = 1;
    m.msg_control = &controls_[i];
    m.msg_controllen = sizeof controls_[i];
  }
  at_ = filled_ = 0;
  const int fd = raw_.is_open() ? raw_.get() : udp_.get();
  const int filled = uninterrupted(
      [&] { return ::recvmmsg(fd, messages_.data(), kSlots, MSG_DONTWAIT, nullptr); });
  if (filled < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
  ++received_calls_;
  filled_ = static_cast<std::size_t>(filled);
  return filled;
}

void RoceSocket::take_slot(Arrival* arrival) {
  mmsghdr& message = messages_[at_];
  rest_ = wire::Bytes(slots_.get() + at_ * kSlotBytes, message.msg_len);
  piece_bytes_ = rest_.size();
  arrival->source =
      ip_address_of(reinterpret_cast<const sockaddr&>(sources_[at_]), &arrival->source_port);
  ++at_;
  msghdr& header = message.msg_hdr;
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_UDP || c->cmsg_type != UDP_GRO) continue;
    int bytes = 0;
    std::memcpy(&bytes, CMSG_DATA(c), sizeof bytes);
    if (bytes > 0) piece_bytes_ = static_cast<std::size_t>(bytes);
  }
}

}  // namespace peal::link
