// A lossless link over a connected byte stream, in practice TCP: segments in frames of known
// length. Knows nothing of how the connection was made. Owned by one thread; never blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "link/link.hpp"

namespace peal::link {

// A segment leaves at the latest during the owner's next call: small ones wait that long for
// company. An owner whose try_send is refused goes on receiving, or two full ends stand still.
class StreamLink : public Link {
 public:
  static constexpr std::uint32_t kMaxPayloadBytes = 262144;
  static constexpr std::uint32_t kHeaderBytes = 40;

  // Takes ownership of `fd` and makes it non-blocking.
  explicit StreamLink(int fd);
  ~StreamLink() override;
  StreamLink(const StreamLink&) = delete;
  StreamLink& operator=(const StreamLink&) = delete;

  std::uint32_t max_payload_bytes() const override { return kMaxPayloadBytes; }

  // What does not leave at once is copied, so that the payload need not outlive the call. Refuses
  // all once the connection is lost. A segment that no peer would accept closes the link.
  bool try_send(const Segment& segment) override;
  bool try_receive(Segment* segment) override;
  bool payload_stays() const override { return false; }
  bool discard(Qpn, SegmentRole, Psn, std::int32_t) override { return false; }
  bool busy() const override;

  // All segments that arrived whole are received first.
  bool closed() const override { return closed_; }
  // Why the connection is lost, in one sentence; empty while it is not.
  const std::string& error() const { return error_; }

 private:
  void flush();
  void fail_send(int error);
  void close_with(const std::string& why);
  bool take(Segment* segment);
  void fill();
  void make_room();
  std::size_t buffered_bytes() const { return buffer_end_ - buffer_begin_; }
  std::uint32_t next_frame_bytes() const;

  int fd_;
  bool closed_ = false;
  bool send_failed_ = false;  // the receiving side is drained before the link is closed
  std::string error_;

  std::vector<std::byte> pending_;  // taken, and still to be sent from pending_begin_ on
  std::size_t pending_begin_ = 0;

  std::unique_ptr<std::byte[]> buffer_;
  std::size_t buffer_begin_ = 0;
  std::size_t buffer_end_ = 0;
};

}  // namespace peal::link
