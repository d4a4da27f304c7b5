// Two NICs joined by pointers: a segment is handed over by reference, its payload never copied.
// Both ends belong to one thread.
#pragma once

#include <cstdint>
#include <vector>

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
  // A ring; free-running positions.
  struct Direction {
    static constexpr std::uint64_t kSegments = 1024;
    std::vector<Segment> ring = std::vector<Segment>(kSegments);
    std::uint64_t head = 0;
    std::uint64_t tail = 0;

    bool empty() const { return head == tail; }
    bool full() const { return tail - head == kSegments; }
    Segment& at(std::uint64_t position) { return ring[position % kSegments]; }
  };

  class End final : public Link {
   public:
    End(Direction& out, Direction& in) : out_(out), in_(in) {}

    std::uint32_t max_payload_bytes() const override { return 1u << 30; }

    bool try_send(const Segment& segment) override {
      if (out_.full()) return false;
      out_.at(out_.tail++) = segment;
      return true;
    }
    bool try_receive(Segment* segment) override {
      if (in_.empty()) return false;
      *segment = in_.at(in_.head++);
      return true;
    }
    bool payload_stays() const override { return true; }
    bool discard(Qpn source_qpn, SegmentRole role, Psn from, std::int32_t psns) override {
      std::uint64_t kept = out_.head;
      for (std::uint64_t i = out_.head; i != out_.tail; ++i) {
        const Segment& s = out_.at(i);
        if (is_discarded(s, source_qpn, role, from, psns)) continue;
        out_.at(kept++) = s;
      }
      const bool any = kept != out_.tail;
      out_.tail = kept;
      return any;
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
