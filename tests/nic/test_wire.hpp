// Links whose every property a test chooses: how much a segment carries, when there is no room.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "link/link.hpp"

namespace peal::test {

// Two ends joined in memory, by reference like the loopback.
class TestWire {
 public:
  struct Options {
    std::uint32_t max_payload_bytes = 4096;
    // Asked before each segment; true: there is no room now.
    std::function<bool()> full = [] { return false; };
  };
  explicit TestWire(const Options& options) : options_(options) {}
  TestWire(const TestWire&) = delete;
  TestWire& operator=(const TestWire&) = delete;

  link::Link& a() { return a_; }
  link::Link& b() { return b_; }
  // All that travelled from a to b, in order; the payload views are stale.
  const std::vector<link::Segment>& a_to_b() const { return a_.sent; }
  const std::vector<link::Segment>& b_to_a() const { return b_.sent; }
  std::uint64_t refusals() const { return refusals_; }

 private:
  using Direction = std::deque<link::Segment>;

  class End final : public link::Link {
   public:
    End(TestWire& wire, Direction& out, Direction& in) : wire_(wire), out_(out), in_(in) {}

    std::uint32_t max_payload_bytes() const override { return wire_.options_.max_payload_bytes; }
    bool try_send(const link::Segment& segment) override {
      if (wire_.options_.full()) {
        ++wire_.refusals_;
        return false;
      }
      out_.push_back(segment);
      sent.push_back(segment);
      return true;
    }
    bool try_receive(link::Segment* segment) override {
      if (in_.empty()) return false;
      *segment = in_.front();
      in_.pop_front();
      return true;
    }
    bool payload_stays() const override { return true; }
    bool discard(Qpn source_qpn, link::SegmentRole role, Psn from, std::int32_t psns) override {
      return std::erase_if(out_, [=](const link::Segment& s) {
               return s.source_qpn == source_qpn && link::role_of(s.kind) == role &&
                      s.payload != nullptr && s.psn.since(from) >= 0 && s.psn.since(from) < psns;
             }) != 0;
    }
    bool busy() const override { return !out_.empty() || !in_.empty(); }
    bool closed() const override { return false; }

    std::vector<link::Segment> sent;

   private:
    TestWire& wire_;
    Direction& out_;
    Direction& in_;
  };

  Options options_;
  std::uint64_t refusals_ = 0;
  Direction a_to_b_;
  Direction b_to_a_;
  End a_{*this, a_to_b_, b_to_a_};
  End b_{*this, b_to_a_, a_to_b_};
};

// One end alone: the test is the peer.
class ScriptedLink final : public link::Link {
 public:
  std::uint32_t max_payload_bytes() const override { return 1u << 30; }
  bool try_send(const link::Segment& segment) override {
    if (full) return false;
    sent.push_back(segment);
    return true;
  }
  bool try_receive(link::Segment* segment) override {
    if (incoming.empty()) return false;
    *segment = incoming.front();
    incoming.pop_front();
    return true;
  }
  bool payload_stays() const override { return false; }
  bool discard(Qpn source_qpn, link::SegmentRole, Psn, std::int32_t) override {
    discarded.push_back(source_qpn);
    return false;
  }
  bool busy() const override { return !incoming.empty(); }
  bool closed() const override { return false; }

  bool full = false;
  std::deque<link::Segment> incoming;
  std::vector<link::Segment> sent;
  std::vector<Qpn> discarded;
};

}  // namespace peal::test
