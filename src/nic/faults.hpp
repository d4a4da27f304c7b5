// The faults that a QP was told to commit, and which of them have happened. Knows WQEs by their
// index only, and reaches no payload itself; a requester asks it at each WQE.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "nic/check.hpp"
#include "nic/fault_kind.hpp"

namespace peal::nic {

struct Fault {
  FaultKind kind = FaultKind::kCorrupt;
  std::uint64_t value = 0;
  std::uint64_t at = 0;  // the WQE, counted from the moment of arming; kCorrupt, kNoop, kCqe
};

// As a memory policy copies payload.
using CopyPayload = void (*)(std::byte* to, const std::byte* from, std::size_t bytes);

struct ArmedFault {
  Fault fault;
  std::uint64_t index = 0;  // of the WQE
  bool reached = false;
};

class ArmedFaults {
 public:
  // In place of those before; `next_index` is that of the WQE that `at` counts from.
  void arm(const std::vector<Fault>& faults, std::uint64_t next_index) {
    armed_.clear();
    ++arming_;
    delay_ns_ = 0;
    for (const Fault& f : faults) {
      const bool is_delay = f.kind == FaultKind::kDelay;
      if (is_delay) delay_ns_ = f.value;
      armed_.push_back({f, next_index + f.at, is_delay});
    }
  }

  // How many have not happened.
  std::uint32_t unreached() const {
    std::uint32_t n = 0;
    for (const ArmedFault& f : armed_) n += f.reached ? 0 : 1;
    return n;
  }

  // For an engine with a data path of its own, which commits them: all of them, the how many-th
  // time they were armed, and those that it has reached by then, a bit each.
  const std::vector<ArmedFault>& all() const { return armed_; }
  std::uint64_t arming() const { return arming_; }
  void take_reached(std::uint64_t arming, std::uint32_t reached) {
    for (std::size_t i = 0; arming == arming_ && i < armed_.size() && i < 32; ++i) {
      armed_[i].reached |= (reached >> i & 1) != 0;
    }
  }

  std::uint64_t delay_ns() const { return delay_ns_; }

  // To be asked when a WQE could be consumed: the first time starts the hold.
  bool held(std::uint64_t now_ns) {
    for (ArmedFault& f : armed_) {
      if (f.fault.kind != FaultKind::kHold || f.reached) continue;
      f.reached = true;
      held_since_ns_ = now_ns;
      hold_until_ns_ = now_ns + f.fault.value;
    }
    return holds(now_ns);
  }

  // Whether a hold that has started is not over.
  bool holds(std::uint64_t now_ns) const { return now_ns < hold_until_ns_; }
  std::uint64_t held_since_ns() const { return held_since_ns_; }

  // Applies what was armed for the WQE `index` to what checking it has said. False when it must not
  // move data.
  bool commit(std::uint64_t index, CheckResult* r, CopyPayload copy_payload) {
    bool moves = true;
    for (ArmedFault& f : armed_) {
      if (f.reached || f.index != index) continue;
      switch (f.fault.kind) {
        case FaultKind::kCorrupt:
          if (r->refusal != Refusal::kNone || r->move.bytes == 0) break;
          if (r->move.operation != Operation::kWrite) break;
          r->move.local = flipped(r->move, copy_payload);
          f.reached = true;
          break;
        case FaultKind::kNoop:
          moves = false;
          f.reached = true;
          break;
        case FaultKind::kCqe:
          r->refusal = Refusal::kInjected;
          r->syndrome = static_cast<mlx5::Syndrome>(f.fault.value);
          r->vendor_syndrome = 0;
          f.reached = true;
          break;
        case FaultKind::kHold:
        case FaultKind::kDelay: break;
      }
    }
    return moves;
  }

 private:
  // A copy with one bit wrong, kept as long as the QP: segments refer to it.
  std::byte* flipped(const Move& move, CopyPayload copy_payload) {
    corrupted_.push_back(std::make_unique<std::byte[]>(move.bytes));
    std::byte* copy = corrupted_.back().get();
    copy_payload(copy, move.local, move.bytes);
    copy[move.bytes / 2] ^= std::byte{0x01};
    return copy;
  }

  std::vector<ArmedFault> armed_;
  std::uint64_t arming_ = 0;
  std::uint64_t delay_ns_ = 0;
  std::uint64_t held_since_ns_ = 0;
  std::uint64_t hold_until_ns_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> corrupted_;
};

}  // namespace peal::nic
