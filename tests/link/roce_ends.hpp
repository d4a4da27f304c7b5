// Two ends of a RoCE link on this host, and random segments as they arrive there.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "link/owned_segment.hpp"
#include "link/roce.hpp"
#include "nic/atomic.hpp"
#include "wire/opcode.hpp"

namespace peal::test {

// Long enough for the slowest machine; no test waits for it unless it fails.
inline bool wait_until(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!done()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::yield();
  }
  return true;
}

inline link::IpAddress address(const std::string& text) {
  return link::ip_address_from(text).value();
}

struct RoceEnds {
  RoceEnds(const std::string& a, const std::string& b, link::RoceOptions options = {}) {
    const std::string texts[] = {a, b};
    for (std::size_t i = 0; i < 2; ++i) {
      options.local = address(texts[i]);
      ends[i] = std::make_unique<link::RoceLink>(options);
    }
    for (std::size_t i = 0; i < 2; ++i) {
      ends[i]->connect({.address = address(texts[1 - i]),
                        .udp_port = ends[1 - i]->udp_port(),
                        .is_peal = !options.receives_raw,
                        .receive_buffer_bytes = ends[1 - i]->receive_buffer_bytes()});
    }
  }

  link::RoceLink& operator[](std::size_t i) { return *ends[i]; }
  // Waits for the next segment at an end.
  testing::AssertionResult receive(std::size_t i, link::Segment* s) {
    if (wait_until([&] { return ends[i]->try_receive(s); })) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "nothing arrives at end " << i;
  }

  std::array<std::unique_ptr<link::RoceLink>, 2> ends;
};

// Of any kind that RoCE has, with those fields set that its packet has: as it arrives, but for the
// source QPN.
class RandomRoceSegments {
 public:
  explicit RandomRoceSegments(std::uint64_t seed) : random_(seed) {}

  OwnedSegment next(std::uint32_t payload_bytes_max) {
    const auto kind = static_cast<link::SegmentKind>(6 + random_() % 15);
    return of(kind, static_cast<std::uint32_t>(random_() % (payload_bytes_max + 1)));
  }

  // Where the kind has no payload, or whole words only, the length is what it can be.
  OwnedSegment of(link::SegmentKind kind, std::uint32_t payload_bytes) {
    OwnedSegment owned;
    link::Segment& s = owned.segment;
    const wire::OpcodeFormat& f = *wire::format_of(static_cast<std::uint8_t>(kind));
    s.kind = kind;
    s.ack_request = random_() % 2 == 0;
    s.destination_qpn = Qpn(bits(24));
    s.psn = Psn(bits(24));
    if (f.has(wire::kHasReth) || f.has(wire::kHasAtomicEth)) {
      s.address = random_();
      s.rkey = Rkey(bits(32));
      s.message_bytes = f.has(wire::kHasReth) ? bits(32) : 8;
    }
    if (f.has(wire::kHasAeth)) {
      s.aeth_syndrome = static_cast<std::uint8_t>(bits(8));
      s.msn = bits(24);
    }
    if (f.has(wire::kHasAtomicAckEth)) s.original = random_();
    if (f.has(wire::kHasImmDt)) s.immediate = bits(32);
    if (f.has(wire::kHasAtomicEth)) {
      owned.payload.resize(link::kAtomicPayloadBytes);
      const bool compares = kind == link::SegmentKind::kCompareSwap;
      const std::uint64_t all = compares ? ~std::uint64_t{0} : 0;
      encode(nic::AtomicOperands{random_(), compares ? random_() : 0, all, all},
             owned.payload.data());
    } else if (f.carries != wire::Carries::kNothing) {
      const bool words = f.carries == wire::Carries::kWholeMtu;
      owned.payload.resize(words ? payload_bytes / 4 * 4 : payload_bytes);
      for (std::byte& b : owned.payload) b = static_cast<std::byte>(random_());
    }
    return owned;
  }

  std::uint64_t number() { return random_(); }

 private:
  std::uint32_t bits(unsigned n) {
    return static_cast<std::uint32_t>(random_() & ((std::uint64_t{1} << n) - 1));
  }

  std::mt19937_64 random_;
};

}  // namespace peal::test
