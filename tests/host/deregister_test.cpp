// Regions that are deregistered while NICs still refer to them by pointer: their pages are never
// touched again, what used them ends, and what did not goes on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "engine/manual.hpp"
#include "nic/test_wire.hpp"
#include "peal/device/put.hpp"
#include "peal/host/context.hpp"
#include "peal/host/memory_region.hpp"
#include "peal/host/queue_pair.hpp"
#include "support/guarded_memory.hpp"
#include "support/manual_memory.hpp"
#include "verbs/software_nic.hpp"

namespace peal {
namespace {

using test::GuardedPages;
using test::ManualMemory;
using test::TestWire;

constexpr std::uint32_t kSegmentBytes = 4096;

// Registered memory that no access may touch once it is gone.
struct Memory {
  Memory(const Context& context, std::byte fill)
      : pages(4 * kSegmentBytes),
        region(MemoryRegion::create(context, pages.data(), pages.size(), Access::kRemoteAll)) {
    std::fill_n(pages.data(), pages.size(), fill);
  }
  void go() {
    region.reset();
    pages.forbid();
  }
  bool holds(std::byte value, std::uint64_t bytes) const {
    return std::all_of(pages.data(), pages.data() + bytes,
                       [value](std::byte b) { return b == value; });
  }

  GuardedPages pages;
  std::optional<MemoryRegion> region;
};

constexpr std::byte kNear{0x11};
constexpr std::byte kFar{0x22};

// Two connected queue pairs, stepped one at a time, and two pieces of memory on either side.
struct Ends {
  explicit Ends(CompletionMode completion = CompletionMode::kEvery)
      : near(Context::open(near_nic.provider(engine), {.handler = NicHandler::kDirect})),
        far(Context::open(far_nic.provider(engine), {.handler = NicHandler::kDirect})),
        qp(QueuePair::create(near, {.depth = 32, .completion = completion})),
        far_qp(QueuePair::create(far, {.depth = 1})) {
    qp.connect(far_qp.address());
    far_qp.connect(qp.address());
    ManualMemory::hooks() = {};
    ManualMemory::hooks().on_pause = [this] { step(); };
    queue.emplace(qp.handle());
  }
  ~Ends() { ManualMemory::hooks() = {}; }

  void step_near() { near_nic.core().step(ManualMemory::hooks().now_ns); }
  void step_far() { far_nic.core().step(ManualMemory::hooks().now_ns); }
  void step() {
    step_near();
    step_far();
  }
  std::uint64_t get(const Memory& from, const Memory& to, std::uint64_t bytes) {
    Posted posted;
    EXPECT_EQ(peal::get(*queue,
                        {to.region->address(), to.region->lkey(), from.region->address(),
                         from.region->rkey(), bytes},
                        &posted),
              Status::kOk);
    return posted.ticket;
  }
  std::uint64_t put(const Memory& from, const Memory& to, std::uint64_t bytes) {
    Posted posted;
    EXPECT_EQ(peal::put(*queue,
                        {from.region->address(), from.region->lkey(), to.region->address(),
                         to.region->rkey(), bytes},
                        &posted),
              Status::kOk);
    return posted.ticket;
  }
  std::uint64_t add(const Memory& target, const Memory& old_value) {
    Posted posted;
    EXPECT_EQ(fetch_add(*queue,
                        {{target.region->address(),
                          target.region->rkey(),
                          {old_value.region->address(), old_value.region->lkey()}},
                         1},
                        &posted),
              Status::kOk);
    return posted.ticket;
  }
  Status end_of(std::uint64_t ticket) { return wait(*queue, ticket, 1'000'000); }
  void expect_error(mlx5::Syndrome syndrome, std::uint64_t index) {
    LatchedError e;
    ASSERT_TRUE(queue->completions().error(&e));
    EXPECT_EQ(mlx5::syndrome_name(e.syndrome),
              mlx5::syndrome_name(static_cast<std::uint8_t>(syndrome)));
    EXPECT_EQ(e.index, index);
  }

  std::uint32_t room = 1'000'000;  // segments that the link still takes
  TestWire wire{{.max_payload_bytes = kSegmentBytes, .full = [this] {
                   if (room == 0) return true;
                   --room;
                   return false;
                 }}};
  engine::ManualEngine engine;
  verbs::SoftwareNic near_nic{{.nic_number = 1}, wire.a()};
  verbs::SoftwareNic far_nic{{.nic_number = 2}, wire.b()};
  Context near;
  Context far;
  QueuePair qp;
  QueuePair far_qp;
  Memory here{near, kNear};
  Memory here_too{near, kNear};
  Memory there{far, kFar};
  Memory there_too{far, kFar};
  std::optional<SendQueue<ManualMemory, Sharing::kExclusive>> queue;
};

enum class Read { kAsked, kAnswered, kPartlyUnsent, kPartlyArrived };

TEST(Deregister, OfWhatIsReadRefusesTheReadWhereverItsAnswerIs) {
  for (const Read stage :
       {Read::kAsked, Read::kAnswered, Read::kPartlyUnsent, Read::kPartlyArrived}) {
    SCOPED_TRACE("stage " + std::to_string(static_cast<int>(stage)));
    Ends ends;
    const std::uint64_t ticket = ends.get(ends.there, ends.here, 3 * kSegmentBytes);
    ends.step_near();
    if (stage != Read::kAsked) {
      ends.room = stage == Read::kAnswered ? 3 : 1;
      ends.step_far();
    }
    if (stage == Read::kPartlyArrived) {
      ends.step_near();
      ends.room = 1;
      ends.step_far();
    }
    ends.there.go();
    ends.room = 1'000'000;
    EXPECT_EQ(ends.end_of(ticket), Status::kCompletionError);
    ends.expect_error(mlx5::Syndrome::kRemoteAccess, ticket);
    const std::uint64_t arrived = stage == Read::kPartlyArrived ? kSegmentBytes : 0;
    EXPECT_TRUE(ends.here.holds(kFar, arrived));
    EXPECT_EQ(ends.here.pages.data()[arrived], kNear);
    EXPECT_EQ(ends.far_qp.state(), QueuePairState::kError);
  }
}

// The first read of the region is over: only the second is refused.
TEST(Deregister, OfWhatWasReadBeforeRefusesTheReadThatIsNotAnswered) {
  for (const std::uint32_t room : {0u, 1u, 2u}) {
    SCOPED_TRACE(room);
    Ends ends;
    const std::uint64_t first = ends.get(ends.there, ends.here, kSegmentBytes);
    ASSERT_EQ(ends.end_of(first), Status::kOk);
    const std::uint64_t second = ends.get(ends.there, ends.here_too, 2 * kSegmentBytes);
    ends.step_near();
    ends.room = room;
    ends.step_far();
    ends.there.go();
    ends.room = 1'000'000;
    EXPECT_EQ(ends.end_of(second), Status::kCompletionError);
    ends.expect_error(mlx5::Syndrome::kRemoteAccess, second);
    EXPECT_TRUE(ends.here_too.holds(kNear, 2 * kSegmentBytes));
  }
}

TEST(Deregister, OfWhatWasReadBeforeDisturbsNoReadOfAnotherRegion) {
  for (const std::uint32_t room : {0u, 1u, 2u}) {
    SCOPED_TRACE(room);
    Ends ends;
    const std::uint64_t first = ends.get(ends.there, ends.here, kSegmentBytes);
    ASSERT_EQ(ends.end_of(first), Status::kOk);
    const std::uint64_t second = ends.get(ends.there_too, ends.here_too, 2 * kSegmentBytes);
    ends.step_near();
    ends.room = room;
    ends.step_far();
    ends.there.go();
    ends.room = 1'000'000;
    EXPECT_EQ(ends.end_of(second), Status::kOk);
    EXPECT_TRUE(ends.here_too.holds(kFar, 2 * kSegmentBytes));
    EXPECT_EQ(ends.far_qp.state(), QueuePairState::kRts);
  }
}

// Several answers are on their way into the region: none of them is placed. What came before is.
TEST(Deregister, OfWhereAnswersLandEndsAllOfThemAndPlacesNone) {
  for (const bool atomics : {false, true}) {
    for (const CompletionMode completion : {CompletionMode::kEvery, CompletionMode::kTail}) {
      SCOPED_TRACE(std::string(atomics ? "atomics, " : "reads, ") +
                   completion_mode_name(completion));
      Ends ends(completion);
      const auto post = [&](const Memory& to) {
        return atomics ? ends.add(ends.there, to) : ends.get(ends.there, to, kSegmentBytes);
      };
      const std::uint64_t before = post(ends.here_too);
      const std::uint64_t tickets[] = {post(ends.here), post(ends.here), post(ends.here)};
      ends.step_near();
      ends.step_far();  // all are served, and their answers on the link
      ends.here.go();
      for (const std::uint64_t ticket : tickets) {
        EXPECT_EQ(ends.end_of(ticket), Status::kCompletionError);
      }
      if (completion == CompletionMode::kEvery) {
        ends.expect_error(mlx5::Syndrome::kLocalProtection, tickets[0]);
        EXPECT_EQ(ends.end_of(before), Status::kOk);
      }
      EXPECT_EQ(ends.here_too.pages.data()[0], kFar);
    }
  }
}

// Memory may be registered more than once; each registration stands for itself.
TEST(Deregister, OfOneOfTwoRegionsOfTheSameMemoryDisturbsNoUseOfTheOther) {
  enum class Use { kPut, kGet, kAdd };
  for (const Use use : {Use::kPut, Use::kGet, Use::kAdd}) {
    for (const bool near : {true, false}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(use)) + (near ? ", near" : ", far"));
      Ends ends;
      Memory& twice = near ? ends.here : ends.there;
      std::optional<MemoryRegion> other(MemoryRegion::create(
          near ? ends.near : ends.far, twice.pages.data(), twice.pages.size(), Access::kRemoteAll));
      const std::uint64_t ticket = use == Use::kPut ? ends.put(ends.here, ends.there, kSegmentBytes)
                                   : use == Use::kGet
                                       ? ends.get(ends.there, ends.here, kSegmentBytes)
                                       : ends.add(ends.there, ends.here);
      ends.step_near();
      if (use != Use::kPut) ends.step_far();
      other.reset();
      EXPECT_EQ(ends.end_of(ticket), Status::kOk);
      if (use == Use::kPut) {
        EXPECT_TRUE(ends.there.holds(kNear, kSegmentBytes));
      } else {
        EXPECT_TRUE(ends.here.holds(kFar, use == Use::kGet ? kSegmentBytes : 8));
      }
    }
  }
}

// The window of answers goes round many times; then a queue pair goes with all it may owe unsent,
// on the link, or both.
TEST(Deregister, FollowsTheQueuePairsEndWithAllAnswersThatItMayOwe) {
  for (const std::uint32_t room : {0u, 5u, 16u}) {
    for (const bool near_first : {true, false}) {
      SCOPED_TRACE(std::to_string(room) + (near_first ? ", near first" : ""));
      Ends ends;
      std::uint64_t ticket = 0;
      for (int i = 0; i < 70; ++i) ticket = ends.get(ends.there, ends.here, 64);
      ASSERT_EQ(ends.end_of(ticket), Status::kOk);
      for (int i = 0; i < 16; ++i) ticket = ends.get(ends.there, ends.here, 64);
      ends.step_near();
      ends.room = room;
      ends.step_far();
      std::optional<QueuePair> doomed(std::move(near_first ? ends.qp : ends.far_qp));
      doomed.reset();
      (near_first ? ends.here : ends.there).go();
      ends.room = 1'000'000;
      for (int i = 0; i < 10; ++i) ends.step();
      EXPECT_FALSE(ends.wire.a().busy());
    }
  }
}

}  // namespace
}  // namespace peal
