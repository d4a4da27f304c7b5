// What a PUT carries, where it lies, and the verdict over what arrived.
// Source and destination are regions of slots, one PUT each, with guard bytes around every payload.
// Knows nothing of queues or engines: it judges memory alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace peal::ladder {

// Names one PUT of a run. Sequences count up per producer and are never used twice.
struct PutId {
  std::uint32_t producer = 0;
  std::uint64_t sequence = 0;
};

// Writes the payload of `put`: 8-byte words, each a function of (seed, producer, sequence, index).
// A tail shorter than a word holds the low bytes of the last one.
void fill(std::span<std::byte> payload, std::uint64_t seed, PutId put);

// Writes the complement of what `fill` writes, so that no byte is right before it is written.
void poison(std::span<std::byte> payload, std::uint64_t seed, PutId put);

// Whether every byte is as `fill` writes it.
bool matches(std::span<const std::byte> payload, std::uint64_t seed, PutId put);

// Slots in a region: a leading guard, then per slot a payload and the guard after it. Every payload
// starts at a multiple of `align_bytes` from the region's start.
struct SlotLayout {
  std::uint64_t payload_bytes = 0;
  std::uint64_t stride_bytes = 0;
  std::uint64_t align_bytes = 0;  // 64 for payloads of 64 bytes and more, else 16

  // Throws std::length_error above kMaxPayloadBytes.
  static SlotLayout for_payload(std::uint64_t bytes);

  std::uint64_t offset_of(std::uint64_t slot) const { return align_bytes + slot * stride_bytes; }
  // UINT64_MAX when the number does not fit, so that no region ever seems large enough.
  std::uint64_t bytes_for(std::uint64_t slots) const;
  std::uint64_t slots_in(std::uint64_t region_bytes) const;
};

inline constexpr std::uint64_t kMaxPayloadBytes = std::uint64_t{1} << 48;
inline constexpr std::uint64_t kMinGuardBytes = 8;

// How a place is wrong.
enum class Wrong : std::uint8_t {
  kLost,       // no byte was written
  kStale,      // the wrong bytes are those of an earlier segment's PUT of the same producer
  kMisplaced,  // the wrong bytes are those of another PUT of this segment
  kTorn,       // some bytes are right, all others were not written
  kCorrupt,    // anything else
  kGuard,      // bytes beside the payload were written
};

const char* wrong_name(Wrong kind);

struct Mismatch {
  Wrong kind = Wrong::kCorrupt;
  std::uint32_t producer = 0;
  std::uint64_t sequence = 0;
  std::uint64_t put_index = 0;  // the producer's PUT in the timed traffic; in warm-up, its sequence
  bool warm_up = false;
  std::uint64_t byte_offset = 0;  // first wrong byte, from the start of the payload or of the guard
  bool leading_guard = false;     // kGuard: the guard before slot 0 instead of the one after a slot
  std::uint8_t expected = 0;
  std::uint8_t found = 0;
  std::uint64_t wrong_bytes = 0;     // in this payload, or in this guard
  std::uint32_t other_producer = 0;  // kStale, kMisplaced: whose bytes they are
  std::uint64_t other_sequence = 0;
};

// "producer 0, PUT 17, byte 4032: expected 0x3a, found 0x3b (corrupt, 1 byte wrong)"
std::string describe(const Mismatch& mismatch);

// The PUTs between two checks. Producer p sends first_sequence .. first_sequence +
// puts_per_producer - 1, its i-th PUT from and to slot p * puts_per_producer + i.
struct SegmentPlan {
  std::uint64_t seed = 0;
  std::uint32_t producers = 1;
  std::uint64_t first_sequence = 0;
  std::uint64_t puts_per_producer = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t first_timed_sequence = 0;  // what lies before it is warm-up

  SlotLayout layout() const { return SlotLayout::for_payload(payload_bytes); }
  std::uint64_t slots() const { return producers * puts_per_producer; }
};

struct Verdict {
  std::uint64_t checked = 0;      // PUTs
  std::uint64_t mismatches = 0;   // PUTs with a wrong payload or guard; the leading guard adds one
  std::optional<Mismatch> first;  // the lowest (producer, sequence); the leading guard before all
};

// All three throw std::invalid_argument when the plan is empty of producers or does not fit the
// region. Bytes of the region behind the last slot's guard are neither written nor read.

// Payloads, and guards that differ in every bit from the destination's: a PUT that is too long by
// one byte brings a byte that is surely wrong.
void fill_source(std::span<std::byte> region, const SegmentPlan& plan);

void poison_destination(std::span<std::byte> region, const SegmentPlan& plan);

// Compares every byte of each producer's first acknowledged_per_producer[p] PUTs, the guard before
// slot 0 and the guards after those PUTs; so all guards when every PUT was acknowledged. What the
// other places hold is not known and not judged. To be called when the writer of `region` is quiet.
Verdict check_destination(std::span<const std::byte> region, const SegmentPlan& plan,
                          std::span<const std::uint64_t> acknowledged_per_producer);

}  // namespace peal::ladder
