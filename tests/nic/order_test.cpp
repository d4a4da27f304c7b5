// What the responder makes visible when: plain writes in their order, or in another; what an atomic
// and a read may rely on in either.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "nic/raw_fabric.hpp"

namespace peal::nic {
namespace {

using mlx5::Opcode;
using test::failed_with;
using test::RawFabric;
using test::RawFabricOptions;
using test::succeeded;

// CpuMemory that notes what is placed where, and when an atomic is executed.
struct PlacingMemory : CpuMemory {
  struct Event {
    const std::byte* to;  // null: an atomic
    std::size_t bytes;
  };
  static std::vector<Event>& log() {
    static thread_local std::vector<Event> events;
    return events;
  }
  static void copy_payload(std::byte* to, const std::byte* from, std::size_t bytes) {
    log().push_back({to, bytes});
    CpuMemory::copy_payload(to, from, bytes);
  }
  template <class T, class Next>
  static T update_signal_acq_rel(T* signal, const Next& next) {
    log().push_back({nullptr, sizeof(T)});
    return CpuMemory::update_signal_acq_rel(signal, next);
  }
};

using Fabric = RawFabric<PlacingMemory>;

RawFabricOptions ordered(WriteOrder order) {
  RawFabricOptions o;
  o.receiver.order = order;
  return o;
}

// The offsets of the destination at which payload was placed, in the order in which it was; -1 for
// an atomic.
std::vector<std::int64_t> placed(Fabric& fabric) {
  std::vector<std::int64_t> at;
  const std::byte* begin = fabric.destination.data();
  for (const PlacingMemory::Event& e : PlacingMemory::log()) {
    if (e.to == nullptr) at.push_back(-1);
    if (e.to >= begin && e.to < begin + fabric.destination.size()) at.push_back(e.to - begin);
  }
  PlacingMemory::log().clear();
  return at;
}

void post_writes(Fabric& fabric, std::uint32_t n, std::uint32_t bytes) {
  for (std::uint32_t i = 0; i < n; ++i) {
    fabric.qp.write(fabric.write(std::uint64_t{i} * bytes, std::uint64_t{i} * bytes, bytes));
  }
  fabric.qp.record();
  fabric.qp.ring();
}

TEST(WriteOrder, StrictPlacesEachWriteWholeAndInOrder) {
  Fabric fabric(ordered(WriteOrder::kStrict));
  PlacingMemory::log().clear();
  post_writes(fabric, 5, 4096);
  fabric.settle();
  EXPECT_EQ(placed(fabric), (std::vector<std::int64_t>{0, 4096, 8192, 12288, 16384}));
  EXPECT_TRUE(fabric.arrived(0, 0, 5 * 4096));
}

TEST(WriteOrder, RelaxedLetsEachSecondWriteAndEachEndOvertake) {
  Fabric fabric(ordered(WriteOrder::kRelaxed));
  PlacingMemory::log().clear();
  post_writes(fabric, 5, 4096);
  fabric.settle();
  constexpr std::int64_t kEnd = 4096 - 64;  // its last line
  EXPECT_EQ(placed(fabric),
            (std::vector<std::int64_t>{4096 + kEnd, 4096, kEnd, 0,              // the second first
                                       12288 + kEnd, 12288, 8192 + kEnd, 8192,  // the fourth
                                       16384 + kEnd, 16384}));
  EXPECT_TRUE(fabric.arrived(0, 0, 5 * 4096));
  EXPECT_EQ(fabric.qp.poll_all().size(), 5u);
}

// Whatever a client has been told is there.
TEST(WriteOrder, NothingIsAcknowledgedBeforeItIsPlaced) {
  for (const auto order : {WriteOrder::kStrict, WriteOrder::kRelaxed}) {
    Fabric fabric(ordered(order));
    for (std::uint32_t round = 0; round < 50; ++round) {
      const std::uint64_t at = round * 128;
      fabric.qp.post(fabric.write(at, at, 100));
      while (!fabric.qp.poll()) {
        fabric.step_sender();
        fabric.step_receiver();
      }
      ASSERT_TRUE(fabric.arrived(at, at, 100));
    }
  }
}

TEST(WriteOrder, AnAtomicIsExecutedWhenAllBeforeItIsPlaced) {
  for (const auto order : {WriteOrder::kStrict, WriteOrder::kRelaxed}) {
    for (std::uint32_t writes = 1; writes < 6; ++writes) {
      Fabric fabric(ordered(order));
      PlacingMemory::log().clear();
      for (std::uint32_t i = 0; i < writes; ++i) {
        fabric.qp.write(fabric.write(i * 64, 4096 + i * 64, 64));
      }
      fabric.run(fabric.fetch_add(0, 1));
      const auto at = placed(fabric);
      ASSERT_EQ(at.size(), writes + 1);
      EXPECT_EQ(at.back(), -1) << writes;
    }
  }
}

TEST(WriteOrder, AReadSeesAllBeforeIt) {
  for (const auto order : {WriteOrder::kStrict, WriteOrder::kRelaxed}) {
    Fabric fabric(ordered(order));
    fabric.qp.write(fabric.write(0, 0, 64));
    fabric.qp.write(fabric.write(64, 64, 64));
    fabric.qp.write(fabric.write(128, 128, 64));
    fabric.run(fabric.read(0, 4096, 192));
    EXPECT_EQ(std::memcmp(fabric.source.data(), fabric.source.data() + 4096, 192), 0);
  }
}

// A fence holds a WQE back until what is before it has been answered.
TEST(Fence, HoldsAWqeBackUntilAllBeforeItIsDone) {
  for (const bool fenced : {false, true}) {
    Fabric fabric;
    fabric.qp.write_segments(fabric.read(0, 0, 64));
    test::Wqe wqe = fabric.write(64, 64, 64);
    if (fenced) wqe.ctrl.fm_ce_se |= mlx5::kFence;
    fabric.qp.write(wqe);
    fabric.qp.record();
    fabric.qp.ring();
    for (int i = 0; i < 5; ++i) fabric.step_sender();  // nobody answers
    EXPECT_EQ(fabric.sender.counters(fabric.qp.qpn()).wqes_fetched, 2u);
    fabric.step_receiver();
    EXPECT_EQ(fabric.peer_counters().received_writes, fenced ? 0u : 1u);
    fabric.settle();
    EXPECT_EQ(fabric.peer_counters().received_writes, 1u);
    EXPECT_EQ(fabric.qp.poll_all().size(), 2u);
  }
}

// Reads and atomics beyond what the QP may have in flight wait their turn; nothing is lost.
TEST(ReadsInFlight, WaitForTheirTurn) {
  RawFabricOptions o;
  o.connection.log_sra_max = 1;
  o.connection.log_rra_max = 1;
  RawFabric fabric(o);
  for (std::uint32_t i = 0; i < 10; ++i) {
    if (i % 2 == 0) {
      fabric.qp.write_segments(fabric.read(0, 256 + i * 64, 64));
    } else {
      fabric.qp.write_segments(fabric.fetch_add(8, 1));
    }
  }
  fabric.qp.record();
  fabric.qp.ring();
  fabric.settle();
  EXPECT_EQ(fabric.qp.poll_all().size(), 10u);
  EXPECT_EQ(fabric.peer_counters().served_reads, 5u);
  EXPECT_EQ(fabric.peer_counters().served_atomics, 5u);
  EXPECT_GE(fabric.warned(Refusal::kReadsInFlight), 1u);
  EXPECT_EQ(fabric.peer_refused(Refusal::kReadResources), 0u);
}

TEST(WaitWqe, HoldsTheQueueUntilTheCqHasCounted) {
  RawFabric fabric;
  test::RawQp other(fabric.sender.commands(), fabric.sender_pd, fabric.uar);
  test::RawConnection connection = fabric.connection;
  other.connect(connection);
  // CQE number 1 of the other queue: its second.
  fabric.qp.write_segments(
      {fabric.ctrl(Opcode::kWait, 2), mlx5::encode(mlx5::WaitSeg{1, other.cqn()})});
  fabric.qp.write(fabric.write(0, 0, 64));
  fabric.qp.record();
  fabric.qp.ring();
  fabric.settle();
  EXPECT_EQ(fabric.qp.poll_all().size(), 0u);
  other.post(test::nop());
  fabric.settle();
  EXPECT_EQ(fabric.qp.poll_all().size(), 0u);
  other.post(test::nop());
  fabric.settle();
  EXPECT_EQ(fabric.qp.poll_all().size(), 2u);
  EXPECT_TRUE(fabric.arrived(0, 0, 64));
}

TEST(DumpWqe, ChecksItsKeyAndCompletes) {
  RawFabric fabric;
  fabric.run({fabric.ctrl(Opcode::kDump, 2), fabric.local(0, 64)});
  auto cqe = fabric.qp.poll();
  ASSERT_TRUE(cqe);
  EXPECT_TRUE(succeeded(*cqe));
  fabric.run({fabric.ctrl(Opcode::kDump, 2),
              mlx5::encode(mlx5::DataSeg{64, Lkey(1), fabric.source.address()})});
  cqe = fabric.qp.poll();
  ASSERT_TRUE(cqe);
  EXPECT_TRUE(failed_with(*cqe, mlx5::Syndrome::kLocalProtection));
}

// Longer inline data take several slots, and may wrap around the ring.
TEST(InlineWrite, OfManySlotsArrivesWhole) {
  RawFabricOptions o;
  o.sender.first_wqe_index = 13;  // of 16 slots
  RawFabric fabric(o);
  std::vector<std::byte> data(300);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = std::byte(i * 7 + 1);
  const std::uint32_t ds = mlx5::ds_of_inline(300);
  std::vector<mlx5::Words16> segments(ds);
  segments[0] = fabric.ctrl(Opcode::kRdmaWrite, static_cast<std::uint8_t>(ds));
  segments[1] = fabric.remote(0);
  mlx5::InlineSeg head;
  head.bytes = 300;
  segments[2] = mlx5::encode(head);
  std::memcpy(reinterpret_cast<std::byte*>(&segments[2]) + mlx5::kInlineHeaderBytes, data.data(),
              data.size());
  fabric.run(segments);
  const auto cqe = fabric.qp.poll();
  ASSERT_TRUE(cqe);
  EXPECT_TRUE(succeeded(*cqe));
  EXPECT_EQ(cqe->byte_count, 300u);
  EXPECT_EQ(std::memcmp(fabric.destination.data(), data.data(), data.size()), 0);
}

// The record alone is believed, after a ring; both orders of submission work.
TEST(DoorbellSource, TheRecordIsReadUntilItHasCaughtUp) {
  RawFabricOptions o;
  o.sender.doorbell_source = DoorbellSource::kRecord;
  RawFabric fabric(o);
  fabric.qp.write(fabric.write(0, 0, 64));
  fabric.qp.record();
  fabric.settle();
  EXPECT_EQ(fabric.qp.poll_all().size(), 0u) << "a record alone started work";
  fabric.qp.ring();
  fabric.settle();
  EXPECT_EQ(fabric.qp.poll_all().size(), 1u);
  // Ring first: nothing starts before the record follows.
  fabric.qp.write(fabric.write(64, 64, 64));
  fabric.qp.ring();
  fabric.settle();
  EXPECT_EQ(fabric.qp.poll_all().size(), 0u);
  fabric.qp.record();
  fabric.settle();
  EXPECT_EQ(fabric.qp.poll_all().size(), 1u) << "no second ring is needed";
  // The record decides, not the register.
  fabric.qp.write(fabric.write(128, 128, 64));
  fabric.qp.record();
  fabric.qp.ring_at(2);
  fabric.settle();
  EXPECT_EQ(fabric.qp.poll_all().size(), 1u);
  EXPECT_TRUE(fabric.arrived(0, 0, 192));
}

}  // namespace
}  // namespace peal::nic
