// What a client may rely on when it sees a CQE's last word.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "nic/raw_fabric.hpp"
#include "support/scale.hpp"

namespace peal::nic {
namespace {

using test::RawFabric;

// Writes down what the NIC does to memory, in order, and looks at a CQE's place when it is written.
struct RecordingMemory : CpuMemory {
  struct Record {
    std::string events;  // p: payload copied, c: CQE written
    std::vector<mlx5::Cqe> overwritten;
    std::vector<mlx5::Cqe> written;
  };
  static Record& record() {
    static Record r;
    return r;
  }
  static void copy_payload(std::byte* to, const std::byte* from, std::size_t bytes) {
    CpuMemory::copy_payload(to, from, bytes);
    record().events += 'p';
  }
  static void store_cqe(mlx5::Cqe* entry, const mlx5::Cqe& cqe) {
    record().overwritten.push_back(*entry);
    record().written.push_back(cqe);
    record().events += 'c';
    CpuMemory::store_cqe(entry, cqe);
  }
};

TEST(CqeOrder, EachIsWrittenOnceAfterItsPayload) {
  RecordingMemory::record() = {};
  RawFabric<RecordingMemory> fabric;
  for (std::uint32_t i = 0; i < 3; ++i) {
    fabric.qp.post(fabric.write(i * 64, i * 64, 64));
    fabric.settle();
  }
  const RecordingMemory::Record& record = RecordingMemory::record();
  EXPECT_EQ(record.events, "pcpcpc");
  for (std::size_t i = 0; i < 3; ++i) {
    // Nothing of the entry was written before, and the client finds what was written then.
    mlx5::Cqe initial;
    initial.word[mlx5::kCqeOwnerWord] = swap_bytes(std::uint32_t{mlx5::kInitialOpOwn});
    EXPECT_EQ(std::memcmp(&record.overwritten[i], &initial, sizeof initial), 0);
    EXPECT_EQ(std::memcmp(&fabric.qp.entry(i), &record.written[i], sizeof initial), 0);
  }
}

TEST(CqeOrder, ThePayloadsOfAWindowPrecedeTheirCqes) {
  RecordingMemory::record() = {};
  RawFabric<RecordingMemory> fabric;
  for (std::uint32_t i = 0; i < 16; ++i) fabric.qp.write(fabric.write(i * 64, i * 64, 64));
  fabric.qp.ring();
  fabric.settle();
  int payloads = 0;
  int cqes = 0;
  for (const char event : RecordingMemory::record().events) {
    event == 'p' ? ++payloads : ++cqes;
    ASSERT_LE(cqes, payloads);
  }
  EXPECT_EQ(payloads, 16);
  EXPECT_EQ(cqes, 16);
}

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
// The processor stops after every instruction of store_cqe, and the trap looks at the entry: stores
// become visible in program order here, so this sees every state that another agent could see.
struct SteppedStore {
  mlx5::Cqe entry;
  volatile std::uint32_t owner_seen_at = 0;  // how many of words 0-14 were there by then, plus 1
  volatile std::uint32_t steps = 0;
} stepped;

void look_at_entry(int) {
  stepped.steps = stepped.steps + 1;
  const volatile std::uint32_t* word = stepped.entry.word;
  if (word[mlx5::kCqeOwnerWord] != 1 || stepped.owner_seen_at != 0) return;
  std::uint32_t complete = 0;
  for (std::uint32_t i = 0; i < mlx5::kCqeOwnerWord; ++i) complete += word[i] == 1 ? 1u : 0u;
  stepped.owner_seen_at = complete + 1;
}

// The trap flag; the stack pointer first leaves the red zone.
void step_every_instruction(bool on) {
  if (on) {
    asm volatile("sub $128, %%rsp; pushfq; orq $0x100, (%%rsp); popfq; add $128, %%rsp" ::
                     : "memory", "cc");
  } else {
    asm volatile("sub $128, %%rsp; pushfq; andq $~0x100, (%%rsp); popfq; add $128, %%rsp" ::
                     : "memory", "cc");
  }
}

TEST(CqeOrder, Word15IsTheLastToBeStored) {
  struct sigaction look = {};
  struct sigaction before = {};
  look.sa_handler = look_at_entry;
  ASSERT_EQ(sigaction(SIGTRAP, &look, &before), 0);
  mlx5::Cqe cqe;
  for (std::uint32_t& word : cqe.word) word = 1;
  step_every_instruction(true);
  CpuMemory::store_cqe(&stepped.entry, cqe);
  step_every_instruction(false);
  sigaction(SIGTRAP, &before, nullptr);
  EXPECT_GT(stepped.steps, 2u);
  EXPECT_EQ(stepped.owner_seen_at, mlx5::kCqeOwnerWord + 1);
}
#endif

// For ThreadSanitizer: a missing edge is a race. Without it, this finds a wrong order now and then.
TEST(CqeOrder, Words0To14AreCompleteWhenWord15IsSeen) {
  const std::uint64_t rounds = test::scaled(20'000);
  mlx5::Cqe entry;
  std::atomic<std::uint64_t> checked{0};
  std::thread nic([&] {
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      mlx5::Cqe cqe;
      for (std::uint32_t& word : cqe.word) word = static_cast<std::uint32_t>(round);
      CpuMemory::store_cqe(&entry, cqe);
      for (std::uint32_t turn = 0; checked.load(std::memory_order_acquire) != round; ++turn) {
        CpuMemory::pause(turn);
      }
    }
  });
  std::uint64_t torn = 0;
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    for (std::uint32_t turn = 0;
         CpuMemory::load_cqe_owner_acquire(&entry.word[mlx5::kCqeOwnerWord], FenceScope::kSystem) !=
         static_cast<std::uint32_t>(round);
         ++turn) {
      CpuMemory::pause(turn);
    }
    for (std::uint32_t i = 0; i < mlx5::kCqeOwnerWord; ++i) {
      torn += CpuMemory::load_cqe_body(&entry.word[i]) == static_cast<std::uint32_t>(round) ? 0 : 1;
    }
    checked.store(round, std::memory_order_release);
  }
  nic.join();
  EXPECT_EQ(torn, 0u);
}

}  // namespace
}  // namespace peal::nic
