#include "nic/requester.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "nic/raw_fabric.hpp"
#include "support/scale.hpp"

namespace peal::nic {
namespace {

using mlx5::Syndrome;
using test::failed_with;
using test::RawFabric;
using test::RawFabricOptions;
using test::succeeded;
using test::Wqe;

TEST(Requester, ExecutesAWriteOfLengthZeroWithoutTouchingMemory) {
  RawFabric fabric;
  Wqe wqe = fabric.write(0, 0, 0);
  wqe.raddr = {0, Rkey(0)};
  wqe.data = {0, Lkey(0), 0};
  fabric.qp.post(wqe);
  fabric.qp.post(fabric.write(8, 8, 8));
  fabric.settle();
  const auto cqes = fabric.qp.poll_all();
  ASSERT_EQ(cqes.size(), 2u);
  EXPECT_TRUE(succeeded(cqes[0]));
  EXPECT_TRUE(succeeded(cqes[1]));
  EXPECT_EQ(cqes[0].byte_count, 0u);
  EXPECT_EQ(fabric.peer_counters().received_writes, 2u);
  EXPECT_EQ(fabric.peer_counters().received_bytes, 8u);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(fabric.destination[i], std::byte{0});
}

TEST(Requester, CompletesNopsOfOneAndTwoSegments) {
  RawFabric fabric;
  fabric.qp.post(test::nop(1));
  fabric.qp.post(test::nop(2));
  fabric.settle();
  const auto cqes = fabric.qp.poll_all();
  ASSERT_EQ(cqes.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(succeeded(cqes[i]));
    EXPECT_EQ(cqes[i].wqe_counter, i);
    EXPECT_EQ(cqes[i].byte_count, 0u);
  }
  EXPECT_EQ(fabric.counters().noops, 2u);
  EXPECT_EQ(fabric.peer_counters().received_writes, 0u);
}

TEST(Requester, TakesAWqeOfSeveralSlotsAsOneThatMayWrap) {
  RawFabric fabric;  // depth 16
  for (int lap = 0; lap < 5; ++lap) {
    for (int i = 0; i < 3; ++i) fabric.qp.write(test::nop(17));  // five slots
    fabric.qp.record();
    fabric.qp.ring();
    fabric.settle();
    const auto cqes = fabric.qp.poll_all();
    ASSERT_EQ(cqes.size(), 3u) << lap;
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(succeeded(cqes[i]));
      EXPECT_EQ(cqes[i].wqe_counter, static_cast<std::size_t>(lap) * 15 + i * 5);
    }
  }
}

TEST(Requester, GivesNoCqeForAnUnsignalledSuccess) {
  RawFabric fabric;
  Wqe quiet = fabric.write(0, 0, 64);
  quiet.ctrl.fm_ce_se = mlx5::kCompletionOnError;
  fabric.qp.post(quiet);
  fabric.settle();
  EXPECT_FALSE(fabric.qp.poll());
  EXPECT_TRUE(fabric.arrived(0, 0, 64));
  fabric.qp.post(test::nop());
  fabric.settle();
  const auto cqes = fabric.qp.poll_all();
  ASSERT_EQ(cqes.size(), 1u);
  EXPECT_EQ(cqes[0].wqe_counter, 1);
}

TEST(Requester, UnsignalledWqesGiveTheirSlotsBack) {
  RawFabric fabric;
  for (std::uint32_t i = 0; i < 100; ++i) {
    Wqe quiet = fabric.write(i, i, 1);
    quiet.ctrl.fm_ce_se = mlx5::kCompletionOnError;
    fabric.qp.post(quiet);
    fabric.settle();
  }
  EXPECT_EQ(fabric.counters().reasons.refused, ReasonCounts{}.refused);
  EXPECT_EQ(fabric.counters().cqes, 0u);
  EXPECT_TRUE(fabric.arrived(0, 0, 100));
}

TEST(Requester, GivesACqeForAnUnsignalledErrorAndForWhatItFlushes) {
  RawFabric fabric;
  Wqe wrong = fabric.write(0, 0, 64);
  wrong.ctrl.fm_ce_se = mlx5::kCompletionOnError;
  wrong.data.lkey = Lkey(0);
  fabric.qp.write(wrong);
  fabric.qp.write(test::nop(1, mlx5::kCompletionOnError));
  fabric.qp.record();
  fabric.qp.ring();
  fabric.settle();
  const auto cqes = fabric.qp.poll_all();
  ASSERT_EQ(cqes.size(), 2u);
  EXPECT_TRUE(failed_with(cqes[0], Syndrome::kLocalProtection));
  EXPECT_TRUE(failed_with(cqes[1], Syndrome::kFlushed));
}

TEST(Requester, GivesACqeWhenAnEventIsAskedForToo) {
  RawFabric fabric;
  fabric.qp.post(test::nop(1, 0x0c));  // ce 3: CQE and event
  fabric.settle();
  EXPECT_TRUE(fabric.qp.poll());
}

// What each wrong WQE ends with, seen from the client.
struct PostedWrongWqe {
  const char* name;
  Refusal refusal;
  Syndrome syndrome;
  void (*spoil)(RawFabric<>&, Wqe&);
};
const PostedWrongWqe kPostedWrongWqes[] = {
    {"index", Refusal::kWqeIndex, Syndrome::kLocalQpOperation,
     [](RawFabric<>&, Wqe& w) { ++w.ctrl.wqe_index; }},
    {"QPN", Refusal::kWqeQpn, Syndrome::kLocalQpOperation,
     [](RawFabric<>& f, Wqe& w) { w.ctrl.qpn = f.peer.qpn(); }},
    {"ds 0", Refusal::kWqeSize, Syndrome::kLocalQpOperation,
     [](RawFabric<>&, Wqe& w) { w.ctrl.ds = 0; }},
    {"opcode", Refusal::kOpcode, Syndrome::kLocalQpOperation,
     [](RawFabric<>&, Wqe& w) { w.ctrl.opcode = 0x3f; }},
    {"ds", Refusal::kWqeSegments, Syndrome::kLocalQpOperation,
     [](RawFabric<>&, Wqe& w) { w.ctrl.ds = 4; }},
    {"inline", Refusal::kInlineLength, Syndrome::kLocalQpOperation,
     [](RawFabric<>&, Wqe& w) { w.data.byte_count |= mlx5::kInlineFlag; }},
    {"lkey", Refusal::kLkeyUnknown, Syndrome::kLocalProtection,
     [](RawFabric<>&, Wqe& w) { w.data.lkey = Lkey(0xffffff00); }},
    {"lkey swapped", Refusal::kLkeySwapped, Syndrome::kLocalProtection,
     [](RawFabric<>& f, Wqe& w) { w.data.lkey = Lkey(swap_bytes(f.source.key())); }},
    {"lkey tag", Refusal::kLkeyStale, Syndrome::kLocalProtection,
     [](RawFabric<>& f, Wqe& w) { w.data.lkey = Lkey(f.source.key() + 1); }},
    {"local range", Refusal::kLocalRange, Syndrome::kLocalProtection,
     [](RawFabric<>& f, Wqe& w) { w.data.address = f.source.address() + f.source.size() - 63; }},
    {"rkey", Refusal::kRemoteRefused, Syndrome::kRemoteAccess,
     [](RawFabric<>&, Wqe& w) { w.raddr.rkey = Rkey(0xffffff00); }},
    {"rkey swapped", Refusal::kRemoteRefused, Syndrome::kRemoteAccess,
     [](RawFabric<>& f, Wqe& w) { w.raddr.rkey = Rkey(swap_bytes(f.destination.key())); }},
    {"remote range", Refusal::kRemoteRefused, Syndrome::kRemoteAccess,
     [](RawFabric<>& f, Wqe& w) { w.raddr.address = f.destination.address() - 1; }},
};

TEST(Requester, EndsAQpOnEachWrongWqeWithOneErrorCqeAndFlushesTheRest) {
  for (const PostedWrongWqe& wrong : kPostedWrongWqes) {
    RawFabric fabric;
    fabric.qp.write(fabric.write(0, 0, 64));
    Wqe bad = fabric.write(64, 64, 64);
    bad.ctrl.wqe_index = 1;
    bad.ctrl.qpn = fabric.qp.qpn();
    wrong.spoil(fabric, bad);
    fabric.qp.write_as_is(bad);
    fabric.qp.write(fabric.write(128, 128, 64));
    fabric.qp.write(test::nop());
    fabric.qp.record();
    fabric.qp.ring();
    fabric.settle();
    auto cqes = fabric.qp.poll_all();
    ASSERT_EQ(cqes.size(), 4u) << wrong.name;
    EXPECT_TRUE(succeeded(cqes[0])) << wrong.name;
    EXPECT_TRUE(failed_with(cqes[1], wrong.syndrome))
        << wrong.name << ": syndrome " << int{cqes[1].syndrome};
    EXPECT_EQ(cqes[1].wqe_opcode, bad.ctrl.opcode) << wrong.name;
    EXPECT_EQ(cqes[1].qpn, fabric.qp.qpn()) << wrong.name;
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(cqes[i].wqe_counter, i) << wrong.name;
    for (std::size_t i = 2; i < 4; ++i) {
      EXPECT_TRUE(failed_with(cqes[i], Syndrome::kFlushed)) << wrong.name;
    }
    EXPECT_EQ(fabric.refused(wrong.refusal), 1u) << wrong.name;
    EXPECT_EQ(fabric.state(), QpState::kError) << wrong.name;
    EXPECT_TRUE(fabric.arrived(0, 0, 64)) << wrong.name;
    EXPECT_EQ(fabric.destination[64], std::byte{0}) << wrong.name;
    EXPECT_EQ(fabric.destination[128], std::byte{0}) << wrong.name;
    EXPECT_EQ(fabric.counters().bytes_moved, 64u) << wrong.name;

    // What is posted from now on is flushed as well.
    for (int i = 0; i < 20; ++i) fabric.qp.post(fabric.write(0, 0, 64)), fabric.settle();
    cqes = fabric.qp.poll_all();
    ASSERT_EQ(cqes.size(), 20u) << wrong.name;
    for (const auto& cqe : cqes) {
      EXPECT_TRUE(failed_with(cqe, Syndrome::kFlushed)) << wrong.name;
    }
    EXPECT_TRUE(fabric.sender.quiet(fabric.qp.qpn())) << wrong.name;
  }
}

TEST(Requester, RefusesAWqeThatReachesBeyondTheDoorbell) {
  RawFabric fabric;
  fabric.qp.write(test::nop(5));  // two slots
  fabric.qp.record_at(1);
  fabric.qp.ring_at(1);
  fabric.settle();
  const auto cqe = fabric.qp.poll();
  ASSERT_TRUE(cqe);
  EXPECT_TRUE(failed_with(*cqe, Syndrome::kLocalQpOperation));
  EXPECT_EQ(fabric.refused(Refusal::kWqeCrossesProducerIndex), 1u);
}

TEST(Requester, RefusesAMessageAboveTheQpsLimit) {
  RawFabricOptions options;
  options.connection.log_msg_max = 12;
  RawFabric fabric(options);
  fabric.qp.post(fabric.write(0, 0, 4096));
  fabric.qp.post(fabric.write(0, 8192, 4097));
  fabric.settle();
  const auto cqes = fabric.qp.poll_all();
  ASSERT_EQ(cqes.size(), 2u);
  EXPECT_TRUE(succeeded(cqes[0]));
  EXPECT_TRUE(failed_with(cqes[1], Syndrome::kLocalLength));
  EXPECT_EQ(fabric.refused(Refusal::kMessageTooLong), 1u);
}

TEST(Requester, RefusesTheKeyOfAnotherPd) {
  RawFabric fabric;
  const std::uint32_t other_pd = fabric.sender.commands().allocate_pd();
  {
    test::RawMemory other(fabric.sender.commands(), other_pd, 64, kLocalWrite);
    Wqe wqe = fabric.write(0, 0, 64);
    wqe.data = {64, Lkey(other.key()), other.address()};
    fabric.qp.post(wqe);
    fabric.settle();
  }
  const auto cqe = fabric.qp.poll();
  ASSERT_TRUE(cqe);
  EXPECT_TRUE(failed_with(*cqe, Syndrome::kLocalProtection));
  EXPECT_EQ(fabric.refused(Refusal::kLkeyOtherPd), 1u);
  EXPECT_TRUE(fabric.sender.commands().free_pd(other_pd));
}

TEST(Requester, FlushesEverythingPostedWhenTheClientMovesTheQpToError) {
  RawFabric fabric;
  fabric.sender.arm_faults(fabric.qp.qpn(), {{FaultKind::kHold, 1000, 0}});
  for (std::uint32_t i = 0; i < 16; ++i) fabric.qp.post(fabric.write(i, i, 1));
  fabric.settle();
  EXPECT_FALSE(fabric.qp.poll());
  fabric.qp.to_error();
  fabric.settle();  // the hold does not delay it
  const auto cqes = fabric.qp.poll_all();
  ASSERT_EQ(cqes.size(), 16u);
  for (std::size_t i = 0; i < 16; ++i) {
    EXPECT_TRUE(failed_with(cqes[i], Syndrome::kFlushed));
    EXPECT_EQ(cqes[i].wqe_counter, i);
  }
  EXPECT_EQ(fabric.destination[0], std::byte{0});
}

// Whatever the mix of WQEs, faults and refusals: CQEs come in the order of the WQEs, one for each,
// successes first, then one cause, then flushes. Checked against a model.
TEST(Requester, WritesCqesInOrderForAnyMix) {
  const std::uint64_t rounds = test::scaled(400);
  for (std::uint64_t seed = 0; seed < rounds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    RawFabricOptions options;
    options.sender.first_wqe_index = random();
    RawFabric fabric(options);
    const std::uint64_t first = fabric.qp.next();

    constexpr std::uint32_t kWqes = 12;
    std::vector<Fault> faults;
    std::int64_t cause = -1;
    Syndrome syndrome = Syndrome::kNone;
    std::vector<bool> signalled;
    const auto fails = [&](std::uint32_t i, Syndrome with) {
      if (cause >= 0) return;
      cause = i;
      syndrome = with;
    };
    for (std::uint32_t i = 0; i < kWqes; ++i) {
      Wqe wqe = fabric.write(i * 512, i * 512, static_cast<std::uint32_t>(random() % 512));
      switch (random() % 10) {
        case 0: wqe = test::nop(); break;
        case 1: wqe = test::nop(2); break;
        case 2: faults.push_back({FaultKind::kNoop, 0, i}); break;
        case 3:
          if (random() % 4 == 0) {
            faults.push_back({FaultKind::kCqe, 0x15, i});
            fails(i, Syndrome::kTransportRetryExceeded);
          }
          break;
        case 4:
          if (random() % 4 == 0 && wqe.data.byte_count > 0) {
            wqe.raddr.rkey = Rkey(1);
            fails(i, Syndrome::kRemoteAccess);
          }
          break;
        case 5:
          if (random() % 4 == 0) {
            wqe.ctrl.opcode = 0x3f;
            fails(i, Syndrome::kLocalQpOperation);
          }
          break;
        default: break;
      }
      signalled.push_back(random() % 3 != 0);
      wqe.ctrl.fm_ce_se = signalled.back() ? mlx5::kCompletionAlways : mlx5::kCompletionOnError;
      fabric.qp.write(wqe);
    }
    if (random() % 2 == 0) faults.push_back({FaultKind::kDelay, 50, 0});
    fabric.sender.arm_faults(fabric.qp.qpn(), faults);
    // Announced in random pieces, the NICs stepped at random in between.
    for (std::uint64_t rung = first; rung != first + kWqes;) {
      rung = std::min<std::uint64_t>(first + kWqes, rung + 1 + random() % 5);
      fabric.qp.record_at(rung);
      fabric.qp.ring_at(rung);
      for (std::uint64_t n = random() % 4; n > 0; --n) {
        if (random() % 2 == 0)
          fabric.step_sender();
        else
          fabric.step_receiver();
        fabric.now_ns += random() % 40;
      }
      // The doorbell register keeps one value; a poller that never ran has lost none.
    }
    for (int i = 0; i < 40; ++i) {
      fabric.settle();
      fabric.now_ns += 50;
    }

    std::vector<std::pair<std::uint16_t, Syndrome>> expected;
    for (std::uint32_t i = 0; i < kWqes; ++i) {
      const bool error = cause >= 0 && i >= cause;
      if (!error && !signalled[i]) continue;
      expected.emplace_back(static_cast<std::uint16_t>(first + i), !error ? Syndrome::kNone
                                                                   : i == cause
                                                                       ? syndrome
                                                                       : Syndrome::kFlushed);
    }
    const auto cqes = fabric.qp.poll_all();
    ASSERT_EQ(cqes.size(), expected.size());
    for (std::size_t i = 0; i < cqes.size(); ++i) {
      EXPECT_EQ(cqes[i].wqe_counter, expected[i].first) << i;
      EXPECT_EQ(cqes[i].syndrome, static_cast<std::uint8_t>(expected[i].second)) << i;
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Requester, CountersAddUp) {
  RawFabric fabric;
  for (std::uint32_t i = 0; i < 5; ++i) fabric.qp.post(fabric.write(i * 100, i * 100, 100));
  fabric.qp.post(test::nop());
  fabric.settle();
  Wqe quiet = fabric.write(0, 1000, 10);
  quiet.ctrl.fm_ce_se = mlx5::kCompletionOnError;
  fabric.qp.post(quiet);
  Wqe wrong = fabric.write(0, 0, 64);
  wrong.raddr.rkey = Rkey(1);
  fabric.qp.post(wrong);
  for (int i = 0; i < 3; ++i) fabric.qp.post(test::nop());
  fabric.settle();
  const QpCounters c = fabric.counters();
  const QpCounters p = fabric.peer_counters();
  EXPECT_EQ(c.wqes_fetched, 11u);
  EXPECT_EQ(c.writes, 7u);
  EXPECT_EQ(c.cqes, 10u);       // all but the unsignalled success
  EXPECT_EQ(c.error_cqes, 4u);  // the cause and three flushes
  EXPECT_EQ(c.bytes_moved, 510u);
  EXPECT_EQ(c.producer_index, 11u);
  EXPECT_EQ(c.consumer_index, 11u);
  EXPECT_EQ(p.received_writes, 6u);
  EXPECT_EQ(p.received_bytes, 510u);
  EXPECT_EQ(fabric.refused(Refusal::kRemoteRefused), 1u);
  EXPECT_EQ(fabric.peer_refused(Refusal::kRkeyUnknown), 1u);
  EXPECT_EQ(c.doorbells, 2u);  // changes seen, not stores
  EXPECT_EQ(fabric.qp.poll_all().size(), c.cqes);
}

// What the library's keys are: 64 regions whose addresses agree in their low 32 bits.
TEST(Requester, TellsRegionsApartWhoseAddressesAgreeModulo2To32) {
  RawFabric fabric;
  constexpr std::uint64_t kRegions = 64;
  std::vector<std::vector<std::byte>> memory(kRegions, std::vector<std::byte>(16));
  std::vector<std::uint32_t> keys;
  for (std::uint64_t i = 0; i < kRegions; ++i) {
    keys.push_back(fabric.receiver.commands().register_region(
        fabric.receiver_pd, (i << 32) + 0x1000, memory[i].data(), 16, kLocalWrite | kRemoteWrite));
    ASSERT_NE(keys.back(), 0u);
    for (std::uint64_t j = 0; j < i; ++j) ASSERT_NE(keys[i], keys[j]);
  }
  for (std::uint64_t i = 0; i < kRegions; ++i) {
    Wqe wqe = fabric.write(i * 16, 0, 16);
    wqe.raddr = {(i << 32) + 0x1000, Rkey(keys[i])};
    fabric.qp.post(wqe);
    fabric.settle();
  }
  const auto cqes = fabric.qp.poll_all();
  ASSERT_EQ(cqes.size(), kRegions);
  for (std::uint64_t i = 0; i < kRegions; ++i) {
    EXPECT_TRUE(succeeded(cqes[i]));
    EXPECT_EQ(std::memcmp(memory[i].data(), fabric.source.data() + i * 16, 16), 0) << i;
    EXPECT_TRUE(fabric.receiver.commands().deregister_region(keys[i]));
  }
}

TEST(Requester, ReachesARegionNamedFromZeroByOffsetAlone) {
  RawFabric fabric;
  std::vector<std::byte> memory(64);
  const std::uint32_t key = fabric.receiver.commands().register_region(
      fabric.receiver_pd, 0, memory.data(), memory.size(), kLocalWrite | kRemoteWrite);
  Wqe wqe = fabric.write(0, 0, 64);
  wqe.raddr = {0, Rkey(key)};
  fabric.qp.post(wqe);
  fabric.settle();
  EXPECT_EQ(std::memcmp(memory.data(), fabric.source.data(), 64), 0);
  wqe.raddr.address = reinterpret_cast<std::uint64_t>(memory.data());
  fabric.qp.post(wqe);
  fabric.settle();
  const auto cqes = fabric.qp.poll_all();
  ASSERT_EQ(cqes.size(), 2u);
  EXPECT_TRUE(succeeded(cqes[0]));
  EXPECT_TRUE(failed_with(cqes[1], Syndrome::kRemoteAccess));
  EXPECT_TRUE(fabric.receiver.commands().deregister_region(key));
}

TEST(NullPayload, CompletesEveryWriteAndMovesNothing) {
  RawFabricOptions options;
  options.sender.null_payload = true;
  RawFabric fabric(options);
  for (std::uint32_t i = 0; i < 10; ++i) fabric.qp.post(fabric.write(0, 0, 4096));
  fabric.settle();
  const auto cqes = fabric.qp.poll_all();
  ASSERT_EQ(cqes.size(), 10u);
  for (const auto& cqe : cqes) EXPECT_TRUE(succeeded(cqe));
  EXPECT_EQ(fabric.counters().writes, 10u);
  EXPECT_EQ(fabric.counters().bytes_moved, 0u);
  EXPECT_EQ(fabric.peer_counters().received_writes, 0u);
  for (std::size_t i = 0; i < 4096; ++i) ASSERT_EQ(fabric.destination[i], std::byte{0});
}

TEST(NullPayload, StillRefusesAWrongWqe) {
  RawFabricOptions options;
  options.sender.null_payload = true;
  RawFabric fabric(options);
  Wqe wqe = fabric.write(0, 0, 8);
  wqe.data.lkey = Lkey(1);
  fabric.qp.post(wqe);
  fabric.settle();
  const auto cqe = fabric.qp.poll();
  ASSERT_TRUE(cqe);
  EXPECT_TRUE(failed_with(*cqe, Syndrome::kLocalProtection));
}

TEST(FirstWqeIndex, MayLieShortOfAnyWrap) {
  for (const std::uint64_t wrap :
       {std::uint64_t{1} << 16, std::uint64_t{1} << 24, std::uint64_t{1} << 32, std::uint64_t{0}}) {
    RawFabricOptions options;
    options.sender.first_wqe_index = wrap - 7;
    RawFabric fabric(options);
    for (std::uint32_t i = 0; i < 64; ++i) {
      const std::uint64_t index = fabric.qp.post(fabric.write(i * 8, i * 8, 8));
      fabric.settle();
      const auto cqe = fabric.qp.poll();
      ASSERT_TRUE(cqe && succeeded(*cqe)) << std::hex << wrap << " " << i;
      EXPECT_EQ(cqe->wqe_counter, static_cast<std::uint16_t>(index));
    }
    EXPECT_TRUE(fabric.arrived(0, 0, 512)) << std::hex << wrap;
    EXPECT_EQ(fabric.counters().producer_index, wrap - 7 + 64);
  }
}

}  // namespace
}  // namespace peal::nic
