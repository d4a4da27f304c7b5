// A link between two simulated NICs: each segment arrives after a time of its own, and in order,
// unless it is told to lose some.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "link/link.hpp"
#include "sim/simulation.hpp"

namespace peal::sim {

// Of 1000 segments, those that it happens to.
struct LinkTrouble {
  std::uint32_t lost = 0;
  std::uint32_t doubled = 0;
  std::uint32_t overtaken = 0;

  bool any() const { return lost + doubled + overtaken != 0; }
};

class SimLink {
 public:
  SimLink(Simulation& sim, std::uint64_t latency_ns_max, LinkTrouble trouble = {})
      : sim_(sim), latency_ns_max_(latency_ns_max), trouble_(trouble) {}
  SimLink(const SimLink&) = delete;
  SimLink& operator=(const SimLink&) = delete;

  link::Link& a() { return a_; }
  link::Link& b() { return b_; }

  // Which agent steps each end's NIC, to be woken when something has been sent to it.
  void served_by(Agent a, Agent b) {
    b_to_a_.receiver = a;
    a_to_b_.receiver = b;
  }
  // When the next segment arrives at either end; kNever where none is on its way.
  std::uint64_t next_arrival_ns() const {
    return std::min(a_to_b_.next_arrival_ns(), b_to_a_.next_arrival_ns());
  }

 private:
  struct OnItsWay {
    link::Segment segment;
    std::uint64_t arrives_ns;
    Clock told;  // what the sender knew
  };
  struct Direction {
    std::deque<OnItsWay> queue;
    std::uint64_t last_arrival_ns = 0;
    Agent receiver = 0;

    std::uint64_t next_arrival_ns() const {
      return queue.empty() ? Scheduler::kNever : queue.front().arrives_ns;
    }
  };
  static constexpr std::size_t kSegments = 1024;
  static constexpr std::uint32_t kOvertakenNs = 20'000;  // how much later it comes, at most

  class End final : public link::Link {
   public:
    End(SimLink& link, Direction& out, Direction& in) : link_(link), out_(out), in_(in) {}

    bool lossless() const override { return !link_.trouble_.any(); }
    std::uint32_t max_payload_bytes() const override { return 1u << 30; }
    bool try_send(const link::Segment& segment) override {
      if (out_.queue.size() >= kSegments) return false;
      sim::Random& random = link_.sim_.random();
      const LinkTrouble& trouble = link_.trouble_;
      if (!trouble.any()) {
        put_on_its_way(segment);
        return true;
      }
      if (random.chance(trouble.lost)) return true;
      put_on_its_way(segment);
      if (random.chance(trouble.doubled)) put_on_its_way(segment);
      return true;
    }
    bool try_receive(link::Segment* segment) override {
      Simulation& sim = link_.sim_;
      if (in_.next_arrival_ns() > sim.scheduler().now_ns()) return false;
      *segment = in_.queue.front().segment;
      sim.machine().hear(sim.scheduler().running(), in_.queue.front().told);
      in_.queue.pop_front();
      return true;
    }
    bool payload_stays() const override { return true; }
    bool discard(Qpn source_qpn, link::SegmentRole role, Psn from, std::int32_t psns) override {
      return std::erase_if(out_.queue, [&](const OnItsWay& o) {
               return link::is_discarded(o.segment, source_qpn, role, from, psns);
             }) != 0;
    }
    bool busy() const override { return !out_.queue.empty() || !in_.queue.empty(); }
    bool closed() const override { return false; }

   private:
    void put_on_its_way(const link::Segment& segment) {
      Simulation& sim = link_.sim_;
      std::uint64_t arrives_ns = sim.scheduler().now_ns();
      if (link_.latency_ns_max_ != 0) {
        arrives_ns += sim.random().below(static_cast<std::uint32_t>(link_.latency_ns_max_) + 1);
      }
      if (link_.trouble_.overtaken != 0 && sim.random().chance(link_.trouble_.overtaken)) {
        arrives_ns = std::max(out_.last_arrival_ns, arrives_ns) + sim.random().below(kOvertakenNs);
      } else {
        arrives_ns = out_.last_arrival_ns = std::max(out_.last_arrival_ns, arrives_ns);
      }
      const auto later = [arrives_ns](const OnItsWay& o) { return o.arrives_ns > arrives_ns; };
      out_.queue.insert(std::find_if(out_.queue.begin(), out_.queue.end(), later),
                        {segment, arrives_ns, sim.machine().tell(sim.scheduler().running())});
      sim.scheduler().wake(out_.receiver);
    }

    SimLink& link_;
    Direction& out_;
    Direction& in_;
  };

  Simulation& sim_;
  std::uint64_t latency_ns_max_;
  LinkTrouble trouble_;
  Direction a_to_b_;
  Direction b_to_a_;
  End a_{*this, a_to_b_, b_to_a_};
  End b_{*this, b_to_a_, a_to_b_};
};

}  // namespace peal::sim
