// Queues that a client of plain DevX commands made, adopted: what is checked, what arrives, what is
// handed back, and what a wrong description of them ends in.
#include "peal/host/adopt.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/threads.hpp"
#include "host/host_fixture.hpp"
#include "nic/raw_fabric.hpp"
#include "peal/device/producer.hpp"
#include "peal/host/adopt_mlx5dv.hpp"
#include "support/manual_memory.hpp"
#include "support/sealed_memory.hpp"

namespace peal {
namespace {

using test::CountingMemory;
using test::error_of;
using test::ManualMemory;
using test::RawFabric;
using test::RawFabricOptions;
using test::Refusals;
using test::says;
using test::SealedMemory;
using test::succeeded;

constexpr std::uint64_t kShortNs = 1'000'000;

RawFabricOptions raw_queue(std::uint8_t log_depth, std::uint8_t log_cq_size,
                           std::uint64_t first = 0) {
  RawFabricOptions o;
  o.sender.first_wqe_index = first;
  o.log_depth = log_depth;
  o.qp.log_cq_size = log_cq_size;
  return o;
}
RawFabricOptions raw_collapsed(std::uint64_t first = 0) {
  RawFabricOptions o = raw_queue(4, 4, first);
  o.qp.collapsed = true;
  return o;
}
RawFabricOptions raw_without_record(std::uint64_t first = 0) {
  RawFabricOptions o = raw_queue(4, 4, first);
  o.qp.has_record = false;
  return o;
}

// A queue that somebody else made, and what is to be said of it. A pause steps its NICs.
struct Foreign {
  explicit Foreign(const RawFabricOptions& o = raw_queue(4, 4)) : fabric(o) {
    ManualMemory::hooks() = {};
    ManualMemory::hooks().on_pause = [this] {
      fabric.step_sender();
      fabric.step_receiver();
    };
    queue.sq = fabric.qp.slots().data();
    queue.depth = static_cast<std::uint32_t>(fabric.qp.slots().size());
    queue.cq = fabric.qp.cqes().data();
    queue.cq_depth = static_cast<std::uint32_t>(fabric.qp.cqes().size());
    queue.doorbell_record = o.qp.has_record;
    if (o.qp.has_record) queue.dbrec = fabric.qp.records() + mlx5::kDbrecSendWord;
    queue.doorbell = fabric.uar.doorbell(o.qp.has_record);
    queue.qpn = fabric.qp.qpn();
    queue.completion = o.qp.collapsed ? CompletionMode::kTail : CompletionMode::kEvery;
    queue.first_index = o.sender.first_wqe_index;
    queue.cq_base = 0 - o.sender.first_wqe_index;  // its CQ counts from 0
  }
  ~Foreign() { ManualMemory::hooks() = {}; }
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;

  // The i-th 8 bytes of the source to the same place of the destination.
  Put put(std::uint64_t i) const {
    return {fabric.source.address() + i * 8, Lkey(fabric.source.key()),
            fabric.destination.address() + i * 8, Rkey(fabric.destination.key()), 8};
  }
  // PUTs and completions by the client that made the queue.
  void used(int n) {
    for (int i = 0; i < n; ++i) {
      fabric.qp.post(fabric.write(0, 0, 8));
      fabric.settle();
      const auto cqe = fabric.qp.poll();
      ASSERT_TRUE(cqe && succeeded(*cqe));
    }
  }

  RawFabric<> fabric;
  ForeignQueue queue;
};

SubmitOptions submit_of(const ForeignQueue& q) {
  return {q.doorbell_record ? DoorbellOrder::kRecordRing : DoorbellOrder::kRingOnly,
          PublishOrder::kCombine};
}

// What one PUT of the adopted queue ends with.
Status put_one(const Foreign& f, const AdoptedQueue& adopted, std::uint64_t i = 0) {
  SendQueue<ManualMemory, Sharing::kDevice> queue(adopted.handle(), submit_of(f.queue));
  Posted posted;
  const Status status = put(queue, f.put(i), &posted, kShortNs);
  return status == Status::kOk ? wait(queue, posted.ticket, kShortNs) : status;
}

// ---- What is refused ----------------------------------------------------------------------------

void expect_not_adopted(const RawFabricOptions& made, const std::function<void(Foreign&)>& change,
                        const std::string& why) {
  Foreign f(made);
  change(f);
  const Error e = error_of([&] { adopt(f.queue); });
  EXPECT_EQ(e.code(), EINVAL);
  EXPECT_EQ(std::string(e.what()), "a queue cannot be adopted: " + why);
}
void expect_not_adopted(const std::function<void(Foreign&)>& change, const std::string& why) {
  expect_not_adopted(raw_queue(4, 4), change, why);
}

template <class T>
void move_by(T** pointer, std::uintptr_t bytes) {
  *pointer = reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(*pointer) + bytes);
}

TEST(Adopt, RefusesAddressesThatAreNone) {
  expect_not_adopted([](Foreign& f) { f.queue.sq = nullptr; }, "the send queue has no address");
  expect_not_adopted([](Foreign& f) { f.queue.cq = nullptr; }, "the CQ has no address");
  expect_not_adopted([](Foreign& f) { f.queue.doorbell = nullptr; },
                     "the doorbell register has no address");
  expect_not_adopted(
      [](Foreign& f) { f.queue.dbrec = nullptr; },
      "the doorbell record has no address; a queue without one says doorbell_record = "
      "false");
  expect_not_adopted([](Foreign& f) { f.queue.doorbell_record = false; },
                     "it has a doorbell record, but says that it has none");
}

TEST(Adopt, RefusesAddressesThatAreNotAligned) {
  expect_not_adopted([](Foreign& f) { move_by(&f.queue.sq, 32); },
                     "the send queue is not aligned to 64 bytes");
  expect_not_adopted([](Foreign& f) { move_by(&f.queue.cq, 32); },
                     "the CQ is not aligned to 64 bytes");
  expect_not_adopted([](Foreign& f) { move_by(&f.queue.doorbell, 4); },
                     "the doorbell register is not aligned to 8 bytes");
  expect_not_adopted([](Foreign& f) { move_by(&f.queue.dbrec, 2); },
                     "the doorbell record is not aligned to 4 bytes");
}

TEST(Adopt, RefusesNumbersThatCannotBe) {
  for (const std::uint32_t depth : {0u, 12u, 65536u}) {
    expect_not_adopted(
        [&](Foreign& f) { f.queue.depth = depth; },
        "its depth must be a power of two from 1 to 32768, not " + std::to_string(depth));
  }
  for (const std::uint32_t entries : {0u, 24u}) {
    expect_not_adopted([&](Foreign& f) { f.queue.cq_depth = entries; },
                       "the CQ's entries must be a power of two, not " + std::to_string(entries));
  }
  expect_not_adopted([](Foreign& f) { f.queue.cq_depth = 8; },
                     "a CQ of 8 entries cannot have a CQE for each of 16 slots");
  for (const std::uint32_t qpn : {0u, 0x1000000u}) {
    expect_not_adopted([&](Foreign& f) { f.queue.qpn = Qpn(qpn); },
                       "its QPN must be from 1 to 0xffffff, not " + std::to_string(qpn));
  }
  for (const std::uint64_t bytes : {std::uint64_t{0}, (std::uint64_t{1} << 30) + 1}) {
    expect_not_adopted(
        [&](Foreign& f) { f.queue.max_message_bytes = bytes; },
        "its largest message must be from 1 byte to 2^30, not " + std::to_string(bytes));
  }
  expect_not_adopted(
      [](Foreign& f) { f.queue.handler = NicHandler::kAutomatic; },
      "its handler must be direct or proxy: nobody asks whether the doorbell is mapped");
}

TEST(Adopt, RefusesAQueueThatIsNotWhereItIsSaidToBe) {
  expect_not_adopted(
      [](Foreign& f) { f.queue.first_index = 3; },
      "its doorbell record says that the next WQE is 0 modulo 65536, but first_index is "
      "3");
  // 20 WQEs of a ring of 16: the CQ is in its second lap.
  const auto used_and = [](const std::function<void(ForeignQueue&)>& change) {
    return [change](Foreign& f) {
      f.used(20);
      f.queue.first_index = 20;
      change(f.queue);
    };
  };
  expect_not_adopted(
      used_and([](ForeignQueue& q) { q.first_index = 0; }),
      "its doorbell record says that the next WQE is 20 modulo 65536, but first_index is "
      "0");
  for (const std::uint64_t base : {1u, 12u}) {
    const auto counter = (20 + base - 1) % 16;  // of the entry that would be the last
    expect_not_adopted(used_and([&](ForeignQueue& q) { q.cq_base = base; }),
                       "the last CQE is of WQE " +
                           std::to_string(counter < 4 ? counter + 16 : counter) +
                           " modulo 65536, but first_index is 20: that or cq_base is wrong");
  }
  // The right entry of the wrong lap.
  expect_not_adopted(
      used_and([](ForeignQueue& q) { q.cq_base = 16; }),
      "entry 4 of its CQ has the owner bit of a CQE to come: cq_base or first_index is "
      "wrong, or the CQ is not as it was made");
  expect_not_adopted(
      raw_collapsed(),
      [](Foreign& f) {
        for (int i = 0; i < 2; ++i) f.fabric.qp.post(f.fabric.write(0, 0, 8));
        f.fabric.settle();
        f.queue.first_index = 2;
        f.fabric.qp.entry(0).word[mlx5::kCqeOwnerWord] =
            mlx5::encode_cqe_owner_word(mlx5::CqeOpcode::kRequester, 0, 5);
      },
      "the last CQE is of WQE 5 modulo 65536, but first_index is 2");
}

TEST(Adopt, RefusesAQueueInError) {
  for (const RawFabricOptions& made : {raw_queue(4, 4), raw_collapsed()}) {
    expect_not_adopted(
        made,
        [](Foreign& f) {
          f.fabric.qp.post(f.fabric.write(0, 0, 8));
          f.fabric.settle();
          test::Wqe bad = f.fabric.write(0, 0, 8);
          bad.raddr.rkey = Rkey(0x00abcd00);
          f.fabric.qp.post(bad);
          f.fabric.settle();
          f.queue.first_index = 2;
        },
        "the last entry of its CQ is no success: reset the QP first");
  }
}

TEST(Adopt, RefusesAProxyWhereTheCpuDoesNotReach) {
  Foreign f;
  f.queue.handler = NicHandler::kProxy;
  const Error e = error_of([&] { adopt(f.queue, std::make_shared<SealedMemory>()); });
  EXPECT_TRUE(says(e, "the CPU does not reach its counters")) << e.what();
}

TEST(Adopt, LeavesNothingBehindWhenMemoryIsRefused) {
  Foreign f;
  for (const char* step : {"allocate", "copy_to_device"}) {
    Refusals refusals;
    refusals.refuse_all = step;
    const auto memory = std::make_shared<CountingMemory>(refusals.hook());
    EXPECT_EQ(error_of([&] { adopt(f.queue, memory); }).code(), EPERM) << step;
    EXPECT_EQ(memory->live, 0) << step;
  }
  const auto memory = std::make_shared<CountingMemory>();
  {
    AdoptedQueue one = adopt(f.queue, memory);
    AdoptedQueue other = std::move(one);
    one = std::move(other);
    EXPECT_EQ(memory->live, 1);
    EXPECT_EQ(put_one(f, one), Status::kOk);
  }
  EXPECT_EQ(memory->live, 0);
}

TEST(Adopt, GivesNoHandleToAnotherBuild) {
  Foreign f;
  const AdoptedQueue adopted = adopt(f.queue);
  EXPECT_TRUE(is_compatible(adopted.handle()));
  EXPECT_EQ(error_of([&] { static_cast<void>(adopted.handle(kQueueHandleLayout + 1)); }).code(),
            EINVAL);
}

// ---- What arrives -------------------------------------------------------------------------------

// 100 PUTs through a window: several laps, and over 2^16 where `made` starts below it.
void expect_all_arrive(const RawFabricOptions& made, SubmitOptions submit,
                       std::shared_ptr<verbs::DeviceMemory> memory = nullptr) {
  constexpr std::uint64_t kPuts = 100;
  Foreign f(made);
  const AdoptedQueue adopted = adopt(f.queue, std::move(memory));
  InFlight fifo[10];
  Producer<ManualMemory, Sharing::kDevice> producer(SealedMemory::open(adopted.handle()),
                                                    {submit, 10, 3}, fifo);
  ASSERT_EQ(producer.put_many(kPuts, [&](std::uint64_t i) { return f.put(i); }), Status::kOk);
  ASSERT_EQ(producer.flush(), Status::kOk);
  EXPECT_TRUE(f.fabric.arrived(0, 0, kPuts * 8));
  EXPECT_EQ(adopted.counters().completed, made.sender.first_wqe_index + kPuts);
  EXPECT_EQ(broken_rules(f.fabric.counters().reasons), "");
}

TEST(Adopt, PutsArrive) {
  for (const std::uint64_t first : {0u, 65500u}) {
    for (const PublishOrder publish : {PublishOrder::kInOrder, PublishOrder::kCombine}) {
      for (const DoorbellOrder order :
           {DoorbellOrder::kRingRecordRing, DoorbellOrder::kRecordRing}) {
        expect_all_arrive(raw_queue(4, 4, first), {order, publish});
        expect_all_arrive(raw_queue(4, 6, first), {order, publish});  // a longer CQ
        expect_all_arrive(raw_collapsed(first), {order, publish});
      }
      expect_all_arrive(raw_without_record(first), {DoorbellOrder::kRingOnly, publish});
    }
  }
}

TEST(Adopt, PutsArriveWithCountersWhereTheCpuHasNoAddresses) {
  expect_all_arrive(raw_queue(4, 4, 7), {}, std::make_shared<SealedMemory>());
}

// As libmlx5, GPUNetIO and NVSHMEM leave an entry that was never written.
TEST(Adopt, TakesEveryWayToStartACq) {
  for (const std::uint32_t never : {0xf0u, 0xf1u, 0xffffffffu}) {
    for (const RawFabricOptions& made : {raw_queue(4, 5), raw_collapsed()}) {
      Foreign f(made);
      for (mlx5::Cqe& entry : f.fabric.qp.cqes()) {
        entry.word[mlx5::kCqeOwnerWord] = swap_bytes(never);
      }
      const AdoptedQueue adopted = adopt(f.queue);
      for (std::uint64_t i = 0; i < 40; ++i) ASSERT_EQ(put_one(f, adopted, i), Status::kOk);
      EXPECT_TRUE(f.fabric.arrived(0, 0, 320));
    }
  }
}

TEST(Adopt, SplitsAtTheLargestMessageThatItWasTold) {
  Foreign f;
  f.queue.max_message_bytes = 16;
  const AdoptedQueue adopted = adopt(f.queue);
  SendQueue<ManualMemory, Sharing::kExclusive> queue(adopted.handle());
  Put whole = f.put(0);
  whole.bytes = 72;
  Posted posted;
  ASSERT_EQ(put(queue, whole, &posted), Status::kOk);
  EXPECT_EQ(posted.wqes, 5u);
  ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
  EXPECT_TRUE(f.fabric.arrived(0, 0, 72));
}

TEST(Adopt, UnderProxyTheCallersThreadRings) {
  for (const RawFabricOptions& made : {raw_queue(4, 4, 65530), raw_without_record()}) {
    Foreign f(made);
    f.queue.handler = NicHandler::kProxy;
    AdoptedQueue adopted = adopt(f.queue);
    EXPECT_EQ(adopted.handle().handler.resolved, NicHandler::kProxy);
    EXPECT_EQ(adopted.handle().doorbell, nullptr);
    EXPECT_FALSE(adopted.ring());
    EXPECT_EQ(put_one(f, adopted), Status::kDeadline) << "nobody rang";
    EXPECT_TRUE(adopted.ring());
    EXPECT_FALSE(adopted.ring());
    f.fabric.settle();
    EXPECT_TRUE(f.fabric.arrived(0, 0, 8));
  }
  Foreign f;
  EXPECT_FALSE(adopt(f.queue).ring()) << "its producers do";
}

TEST(Adopt, SeveralProducersShareIt) {
  constexpr std::uint64_t kProducers = 3;
  constexpr std::uint64_t kPuts = 200;
  constexpr std::uint64_t kEndsNs = 240'000'000'000;  // only so that a hang ends
  for (const RawFabricOptions& made : {raw_queue(4, 4, 65300), raw_collapsed()}) {
    Foreign f(made);
    const AdoptedQueue adopted = adopt(f.queue);
    const engine::ThreadsEngine engine(
        {[&](std::uint64_t now) { return f.fabric.sender.step(now); },
         [&](std::uint64_t now) { return f.fabric.receiver.step(now); }});
    std::atomic<std::uint64_t> right = 0;
    const auto produce = [&](std::uint64_t p) {
      InFlight fifo[4];
      Producer<CpuMemory, Sharing::kDevice> producer(
          adopted.handle(),
          {{DoorbellOrder::kRecordRing, PublishOrder::kCombine}, 4, 2, kProducers, kEndsNs}, fifo);
      const auto make = [&](std::uint64_t i) { return f.put(p * kPuts + i); };
      if (producer.put_many(kPuts, make) == Status::kOk && producer.flush() == Status::kOk) ++right;
    };
    std::vector<std::thread> threads;
    for (std::uint64_t p = 0; p < kProducers; ++p) threads.emplace_back(produce, p);
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(right, kProducers);
    EXPECT_TRUE(f.fabric.arrived(0, 0, kProducers * kPuts * 8));
  }
}

// ---- Errors, and back to the owner --------------------------------------------------------------

TEST(Adopt, LatchesTheFirstErrorAndIsNotHandedBackThen) {
  for (const RawFabricOptions& made : {raw_queue(4, 4), raw_collapsed()}) {
    Foreign f(made);
    AdoptedQueue adopted = adopt(f.queue);
    ASSERT_EQ(put_one(f, adopted), Status::kOk);
    SendQueue<ManualMemory, Sharing::kDevice> queue(adopted.handle());
    Put bad = f.put(1);
    bad.rkey = Rkey(0x00abcd00);
    Posted posted;
    ASSERT_EQ(put(queue, bad, &posted), Status::kOk);
    EXPECT_EQ(wait(queue, posted.ticket), Status::kCompletionError);
    EXPECT_EQ(put(queue, f.put(2), &posted), Status::kCompletionError);
    EXPECT_EQ(decode_error(adopted.counters().error).syndrome,
              static_cast<std::uint8_t>(mlx5::Syndrome::kRemoteAccess));
    EXPECT_EQ(error_of([&] { adopted.hand_back(); }).code(), EIO);
  }
}

TEST(Adopt, GoesOnWhereTheOwnerStoodAndTheOwnerGoesOnBehindIt) {
  for (const RawFabricOptions& made : {raw_queue(2, 2), raw_queue(2, 4), raw_queue(3, 3)}) {
    Foreign f(made);
    std::uint64_t next = 0;
    for (const int n : {5, 1, 13}) {
      f.used(n);
      next += static_cast<std::uint64_t>(n);
      f.queue.first_index = next;
      AdoptedQueue adopted = adopt(f.queue);
      for (int i = 0; i < n + 4; ++i) ASSERT_EQ(put_one(f, adopted, next++), Status::kOk);
      const HandedBack end = adopted.hand_back();
      EXPECT_EQ(end.next_index, next);
      EXPECT_EQ(end.next_cqe, next);
      f.fabric.qp.go_on_at(end.next_index, end.next_cqe);
    }
    f.used(3);
    EXPECT_EQ(f.fabric.counters().producer_index, next + 3);
  }
}

TEST(Adopt, IsNotHandedBackWithWorkInFlight) {
  Foreign f;
  AdoptedQueue adopted = adopt(f.queue);
  SendQueue<ManualMemory, Sharing::kExclusive> queue(adopted.handle());
  Posted posted;
  for (int i = 0; i < 2; ++i) ASSERT_EQ(put(queue, f.put(0), &posted), Status::kOk);
  const Error e = error_of([&] { adopted.hand_back(); });
  EXPECT_EQ(e.code(), EBUSY);
  EXPECT_TRUE(says(e, "2 of its slots")) << e.what();
  ASSERT_EQ(flush(queue), Status::kOk);
  EXPECT_EQ(adopted.hand_back().next_index, 2u);
}

// ---- What no check can find ends, all the same --------------------------------------------------

Status after_laps(const Foreign& f) {
  const AdoptedQueue adopted = adopt(f.queue);
  for (std::uint64_t i = 0; i < 40; ++i) {
    const Status status = put_one(f, adopted, i);
    if (status != Status::kOk) return status;
  }
  return Status::kOk;
}

TEST(Adopt, AWrongDescriptionEndsInAnErrorOrAtADeadline) {
  const auto ends_with = [](const RawFabricOptions& made,
                            const std::function<void(ForeignQueue&)>& change) {
    Foreign f(made);
    change(f.queue);
    return after_laps(f);
  };
  EXPECT_EQ(ends_with(raw_queue(4, 4), [](ForeignQueue&) {}), Status::kOk);
  EXPECT_EQ(ends_with(raw_queue(4, 4), [](ForeignQueue& q) { q.cq_base = 1; }), Status::kDeadline);
  EXPECT_EQ(ends_with(raw_queue(4, 4), [](ForeignQueue& q) { q.cq_base = 16; }), Status::kDeadline);
  EXPECT_EQ(ends_with(raw_queue(4, 4), [](ForeignQueue& q) { q.depth = 8; }),
            Status::kCompletionError);
  EXPECT_EQ(ends_with(raw_queue(4, 5), [](ForeignQueue& q) { q.cq_depth = 16; }),
            Status::kDeadline);
  EXPECT_EQ(ends_with(raw_queue(4, 4), [](ForeignQueue& q) { q.qpn = Qpn(0x123456); }),
            Status::kDeadline);
  EXPECT_EQ(
      ends_with(raw_collapsed(), [](ForeignQueue& q) { q.completion = CompletionMode::kEvery; }),
      Status::kDeadline);
  EXPECT_EQ(
      ends_with(raw_queue(4, 4), [](ForeignQueue& q) { q.completion = CompletionMode::kTail; }),
      Status::kDeadline);
  // A CQ that does not ignore overruns.
  RawFabricOptions strict = raw_queue(4, 4);
  strict.qp.ignores_overrun = false;
  EXPECT_EQ(ends_with(strict, [](ForeignQueue&) {}), Status::kDeadline);
}

// ---- As libmlx5 tells of them -------------------------------------------------------------------

struct Mlx5dv {
  explicit Mlx5dv(Foreign& f) {
    qp.dbrec = f.fabric.qp.records();
    qp.sq = {f.fabric.qp.slots().data(), static_cast<std::uint32_t>(f.fabric.qp.slots().size()),
             64};
    qp.bf = {f.fabric.uar.doorbell(), 256};
    cq.buf = f.fabric.qp.cqes().data();
    cq.cqe_cnt = static_cast<std::uint32_t>(f.fabric.qp.cqes().size());
    cq.cqe_size = 64;
    cq.cqn = f.fabric.qp.cqn();
  }
  mlx5dv_qp qp{};
  mlx5dv_cq cq{};
};

TEST(AdoptMlx5dv, PutsArrive) {
  for (const std::uint32_t bf_bytes : {0u, 256u}) {
    Foreign f(raw_queue(4, 6));
    Mlx5dv dv(f);
    dv.qp.bf.size = bf_bytes;
    f.queue = foreign_queue(dv.qp, dv.cq, f.fabric.qp.qpn());
    EXPECT_EQ(after_laps(f), Status::kOk);
    EXPECT_TRUE(f.fabric.arrived(0, 0, 320));
  }
}

TEST(AdoptMlx5dv, RefusesSizesThatPealDoesNotWriteOrRead) {
  Foreign f;
  const auto refusal = [&](const std::function<void(Mlx5dv&)>& change) {
    Mlx5dv dv(f);
    change(dv);
    const Error e = error_of([&] { adopt(foreign_queue(dv.qp, dv.cq, f.fabric.qp.qpn())); });
    EXPECT_EQ(e.code(), EINVAL);
    return std::string(e.what());
  };
  EXPECT_EQ(refusal([](Mlx5dv& dv) { dv.qp.sq.stride = 128; }),
            "the send queue's stride is 128, but Peal writes slots of 64 bytes");
  EXPECT_EQ(refusal([](Mlx5dv& dv) { dv.cq.cqe_size = 128; }),
            "the CQ has entries of 128 bytes, but Peal reads such of 64");
  EXPECT_EQ(refusal([](Mlx5dv& dv) { dv.qp.dbrec = nullptr; }),
            "a queue cannot be adopted: the doorbell record has no address; a queue without one "
            "says doorbell_record = false");
  EXPECT_EQ(refusal([](Mlx5dv& dv) { dv.qp.bf.reg = nullptr; }),
            "a queue cannot be adopted: the doorbell register has no address");
}

}  // namespace
}  // namespace peal
