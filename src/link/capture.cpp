#include "link/capture.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "peal/host/error.hpp"

namespace peal::link {
namespace {

constexpr std::size_t kCollectedBytes = std::size_t{1} << 18;

// All in the byte order of this host, which the magic number shows.
struct FileHeader {
  std::uint32_t magic = 0xa1b23c4d;  // with times in nanoseconds
  std::uint16_t version_major = 2;
  std::uint16_t version_minor = 4;
  std::uint32_t zone = 0;
  std::uint32_t accuracy = 0;
  std::uint32_t packet_bytes_max = 262144;
  std::uint32_t link_type = 101;  // LINKTYPE_RAW: IPv4 or IPv6 from the first byte on
};
static_assert(sizeof(FileHeader) == 24);

struct RecordHeader {
  std::uint32_t seconds;
  std::uint32_t nanoseconds;
  std::uint32_t captured_bytes;
  std::uint32_t packet_bytes;
};
static_assert(sizeof(RecordHeader) == 16);

void append_bytes(std::vector<std::byte>* to, const void* from, std::size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(from);
  to->insert(to->end(), begin, begin + bytes);
}

}  // namespace

Capture::Capture(const std::string& path)
    : fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)), path_(path) {
  if (fd_ < 0) throw system_error(errno, "opening the capture file " + path);
  collected_.reserve(kCollectedBytes);
  const FileHeader header;
  append_bytes(&collected_, &header, sizeof header);
  flush();
}

Capture::~Capture() {
  flush();
  ::close(fd_);
}

void Capture::add(wire::Bytes datagram) {
  add_record(datagram, {});
}

void Capture::add(const wire::Ip& ip, const wire::Udp& udp, wire::Bytes udp_payload) {
  std::array<std::byte, wire::kHeadersBytesMax> headers;
  const std::size_t bytes = wire::write_headers(ip, udp, udp_payload.size(), headers);
  add_record(wire::Bytes(headers).first(bytes), udp_payload);
}

void Capture::add_record(wire::Bytes first, wire::Bytes second) {
  if (!error_.empty()) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto ns =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  const auto bytes = static_cast<std::uint32_t>(first.size() + second.size());
  const RecordHeader header{static_cast<std::uint32_t>(ns / 1'000'000'000),
                            static_cast<std::uint32_t>(ns % 1'000'000'000), bytes, bytes};
  if (collected_.size() + sizeof header + bytes > kCollectedBytes) flush();
  append_bytes(&collected_, &header, sizeof header);
  append_bytes(&collected_, first.data(), first.size());
  append_bytes(&collected_, second.data(), second.size());
  ++packets_;
}

void Capture::flush() {
  std::size_t written = 0;
  while (written < collected_.size() && error_.empty()) {
    const ssize_t n = ::write(fd_, collected_.data() + written, collected_.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int error = n < 0 ? errno : ENOSPC;
      error_ = system_error(error, "the capture file " + path_ + " ends early").what();
      if (::ftruncate(fd_, static_cast<off_t>(file_bytes_)) == 0) packets_ = file_packets_;
      break;
    }
    written += static_cast<std::size_t>(n);
  }
  if (error_.empty()) {
    file_bytes_ += written;
    file_packets_ = packets_;
  }
  collected_.clear();
}

}  // namespace peal::link
