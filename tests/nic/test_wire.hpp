// Links whose every property a test chooses: how much a segment carries, when there is no room.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
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
               return link::is_discarded(s, source_qpn, role, from, psns);
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

// Two ends joined in memory whose segments may be lost, come twice or overtake each other, as the
// test says of each.
class LossyWire {
 public:
  struct Fate {
    std::uint32_t copies = 1;    // 0: lost
    std::uint32_t held_for = 0;  // as many later segments go first
  };
  // Of a segment, and which one of its direction's it is, from 0.
  using Fates = std::function<Fate(const link::Segment&, std::uint64_t)>;

  struct Options {
    Fates a_to_b = [](const link::Segment&, std::uint64_t) { return Fate{}; };
    Fates b_to_a = [](const link::Segment&, std::uint64_t) { return Fate{}; };
    link::InFlight room = {};
  };
  explicit LossyWire(Options options)
      : options_(std::move(options)),
        a_(options_.a_to_b, options_.room, a_to_b_, b_to_a_),
        b_(options_.b_to_a, options_.room, b_to_a_, a_to_b_) {}
  LossyWire(const LossyWire&) = delete;
  LossyWire& operator=(const LossyWire&) = delete;

  link::Link& a() { return a_; }
  link::Link& b() { return b_; }
  // All that was sent, lost or not; the payload views are stale.
  const std::vector<link::Segment>& a_to_b() const { return a_.sent; }
  const std::vector<link::Segment>& b_to_a() const { return b_.sent; }
  // Lets go of what waits for later segments; true if there was any.
  bool release() {
    const bool any = !a_to_b_.held.empty() || !b_to_a_.held.empty();
    a_to_b_.release(~0u);
    b_to_a_.release(~0u);
    return any;
  }

 private:
  struct Direction {
    std::deque<link::Segment> arrived;
    std::deque<std::pair<std::uint32_t, link::Segment>> held;

    void release(std::uint32_t later) {
      for (auto& [left, segment] : held) {
        left -= std::min(left, later);
        if (left == 0) arrived.push_back(segment);
      }
      std::erase_if(held, [](const auto& h) { return h.first == 0; });
    }
  };

  class End final : public link::Link {
   public:
    End(const Fates& fates, const link::InFlight& room, Direction& out, Direction& in)
        : fates_(fates), room_(room), out_(out), in_(in) {}

    bool lossless() const override { return false; }
    link::InFlight most_in_flight() const override { return room_; }
    bool carries_masked_atomics() const override { return false; }
    std::uint32_t max_payload_bytes() const override { return 4096; }
    bool try_send(const link::Segment& segment) override {
      const Fate fate = fates_(segment, sent.size());
      sent.push_back(segment);
      for (std::uint32_t i = 0; i < fate.copies; ++i) {
        if (fate.held_for == 0) {
          out_.arrived.push_back(segment);
        } else {
          out_.held.emplace_back(fate.held_for + 1, segment);
        }
      }
      out_.release(1);
      return true;
    }
    bool try_receive(link::Segment* segment) override {
      if (in_.arrived.empty()) return false;
      *segment = in_.arrived.front();
      segment->source_qpn = Qpn();
      in_.arrived.pop_front();
      return true;
    }
    bool payload_stays() const override { return true; }
    bool discard(Qpn source_qpn, link::SegmentRole role, Psn from, std::int32_t psns) override {
      const auto goes = [=](const link::Segment& s) {
        return link::is_discarded(s, source_qpn, role, from, psns);
      };
      const auto held = std::erase_if(out_.held, [&](const auto& h) { return goes(h.second); });
      return held + std::erase_if(out_.arrived, goes) != 0;
    }
    bool busy() const override { return !out_.arrived.empty() || !in_.arrived.empty(); }
    bool closed() const override { return false; }

    std::vector<link::Segment> sent;

   private:
    const Fates& fates_;
    const link::InFlight& room_;
    Direction& out_;
    Direction& in_;
  };

  const Options options_;
  Direction a_to_b_;
  Direction b_to_a_;
  End a_;
  End b_;
};

// One end alone: the test is the peer.
class ScriptedLink final : public link::Link {
 public:
  explicit ScriptedLink(bool lossless = true) : lossless_(lossless) {}

  bool lossless() const override { return lossless_; }
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

 private:
  bool lossless_;
};

}  // namespace peal::test
