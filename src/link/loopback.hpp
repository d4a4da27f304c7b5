// Two NICs joined by pointers: a segment is handed over by reference, its payload never copied.
// Both ends belong to one thread.
#pragma once

#include <algorithm>
#include <deque>

#include "link/link.hpp"

namespace peal::link {

class Loopback {
 public:
  Loopback() = default;
  Loopback(const Loopback&) = delete;
  Loopback& operator=(const Loopback&) = delete;

  Link& a() { return a_; }
  Link& b() { return b_; }

 private:
  using Direction = std::deque<Segment>;
  static constexpr std::size_t kSegmentsInFlight = 1024;

  class End final : public Link {
   public:
    End(Direction& out, Direction& in) : out_(out), in_(in) {}

    std::uint32_t max_payload_bytes() const override { return 1u << 30; }

    bool try_send(const Segment& segment) override {
      if (out_.size() >= kSegmentsInFlight) return false;
      out_.push_back(segment);
      return true;
    }
    bool try_receive(Segment* segment) override {
      if (in_.empty()) return false;
      *segment = in_.front();
      in_.pop_front();
      return true;
    }
    void discard(Qpn source_qpn, Psn from) override {
      std::erase_if(out_, [source_qpn, from](const Segment& s) {
        return s.source_qpn == source_qpn && s.payload != nullptr && s.psn.since(from) >= 0;
      });
    }
    bool busy() const override { return !out_.empty() || !in_.empty(); }
    bool closed() const override { return false; }

   private:
    Direction& out_;
    Direction& in_;
  };

  Direction a_to_b_;
  Direction b_to_a_;
  End a_{a_to_b_, b_to_a_};
  End b_{b_to_a_, a_to_b_};
};

}  // namespace peal::link
