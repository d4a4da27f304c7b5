// The operations of CpuMemory that have rules of their own.
#include "peal/memory/cpu_memory.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "support/scale.hpp"

namespace peal {
namespace {

using test::scaled;

constexpr FenceScope kScope = FenceScope::kDevice;

TEST(CpuMemory, ClockNeverGoesBackAcrossPauses) {
  std::uint64_t last = CpuMemory::now_ns();
  EXPECT_GT(last, 0u);
  const std::uint64_t first = last;
  // Past the turn from which it yields.
  for (std::uint32_t turn = 0; turn < 2000; ++turn) {
    CpuMemory::pause(turn);
    const std::uint64_t now = CpuMemory::now_ns();
    ASSERT_GE(now, last);
    last = now;
  }
  EXPECT_GT(last, first) << "the clock stands still";
}

// What a pinned thread waits for has another CPU: to sleep would only be late.
TEST(CpuMemory, APinnedThreadOfAProcessOfMoreCpusDoesNotSleep) {
  cpu_set_t cpus;
  ASSERT_EQ(sched_getaffinity(0, sizeof cpus, &cpus), 0);
  if (CPU_COUNT(&cpus) == 1) GTEST_SKIP() << "there is one CPU";
  std::thread([] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    ASSERT_EQ(pthread_setaffinity_np(pthread_self(), sizeof one, &one), 0);
    rusage before{}, after{};
    getrusage(RUSAGE_THREAD, &before);
    for (int i = 0; i < 100; ++i) CpuMemory::pause(100'000);
    getrusage(RUSAGE_THREAD, &after);
    EXPECT_LT(after.ru_nvcsw - before.ru_nvcsw, 50) << "of 100 pauses";
  }).join();
}

TEST(CpuMemory, AdvanceCompletedMovesForwardOnly) {
  std::uint64_t completed = 10;
  CpuMemory::advance_completed_release(&completed, 12, kScope);
  EXPECT_EQ(CpuMemory::load_completed_acquire(&completed, kScope), 12u);
  CpuMemory::advance_completed_release(&completed, 11, kScope);
  EXPECT_EQ(completed, 12u);
  CpuMemory::advance_completed_release(&completed, 12, kScope);
  EXPECT_EQ(completed, 12u);
  const std::uint64_t far = (std::uint64_t{1} << 63) + 5;
  CpuMemory::advance_completed_release(&completed, far, kScope);
  CpuMemory::advance_completed_release(&completed, 13, kScope);
  EXPECT_EQ(completed, far);
}

TEST(CpuMemory, AdvanceCompletedNeverMovesBackUnderContention) {
  constexpr std::uint32_t kThreads = 8;
  const std::uint64_t rounds = scaled(20'000);
  alignas(64) std::uint64_t completed = 0;
  std::atomic<std::uint64_t> highest{0};
  std::atomic<std::uint64_t> falls{0};
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      std::uint64_t seen = 0;
      for (std::uint64_t i = 0; i < rounds; ++i) {
        const std::uint64_t v = i * 4 + random() % 64;
        CpuMemory::advance_completed_release(&completed, v, kScope);
        const std::uint64_t now = CpuMemory::load_completed_acquire(&completed, kScope);
        if (now < seen || now < v) ++falls;
        seen = now;
        std::uint64_t h = highest.load();
        while (h < v && !highest.compare_exchange_weak(h, v)) {
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(falls.load(), 0u);
  EXPECT_EQ(completed, highest.load());
}

TEST(CpuMemory, LatchKeepsItsFirstValue) {
  std::uint64_t latch = 0;
  CpuMemory::latch_release(&latch, 7, kScope);
  CpuMemory::latch_release(&latch, 8, kScope);
  CpuMemory::latch_release(&latch, 0, kScope);
  EXPECT_EQ(CpuMemory::load_latch_acquire(&latch, kScope), 7u);
}

TEST(CpuMemory, LatchShowsOneValueToAllUnderContention) {
  constexpr std::uint32_t kThreads = 8;
  const std::uint64_t rounds = scaled(100);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    alignas(64) std::uint64_t latch = 0;
    std::atomic<std::uint32_t> ready{0};
    std::vector<std::uint64_t> seen(kThreads);
    std::vector<std::thread> threads;
    for (std::uint32_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        ++ready;
        while (ready.load() != kThreads) std::this_thread::yield();
        CpuMemory::latch_release(&latch, t + 1, kScope);
        seen[t] = CpuMemory::load_latch_acquire(&latch, kScope);
      });
    }
    for (std::thread& t : threads) t.join();
    ASSERT_NE(latch, 0u);
    ASSERT_EQ(seen, std::vector<std::uint64_t>(kThreads, latch));
  }
}

TEST(CpuMemory, LockLetsOneIn) {
  std::uint32_t lock = 0;
  EXPECT_TRUE(CpuMemory::try_lock_acquire(&lock, kScope));
  EXPECT_FALSE(CpuMemory::try_lock_acquire(&lock, kScope));
  EXPECT_FALSE(CpuMemory::try_lock_acquire(&lock, kScope));
  CpuMemory::unlock_release(&lock, kScope);
  EXPECT_TRUE(CpuMemory::try_lock_acquire(&lock, kScope));
}

TEST(CpuMemory, LockOrdersPlainStoresBetweenThreads) {
  constexpr std::uint32_t kThreads = 4;
  const std::uint64_t rounds = scaled(5'000);
  alignas(64) std::uint32_t lock = 0;
  std::uint64_t guarded = 0;  // plain on purpose
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < rounds; ++i) {
        for (std::uint32_t turn = 0; !CpuMemory::try_lock_acquire(&lock, kScope); ++turn) {
          CpuMemory::pause(turn);
        }
        ++guarded;
        CpuMemory::unlock_release(&lock, kScope);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(guarded, kThreads * rounds);
}

TEST(CpuMemory, PendingReturnsWhatWasThereBefore) {
  std::uint64_t pending = 0;
  EXPECT_EQ(CpuMemory::add_pending_acq_rel(&pending, 1, kScope), 0u);
  EXPECT_EQ(CpuMemory::add_pending_acq_rel(&pending, 1, kScope), 1u);
  EXPECT_EQ(CpuMemory::load_pending_acquire(&pending, kScope), 2u);
  EXPECT_EQ(CpuMemory::subtract_pending_acq_rel(&pending, 2, kScope), 2u);
  EXPECT_EQ(pending, 0u);
}

TEST(CpuMemory, CompareSwapChangesNothingWhenTheValueIsAnother) {
  std::uint64_t word = 5;
  EXPECT_FALSE(CpuMemory::compare_swap_relaxed(&word, 4, 9, kScope));
  EXPECT_EQ(word, 5u);
  // Weak: it may fail for no reason, but not for ever.
  while (!CpuMemory::compare_swap_relaxed(&word, 5, 9, kScope)) {
  }
  EXPECT_EQ(word, 9u);
}

TEST(CpuMemory, StoresASegmentInFullForEverySharing) {
  for (const Sharing sharing : {Sharing::kExclusive, Sharing::kBlock, Sharing::kDevice}) {
    mlx5::Slot slot;
    CpuMemory::store_wqe_segment(&slot.segment[1], {0x0102030405060708, 0x1112131415161718},
                                 sharing);
    const mlx5::Slot fetched = CpuMemory::fetch_slot(&slot);
    EXPECT_EQ(fetched.segment[0].lo, 0u);
    EXPECT_EQ(fetched.segment[0].hi, 0u);
    EXPECT_EQ(fetched.segment[1].lo, 0x0102030405060708u);
    EXPECT_EQ(fetched.segment[1].hi, 0x1112131415161718u);
    EXPECT_EQ(fetched.segment[2].lo, 0u);
  }
}

// One thread publishes through a named store, the other reads through its named load: whatever was
// written before is there, and ThreadSanitizer sees why.
TEST(CpuMemory, EveryReleaseIsPairedWithItsAcquire) {
  const auto rounds = static_cast<std::uint32_t>(scaled(2'000));
  mlx5::Slot slot;
  mlx5::Cqe entry;
  alignas(64) std::uint32_t dbrec = 0;
  alignas(64) std::uint64_t doorbell = 0;
  alignas(64) std::uint64_t mark = 0;
  alignas(64) std::uint64_t ready = 0;
  std::uint64_t by_record = 0, by_doorbell = 0, by_early_doorbell = 0, by_mark = 0, by_ready = 0;
  std::uint64_t by_cqe = 0;
  alignas(64) std::uint64_t early_doorbell = 0;
  std::atomic<std::uint64_t> wrong{0};
  std::thread writer([&] {
    for (std::uint32_t i = 1; i <= rounds; ++i) {
      by_record = by_doorbell = by_early_doorbell = by_mark = by_ready = by_cqe = i;
      CpuMemory::store_wqe_segment(&slot.segment[0], {i, ~std::uint64_t{i}}, Sharing::kDevice);
      switch (i % 6) {
        case 0: CpuMemory::store_dbrec_after_wqes(&dbrec, i, kScope); break;
        case 1: CpuMemory::ring_doorbell_after_dbrec(&doorbell, i, kScope); break;
        case 2: CpuMemory::ring_doorbell_after_wqes(&early_doorbell, i, kScope); break;
        case 3: CpuMemory::mark_ready_release(&mark, i, kScope); break;
        case 4: CpuMemory::store_ready_release(&ready, i, kScope); break;
        default: {
          mlx5::Cqe c;
          for (std::uint32_t& w : c.word) w = i;
          CpuMemory::store_cqe(&entry, c);
          break;
        }
      }
      // The reader answers through `completed`'s pair.
      while (CpuMemory::load_completed_acquire(&slot.segment[3].lo, kScope) != i) {
        CpuMemory::pause(256);
      }
    }
  });
  std::thread reader([&] {
    for (std::uint32_t i = 1; i <= rounds; ++i) {
      const auto until = [](auto seen) {
        while (!seen()) CpuMemory::pause(256);
      };
      std::uint64_t value = 0;
      switch (i % 6) {
        case 0:
          until([&] { return CpuMemory::load_dbrec_acquire(&dbrec) == i; });
          value = by_record;
          break;
        case 1:
          until([&] { return CpuMemory::take_doorbell_acquire(&doorbell) == i; });
          value = by_doorbell;
          break;
        case 2:
          until([&] { return CpuMemory::take_doorbell_acquire(&early_doorbell) == i; });
          value = by_early_doorbell;
          break;
        case 3:
          until([&] { return CpuMemory::load_mark_acquire(&mark, kScope) == i; });
          value = by_mark;
          break;
        case 4:
          until([&] { return CpuMemory::load_ready_acquire(&ready, kScope) == i; });
          value = by_ready;
          break;
        default:
          until([&] {
            return CpuMemory::load_cqe_owner_acquire(&entry.word[mlx5::kCqeOwnerWord], kScope) == i;
          });
          value = by_cqe;
          for (std::uint32_t w = 0; w < mlx5::kCqeOwnerWord; ++w) {
            if (CpuMemory::load_cqe_body(&entry.word[w]) != i) ++wrong;
          }
          break;
      }
      if (value != i || slot.segment[0].lo != i || slot.segment[0].hi != ~std::uint64_t{i}) ++wrong;
      CpuMemory::advance_completed_release(&slot.segment[3].lo, i, kScope);
    }
  });
  writer.join();
  reader.join();
  EXPECT_EQ(wrong.load(), 0u);
}

TEST(CpuMemory, CopiesPayloadExactly) {
  std::mt19937_64 random(1);
  std::vector<std::byte> from(70000);
  for (std::byte& b : from) b = static_cast<std::byte>(random());
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{15}, std::size_t{4097}, std::size_t{65537}}) {
    std::vector<std::byte> to(70000, std::byte{0x5a});
    CpuMemory::copy_payload(to.data() + 3, from.data() + 5, bytes);
    EXPECT_EQ(std::memcmp(to.data() + 3, from.data() + 5, bytes), 0);
    EXPECT_EQ(to[2], std::byte{0x5a});
    EXPECT_EQ(to[3 + bytes], std::byte{0x5a});
  }
}

}  // namespace
}  // namespace peal
