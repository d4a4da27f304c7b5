// What an idle proxy costs and how soon it wakes, in virtual time; and that it never keeps a change
// waiting.
#include "host/idle.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <thread>

#include "host/pass_lock.hpp"
#include "host/proxy.hpp"
#include "peal/mlx5/doorbell.hpp"

namespace peal::host {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;

// A machine's costs, on the heavy side.
constexpr std::uint64_t kLookNs = 500;
constexpr std::uint64_t kSpinNs = 50;
constexpr std::uint64_t kYieldNs = 1'000;
constexpr std::uint64_t kSleepsLongerNs = 100'000;  // the kernel's timer slack, and then some
constexpr std::uint64_t kWakeNs = 30'000;           // CPU time of going to sleep and waking

// The proxy's loop with a clock of its own: one look, then what the policy says.
struct VirtualLoop {
  Proxy proxy;
  std::uint64_t now_ns = 0;
  std::uint64_t busy_ns = 0;
  std::uint64_t looks = 0;
  std::uint32_t idle_looks = 0;

  void turn() {
    ++looks;
    now_ns += kLookNs;
    busy_ns += kLookNs;
    if (proxy.progress()) {
      idle_looks = 0;
      return;
    }
    const IdleTurn t = idle_turn(++idle_looks);
    const bool sleeps = t.kind == IdleTurn::kSleep;
    now_ns += sleeps                      ? t.sleep_ns + kSleepsLongerNs
              : t.kind == IdleTurn::kSpin ? kSpinNs
                                          : kYieldNs;
    busy_ns += sleeps ? kWakeNs : t.kind == IdleTurn::kSpin ? kSpinNs : kYieldNs;
  }
};

TEST(HandlerStageIdle, SpinsThenYieldsThenSleeps) {
  EXPECT_EQ(idle_turn(1).kind, IdleTurn::kSpin);
  EXPECT_EQ(idle_turn(kSpinTurns).kind, IdleTurn::kSpin);
  EXPECT_EQ(idle_turn(kSpinTurns + 1).kind, IdleTurn::kYield);
  EXPECT_EQ(idle_turn(kSpinTurns + kYieldTurns).kind, IdleTurn::kYield);
  EXPECT_EQ(idle_turn(kSpinTurns + kYieldTurns + 1).kind, IdleTurn::kSleep);
  EXPECT_EQ(idle_turn(~0u).kind, IdleTurn::kSleep);
}

TEST(HandlerStageIdle, CostsLessThanATwentiethOfACore) {
  VirtualLoop loop;
  loop.proxy.drive_by_hand();
  while (loop.now_ns < kSecondNs / 20) loop.turn();
  ASSERT_EQ(idle_turn(loop.idle_looks).kind, IdleTurn::kSleep) << "it takes long to come to rest";
  const std::uint64_t begin_ns = loop.now_ns;
  const std::uint64_t begin_looks = loop.looks;
  const std::uint64_t begin_busy_ns = loop.busy_ns;
  while (loop.now_ns < begin_ns + kSecondNs) loop.turn();
  EXPECT_LE(loop.looks - begin_looks, 1500u);
  EXPECT_LT(loop.busy_ns - begin_busy_ns, kSecondNs / 20);
}

TEST(HandlerStageIdle, RingsWithinAMillisecondHoweverLongItHasSlept) {
  std::mt19937_64 random(11);
  ProxyWord word;
  std::uint32_t dbrec = 0;
  std::uint64_t doorbell = 0;
  VirtualLoop loop;
  loop.proxy.drive_by_hand();
  loop.proxy.add({&word, &dbrec, &doorbell, Qpn(5), 0});
  std::uint64_t worst_ns = 0;
  for (std::uint64_t pi = 1; pi <= 2'000; ++pi) {
    // Stored at any time from at once to a while after the loop has come to rest.
    const std::uint64_t stored_ns = loop.now_ns + random() % 20'000'000;
    while (loop.now_ns < stored_ns) loop.turn();
    word.pi = pi;  // during the last turn's pause, so the next look finds it
    loop.turn();
    ASSERT_EQ(doorbell, mlx5::encode_doorbell(pi, Qpn(5)));
    worst_ns = std::max(worst_ns, loop.now_ns - stored_ns);
  }
  EXPECT_LT(worst_ns, 1'000'000u);
  EXPECT_GT(worst_ns, 100'000u) << "it never slept";
}

// Only so that a hang ends.
constexpr std::uint64_t kManyYields = 1'000'000'000;

TEST(HandlerStagePassLock, LetsAWaitingChangeInBeforeTheNextPass) {
  for (int round = 0; round < 200; ++round) {
    PassLock lock;
    bool changed = false;
    auto pass = lock.lock_pass();
    std::thread changer([&] { lock.change([&] { changed = true; }); });
    for (std::uint64_t i = 0; lock.waiting() == 0 && i < kManyYields; ++i) {
      std::this_thread::yield();
    }
    const bool changed_during_pass = changed;
    pass.unlock();
    pass = lock.lock_pass();  // at once: whoever waited comes first
    const bool changed_before_next = changed;
    pass.unlock();
    changer.join();
    ASSERT_FALSE(changed_during_pass);
    ASSERT_TRUE(changed_before_next);
    EXPECT_EQ(lock.waiting(), 0u);
  }
}

TEST(HandlerStagePassLock, GoesOnAfterAChangeThatThrew) {
  PassLock lock;
  EXPECT_THROW(lock.change([] { throw 1; }), int);
  ASSERT_EQ(lock.waiting(), 0u);
  EXPECT_TRUE(lock.lock_pass().owns_lock());
  int changes = 0;
  lock.change([&] { ++changes; });
  EXPECT_EQ(changes, 1);
}

}  // namespace
}  // namespace peal::host
