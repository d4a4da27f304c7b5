#include "ladder/payload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "ladder/pattern.hpp"

namespace peal::ladder {
namespace {

// Words compared before looking at the result: long enough to cost nothing, short enough to stop
// soon in a payload that is all wrong.
constexpr std::uint64_t kBlockWords = 512;
// Earlier PUTs looked at to name a stale one; some tens of milliseconds.
constexpr std::uint64_t kMaxStaleCandidates = std::uint64_t{1} << 22;
// A payload is said to be another PUT's only if chance would do that less than once in 2^16.
constexpr std::uint64_t kEvidenceBits = 16;

using pattern::byte_at;
using pattern::guard_base;
using pattern::kStep;
using pattern::producer_base;
using pattern::put_base;
using pattern::scramble;
using pattern::word_at;

std::uint64_t put_base(std::uint64_t seed, PutId put) {
  return pattern::put_base(producer_base(seed, put.producer), put.sequence);
}

std::uint64_t load(const std::byte* from, std::uint64_t bytes = kWordBytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, from, bytes);
  return word;
}

void store(std::byte* to, std::uint64_t word, std::uint64_t bytes = kWordBytes) {
  std::memcpy(to, &word, bytes);
}

constexpr std::uint64_t low_bytes(std::uint64_t word, std::uint64_t bytes) {
  return word & ((std::uint64_t{1} << (8 * bytes)) - 1);
}

// `flip` is 0 for the pattern and all ones for its complement.
void write_pattern(std::span<std::byte> to, std::uint64_t base, std::uint64_t flip) {
  const std::uint64_t words = to.size() / kWordBytes;
  std::byte* p = to.data();
  std::uint64_t state = base;
  for (std::uint64_t i = 0; i < words; ++i, p += kWordBytes, state += kStep) {
    store(p, scramble(state) ^ flip);
  }
  if (const std::uint64_t tail = to.size() % kWordBytes; tail != 0) {
    store(p, scramble(state) ^ flip, tail);
  }
}

bool matches_pattern(std::span<const std::byte> at, std::uint64_t base) {
  std::uint64_t words = at.size() / kWordBytes;
  const std::byte* p = at.data();
  std::uint64_t state = base;
  while (words != 0) {
    const std::uint64_t block = std::min(words, kBlockWords);
    std::uint64_t difference = 0;
    for (std::uint64_t i = 0; i < block; ++i, p += kWordBytes, state += kStep) {
      difference |= load(p) ^ scramble(state);
    }
    if (difference != 0) return false;
    words -= block;
  }
  const std::uint64_t tail = at.size() % kWordBytes;
  return tail == 0 || load(p, tail) == low_bytes(scramble(state), tail);
}

// A guard's bytes depend on their place in the region. It ends at a multiple of a word, as every
// payload starts at one, but it starts where the payload ends.
struct Guard {
  std::uint64_t begin;
  std::uint64_t end;
};

Guard leading_guard(const SlotLayout& layout) {
  return {0, layout.offset_of(0)};
}

Guard guard_after(const SlotLayout& layout, std::uint64_t slot) {
  return {layout.offset_of(slot) + layout.payload_bytes, layout.offset_of(slot + 1)};
}

void write_guard(std::span<std::byte> region, Guard guard, std::uint64_t base, std::uint64_t flip) {
  std::uint64_t offset = guard.begin;
  if (const std::uint64_t skipped = offset % kWordBytes; skipped != 0) {
    const std::uint64_t word = word_at(base, offset / kWordBytes) ^ flip;
    store(region.data() + offset, word >> (8 * skipped), kWordBytes - skipped);
    offset += kWordBytes - skipped;
  }
  for (; offset < guard.end; offset += kWordBytes) {
    store(region.data() + offset, word_at(base, offset / kWordBytes) ^ flip);
  }
}

bool guard_intact(std::span<const std::byte> region, Guard guard, std::uint64_t base) {
  std::uint64_t offset = guard.begin;
  std::uint64_t difference = 0;
  if (const std::uint64_t skipped = offset % kWordBytes; skipped != 0) {
    const std::uint64_t word = word_at(base, offset / kWordBytes) >> (8 * skipped);
    difference = load(region.data() + offset, kWordBytes - skipped) ^ word;
    offset += kWordBytes - skipped;
  }
  for (; offset < guard.end; offset += kWordBytes) {
    difference |= load(region.data() + offset) ^ word_at(base, offset / kWordBytes);
  }
  return difference == 0;
}

// Throws if the plan does not fit.
SlotLayout checked_layout(std::uint64_t region_bytes, const SegmentPlan& plan) {
  if (plan.producers == 0) throw std::invalid_argument("a segment needs at least one producer");
  const SlotLayout layout = plan.layout();
  if (region_bytes < layout.offset_of(0) ||
      plan.puts_per_producer > layout.slots_in(region_bytes) / plan.producers) {
    throw std::invalid_argument(
        fmt::format("a region of {} bytes does not hold {} PUTs of {} bytes for each of {} "
                    "producers",
                    region_bytes, plan.puts_per_producer, plan.payload_bytes, plan.producers));
  }
  return layout;
}

struct RegionPattern {
  std::uint64_t payload_flip;
  std::uint64_t guard_flip;
};

void write_region(std::span<std::byte> region, const SegmentPlan& plan, RegionPattern pattern) {
  const SlotLayout layout = checked_layout(region.size(), plan);
  const std::uint64_t guards = guard_base(plan.seed);
  write_guard(region, leading_guard(layout), guards, pattern.guard_flip);
  std::uint64_t slot = 0;
  for (std::uint32_t producer = 0; producer < plan.producers; ++producer) {
    const std::uint64_t base = producer_base(plan.seed, producer);
    for (std::uint64_t i = 0; i < plan.puts_per_producer; ++i, ++slot) {
      write_pattern(region.subspan(layout.offset_of(slot), plan.payload_bytes),
                    put_base(base, plan.first_sequence + i), pattern.payload_flip);
      write_guard(region, guard_after(layout, slot), guards, pattern.guard_flip);
    }
  }
}

// A payload known to be wrong, and the search for what it holds instead.
class WrongPayload {
 public:
  WrongPayload(std::span<const std::byte> payload, const SegmentPlan& plan, PutId put)
      : payload_(payload), plan_(plan), put_(put), base_(put_base(plan.seed, put)) {
    for (std::uint64_t offset = 0; offset < payload.size(); ++offset) {
      const std::uint8_t expected = byte_at(base_, offset);
      const std::uint8_t found = found_at(offset);
      if (found == expected) continue;
      if (wrong_bytes_++ == 0) first_wrong_ = offset;
      if (found == static_cast<std::uint8_t>(~expected)) ++unwritten_bytes_;
    }
  }

  Mismatch classify() const {
    Mismatch m;
    m.producer = put_.producer;
    m.sequence = put_.sequence;
    m.byte_offset = first_wrong_;
    m.expected = byte_at(base_, first_wrong_);
    m.found = found_at(first_wrong_);
    m.wrong_bytes = wrong_bytes_;
    if (unwritten_bytes_ == wrong_bytes_) {
      m.kind = wrong_bytes_ == payload_.size() ? Wrong::kLost : Wrong::kTorn;
    } else if (const auto misplaced = find_in_segment()) {
      m.kind = Wrong::kMisplaced;
      m.other_producer = misplaced->producer;
      m.other_sequence = misplaced->sequence;
    } else if (const auto stale = find_earlier()) {
      m.kind = Wrong::kStale;
      m.other_producer = stale->producer;
      m.other_sequence = stale->sequence;
    }
    return m;
  }

 private:
  std::uint8_t found_at(std::uint64_t offset) const {
    return std::to_integer<std::uint8_t>(payload_[offset]);
  }

  bool enough_evidence(std::uint64_t candidates) const {
    return 8 * wrong_bytes_ >=
           static_cast<std::uint64_t>(std::bit_width(candidates)) + kEvidenceBits;
  }

  // Whether each wrong byte is the one that the PUT of `base` has there. A message can be misplaced
  // in part, packet by packet, so the right bytes do not count against it.
  bool explained_by(std::uint64_t base) const {
    for (std::uint64_t offset = first_wrong_; offset < payload_.size(); ++offset) {
      const std::uint8_t found = found_at(offset);
      if (found != byte_at(base, offset) && found != byte_at(base_, offset)) return false;
    }
    return true;
  }

  std::optional<PutId> find_in_segment() const {
    if (!enough_evidence(plan_.slots())) return std::nullopt;
    for (std::uint32_t producer = 0; producer < plan_.producers; ++producer) {
      const std::uint64_t base = producer_base(plan_.seed, producer);
      for (std::uint64_t i = 0; i < plan_.puts_per_producer; ++i) {
        const std::uint64_t sequence = plan_.first_sequence + i;
        if (explained_by(put_base(base, sequence))) return PutId{producer, sequence};
      }
    }
    return std::nullopt;
  }

  // The latest first: what an earlier segment left is mostly what the last one left.
  std::optional<PutId> find_earlier() const {
    const std::uint64_t candidates = std::min(plan_.first_sequence, kMaxStaleCandidates);
    if (!enough_evidence(candidates)) return std::nullopt;
    const std::uint64_t base = producer_base(plan_.seed, put_.producer);
    for (std::uint64_t back = 1; back <= candidates; ++back) {
      const std::uint64_t sequence = plan_.first_sequence - back;
      if (explained_by(put_base(base, sequence))) return PutId{put_.producer, sequence};
    }
    return std::nullopt;
  }

  std::span<const std::byte> payload_;
  const SegmentPlan& plan_;
  PutId put_;
  std::uint64_t base_;
  std::uint64_t first_wrong_ = 0;
  std::uint64_t wrong_bytes_ = 0;
  std::uint64_t unwritten_bytes_ = 0;
};

Mismatch describe_guard(std::span<const std::byte> region, Guard guard, std::uint64_t base,
                        PutId put) {
  Mismatch m;
  m.kind = Wrong::kGuard;
  m.producer = put.producer;
  m.sequence = put.sequence;
  m.leading_guard = guard.begin == 0;
  for (std::uint64_t offset = guard.begin; offset < guard.end; ++offset) {
    const std::uint8_t expected = byte_at(base, offset);
    const std::uint8_t found = std::to_integer<std::uint8_t>(region[offset]);
    if (found == expected) continue;
    if (m.wrong_bytes++ != 0) continue;
    m.byte_offset = offset - guard.begin;
    m.expected = expected;
    m.found = found;
  }
  return m;
}

// PUTs are numbered from where the timed traffic starts, those before it from the run's start.
std::string put_text(std::uint64_t sequence, std::uint64_t first_timed_sequence) {
  return sequence < first_timed_sequence ? fmt::format("warm-up PUT {}", sequence)
                                         : fmt::format("PUT {}", sequence - first_timed_sequence);
}

}  // namespace

void fill(std::span<std::byte> payload, std::uint64_t seed, PutId put) {
  write_pattern(payload, put_base(seed, put), 0);
}

void poison(std::span<std::byte> payload, std::uint64_t seed, PutId put) {
  write_pattern(payload, put_base(seed, put), ~std::uint64_t{0});
}

bool matches(std::span<const std::byte> payload, std::uint64_t seed, PutId put) {
  return matches_pattern(payload, put_base(seed, put));
}

SlotLayout SlotLayout::for_payload(std::uint64_t bytes) {
  if (bytes > kMaxPayloadBytes) {
    throw std::length_error(
        fmt::format("a payload has at most {} bytes, not {}", kMaxPayloadBytes, bytes));
  }
  const std::uint64_t align = bytes >= 64 ? 64 : 16;
  const std::uint64_t stride = (bytes + kMinGuardBytes + align - 1) / align * align;
  return {.payload_bytes = bytes, .stride_bytes = stride, .align_bytes = align};
}

std::uint64_t SlotLayout::bytes_for(std::uint64_t slots) const {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  return slots > (kMax - align_bytes) / stride_bytes ? kMax : offset_of(slots);
}

std::uint64_t SlotLayout::slots_in(std::uint64_t region_bytes) const {
  return region_bytes < align_bytes ? 0 : (region_bytes - align_bytes) / stride_bytes;
}

const char* wrong_name(Wrong kind) {
  switch (kind) {
    case Wrong::kLost: return "lost";
    case Wrong::kStale: return "stale";
    case Wrong::kMisplaced: return "misplaced";
    case Wrong::kTorn: return "torn";
    case Wrong::kCorrupt: return "corrupt";
    case Wrong::kGuard: return "guard";
  }
  return "unknown";
}

std::string describe(const Mismatch& m) {
  const std::uint64_t first_timed =
      m.warm_up ? std::numeric_limits<std::uint64_t>::max() : m.sequence - m.put_index;
  std::string place = fmt::format("byte {}", m.byte_offset);
  if (m.kind == Wrong::kGuard) {
    place = fmt::format("guard byte {} {} the payload", m.byte_offset,
                        m.leading_guard ? "before" : "after");
  }
  std::string what = wrong_name(m.kind);
  if (m.kind == Wrong::kStale || m.kind == Wrong::kMisplaced) {
    what += fmt::format(": it is of producer {}, {}", m.other_producer,
                        put_text(m.other_sequence, first_timed));
  }
  return fmt::format("producer {}, {}, {}: expected 0x{:02x}, found 0x{:02x} ({}, {} {} wrong)",
                     m.producer, put_text(m.sequence, first_timed), place, m.expected, m.found,
                     what, m.wrong_bytes, m.wrong_bytes == 1 ? "byte" : "bytes");
}

void fill_source(std::span<std::byte> region, const SegmentPlan& plan) {
  write_region(region, plan, {.payload_flip = 0, .guard_flip = ~std::uint64_t{0}});
}

void poison_destination(std::span<std::byte> region, const SegmentPlan& plan) {
  write_region(region, plan, {.payload_flip = ~std::uint64_t{0}, .guard_flip = 0});
}

Verdict check_destination(std::span<const std::byte> region, const SegmentPlan& plan,
                          std::span<const std::uint64_t> acknowledged_per_producer) {
  const SlotLayout layout = checked_layout(region.size(), plan);
  if (acknowledged_per_producer.size() != plan.producers) {
    throw std::invalid_argument(fmt::format("{} acknowledged counts for {} producers",
                                            acknowledged_per_producer.size(), plan.producers));
  }
  const std::uint64_t guards = guard_base(plan.seed);
  Verdict verdict;
  const auto note = [&](Mismatch m) {
    m.warm_up = m.sequence < plan.first_timed_sequence;
    m.put_index = m.warm_up ? m.sequence : m.sequence - plan.first_timed_sequence;
    verdict.first = m;
  };

  if (!guard_intact(region, leading_guard(layout), guards)) {
    ++verdict.mismatches;
    note(describe_guard(region, leading_guard(layout), guards, {0, plan.first_sequence}));
  }
  for (std::uint32_t producer = 0; producer < plan.producers; ++producer) {
    const std::uint64_t acknowledged = acknowledged_per_producer[producer];
    if (acknowledged > plan.puts_per_producer) {
      throw std::invalid_argument(fmt::format("{} PUTs of producer {} acknowledged, {} sent",
                                              acknowledged, producer, plan.puts_per_producer));
    }
    const std::uint64_t base = producer_base(plan.seed, producer);
    for (std::uint64_t i = 0; i < acknowledged; ++i) {
      const std::uint64_t slot = producer * plan.puts_per_producer + i;
      const PutId put{producer, plan.first_sequence + i};
      const auto payload = region.subspan(layout.offset_of(slot), plan.payload_bytes);
      const bool payload_wrong = !matches_pattern(payload, put_base(base, put.sequence));
      const bool guard_wrong = !guard_intact(region, guard_after(layout, slot), guards);
      if (!payload_wrong && !guard_wrong) continue;
      ++verdict.mismatches;
      if (verdict.first) continue;
      if (payload_wrong) {
        note(WrongPayload(payload, plan, put).classify());
      } else {
        note(describe_guard(region, guard_after(layout, slot), guards, put));
      }
    }
    verdict.checked += acknowledged;
  }
  return verdict;
}

}  // namespace peal::ladder
