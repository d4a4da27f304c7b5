// Writes packets to a file that tcpdump, tshark and `peal decode packet` understand: pcap of raw IP
// packets. Owned by one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "wire/packet.hpp"

namespace peal::link {

// An error, such as a full disk, ends the file with what is in it, and nothing else.
class Capture {
 public:
  // Creates or empties the file. Throws peal::Error where it cannot.
  explicit Capture(const std::string& path);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // A whole IP packet, seen now.
  void add(wire::Bytes datagram);
  // A UDP payload, with the headers that it travels behind: of those all but lengths and the IPv4
  // checksum. The UDP checksum is written as none.
  void add(const wire::Ip& ip, const wire::Udp& udp, wire::Bytes udp_payload);

  // Writes what add() has collected, so that the file ends at a whole packet and can be read.
  void flush();

  // In the file after a flush.
  std::uint64_t packets() const { return packets_; }
  // Why there is nothing more in the file, in one sentence; empty while all is well.
  const std::string& error() const { return error_; }

 private:
  void add_record(wire::Bytes first, wire::Bytes second);

  int fd_ = -1;
  std::uint64_t packets_ = 0;
  // As of the last flush.
  std::uint64_t file_bytes_ = 0;
  std::uint64_t file_packets_ = 0;
  std::vector<std::byte> collected_;
  std::string path_;
  std::string error_;
};

}  // namespace peal::link
