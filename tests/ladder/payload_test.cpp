#include "ladder/payload.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

namespace peal::ladder {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::uint64_t kSizes[] = {0, 1, 7, 8, 9, 63, 64, 65, 4096, 4097};

// One segment's memory at both ends; what a NIC would do is done by `deliver`.
class Segment {
 public:
  explicit Segment(const SegmentPlan& p)
      : plan(p),
        layout(p.layout()),
        source(layout.bytes_for(p.slots())),
        destination(source.size()),
        acknowledged(p.producers, p.puts_per_producer) {
    fill_source(source, plan);
    poison_destination(destination, plan);
  }

  std::byte* destination_of(std::uint64_t slot) {
    return destination.data() + layout.offset_of(slot);
  }

  void deliver(std::uint64_t from_slot, std::uint64_t to_slot, std::uint64_t bytes) {
    std::copy_n(source.data() + layout.offset_of(from_slot), bytes, destination_of(to_slot));
  }
  void deliver(std::uint64_t slot) { deliver(slot, slot, plan.payload_bytes); }
  void deliver_all() {
    for (std::uint64_t slot = 0; slot < plan.slots(); ++slot) deliver(slot);
  }

  Verdict check() const { return check_destination(destination, plan, acknowledged); }

  SegmentPlan plan;
  SlotLayout layout;
  Bytes source;
  Bytes destination;
  std::vector<std::uint64_t> acknowledged;
};

SegmentPlan two_producers(std::uint64_t payload_bytes) {
  return {.seed = 42,
          .producers = 2,
          .first_sequence = 1000,
          .puts_per_producer = 5,
          .payload_bytes = payload_bytes,
          .first_timed_sequence = 990};
}

Bytes pattern(std::uint64_t bytes, std::uint64_t seed, PutId put) {
  Bytes payload(bytes);
  fill(payload, seed, put);
  return payload;
}

TEST(Payload, MatchesWhatWasFilledForEverySize) {
  for (const std::uint64_t size : kSizes) {
    EXPECT_TRUE(matches(pattern(size, 7, {1, 2}), 7, {1, 2})) << size;
  }
}

TEST(Payload, DependsOnSeedProducerSequenceAndOffset) {
  const Bytes payload = pattern(64, 7, {1, 2});
  EXPECT_FALSE(matches(payload, 8, {1, 2}));
  EXPECT_FALSE(matches(payload, 7, {0, 2}));
  EXPECT_FALSE(matches(payload, 7, {1, 3}));
  for (std::size_t word = 8; word < payload.size(); word += 8) {
    EXPECT_NE(std::memcmp(payload.data(), payload.data() + word, 8), 0) << word;
  }
}

TEST(Payload, IsAPrefixOfTheLongerPayloadOfTheSamePut) {
  const Bytes longest = pattern(4097, 7, {1, 2});
  for (const std::uint64_t size : kSizes) {
    const Bytes payload = pattern(size, 7, {1, 2});
    EXPECT_TRUE(std::equal(payload.begin(), payload.end(), longest.begin())) << size;
  }
}

TEST(Payload, PoisonIsWrongInEveryByte) {
  for (const std::uint64_t size : kSizes) {
    const Bytes payload = pattern(size, 7, {1, 2});
    Bytes poisoned(size);
    poison(poisoned, 7, {1, 2});
    for (std::size_t i = 0; i < size; ++i) EXPECT_EQ(poisoned[i], ~payload[i]) << size << ' ' << i;
  }
}

TEST(Payload, EverySingleFlippedBitIsFound) {
  for (const std::uint64_t size : kSizes) {
    Bytes payload = pattern(size, 7, {1, 2});
    for (std::size_t bit = 0; bit < 8 * size; ++bit) {
      const std::byte mask{static_cast<unsigned char>(1u << (bit % 8))};
      payload[bit / 8] ^= mask;
      ASSERT_FALSE(matches(payload, 7, {1, 2})) << size << " bytes, bit " << bit;
      payload[bit / 8] ^= mask;
    }
  }
}

TEST(SlotLayout, KeepsGuardsAndAlignmentForEverySize) {
  for (const std::uint64_t size : kSizes) {
    const SlotLayout layout = SlotLayout::for_payload(size);
    EXPECT_EQ(layout.stride_bytes % (size >= 64 ? 64 : 16), 0u) << size;
    EXPECT_GE(layout.stride_bytes, size + 8) << size;
    EXPECT_GE(layout.offset_of(0), 8u) << size;
    EXPECT_EQ(layout.offset_of(0) % layout.align_bytes, 0u) << size;
    EXPECT_EQ(layout.bytes_for(3), layout.offset_of(3)) << size;
  }
}

TEST(SlotLayout, CountsTheSlotsThatFitARegion) {
  const SlotLayout layout = SlotLayout::for_payload(4096);
  EXPECT_EQ(layout.slots_in(0), 0u);
  EXPECT_EQ(layout.slots_in(layout.bytes_for(0)), 0u);
  EXPECT_EQ(layout.slots_in(layout.bytes_for(17) - 1), 16u);
  EXPECT_EQ(layout.slots_in(layout.bytes_for(17)), 17u);
}

TEST(SlotLayout, NeverSeemsSmallWhenTheSizeOverflows) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(SlotLayout::for_payload(4096).bytes_for(kMax / 2), kMax);
  EXPECT_THROW(SlotLayout::for_payload(kMax), std::length_error);
  EXPECT_NO_THROW(SlotLayout::for_payload(kMaxPayloadBytes));
}

TEST(Segment, IsRightWhenEverythingArrived) {
  for (const std::uint64_t size : kSizes) {
    Segment segment(two_producers(size));
    segment.deliver_all();
    const Verdict verdict = segment.check();
    EXPECT_EQ(verdict.checked, 10u) << size;
    EXPECT_EQ(verdict.mismatches, 0u) << size;
    EXPECT_FALSE(verdict.first) << size;
  }
}

TEST(Segment, FindsASingleFlippedBitAnywhere) {
  std::mt19937_64 random(20240607);
  for (const std::uint64_t size : kSizes) {
    Segment segment(two_producers(size));
    segment.deliver_all();
    const std::uint64_t bits = 8 * segment.destination.size();
    for (int i = 0; i < 300; ++i) {
      const std::uint64_t bit = random() % bits;
      const std::byte mask{static_cast<unsigned char>(1u << (bit % 8))};
      segment.destination[bit / 8] ^= mask;
      const Verdict verdict = segment.check();
      ASSERT_EQ(verdict.mismatches, 1u) << size << " bytes, bit " << bit;
      ASSERT_EQ(verdict.first->wrong_bytes, 1u);
      ASSERT_EQ(verdict.first->expected ^ verdict.first->found, std::to_integer<int>(mask));
      ASSERT_TRUE(verdict.first->kind == Wrong::kCorrupt || verdict.first->kind == Wrong::kGuard)
          << wrong_name(verdict.first->kind);
      segment.destination[bit / 8] ^= mask;
    }
    EXPECT_EQ(segment.check().mismatches, 0u);
  }
}

TEST(Segment, NamesTheCorruptByte) {
  Segment segment(two_producers(4096));
  segment.deliver_all();
  std::byte& victim = segment.destination_of(5 + 3)[4032];
  victim ^= std::byte{1};
  const Mismatch m = segment.check().first.value();
  EXPECT_EQ(m.kind, Wrong::kCorrupt);
  EXPECT_EQ(m.producer, 1u);
  EXPECT_EQ(m.sequence, 1003u);
  EXPECT_EQ(m.put_index, 13u);
  EXPECT_EQ(m.byte_offset, 4032u);
  EXPECT_EQ(m.found, std::to_integer<int>(victim));
}

TEST(Segment, FindsACorruptFirstPutOfAThousand) {
  Segment segment({.seed = 1, .puts_per_producer = 1000, .payload_bytes = 64});
  segment.deliver_all();
  segment.destination_of(0)[0] ^= std::byte{0x80};
  const Verdict verdict = segment.check();
  EXPECT_EQ(verdict.checked, 1000u);
  EXPECT_EQ(verdict.mismatches, 1u);
  EXPECT_EQ(verdict.first->put_index, 0u);
}

TEST(Segment, CallsAPutLostWhenNothingWasWritten) {
  for (const std::uint64_t size : kSizes) {
    if (size == 0) continue;
    Segment segment(two_producers(size));
    for (std::uint64_t slot = 0; slot < 10; ++slot) {
      if (slot != 7) segment.deliver(slot);
    }
    const Verdict verdict = segment.check();
    ASSERT_EQ(verdict.mismatches, 1u) << size;
    EXPECT_EQ(verdict.first->kind, Wrong::kLost) << size;
    EXPECT_EQ(verdict.first->producer, 1u);
    EXPECT_EQ(verdict.first->sequence, 1002u);
    EXPECT_EQ(verdict.first->wrong_bytes, size);
  }
}

TEST(Segment, CallsAPutTornWhenOneByteWasNotWritten) {
  for (const std::uint64_t size : kSizes) {
    if (size < 2) continue;
    Segment segment(two_producers(size));
    segment.deliver_all();
    const std::uint64_t hole = size / 2;
    Bytes poisoned(size);
    poison(poisoned, segment.plan.seed, {0, 1004});
    segment.destination_of(4)[hole] = poisoned[hole];
    const Verdict verdict = segment.check();
    ASSERT_EQ(verdict.mismatches, 1u) << size;
    EXPECT_EQ(verdict.first->kind, Wrong::kTorn) << size;
    EXPECT_EQ(verdict.first->byte_offset, hole);
    EXPECT_EQ(verdict.first->wrong_bytes, 1u);
  }
}

TEST(Segment, CallsAPutTornWhenOnlyItsStartArrived) {
  Segment segment(two_producers(4097));
  for (std::uint64_t slot = 0; slot < 10; ++slot) {
    segment.deliver(slot, slot, slot == 2 ? 4096 : 4097);
  }
  const Verdict verdict = segment.check();
  ASSERT_EQ(verdict.mismatches, 1u);
  EXPECT_EQ(verdict.first->kind, Wrong::kTorn);
  EXPECT_EQ(verdict.first->byte_offset, 4096u);
}

TEST(Segment, CallsAPutStaleWhenItHoldsAnEarlierSegmentsPayload) {
  for (const std::uint64_t size : {8u, 9u, 64u, 4097u}) {
    SegmentPlan plan = two_producers(size);
    Segment segment(plan);
    plan.first_sequence += plan.puts_per_producer;
    Segment later(plan);
    later.deliver_all();
    std::copy_n(segment.source.data() + segment.layout.offset_of(9), size, later.destination_of(9));
    const Verdict verdict = later.check();
    ASSERT_EQ(verdict.mismatches, 1u) << size;
    EXPECT_EQ(verdict.first->kind, Wrong::kStale) << size;
    EXPECT_EQ(verdict.first->sequence, 1009u);
    EXPECT_EQ(verdict.first->other_producer, 1u);
    EXPECT_EQ(verdict.first->other_sequence, 1004u);
  }
}

TEST(Segment, CallsPutsMisplacedWhenTwoProducersDestinationsAreSwapped) {
  for (const std::uint64_t size : {7u, 8u, 9u, 63u, 64u, 65u, 4096u, 4097u}) {
    Segment segment(two_producers(size));
    segment.deliver_all();
    segment.deliver(2, 5 + 2, segment.plan.payload_bytes);
    segment.deliver(5 + 2, 2, segment.plan.payload_bytes);
    const Verdict verdict = segment.check();
    ASSERT_EQ(verdict.mismatches, 2u) << size;
    EXPECT_EQ(verdict.first->kind, Wrong::kMisplaced) << size;
    EXPECT_EQ(verdict.first->producer, 0u);
    EXPECT_EQ(verdict.first->sequence, 1002u);
    EXPECT_EQ(verdict.first->other_producer, 1u);
    EXPECT_EQ(verdict.first->other_sequence, 1002u);
  }
}

TEST(Segment, CallsAPutMisplacedWhenOnePacketOfItIsAnotherPuts) {
  Segment segment(two_producers(4096));
  segment.deliver_all();
  std::copy_n(segment.source.data() + segment.layout.offset_of(3) + 1024, 1024,
              segment.destination_of(1) + 1024);
  const Verdict verdict = segment.check();
  ASSERT_EQ(verdict.mismatches, 1u);
  EXPECT_EQ(verdict.first->kind, Wrong::kMisplaced);
  EXPECT_EQ(verdict.first->sequence, 1001u);
  EXPECT_EQ(verdict.first->other_sequence, 1003u);
}

TEST(Segment, CallsAPutCorruptWhenItsBytesAreNobodys) {
  Segment segment(two_producers(64));
  segment.deliver_all();
  std::fill_n(segment.destination_of(9), 64, std::byte{0});
  EXPECT_EQ(segment.check().first->kind, Wrong::kCorrupt);
}

// One byte equals some other PUT's by chance, which must not be told as a fact.
TEST(Segment, CallsAPutCorruptWhenChanceCouldMakeItAnothers) {
  Segment segment({.seed = 3, .puts_per_producer = 2000, .payload_bytes = 1});
  segment.deliver_all();
  segment.destination_of(11)[0] ^= std::byte{4};
  EXPECT_EQ(segment.check().first->kind, Wrong::kCorrupt);
}

TEST(Segment, FindsAGuardOverrunByOneByteOfTheSource) {
  for (const std::uint64_t size : kSizes) {
    Segment segment(two_producers(size));
    segment.deliver_all();
    segment.deliver(4, 4, size + 1);
    const Verdict verdict = segment.check();
    ASSERT_EQ(verdict.mismatches, 1u) << size;
    EXPECT_EQ(verdict.first->kind, Wrong::kGuard) << size;
    EXPECT_EQ(verdict.first->sequence, 1004u);
    EXPECT_EQ(verdict.first->byte_offset, 0u);
    EXPECT_FALSE(verdict.first->leading_guard);
  }
}

TEST(Segment, FindsANeighboursPayloadInTheGuard) {
  for (const std::uint64_t size : {63u, 64u, 65u, 4096u}) {
    Segment segment(two_producers(size));
    segment.deliver_all();
    std::copy_n(segment.source.data() + segment.layout.offset_of(8), 8,
                segment.destination_of(7) + size);
    const Verdict verdict = segment.check();
    ASSERT_EQ(verdict.mismatches, 1u) << size;
    EXPECT_EQ(verdict.first->kind, Wrong::kGuard) << size;
    EXPECT_EQ(verdict.first->producer, 1u);
    EXPECT_EQ(verdict.first->sequence, 1002u);
  }
}

TEST(Segment, FindsAWriteBeforeTheFirstPayload) {
  for (const std::uint64_t size : kSizes) {
    Segment segment(two_producers(size));
    segment.deliver_all();
    segment.destination_of(0)[-1] ^= std::byte{1};
    segment.acknowledged = {0, 0};
    const Verdict verdict = segment.check();
    EXPECT_EQ(verdict.checked, 0u);
    ASSERT_EQ(verdict.mismatches, 1u) << size;
    EXPECT_EQ(verdict.first->kind, Wrong::kGuard) << size;
    EXPECT_TRUE(verdict.first->leading_guard);
    EXPECT_EQ(verdict.first->byte_offset, segment.layout.offset_of(0) - 1);
  }
}

TEST(Segment, JudgesOnlyAcknowledgedPutsWhenSomeWereNot) {
  Segment segment(two_producers(64));
  for (const std::uint64_t slot : {0u, 1u, 2u, 5u}) segment.deliver(slot);
  segment.deliver(3, 3, 64 + 8);  // cut off in the middle of an overrun; never acknowledged
  segment.acknowledged = {3, 1};
  const Verdict verdict = segment.check();
  EXPECT_EQ(verdict.checked, 4u);
  EXPECT_EQ(verdict.mismatches, 0u);

  segment.acknowledged = {3, 2};
  const Verdict one_more = segment.check();
  EXPECT_EQ(one_more.checked, 5u);
  EXPECT_EQ(one_more.mismatches, 1u);
  EXPECT_EQ(one_more.first->kind, Wrong::kLost);
  EXPECT_EQ(one_more.first->sequence, 1001u);

  segment.acknowledged = {4, 1};
  EXPECT_EQ(segment.check().first->kind, Wrong::kGuard);
}

TEST(Segment, ReportsTheLowestProducerAndSequenceFirst) {
  Segment segment(two_producers(64));
  segment.deliver_all();
  for (const std::uint64_t slot : {9u, 5u, 4u, 1u}) segment.destination_of(slot)[3] ^= std::byte{2};
  const Verdict verdict = segment.check();
  EXPECT_EQ(verdict.mismatches, 4u);
  EXPECT_EQ(verdict.first->producer, 0u);
  EXPECT_EQ(verdict.first->sequence, 1001u);
}

TEST(Segment, LeavesTheRegionBehindTheLastGuardAlone) {
  const SegmentPlan plan = two_producers(64);
  Bytes region(plan.layout().bytes_for(10) + 100, std::byte{0x5a});
  poison_destination(region, plan);
  fill_source(region, plan);
  EXPECT_EQ(std::count(region.end() - 100, region.end(), std::byte{0x5a}), 100);
}

TEST(Segment, IsRefusedWhenItDoesNotFit) {
  SegmentPlan plan = two_producers(64);
  Bytes region(plan.layout().bytes_for(10));
  const std::uint64_t acknowledged[] = {5, 5};
  EXPECT_NO_THROW(poison_destination(region, plan));
  EXPECT_THROW(poison_destination(std::span(region).first(region.size() - 1), plan),
               std::invalid_argument);
  EXPECT_THROW(fill_source({}, plan), std::invalid_argument);
  EXPECT_THROW(check_destination(region, plan, std::span(acknowledged).first(1)),
               std::invalid_argument);
  const std::uint64_t too_many[] = {5, 6};
  EXPECT_THROW(check_destination(region, plan, too_many), std::invalid_argument);
  plan.puts_per_producer = std::numeric_limits<std::uint64_t>::max();
  EXPECT_THROW(fill_source(region, plan), std::invalid_argument);
  plan.producers = 0;
  EXPECT_THROW(fill_source(region, plan), std::invalid_argument);
}

TEST(Mismatch, IsDescribedInOneSentence) {
  Mismatch m{.kind = Wrong::kCorrupt,
             .sequence = 117,
             .put_index = 17,
             .byte_offset = 4032,
             .expected = 0x3a,
             .found = 0x3b,
             .wrong_bytes = 1};
  EXPECT_EQ(describe(m),
            "producer 0, PUT 17, byte 4032: expected 0x3a, found 0x3b (corrupt, 1 byte wrong)");
  m.kind = Wrong::kLost;
  m.wrong_bytes = 64;
  EXPECT_EQ(describe(m),
            "producer 0, PUT 17, byte 4032: expected 0x3a, found 0x3b (lost, 64 bytes wrong)");
  m.kind = Wrong::kMisplaced;
  m.other_producer = 1;
  m.other_sequence = 116;
  EXPECT_EQ(describe(m),
            "producer 0, PUT 17, byte 4032: expected 0x3a, found 0x3b (misplaced: it is of "
            "producer 1, PUT 16, 64 bytes wrong)");
  m.kind = Wrong::kStale;
  m.other_sequence = 99;
  EXPECT_EQ(describe(m),
            "producer 0, PUT 17, byte 4032: expected 0x3a, found 0x3b (stale: it is of producer 1, "
            "warm-up PUT 99, 64 bytes wrong)");
}

TEST(Mismatch, SaysWhichGuardAndThatItWasWarmUp) {
  Mismatch m{.kind = Wrong::kGuard,
             .producer = 2,
             .sequence = 3,
             .put_index = 3,
             .warm_up = true,
             .byte_offset = 0,
             .expected = 0x01,
             .found = 0xfe,
             .wrong_bytes = 2};
  EXPECT_EQ(describe(m),
            "producer 2, warm-up PUT 3, guard byte 0 after the payload: expected 0x01, found 0xfe "
            "(guard, 2 bytes wrong)");
  m.leading_guard = true;
  EXPECT_EQ(describe(m),
            "producer 2, warm-up PUT 3, guard byte 0 before the payload: expected 0x01, found 0xfe "
            "(guard, 2 bytes wrong)");
}

TEST(Mismatch, CountsWarmUpPutsFromTheRunsStart) {
  SegmentPlan plan = two_producers(64);
  plan.first_timed_sequence = 1002;
  Segment segment(plan);
  segment.deliver_all();
  segment.destination_of(2)[0] ^= std::byte{1};
  EXPECT_FALSE(segment.check().first->warm_up);
  EXPECT_EQ(segment.check().first->put_index, 0u);
  segment.destination_of(1)[0] ^= std::byte{1};
  EXPECT_TRUE(segment.check().first->warm_up);
  EXPECT_EQ(segment.check().first->put_index, 1001u);
}

TEST(Wrong, HasANameInWordsForEveryKind) {
  EXPECT_STREQ(wrong_name(Wrong::kLost), "lost");
  EXPECT_STREQ(wrong_name(Wrong::kStale), "stale");
  EXPECT_STREQ(wrong_name(Wrong::kMisplaced), "misplaced");
  EXPECT_STREQ(wrong_name(Wrong::kTorn), "torn");
  EXPECT_STREQ(wrong_name(Wrong::kCorrupt), "corrupt");
  EXPECT_STREQ(wrong_name(Wrong::kGuard), "guard");
}

}  // namespace
}  // namespace peal::ladder
