// Waiting: what is pending, what is done for ever, and when a deadline or the stop word ends it.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "support/manual_fabric.hpp"
#include "support/scale.hpp"

namespace peal {
namespace {

using test::FabricOptions;
using test::ManualFabric;
using test::ManualMemory;
using test::of_depth;

template <Sharing S>
std::vector<std::uint64_t> post(SendQueue<ManualMemory, S>& queue, const ManualFabric& fabric,
                                std::uint32_t count) {
  std::vector<std::uint64_t> tickets;
  for (std::uint32_t i = 0; i < count; ++i) {
    Posted posted;
    EXPECT_EQ(put(queue, fabric.put(i * 8, i * 8, 8), &posted), Status::kOk);
    tickets.push_back(posted.ticket);
  }
  return tickets;
}

template <Sharing S>
void expect_pending_until_the_nic_runs() {
  ManualFabric fabric(of_depth(4));
  fabric.hold();
  auto queue = fabric.queue<S>();
  const auto tickets = post(queue, fabric, 4);
  for (int poll = 0; poll < 500; ++poll) {
    for (const std::uint64_t t : tickets) {
      ASSERT_EQ(queue.completions().try_wait(t), Status::kPending) << "poll " << poll;
    }
  }
  EXPECT_EQ(queue.completions().completed(), 0u);
  fabric.settle();
  for (const std::uint64_t t : tickets) EXPECT_EQ(queue.completions().try_wait(t), Status::kOk);
  EXPECT_EQ(queue.completions().completed(), 4u);
}

TEST(Wait, IsPendingOnNeverWrittenCqUntilTheNicRuns) {
  expect_pending_until_the_nic_runs<Sharing::kExclusive>();
  expect_pending_until_the_nic_runs<Sharing::kDevice>();
}

// A CQ outlives a reset of its QP, and then its count goes on: here the next CQE is number 4 of a
// ring of 4, lap 1. A never written entry has owner 1 and counter 0, as that CQE will have, so that
// only its opcode says that it is none.
TEST(Wait, IsPendingWhenNeverWrittenEntryMatchesOwnerAndCounter) {
  mlx5::Cqe cq[4];
  for (mlx5::Cqe& c : cq) c.word[mlx5::kCqeOwnerWord] = swap_bytes(std::uint32_t{0xf1});
  QueueState state;
  QueueHandle handle;
  handle.nic_cq = cq;
  handle.state = &state;
  handle.depth = handle.cq_depth = 4;
  handle.cq_base = 4;
  SendQueue<ManualMemory, Sharing::kDevice> queue(handle);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(queue.completions().try_wait(0), Status::kPending);
  EXPECT_EQ(state.completed, 0u);
  EXPECT_EQ(state.error, 0u);
  cq[0].word[mlx5::kCqeOwnerWord] = mlx5::encode_cqe_owner_word(mlx5::CqeOpcode::kRequester, 1, 0);
  EXPECT_EQ(queue.completions().try_wait(0), Status::kOk);
}

TEST(Wait, ReadsNoClockWhenAlreadyDone) {
  ManualFabric fabric;
  auto queue = fabric.queue();
  const auto tickets = post(queue, fabric, 3);
  fabric.settle();
  const std::uint64_t clock_ns = ManualMemory::hooks().now_ns;
  for (const std::uint64_t t : tickets) EXPECT_EQ(wait(queue, t, 0), Status::kOk);
  EXPECT_EQ(ManualMemory::hooks().now_ns, clock_ns);
}

TEST(Wait, SucceedsForEverDespiteALaterError) {
  ManualFabric fabric(of_depth(8));
  auto queue = fabric.queue<Sharing::kDevice>();
  std::vector<std::uint64_t> tickets = post(queue, fabric, 6);
  ASSERT_EQ(wait(queue, tickets.back()), Status::kOk);
  fabric.arm({{nic::FaultKind::kCqe, 0x13, 0}});
  Posted failed;
  ASSERT_EQ(put(queue, fabric.put(0, 0, 8), &failed), Status::kOk);
  ASSERT_EQ(wait(queue, failed.ticket), Status::kCompletionError);
  for (int i = 0; i < 3; ++i) {
    for (const std::uint64_t t : tickets) EXPECT_EQ(wait(queue, t), Status::kOk) << t;
    EXPECT_EQ(wait(queue, failed.ticket), Status::kCompletionError);
    EXPECT_EQ(queue.completions().try_wait(failed.ticket), Status::kCompletionError);
  }
}

// ---- Deadlines ---------------------------------------------------------------------------------

constexpr std::uint64_t kTimeouts[] = {0,      1,       999,       1000,      1001,
                                       15'000, 15'999,  16'000,    16'001,    17'000,
                                       31'500, 100'000, 4'999'999, 50'000'000};

// The clock is read at each of the first 16 pauses, then at every 16th.
void expect_in_window(std::uint64_t start_ns, std::uint64_t timeout_ns) {
  const std::uint64_t elapsed = ManualMemory::hooks().now_ns - start_ns;
  const std::uint64_t pause = ManualMemory::hooks().ns_per_pause;
  EXPECT_GE(elapsed, timeout_ns);
  EXPECT_LE(elapsed, timeout_ns + 16 * pause);
  if (timeout_ns > 0 && timeout_ns <= 16 * pause) {
    EXPECT_EQ(elapsed, (timeout_ns + pause - 1) / pause * pause);
  }
}

TEST(Wait, EndsInItsDeadlineWindowWhenTheNicIsHeld) {
  ManualFabric fabric(of_depth(4));
  fabric.hold();
  auto queue = fabric.queue<Sharing::kDevice>();
  const auto tickets = post(queue, fabric, 4);
  for (const std::uint64_t timeout_ns : kTimeouts) {
    SCOPED_TRACE(timeout_ns);
    const std::uint64_t start_ns = ManualMemory::hooks().now_ns;
    ASSERT_EQ(wait(queue, tickets[2], timeout_ns), Status::kDeadline);
    expect_in_window(start_ns, timeout_ns);
  }
  // A deadline latches nothing: the same ticket still succeeds.
  LatchedError e;
  EXPECT_FALSE(queue.completions().error(&e));
  fabric.release();
  EXPECT_EQ(wait(queue, tickets[2]), Status::kOk);
}

TEST(Wait, DefaultsToFiveSeconds) {
  ManualFabric fabric;
  fabric.hold();
  ManualMemory::hooks().ns_per_pause = 1'000'000;
  auto queue = fabric.queue();
  const auto tickets = post(queue, fabric, 1);
  const std::uint64_t start_ns = ManualMemory::hooks().now_ns;
  ASSERT_EQ(wait(queue, tickets[0]), Status::kDeadline);
  expect_in_window(start_ns, 5'000'000'000u);
}

TEST(Wait, SucceedsWhenTheCqeComesInTheLastPause) {
  ManualFabric fabric;
  fabric.hold();
  auto queue = fabric.queue();
  const auto tickets = post(queue, fabric, 1);
  int pauses = 0;
  ManualMemory::hooks().on_pause = [&] {
    if (++pauses == 9) fabric.settle();
  };
  ASSERT_EQ(wait(queue, tickets[0], 10'000), Status::kOk);
  EXPECT_EQ(pauses, 9);
}

template <Sharing S>
void expect_reserve_deadline_leaves_no_hole() {
  ManualFabric fabric(of_depth(4, 65534));
  fabric.hold();
  auto queue = fabric.queue<S>();
  const auto tickets = post(queue, fabric, 4);
  const QueueState& state = *queue.handle().state;
  for (const std::uint64_t timeout_ns : kTimeouts) {
    SCOPED_TRACE(timeout_ns);
    for (const std::uint32_t n : {1u, 2u, 4u}) {
      const std::uint64_t start_ns = ManualMemory::hooks().now_ns;
      Reservation r{99, 9};
      ASSERT_EQ(queue.reserve(n, &r, timeout_ns), Status::kDeadline);
      expect_in_window(start_ns, timeout_ns);
      ASSERT_EQ(state.reserved, 65538u);
      ASSERT_EQ(r.first, 99u);
    }
  }
  fabric.release();
  Reservation r;
  ASSERT_EQ(queue.reserve(2, &r), Status::kOk);
  EXPECT_EQ(r.first, 65538u);
  for (std::uint64_t i = r.first; i != r.end(); ++i) {
    write_wqe(queue, i, fabric.put(0, 0, 8));
  }
  ASSERT_EQ(queue.publish(r), Status::kOk);
  ASSERT_EQ(wait(queue, r.end() - 1), Status::kOk);
  for (int i = 0; i < 1000; ++i) {
    Posted posted;
    ASSERT_EQ(put(queue, fabric.put(0, 0, 8), &posted), Status::kOk);
    ASSERT_EQ(posted.ticket, 65540u + static_cast<unsigned>(i));
  }
  ASSERT_EQ(wait(queue, 66539), Status::kOk);
}

TEST(Reserve, LeavesNoHoleWhenItsDeadlinePasses) {
  expect_reserve_deadline_leaves_no_hole<Sharing::kExclusive>();
  expect_reserve_deadline_leaves_no_hole<Sharing::kDevice>();
}

template <Sharing S>
void expect_invalid_counts_take_nothing() {
  ManualFabric fabric(of_depth(8));
  auto queue = fabric.queue<S>();
  for (const std::uint32_t n : {0u, 9u, 16u, 0x8000'0000u, 0xffff'ffffu}) {
    Reservation r{99, 9};
    ASSERT_EQ(queue.reserve(n, &r), Status::kInvalid) << n;
    EXPECT_EQ(r.first, 99u);
    EXPECT_EQ(queue.handle().state->reserved, 0u);
  }
  EXPECT_EQ(ManualMemory::hooks().now_ns, 0u);
  Reservation r;
  ASSERT_EQ(queue.reserve(8, &r), Status::kOk);
  EXPECT_EQ(r.first, 0u);
}

TEST(Reserve, RefusesZeroAndMoreThanDepth) {
  expect_invalid_counts_take_nothing<Sharing::kExclusive>();
  expect_invalid_counts_take_nothing<Sharing::kDevice>();
}

// Between a poller's look at its CQE and its step forward, another passes it.
struct OvertakenMemory : ManualMemory {
  static std::function<void()>& after_look() {
    static std::function<void()> f;
    return f;
  }
  static std::uint32_t load_cqe_owner_acquire(const std::uint32_t* word, FenceScope scope) {
    const std::uint32_t v = ManualMemory::load_cqe_owner_acquire(word, scope);
    if (const auto f = std::exchange(after_look(), nullptr)) f();
    return v;
  }
};

TEST(Wait, NeverMovesCompletedBackWhenAnotherPollerPassedIt) {
  ManualFabric fabric(of_depth(8));
  auto other = fabric.queue<Sharing::kDevice>();
  SendQueue<OvertakenMemory, Sharing::kDevice> overtaken(other.handle());
  post(other, fabric, 8);
  fabric.settle();
  OvertakenMemory::after_look() = [&] { EXPECT_EQ(wait(other, 7), Status::kOk); };
  EXPECT_EQ(overtaken.completions().try_wait(2), Status::kOk);
  EXPECT_EQ(other.completions().completed(), 8u);
}

// Here the ring even goes round in between: the entry is another lap's, yet the ticket is done.
TEST(Wait, SucceedsWhenTheRingWentRoundBeforeItsLook) {
  ManualFabric fabric(of_depth(8));
  auto other = fabric.queue<Sharing::kDevice>();
  SendQueue<OvertakenMemory, Sharing::kDevice> overtaken(other.handle());
  post(other, fabric, 8);
  QueueState& state = *other.handle().state;
  OvertakenMemory::after_look() = [&] {
    for (int i = 0; i < 20; ++i) post(other, fabric, 1);
    EXPECT_EQ(wait(other, 27), Status::kOk);
  };
  EXPECT_EQ(wait(overtaken, 2), Status::kOk);
  EXPECT_EQ(state.completed, 28u);
}

// A thread that is preempted between its loads finds `reserved` older than `completed`. Here it
// sleeps for 65500 WQEs of the others: slot 0 then holds the CQE of WQE 65472, whose lap parity and
// 16-bit counter are also those of index -64. Nothing but a real completion may move `completed`.
// A reserve that never ends is made to fail by the count of its looks.
struct PreemptedMemory : ManualMemory {
  struct Hook {
    const void* word = nullptr;
    std::function<void()> after_load;
    int looks = 0;
  };
  static Hook& hook() {
    static Hook h;
    return h;
  }
  template <class T>
  static T load_relaxed(const T* p) {
    const T v = ManualMemory::load_relaxed(p);
    if (hook().word != p) return v;
    if (++hook().looks == 1) hook().after_load();
    if (hook().looks > 1000) throw std::runtime_error("reserve goes on without end");
    return v;
  }
};

TEST(Reserve, TakesNoOldCqeForACompletionWhenPreemptedAfterReadingReserved) {
  ManualFabric fabric(of_depth(64));
  const QueueHandle q = fabric.sender_qps[0].handle();
  SendQueue<PreemptedMemory, Sharing::kDevice> preempted(q);
  auto others = fabric.queue<Sharing::kDevice>();
  PreemptedMemory::hook() = {&q.state->reserved, [&] {
                               Posted posted;
                               for (int i = 0; i < 65500; ++i) {
                                 ASSERT_EQ(put(others, fabric.put(0, 0, 0), &posted), Status::kOk);
                                 ASSERT_EQ(wait(others, posted.ticket), Status::kOk);
                               }
                             }};
  PreemptedMemory::hook().looks = 0;
  Reservation r;
  ASSERT_EQ(preempted.reserve(1, &r, 1'000'000), Status::kOk);
  EXPECT_EQ(r.first, 65500u);
  EXPECT_EQ(q.state->completed, 65500u);
  write_wqe(preempted, r.first, fabric.put(0, 0, 8));
  ASSERT_EQ(preempted.publish(r), Status::kOk);
  EXPECT_EQ(others.completions().try_wait(r.first), Status::kPending);
  EXPECT_EQ(wait(others, r.first), Status::kOk);
}

// ---- The stop word -----------------------------------------------------------------------------

template <Sharing S>
void expect_stop_word_ends_everything() {
  ManualFabric fabric(of_depth(4));
  fabric.hold();
  std::uint32_t stop = 0;
  QueueHandle handle = fabric.sender_qps[0].handle();
  handle.stop = &stop;
  SendQueue<ManualMemory, S> queue(handle);
  auto tickets = post(queue, fabric, 2);
  fabric.settle();
  const auto more = post(queue, fabric, 2);
  tickets.insert(tickets.end(), more.begin(), more.end());
  ASSERT_EQ(wait(queue, tickets[0]), Status::kOk);

  int pauses = 0;
  ManualMemory::hooks().on_pause = [&] {
    if (++pauses == 37) stop = 1;
  };
  EXPECT_EQ(wait(queue, tickets[3]), Status::kStopped);
  EXPECT_EQ(pauses, 37) << "not at the first look after it was set";
  EXPECT_EQ(wait(queue, tickets[3]), Status::kStopped);
  EXPECT_EQ(pauses, 37);
  // What is done is done.
  EXPECT_EQ(wait(queue, tickets[0]), Status::kOk);
  EXPECT_EQ(wait(queue, tickets[1]), Status::kOk);

  stop = pauses = 0;
  Reservation r;
  EXPECT_EQ(queue.reserve(4, &r), Status::kStopped);
  EXPECT_EQ(pauses, 37);
  EXPECT_EQ(queue.reserve(1, &r), Status::kStopped) << "although there is room";
  EXPECT_EQ(pauses, 37);
  EXPECT_EQ(handle.state->reserved, 4u);

  // It can be withdrawn: nothing is latched.
  stop = 0;
  fabric.release();
  EXPECT_EQ(wait(queue, tickets[3]), Status::kOk);
  ASSERT_EQ(queue.reserve(1, &r), Status::kOk);
  EXPECT_EQ(r.first, 4u);
}

TEST(StopWord, EndsWaitAndReserveAtTheNextTurn) {
  expect_stop_word_ends_everything<Sharing::kExclusive>();
  expect_stop_word_ends_everything<Sharing::kDevice>();
}

TEST(StopWord, EndsPutsThatWaitForRoom) {
  ManualFabric fabric(of_depth(2));
  fabric.hold();
  std::uint32_t stop = 0;
  QueueHandle handle = fabric.sender_qps[0].handle();
  handle.stop = &stop;
  handle.max_message_bytes = 16;
  SendQueue<ManualMemory, Sharing::kDevice> queue(handle);
  int pauses = 0;
  ManualMemory::hooks().on_pause = [&] {
    if (++pauses == 5) stop = 1;
  };
  Posted posted;
  EXPECT_EQ(put(queue, fabric.put(0, 0, 1000), &posted), Status::kStopped);
  EXPECT_EQ(pauses, 5);
  EXPECT_EQ(handle.state->reserved, 2u) << "the first run of chunks only";
}

}  // namespace
}  // namespace peal
