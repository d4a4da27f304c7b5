// A NIC on a CPU thread with queues, payload or both where the CPU does not reach: every operation,
// both completion modes, faults, errors, and copies that fail.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "engine/threads.hpp"
#include "link/loopback.hpp"
#include "link/stream.hpp"
#include "peal/device/put.hpp"
#include "peal/host/context.hpp"
#include "peal/host/error.hpp"
#include "peal/host/memory_region.hpp"
#include "peal/host/queue_pair.hpp"
#include "peal/host/sinks.hpp"
#include "support/forwarding_memory.hpp"
#include "support/scale.hpp"
#include "support/sealed_memory.hpp"
#include "verbs/staged_nic.hpp"

namespace peal::verbs {
namespace {

using test::SealedMemory;

constexpr std::uint64_t kAnyWaitNs = 240'000'000'000;  // only so that a hang ends
constexpr std::size_t kPayloadBytes = 1 << 20;

// What lies in sealed memory.
struct Sealing {
  bool queues;
  bool payload;
};

struct StagedOptions {
  std::uint32_t depth = 16;
  std::uint64_t first_wqe_index = 0;
  CompletionMode completion = CompletionMode::kEvery;
  nic::DoorbellSource doorbell_source = nic::DoorbellSource::kRegister;
  nic::WriteOrder order = nic::WriteOrder::kRelaxed;
  bool stream = false;      // the two NICs are joined by a socket
  bool two_tables = false;  // the receiver's memory is of a table of its own
};

class StagedFabric {
 public:
  explicit StagedFabric(Sealing s, const StagedOptions& o = {})
      : sealing(s),
        options(o),
        sender_nic({.nic_number = 1,
                    .first_wqe_index = o.first_wqe_index,
                    .doorbell_source = o.doorbell_source},
                   o.stream ? streams.emplace_back(socket(0)) : loopback.a()),
        receiver_nic({.nic_number = 2, .order = o.order},
                     o.stream ? streams.emplace_back(socket(1)) : loopback.b()),
        engine({sender_nic.step(), receiver_nic.step()}),
        sender(open(sender_nic, sealed)),
        receiver(open(receiver_nic, far_sealed())),
        source(make(sealed, sender, Access::kLocalOnly)),
        destination(make(far_sealed(), receiver, Access::kRemoteAll)),
        sinks(Sinks::create(sender, 1)),
        qp(QueuePair::create(
            sender,
            {.depth = o.depth, .first_wqe_index = o.first_wqe_index, .completion = o.completion})),
        peer(QueuePair::create(receiver, {.depth = 1})) {
    for (std::size_t i = 0; i < kPayloadBytes; ++i) source.open[i] = std::byte(i * 31 + i / 251);
    connect();
  }

  struct Payload {
    std::vector<std::byte> plain;
    std::span<std::byte> open;
    std::optional<MemoryRegion> region;
  };

  void connect() {
    qp.connect(peer.address());
    peer.connect(qp.address());
  }
  template <Sharing S = Sharing::kExclusive>
  SendQueue<CpuMemory, S> queue(SubmitOptions submit = {}) const {
    return SendQueue<CpuMemory, S>(SealedMemory::open(qp.handle()), submit);
  }
  Put put_of(std::uint64_t at, std::uint64_t bytes) const {
    return {source.region->address() + at, source.region->lkey(),
            destination.region->address() + at, destination.region->rkey(), bytes};
  }
  AtomicTarget target(std::uint64_t at) const {
    return {destination.region->address() + at, destination.region->rkey(), sinks[0]};
  }
  // Posted, and done.
  template <class Post>
  Status run(const Post& post) {
    auto q = queue();
    Posted posted;
    const Status status = post(q, &posted);
    return status == Status::kOk ? wait(q, posted.ticket, kAnyWaitNs) : status;
  }
  Status put_and_wait(const Put& p) {
    return run([&](auto& q, Posted* posted) { return put(q, p, posted, kAnyWaitNs); });
  }
  bool equal(std::size_t at, std::size_t bytes) const {
    return std::memcmp(&source.open[at], &destination.open[at], bytes) == 0;
  }
  std::uint64_t word(std::uint64_t at) const {
    std::uint64_t v = 0;
    std::memcpy(&v, &destination.open[at], sizeof v);
    return v;
  }
  void set_word(std::uint64_t at, std::uint64_t v) {
    std::memcpy(&destination.open[at], &v, sizeof v);
  }
  std::uint64_t old_value() const { return *SealedMemory::open(sinks.value(0)); }
  void arm(const std::vector<nic::Fault>& faults) {
    engine.call([&] { sender_nic.core().arm_faults(qp.address().qpn, faults); });
  }

  Sealing sealing;
  StagedOptions options;
  std::shared_ptr<SealedMemory> sealed = std::make_shared<SealedMemory>();
  std::shared_ptr<SealedMemory> other = std::make_shared<SealedMemory>();
  StagedMemory::Range range{sealed->begin(), SealedMemory::kBytes, sealed};
  StagedMemory::Range other_range{other->begin(), SealedMemory::kBytes, other};
  link::Loopback loopback;
  int sockets[2] = {-1, -1};
  std::deque<link::StreamLink> streams;
  StagedNic sender_nic;
  StagedNic receiver_nic;
  engine::ThreadsEngine engine;
  Context sender;
  Context receiver;
  Payload source;
  Payload destination;
  Sinks sinks;
  QueuePair qp;
  QueuePair peer;

 private:
  int socket(int which) {
    if (sockets[0] < 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
      throw system_error(errno, "making a pair of sockets");
    }
    return sockets[which];
  }
  const std::shared_ptr<SealedMemory>& far_sealed() const {
    return options.two_tables ? other : sealed;
  }
  Context open(StagedNic& nic, const std::shared_ptr<SealedMemory>& memory) {
    return Context::open(sealing.queues ? nic.provider(engine, memory) : nic.provider(engine));
  }
  Payload make(const std::shared_ptr<SealedMemory>& memory, const Context& context, Access access) {
    Payload p;
    std::byte* registered = nullptr;
    if (sealing.payload) {
      registered = static_cast<std::byte*>(memory->allocate(kPayloadBytes));
      p.open = {SealedMemory::open(registered), kPayloadBytes};
    } else {
      p.plain.resize(kPayloadBytes);
      registered = p.plain.data();
      p.open = p.plain;
    }
    p.region.emplace(MemoryRegion::create(context, registered, kPayloadBytes, access));
    return p;
  }
};

using StagedWhere = std::tuple<bool, bool, CompletionMode>;
class StagedTest : public testing::TestWithParam<StagedWhere> {
 protected:
  Sealing sealing() const { return {std::get<0>(GetParam()), std::get<1>(GetParam())}; }
  StagedOptions options() const { return {.completion = std::get<2>(GetParam())}; }
};
INSTANTIATE_TEST_SUITE_P(Modes, StagedTest,
                         testing::Combine(testing::Bool(), testing::Bool(),
                                          testing::Values(CompletionMode::kEvery,
                                                          CompletionMode::kTail)),
                         [](const auto& mode) {
                           return std::string(std::get<0>(mode.param) ? "sealed_queues_"
                                                                      : "plain_queues_") +
                                  (std::get<1>(mode.param) ? "sealed_payload_" : "plain_payload_") +
                                  completion_mode_name(std::get<2>(mode.param));
                         });

TEST_P(StagedTest, PlacesEverySizeOverEveryLinkAndBetweenTwoTables) {
  for (const bool stream : {false, true}) {
    for (const bool two_tables : {false, true}) {
      StagedOptions o = options();
      o.stream = stream;
      o.two_tables = two_tables;
      o.order = two_tables ? nic::WriteOrder::kStrict : nic::WriteOrder::kRelaxed;
      StagedFabric fabric(sealing(), o);
      for (const std::uint32_t bytes : {1u, 63u, 65u, 4096u, 65'537u, 1'000'000u}) {
        std::fill(fabric.destination.open.begin(), fabric.destination.open.end(), std::byte{0xee});
        ASSERT_EQ(fabric.put_and_wait(fabric.put_of(101, bytes)), Status::kOk) << bytes;
        ASSERT_TRUE(fabric.equal(101, bytes)) << bytes << (stream ? " stream" : "");
        ASSERT_EQ(fabric.destination.open[100], std::byte{0xee});
        ASSERT_EQ(fabric.destination.open[101 + bytes], std::byte{0xee});
      }
    }
  }
}

TEST_P(StagedTest, DoesEveryOperation) {
  for (const bool stream : {false, true}) {
    StagedOptions o = options();
    o.stream = stream;
    StagedFabric fabric(sealing(), o);
    const std::uint64_t address = fabric.destination.region->address();
    const Rkey rkey = fabric.destination.region->rkey();

    unsigned char data[mlx5::kMaxInlineBytes];
    for (std::uint32_t i = 0; i < sizeof data; ++i) data[i] = static_cast<unsigned char>(i + 1);
    const auto post_inline = [&](auto& q, Posted* p) {
      return put_inline(q, PutInline{data, sizeof data, address + 3, rkey}, p, kAnyWaitNs);
    };
    ASSERT_EQ(fabric.run(post_inline), Status::kOk);
    EXPECT_EQ(std::memcmp(&fabric.destination.open[3], data, sizeof data), 0);

    for (std::size_t i = 0; i < 200'000; ++i) fabric.destination.open[i] = std::byte(i / 7);
    const Get g{fabric.source.region->address() + 5, fabric.source.region->lkey(), address + 9,
                rkey, 150'001};
    ASSERT_EQ(fabric.run([&](auto& q, Posted* p) { return get(q, g, p, kAnyWaitNs); }),
              Status::kOk);
    EXPECT_EQ(std::memcmp(&fabric.source.open[5], &fabric.destination.open[9], 150'001), 0);

    fabric.set_word(64, 40);
    const auto add = [&](auto& q, Posted* p) {
      return fetch_add(q, {fabric.target(64), 2}, p, kAnyWaitNs);
    };
    ASSERT_EQ(fabric.run(add), Status::kOk);
    EXPECT_EQ(fabric.word(64), 42u);
    EXPECT_EQ(fabric.old_value(), 40u);

    for (const std::uint64_t compare : {41u, 42u}) {
      const auto swap = [&](auto& q, Posted* p) {
        return compare_swap(q, {fabric.target(64), compare, 7}, p, kAnyWaitNs);
      };
      ASSERT_EQ(fabric.run(swap), Status::kOk);
      EXPECT_EQ(fabric.word(64), compare == 42 ? 7u : 42u);
      EXPECT_EQ(fabric.old_value(), 42u);
    }

    // Of 4 bytes, beside which nothing moves; its field ends below the carry.
    fabric.set_word(72, 0x11111111'000000ffu);
    const auto masked = [&](auto& q, Posted* p) {
      return masked_fetch_add(q, MaskedFetchAdd<std::uint32_t>{fabric.target(72), 1, 0x80}, p,
                              kAnyWaitNs);
    };
    ASSERT_EQ(fabric.run(masked), Status::kOk);
    EXPECT_EQ(fabric.word(72), 0x11111111'00000000u);
    EXPECT_EQ(static_cast<std::uint32_t>(fabric.old_value()), 0xffu);
    if (o.completion == CompletionMode::kTail) {  // of two slots
      fabric.set_word(80, 0x1234);
      const MaskedCompareSwap<std::uint64_t> m{fabric.target(80), 0x30, 0xffff, 0xf0, 0x0f0f};
      const auto wide = [&](auto& q, Posted* p) {
        return masked_compare_swap(q, m, p, kAnyWaitNs);
      };
      ASSERT_EQ(fabric.run(wide), Status::kOk);
      EXPECT_EQ(fabric.word(80), 0x1f3fu);
      EXPECT_EQ(fabric.old_value(), 0x1234u);
    }
  }
}

// The receiver polls the signal alone.
TEST_P(StagedTest, SignalsStandForTheWholePayload) {
  constexpr std::uint64_t kBytes = 5000;
  constexpr std::uint64_t kSignalAt = 1 << 19;
  StagedFabric fabric(sealing(), options());
  const std::uint64_t rounds = test::scaled(100);
  std::atomic<std::uint64_t> checked{0};
  std::uint64_t wrong = 0;
  std::thread receiver([&] {
    const auto* signal =
        reinterpret_cast<const std::uint64_t*>(&fabric.destination.open[kSignalAt]);
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      Wait<CpuMemory> wait(kAnyWaitNs);
      while (CpuMemory::load_signal_acquire(signal, FenceScope::kSystem) < round) {
        if (wait.turn_until_deadline()) return;
      }
      for (std::uint64_t i = 0; i < kBytes; ++i) {
        wrong += fabric.destination.open[i] == std::byte(round) ? 0 : 1;
      }
      checked = round;
    }
  });
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    std::memset(fabric.source.open.data(), static_cast<int>(round & 0xff), kBytes);
    const auto post = [&](auto& q, Posted* p) {
      return put_signal(q, fabric.put_of(0, kBytes), FetchAdd{fabric.target(kSignalAt), 1}, p,
                        kAnyWaitNs);
    };
    if (fabric.run(post) != Status::kOk) break;
    Wait<CpuMemory> wait(kAnyWaitNs);
    while (checked < round && !wait.turn_until_deadline()) {
    }
  }
  receiver.join();
  EXPECT_EQ(checked, rounds);
  EXPECT_EQ(wrong, 0u);
}

TEST_P(StagedTest, GoesThroughTheWrapsInBothDoorbellOrders) {
  for (const std::uint64_t wrap : {std::uint64_t{1} << 16, std::uint64_t{1} << 32}) {
    for (const auto source : {nic::DoorbellSource::kRegister, nic::DoorbellSource::kRecord}) {
      StagedOptions o = options();
      o.depth = 4;
      o.first_wqe_index = wrap - 20;
      o.doorbell_source = source;
      StagedFabric fabric(sealing(), o);
      for (const auto doorbell : {DoorbellOrder::kRingRecordRing, DoorbellOrder::kRecordRing}) {
        auto queue = fabric.queue({doorbell, PublishOrder::kInOrder});
        Posted posted;
        for (std::uint64_t i = 0; i < 60; ++i) {
          ASSERT_EQ(put(queue, fabric.put_of(i * 64, 64), &posted, kAnyWaitNs), Status::kOk) << i;
        }
        ASSERT_EQ(wait(queue, posted.ticket, kAnyWaitNs), Status::kOk);
        EXPECT_TRUE(fabric.equal(0, 60 * 64));
      }
    }
  }
}

TEST_P(StagedTest, ServesProducersThatShareAQueue) {
  constexpr std::uint64_t kThreads = 3;
  StagedFabric fabric(sealing(), options());
  const std::uint64_t puts = test::scaled(200);
  std::atomic<std::uint64_t> bad{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      auto queue =
          fabric.queue<Sharing::kDevice>({DoorbellOrder::kRecordRing, PublishOrder::kCombine});
      for (std::uint64_t i = 0; i < puts; ++i) {
        const std::uint64_t at = t * 4096 + i % 64 * 64;
        Posted posted;
        Status status = put(queue, fabric.put_of(at, 64), &posted, kAnyWaitNs);
        if (status == Status::kOk) status = wait(queue, posted.ticket, kAnyWaitNs);
        bad += status == Status::kOk && fabric.equal(at, 64) ? 0 : 1;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(bad, 0u);
}

TEST_P(StagedTest, FlipsOneBitOfThePayloadOnlyOnItsWay) {
  StagedFabric fabric(sealing(), options());
  fabric.arm({{nic::FaultKind::kCorrupt, 0, 0}});
  const std::vector<std::byte> before(fabric.source.open.begin(), fabric.source.open.end());
  ASSERT_EQ(fabric.put_and_wait(fabric.put_of(7, 1001)), Status::kOk);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), fabric.source.open.begin()));
  int wrong = 0;
  for (std::size_t i = 0; i < 1001; ++i) {
    wrong += fabric.source.open[7 + i] == fabric.destination.open[7 + i] ? 0 : 1;
  }
  EXPECT_EQ(wrong, 1);
  EXPECT_EQ(fabric.source.open[7 + 500] ^ fabric.destination.open[7 + 500], std::byte{1});
}

TEST_P(StagedTest, LatchesAnErrorAndWorksAgainAfterAReset) {
  StagedFabric fabric(sealing(), options());
  Put wrong = fabric.put_of(0, 64);
  wrong.rkey = Rkey(wrong.rkey.value ^ 0xff00);
  EXPECT_EQ(fabric.put_and_wait(wrong), Status::kCompletionError);
  LatchedError e;
  ASSERT_TRUE(fabric.queue().completions().error(&e));
  EXPECT_EQ(e.syndrome, 0x13);
  fabric.qp.reset();
  fabric.peer.reset();
  fabric.connect();
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(fabric.put_and_wait(fabric.put_of(128, 64)), Status::kOk);
  }
  EXPECT_TRUE(fabric.equal(128, 64));
}

TEST_P(StagedTest, RefusesASlotThatWasOverwritten) {
  StagedFabric fabric(sealing(), options());
  auto queue = fabric.queue();
  Posted posted;
  Status status = Status::kOk;
  fabric.engine.call([&] {
    status = put(queue, fabric.put_of(0, 64), &posted, kAnyWaitNs);
    fabric.sender_nic.core().step(CpuMemory::now_ns());  // fetched; the receiver has not answered
    SealedMemory::open(fabric.qp.handle().sq)[0].segment[2].lo ^= 1;
  });
  ASSERT_EQ(status, Status::kOk);
  EXPECT_EQ(wait(queue, posted.ticket, kAnyWaitNs), Status::kCompletionError);
}

TEST_P(StagedTest, DumpsTheWqeThatADeadlineHasPassed) {
  StagedFabric fabric(sealing(), options());
  ASSERT_EQ(fabric.put_and_wait(fabric.put_of(0, 64)), Status::kOk);
  fabric.arm({{nic::FaultKind::kHold, kAnyWaitNs, 0}});
  auto queue = fabric.queue();
  Posted posted;
  ASSERT_EQ(put(queue, fabric.put_of(64, 64), &posted, kAnyWaitNs), Status::kOk);
  ASSERT_EQ(wait(queue, posted.ticket, 1'000'000), Status::kDeadline);
  std::optional<nic::QpDump> dump;
  for (Wait<CpuMemory> seen(kAnyWaitNs); !dump || !dump->oldest;) {
    ASSERT_FALSE(seen.turn_until_deadline()) << "the NIC never saw the doorbell";
    fabric.engine.call([&] { dump = fabric.sender_nic.core().dump(fabric.qp.address().qpn); });
  }
  EXPECT_EQ(dump->record, 2u);
  EXPECT_EQ(dump->posted, 2u);
  EXPECT_EQ(dump->completed, 1u);
  EXPECT_EQ(dump->oldest->index, 1u);
  EXPECT_EQ(dump->oldest->opcode, static_cast<std::uint8_t>(mlx5::Opcode::kRdmaWrite));
  EXPECT_EQ(dump->oldest->standing, nic::Standing::kHeldByFault);
}

// No success is told, whatever else still works; calls say why; and all can be taken apart.
TEST_P(StagedTest, ACopyThatFailsEndsTheNicWithItsCause) {
  StagedFabric fabric(sealing(), options());
  ASSERT_EQ(fabric.put_and_wait(fabric.put_of(0, 64)), Status::kOk);
  auto queue = fabric.queue();
  std::optional<QueuePair> extra = QueuePair::create(fabric.sender);
  fabric.sealed->fails_with = EIO;
  if (!sealing().queues && !sealing().payload) {  // nothing is copied
    EXPECT_EQ(fabric.put_and_wait(fabric.put_of(64, 64)), Status::kOk);
    return;
  }
  Posted posted;
  ASSERT_EQ(put(queue, fabric.put_of(64, 64), &posted, kAnyWaitNs), Status::kOk);
  std::string why;
  int code = 0;
  for (Wait<CpuMemory> told(kAnyWaitNs); code == 0;) {
    ASSERT_FALSE(told.turn_until_deadline()) << "no call has failed";
    try {
      fabric.engine.call([] {});
    } catch (const Error& e) {
      why = e.what();
      code = e.code();
    }
  }
  EXPECT_EQ(code, EIO);
  EXPECT_NE(why.find("the NIC was copying"), std::string::npos) << why;
  EXPECT_NE(why.find("device memory"), std::string::npos) << why;
  EXPECT_EQ(wait(queue, posted.ticket, 10'000'000), Status::kDeadline);
  fabric.sealed->fails_with = 0;  // it is over all the same
  EXPECT_EQ(wait(queue, posted.ticket, 10'000'000), Status::kDeadline);
  EXPECT_THROW(fabric.qp.state(), Error);
  EXPECT_THROW(QueuePair::create(fabric.sender), Error);
  const auto objects = [&] {
    nic::Commands::Objects all;
    fabric.engine.call_to_undo([&] { all = fabric.sender_nic.core().commands().objects(); });
    return all;
  };
  const nic::Commands::Objects before = objects();
  extra.reset();
  EXPECT_EQ(objects().qps, before.qps - 1);
  EXPECT_EQ(objects().umems, before.umems - 3);
  EXPECT_EQ(objects().uars, before.uars - 1);
}

// ---- The policy by itself -----------------------------------------------------------------------

// Host memory whose table writes down what it copied.
struct WatchedTable final : test::ForwardingMemory {
  struct Copy {
    const void* to;
    const void* from;
    std::size_t bytes;
  };
  int copy_to_device(void* to, const void* from, std::size_t bytes) override {
    copies.push_back({to, from, bytes});
    return ForwardingMemory::copy_to_device(to, from, bytes);
  }
  int copy_payload(void* to, const void* from, std::size_t bytes) override {
    copies.push_back({to, from, bytes});
    return ForwardingMemory::copy_payload(to, from, bytes);
  }
  std::vector<Copy> copies;
};

TEST(StagedMemory, CopiesTheBodyOfACqeBeforeItsOwnerWord) {
  alignas(64) mlx5::Cqe entry[2] = {};
  const auto table = std::make_shared<WatchedTable>();
  const StagedMemory::Range range(&entry[0], sizeof entry[0], table);
  mlx5::Cqe cqe;
  for (std::uint32_t i = 0; i < 16; ++i) cqe.word[i] = 100 + i;
  StagedMemory::store_cqe(&entry[0], cqe);
  ASSERT_EQ(table->copies.size(), 2u);
  EXPECT_EQ(table->copies[0].to, &entry[0]);
  EXPECT_EQ(table->copies[0].bytes, 60u);
  EXPECT_EQ(table->copies[1].to, &entry[0].word[15]);
  EXPECT_EQ(table->copies[1].bytes, 4u);
  EXPECT_EQ(std::memcmp(&entry[0], &cqe, sizeof cqe), 0);
  StagedMemory::store_cqe(&entry[1], cqe);  // of the CPU
  EXPECT_EQ(table->copies.size(), 2u);
  EXPECT_EQ(std::memcmp(&entry[1], &cqe, sizeof cqe), 0);
}

TEST(StagedMemory, CopiesPayloadOnceWithinATableAndThroughTheCpuBetweenTwo) {
  constexpr std::size_t kBytes = (2 << 20) + 5;
  std::vector<std::byte> a(2 * kBytes), b(kBytes);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = std::byte(i % 253);
  const auto table = std::make_shared<WatchedTable>();
  const auto other = std::make_shared<WatchedTable>();
  const StagedMemory::Range range(a.data(), a.size(), table);
  const StagedMemory::Range other_range(b.data(), b.size(), other);
  StagedMemory::copy_payload(a.data(), a.data() + kBytes, kBytes);
  EXPECT_EQ(table->copies.size(), 1u);
  EXPECT_EQ(std::memcmp(a.data(), a.data() + kBytes, kBytes), 0);
  StagedMemory::copy_payload(b.data(), a.data(), kBytes);
  EXPECT_EQ(std::memcmp(b.data(), a.data(), kBytes), 0);
  EXPECT_EQ(table->copies.size(), 4u);  // three pieces
  ASSERT_EQ(other->copies.size(), 3u);
  EXPECT_EQ(other->copies[2].bytes, 5u);
}

TEST(StagedMemory, RangesMayNotOverlapAndEndWithTheirObject) {
  std::byte memory[64] = {};
  const auto table = std::make_shared<WatchedTable>();
  EXPECT_FALSE(StagedMemory::in_a_range(memory));
  {
    const StagedMemory::Range range(memory + 8, 16, table);
    EXPECT_FALSE(StagedMemory::in_a_range(memory + 7));
    EXPECT_TRUE(StagedMemory::in_a_range(memory + 8));
    EXPECT_TRUE(StagedMemory::in_a_range(memory + 23));
    EXPECT_FALSE(StagedMemory::in_a_range(memory + 24));
    EXPECT_THROW(StagedMemory::Range(memory, 9, table), Error);
    EXPECT_THROW(StagedMemory::Range(memory + 23, 9, table), Error);
    const StagedMemory::Range neighbour(memory + 24, 8, table);
    std::byte to[32];
    try {
      StagedMemory::copy_payload(to, memory + 20, 5);
      ADD_FAILURE() << "a copy beyond its range";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), EFAULT);
      EXPECT_STREQ(e.what(),
                   "the NIC was to reach 5 bytes of device memory, of which only 4 bytes are in "
                   "their range");
    }
  }
  EXPECT_FALSE(StagedMemory::in_a_range(memory + 8));
  EXPECT_EQ(table->copies.size(), 0u);
}

}  // namespace
}  // namespace peal::verbs
