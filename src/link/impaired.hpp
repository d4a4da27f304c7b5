// Makes a link worse, as a bad network would: what is sent by it may be dropped, doubled, delayed
// or overtaken. Used in front of any other link; owned by the same thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <random>
#include <vector>

#include "link/forwarding.hpp"

namespace peal::link {

struct Impairments {
  // Probabilities of each segment, 0 to 1, in the order in which they are asked.
  double drop = 0;
  double duplicate = 0;        // then it is sent a second time, right behind the first
  double reorder = 0;          // then 1 to 8 later ones overtake it, or 100 us
  std::uint64_t delay_ns = 0;  // of every segment
  std::uint64_t seed = 1;      // the same segments, seed and clock meet the same fate
  std::function<std::uint64_t()> clock = {};  // nanoseconds; empty: the steady clock
};

struct ImpairedCounters {
  std::uint64_t dropped = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t reordered = 0;
};

class ImpairedLink : public ForwardingLink {
 public:
  static constexpr std::uint32_t kReorderSegments = 8;
  static constexpr std::uint64_t kReorderNs = 100'000;
  static constexpr std::size_t kHeldMax = 4096;  // then try_send refuses

  // `inner` must outlive it, and is sent by through it only. Throws std::invalid_argument where a
  // probability is none.
  ImpairedLink(Link& inner, Impairments impairments);

  const ImpairedCounters& counters() const { return counters_; }

  bool lossless() const override { return false; }
  // Of a segment that it holds it has a copy where the inner link would have; where that refers to
  // the payload, so does it. A held one leaves during one of the owner's calls, once it is time.
  bool try_send(const Segment& segment) override;
  bool try_receive(Segment* segment) override;
  bool discard(Qpn source_qpn, SegmentRole role, Psn from, std::int32_t psns) override;
  bool busy() const override { return !held_.empty() || inner_.busy(); }

 private:
  struct Held {
    Segment segment;
    std::vector<std::byte> payload;  // empty where the segment refers to the owner's
    std::uint64_t due_ns = 0;
    std::uint32_t later = 0;  // how many more overtake it, unless time does
  };

  bool chance(double probability);
  void hold(const Segment& segment, std::uint64_t due_ns, std::uint32_t later);
  void overtake(std::size_t count, std::uint64_t due_ns);
  void send_due();

  Impairments impairments_;
  std::mt19937_64 random_;
  ImpairedCounters counters_;
  std::deque<Held> held_;  // in the order in which they leave
};

}  // namespace peal::link
