// What a submission stores, store by store: the ring, the doorbell record, the doorbell.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "support/manual_fabric.hpp"
#include "support/recording_memory.hpp"

namespace peal {
namespace {

using test::FabricOptions;
using test::ManualFabric;
using test::RecordedStore;
using test::RecordingMemory;

constexpr SubmitOptions kRingRecordRing{DoorbellOrder::kRingRecordRing, PublishOrder::kInOrder};
constexpr SubmitOptions kRecordRing{DoorbellOrder::kRecordRing, PublishOrder::kInOrder};
constexpr SubmitOptions kRingOnly{DoorbellOrder::kRingOnly, PublishOrder::kInOrder};

using Bytes = std::vector<std::uint8_t>;

void append_be(Bytes* out, std::uint64_t v, unsigned bytes) {
  for (unsigned i = bytes; i-- > 0;) out->push_back(static_cast<std::uint8_t>(v >> (8 * i)));
}

RecordedStore segment_at(const void* address, const Bytes& bytes) {
  RecordedStore s{RecordedStore::kWqeSegment, address, {}};
  EXPECT_EQ(bytes.size(), sizeof s.value);
  std::memcpy(&s.value, bytes.data(), sizeof s.value);
  return s;
}

// The stores that one WQE takes, written down byte by byte.
void expect_wqe(std::vector<RecordedStore>* out, const QueueHandle& q, std::uint64_t index,
                const Put& put) {
  const mlx5::Slot& slot = q.sq[index & (q.depth - 1)];
  Bytes ctrl;
  append_be(&ctrl, 0, 1);
  append_be(&ctrl, index & 0xffff, 2);
  append_be(&ctrl, put.bytes == 0 ? 0x00 : 0x08, 1);
  append_be(&ctrl, q.qpn.value, 3);
  append_be(&ctrl, put.bytes == 0 ? 1 : 3, 1);
  append_be(&ctrl, 0x08, 4);  // completion always
  append_be(&ctrl, 0, 4);
  out->push_back(segment_at(&slot.segment[0], ctrl));
  if (put.bytes == 0) return;
  Bytes raddr;
  append_be(&raddr, put.remote_address, 8);
  append_be(&raddr, put.rkey.value, 4);
  append_be(&raddr, 0, 4);
  out->push_back(segment_at(&slot.segment[1], raddr));
  Bytes data;
  append_be(&data, put.bytes, 4);
  append_be(&data, put.lkey.value, 4);
  append_be(&data, put.local_address, 8);
  out->push_back(segment_at(&slot.segment[2], data));
}

void expect_record(std::vector<RecordedStore>* out, const QueueHandle& q, std::uint64_t pi) {
  Bytes bytes;
  append_be(&bytes, pi & 0xffff, 4);
  RecordedStore s{RecordedStore::kDbrec, q.dbrec, {}};
  std::memcpy(&s.value.lo, bytes.data(), 4);
  out->push_back(s);
}

void expect_doorbell(std::vector<RecordedStore>* out, const QueueHandle& q, std::uint64_t pi) {
  Bytes bytes;
  append_be(&bytes, (pi & 0xffff) << 8, 4);
  append_be(&bytes, std::uint64_t{q.qpn.value} << 8, 4);
  RecordedStore s{RecordedStore::kDoorbell, q.doorbell, {}};
  std::memcpy(&s.value.lo, bytes.data(), 8);
  out->push_back(s);
}

void expect_rings(std::vector<RecordedStore>* out, const QueueHandle& q, SubmitOptions submit,
                  std::uint64_t pi) {
  if (submit.doorbell == DoorbellOrder::kRingRecordRing) expect_doorbell(out, q, pi);
  if (submit.doorbell != DoorbellOrder::kRingOnly) expect_record(out, q, pi);
  expect_doorbell(out, q, pi);
}

FabricOptions from_index(std::uint64_t first, std::uint32_t depth) {
  FabricOptions options;
  options.depth = depth;
  options.sender.first_wqe_index = first;
  return options;
}

template <Sharing S>
void expect_exact_stores(SubmitOptions submit) {
  // The third PUT crosses 2^16, where only 16 bits travel.
  FabricOptions options = from_index(0x1fffd, 4);
  options.doorbell_record = submit.doorbell != DoorbellOrder::kRingOnly;
  ManualFabric fabric(options);
  const QueueHandle q = fabric.sender_qps[0].handle();
  SendQueue<RecordingMemory, S> queue(q, submit);
  RecordingMemory::log().clear();
  std::vector<RecordedStore> expected;
  std::uint64_t index = 0x1fffd;
  for (const std::uint64_t bytes : {8u, 0u, 4097u, 1u, 0u, 64u, 128u}) {
    const Put p = fabric.put(10 * index % 1000, 100 + index % 7, bytes);
    Posted posted;
    ASSERT_EQ(put(queue, p, &posted), Status::kOk);
    EXPECT_EQ(posted.ticket, index);
    EXPECT_EQ(posted.wqes, 1u);
    expect_wqe(&expected, q, index, p);
    expect_rings(&expected, q, submit, ++index);
    ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
  }
  EXPECT_TRUE(RecordingMemory::log() == expected);
}

TEST(Submission, StoresWqesDoorbellRecordDoorbellWhenRingRecordRing) {
  expect_exact_stores<Sharing::kExclusive>(kRingRecordRing);
  expect_exact_stores<Sharing::kDevice>(kRingRecordRing);
  expect_exact_stores<Sharing::kDevice>({DoorbellOrder::kRingRecordRing, PublishOrder::kCombine});
}

TEST(Submission, StoresWqesRecordDoorbellWhenRecordRing) {
  expect_exact_stores<Sharing::kExclusive>(kRecordRing);
  expect_exact_stores<Sharing::kDevice>(kRecordRing);
  expect_exact_stores<Sharing::kDevice>({DoorbellOrder::kRecordRing, PublishOrder::kCombine});
}

TEST(Submission, StoresWqesAndOneDoorbellWhenRingOnly) {
  expect_exact_stores<Sharing::kExclusive>(kRingOnly);
  expect_exact_stores<Sharing::kDevice>(kRingOnly);
  expect_exact_stores<Sharing::kDevice>({DoorbellOrder::kRingOnly, PublishOrder::kCombine});
}

TEST(Submission, CountsEachDoorbellThatItRings) {
  for (const SubmitOptions& submit : {kRingRecordRing, kRecordRing, kRingOnly}) {
    FabricOptions options;
    options.doorbell_record = submit.doorbell != DoorbellOrder::kRingOnly;
    ManualFabric fabric(options);
    auto queue = fabric.queue(0, submit);
    Posted posted;
    for (int i = 0; i < 5; ++i) ASSERT_EQ(put(queue, fabric.put(0, 0, 8), &posted), Status::kOk);
    EXPECT_EQ(queue.handle().state->doorbells,
              submit.doorbell == DoorbellOrder::kRingRecordRing ? 10u : 5u);
  }
}

template <Sharing S>
void expect_refused(bool doorbell_record, SubmitOptions submit) {
  SCOPED_TRACE(doorbell_order_name(submit.doorbell));
  FabricOptions options;
  options.doorbell_record = doorbell_record;
  for (const NicHandler handler : {NicHandler::kDirect, NicHandler::kProxy}) {
    options.handler = handler;
    ManualFabric fabric(options);
    SendQueue<RecordingMemory, S> queue(fabric.sender_qps[0].handle(), submit);
    RecordingMemory::log().clear();
    Posted posted;
    EXPECT_EQ(put(queue, fabric.put(0, 0, 8), &posted), Status::kInvalid);
    EXPECT_EQ(nop(queue, &posted), Status::kInvalid);
    EXPECT_TRUE(RecordingMemory::log().empty());
    EXPECT_EQ(queue.reserved(), 0u);
  }
}

TEST(Submission, OfAnOrderThatDoesNotFitTheQueueIsRefusedWithNothingPosted) {
  expect_refused<Sharing::kExclusive>(true, kRingOnly);
  expect_refused<Sharing::kDevice>(true, {DoorbellOrder::kRingOnly, PublishOrder::kCombine});
  for (const SubmitOptions& submit : {kRingRecordRing, kRecordRing}) {
    expect_refused<Sharing::kExclusive>(false, submit);
    expect_refused<Sharing::kDevice>(false, submit);
  }
}

TEST(Submission, DefaultsToTheOriginalOrder) {
  const SubmitOptions submit;
  EXPECT_EQ(submit.doorbell, DoorbellOrder::kRingRecordRing);
  EXPECT_EQ(submit.publish, PublishOrder::kInOrder);
}

TEST(Submission, RingsOnceForAllChunksOfAPut) {
  ManualFabric fabric(from_index(0, 8));
  QueueHandle q = fabric.sender_qps[0].handle();
  q.max_message_bytes = 100;
  SendQueue<RecordingMemory, Sharing::kExclusive> queue(q, kRecordRing);
  RecordingMemory::log().clear();
  Posted posted;
  ASSERT_EQ(put(queue, fabric.put(3, 5, 250), &posted), Status::kOk);
  std::vector<RecordedStore> expected;
  expect_wqe(&expected, q, 0, fabric.put(3, 5, 100));
  expect_wqe(&expected, q, 1, fabric.put(103, 105, 100));
  expect_wqe(&expected, q, 2, fabric.put(203, 205, 50));
  expect_rings(&expected, q, kRecordRing, 3);
  EXPECT_TRUE(RecordingMemory::log() == expected);
}

// One producer's stores do not depend on how it would share the queue.
TEST(Submission, StoresTheSameInEveryPublishOrderAndSharingWhenOneProducerSubmits) {
  for (const DoorbellOrder doorbell :
       {DoorbellOrder::kRingRecordRing, DoorbellOrder::kRecordRing}) {
    ManualFabric fabric(from_index(65530, 8));
    const QueueHandle original = fabric.sender_qps[0].handle();
    fabric.hold();
    const auto record = [&]<Sharing S>(PublishOrder publish) {
      *original.state = QueueState{};
      original.state->reserved = original.state->ready = original.state->rung =
          original.state->completed = 65530;
      std::memset(original.marks, 0, original.depth * sizeof *original.marks);
      SendQueue<RecordingMemory, S> queue(original, {doorbell, publish});
      RecordingMemory::log().clear();
      for (const std::uint32_t n : {1u, 3u, 2u, 2u}) {
        Reservation r;
        EXPECT_EQ(queue.reserve(n, &r), Status::kOk);
        for (std::uint64_t i = r.first; i != r.end(); ++i) {
          write_wqe(queue, i, fabric.put(i % 100, i % 50, i % 3 == 0 ? 0 : 40));
        }
        EXPECT_EQ(queue.publish(r), Status::kOk);
      }
      return RecordingMemory::log();
    };
    const auto exclusive = record.operator()<Sharing::kExclusive>(PublishOrder::kInOrder);
    EXPECT_FALSE(exclusive.empty());
    EXPECT_TRUE(exclusive == record.operator()<Sharing::kExclusive>(PublishOrder::kCombine));
    EXPECT_TRUE(exclusive == record.operator()<Sharing::kBlock>(PublishOrder::kInOrder));
    EXPECT_TRUE(exclusive == record.operator()<Sharing::kBlock>(PublishOrder::kCombine));
    EXPECT_TRUE(exclusive == record.operator()<Sharing::kDevice>(PublishOrder::kInOrder));
    EXPECT_TRUE(exclusive == record.operator()<Sharing::kDevice>(PublishOrder::kCombine));
  }
}

TEST(Submission, LeavesTheReceiveWordOfTheRecordAlone) {
  ManualFabric fabric;
  const QueueHandle q = fabric.sender_qps[0].handle();
  std::uint32_t* receive_word = q.dbrec - mlx5::kDbrecSendWord + mlx5::kDbrecReceiveWord;
  *receive_word = 0xa5a5a5a5;
  auto queue = fabric.queue();
  Posted posted;
  for (int i = 0; i < 5; ++i) ASSERT_EQ(put(queue, fabric.put(0, 0, 8), &posted), Status::kOk);
  EXPECT_EQ(*receive_word, 0xa5a5a5a5);
  const std::array<std::uint8_t, 4> expected{0, 0, 0, 5};
  EXPECT_EQ(std::memcmp(q.dbrec, expected.data(), 4), 0);
}

TEST(Submission, RungIsAdvancedBeforeTheNicCanSeeTheDoorbell) {
  ManualFabric fabric;
  const QueueHandle q = fabric.sender_qps[0].handle();
  struct LookingMemory : test::ManualMemory {
    static std::vector<std::uint64_t>& seen() {
      static std::vector<std::uint64_t> s;
      return s;
    }
    static const QueueState*& state() {
      static const QueueState* s = nullptr;
      return s;
    }
    static void ring_doorbell_after_dbrec(std::uint64_t* d, std::uint64_t v, FenceScope f) {
      seen().push_back(state()->rung);
      ManualMemory::ring_doorbell_after_dbrec(d, v, f);
    }
    static void ring_doorbell_after_wqes(std::uint64_t* d, std::uint64_t v, FenceScope f) {
      seen().push_back(state()->rung);
      ManualMemory::ring_doorbell_after_wqes(d, v, f);
    }
  };
  LookingMemory::seen().clear();
  LookingMemory::state() = q.state;
  SendQueue<LookingMemory, Sharing::kExclusive> queue(q);
  Posted posted;
  ASSERT_EQ(put(queue, fabric.put(0, 0, 8), &posted), Status::kOk);
  ASSERT_EQ(put(queue, fabric.put(0, 0, 8), &posted), Status::kOk);
  EXPECT_EQ(LookingMemory::seen(), (std::vector<std::uint64_t>{1, 1, 2, 2}));
}

}  // namespace
}  // namespace peal
