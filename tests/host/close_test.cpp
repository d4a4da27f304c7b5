// Closing while the NIC still has work: nothing is touched that was given back, nothing is left,
// and one step that fails does not keep the others from being done.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/context_impl.hpp"
#include "host/host_fixture.hpp"
#include "peal/device/producer.hpp"
#include "peal/host/qp_list.hpp"
#include "support/guarded_memory.hpp"
#include "support/manual_memory.hpp"
#include "support/variants.hpp"

namespace peal {
namespace {

using test::ForwardingVerbs;
using test::GuardedMemory;
using test::GuardedPages;
using test::HostFixture;
using test::kHandlers;
using test::ManualMemory;

constexpr std::uint32_t kListEntries = 3;
constexpr std::uint32_t kListWindow = 16;
constexpr std::uint64_t kPutBytes = 100;

// A list of queue pairs whose every page, and whose source, must not be touched once it is closed.
struct ListInUse {
  ListInUse(HostFixture& h, NicHandler handler, std::shared_ptr<verbs::Verbs> through = nullptr)
      : host(h),
        memory(std::make_shared<GuardedMemory>()),
        source(kListEntries * kListWindow * kPutBytes),
        destination(source.size()) {
    Provider provider = host.provider();
    provider.memory = memory;
    if (through != nullptr) provider.verbs = std::move(through);
    context.emplace(Context::open(provider, {.handler = handler}));
    if (context->impl().proxy != nullptr) context->impl().proxy->drive_by_hand();
    const Context receiver = Context::open(host.peer_provider());
    std::fill_n(source.data(), source.size(), std::byte{0x5a});
    const std::vector<QueuePairOptions> entries(kListEntries, {.depth = 32});
    region.emplace(
        MemoryRegion::create(*context, source.data(), source.size(), Access::kLocalOnly));
    peer_region.emplace(MemoryRegion::create(receiver, destination.data(), destination.size(),
                                             Access::kRemoteWrite));
    list.emplace(QpList::create(*context, entries));
    peers.emplace(QpList::create(receiver, entries));
    std::vector<QueuePairAddress> addresses, peer_addresses;
    for (std::uint32_t i = 0; i < kListEntries; ++i) {
      addresses.push_back((*list)[i].address());
      peer_addresses.push_back((*peers)[i].address());
    }
    list->connect(peer_addresses);
    peers->connect(addresses);
    ManualMemory::hooks() = {};
    ManualMemory::hooks().on_pause = [this] { step(); };
  }
  ~ListInUse() { ManualMemory::hooks() = {}; }

  void arm(const std::vector<nic::Fault>& faults) {
    for (std::uint32_t i = 0; i < kListEntries; ++i) {
      host.nic.core().arm_faults((*list)[i].address().qpn, faults);
    }
  }
  // A full window on every queue of the device array.
  void put_windows() {
    for (std::uint32_t i = 0; i < kListEntries; ++i) {
      ProducerOptions options;
      options.window = kListWindow;
      options.batch = 5;
      std::vector<InFlight> fifo(kListWindow);
      Producer<ManualMemory, Sharing::kDevice> producer(list->handles().data()[i], options,
                                                        fifo.data());
      const Status status = producer.put_many(kListWindow, [&](std::uint64_t k) {
        const std::uint64_t at = (i * kListWindow + k) * kPutBytes;
        return Put{region->address() + at, region->lkey(), peer_region->address() + at,
                   peer_region->rkey(), kPutBytes};
      });
      ASSERT_EQ(status, Status::kOk);
    }
  }
  void step_sender() {
    if (context && context->impl().proxy != nullptr) context->impl().proxy->progress();
    host.nic.core().step(ManualMemory::hooks().now_ns);
  }
  void step() {
    step_sender();
    host.peer_nic.core().step(ManualMemory::hooks().now_ns);
  }
  // Lets seconds pass: longer than any hold, grace or time-out.
  void let_time_pass() {
    for (int i = 0; i < 40; ++i) {
      for (int k = 0; k < 20; ++k) step();
      ManualMemory::hooks().now_ns += 500'000'000;
    }
  }
  std::size_t bytes_arrived() const {
    return static_cast<std::size_t>(
        std::count(destination.begin(), destination.end(), std::byte{0x5a}));
  }

  HostFixture& host;
  std::shared_ptr<GuardedMemory> memory;
  GuardedPages source;
  std::vector<std::byte> destination;
  std::optional<Context> context;
  std::optional<MemoryRegion> region;
  std::optional<MemoryRegion> peer_region;
  std::optional<QpList> list;
  std::optional<QpList> peers;
};

enum class Work { kUnfetched, kHeld, kOnTheLink, kUnpolled, kFailed, kSentToError };
constexpr Work kWorks[] = {Work::kUnfetched, Work::kHeld,   Work::kOnTheLink,
                           Work::kUnpolled,  Work::kFailed, Work::kSentToError};

void get_to(Work work, ListInUse& use) {
  if (work == Work::kHeld) use.arm({{nic::FaultKind::kHold, 1'000'000'000, 0}});
  if (work == Work::kFailed) use.arm({{nic::FaultKind::kCqe, 0x13, 3}});
  use.put_windows();
  switch (work) {
    case Work::kUnfetched: break;
    case Work::kHeld:
    case Work::kOnTheLink: use.step_sender(); break;
    case Work::kUnpolled: use.step(); break;
    case Work::kFailed:
      for (int i = 0; i < 50; ++i) use.step();
      for (std::uint32_t i = 0; i < kListEntries; ++i) {
        ASSERT_EQ((*use.list)[i].state(), QueuePairState::kError);
      }
      break;
    case Work::kSentToError:
      use.step_sender();
      for (std::uint32_t i = 0; i < kListEntries; ++i) (*use.list)[i].to_error();
      break;
  }
}

TEST(ListStageClose, WithWindowsInFlightTouchesNothingThatWasGivenBack) {
  for (const NicHandler handler : kHandlers) {
    for (const Work work : kWorks) {
      SCOPED_TRACE(std::string(nic_handler_name(handler)) + ", work " +
                   std::to_string(static_cast<int>(work)));
      HostFixture host;
      ListInUse use(host, handler);
      get_to(work, use);
      use.list.reset();
      use.region.reset();
      use.source.forbid();
      const std::size_t arrived = use.bytes_arrived();
      EXPECT_EQ(arrived != 0, work == Work::kUnpolled || work == Work::kFailed);
      EXPECT_EQ(use.memory->live, 0);
      use.let_time_pass();
      EXPECT_EQ(use.bytes_arrived(), arrived);
      use.context.reset();
      EXPECT_EQ(host.objects(), nic::Commands::Objects{});
    }
  }
}

// The peer is gone and the wait for its answer runs on: it is forgotten with its queue, also when
// the next one has the same number.
TEST(ListStageClose, ForgetsTheWaitForAnAnswerAlsoWhenTheQpNumberIsUsedAgain) {
  HostFixture host;
  const Context context = Context::open(host.provider());
  const Context receiver = Context::open(host.peer_provider());
  std::vector<std::byte> source(64, std::byte{0x5a}), destination(64);
  const MemoryRegion from = MemoryRegion::create(context, source.data(), 64, Access::kLocalOnly);
  const MemoryRegion to =
      MemoryRegion::create(receiver, destination.data(), 64, Access::kRemoteWrite);
  const Put a_put{from.address(), from.lkey(), to.address(), to.rkey(), 64};
  ManualMemory::hooks() = {};
  std::uint64_t& now_ns = ManualMemory::hooks().now_ns;
  const auto step = [&] {
    host.nic.core().step(now_ns);
    host.peer_nic.core().step(now_ns);
  };
  ManualMemory::hooks().on_pause = step;
  const QueuePairOptions options{.depth = 4, .ack_timeout = 14, .retry_count = 7};
  std::vector<std::uint32_t> numbers;
  for (std::uint64_t cycle = 0; cycle < 100; ++cycle) {
    std::optional<QueuePair> qp(QueuePair::create(context, options));
    std::optional<QueuePair> peer(QueuePair::create(receiver, {.depth = 1}));
    qp->connect(peer->address());
    peer->connect(qp->address());
    numbers.push_back(qp->address().qpn.value);
    SendQueue<ManualMemory, Sharing::kExclusive> queue(qp->handle());
    Posted posted;
    if (cycle % 2 == 0) {
      peer.reset();
      ASSERT_EQ(put(queue, a_put, &posted), Status::kOk);
      for (int i = 0; i < 5; ++i) step();
      now_ns += 500'000'000;  // just short of the time-out
      step();
      ASSERT_EQ(queue.completions().try_wait(posted.ticket), Status::kPending);
      continue;
    }
    now_ns += 100'000'000;  // beyond the other's
    step();
    ASSERT_EQ(put(queue, a_put, &posted), Status::kOk);
    ASSERT_EQ(wait(queue, posted.ticket), Status::kOk) << cycle;
  }
  std::sort(numbers.begin(), numbers.end());
  EXPECT_LT(std::unique(numbers.begin(), numbers.end()) - numbers.begin(), 100);
  ManualMemory::hooks() = {};
}

// ---- Steps that are refused ---------------------------------------------------------------------

// Counts the calls that take something down, and refuses one of them. What was not taken down can
// be later, as an operating system does it for a process that has ended.
struct Closing : ForwardingVerbs {
  explicit Closing(HostFixture& h) : ForwardingVerbs(h.provider().verbs), host(h) {}
  static constexpr std::size_t kNone = ~std::size_t{0};
  HostFixture& host;
  std::size_t calls = 0;
  std::size_t refused = 0;  // by the NIC
  std::size_t refuse_at = kNone;
  std::vector<std::function<void()>> owed;

  template <class T>
  int take_down(int (Closing::*step)(T*), T* object) {
    const bool refuse = calls++ == refuse_at;
    const int error = refuse ? EBUSY : (this->*step)(object);
    if (error == 0) return 0;
    if (!refuse) ++refused;
    owed.push_back([this, step, object] { (this->*step)(object); });
    return error;
  }
  void end_process() {
    for (const auto& step : owed) step();
    owed.clear();
  }

  int dealloc_pd(ibv_pd* pd) override { return take_down(&Closing::pd_down, pd); }
  int dereg_mr(ibv_mr* mr) override { return take_down(&Closing::mr_down, mr); }
  int devx_umem_dereg(mlx5dv_devx_umem* umem) override {
    return take_down(&Closing::umem_down, umem);
  }
  int devx_obj_destroy(mlx5dv_devx_obj* object) override {
    return take_down(&Closing::object_down, object);
  }
  void devx_free_uar(mlx5dv_devx_uar* uar) override {
    const std::uint32_t before = host.objects().uars;
    ForwardingVerbs::devx_free_uar(uar);
    if (host.objects().uars != before) return;
    owed.push_back([this, uar] { ForwardingVerbs::devx_free_uar(uar); });
  }
  int pd_down(ibv_pd* pd) { return ForwardingVerbs::dealloc_pd(pd); }
  int mr_down(ibv_mr* mr) { return ForwardingVerbs::dereg_mr(mr); }
  int umem_down(mlx5dv_devx_umem* umem) { return ForwardingVerbs::devx_umem_dereg(umem); }
  int object_down(mlx5dv_devx_obj* o) { return ForwardingVerbs::devx_obj_destroy(o); }
};

struct Closed {
  std::size_t calls = 0;
  std::size_t refused = 0;
  int live = 0;
  nic::Commands::Objects left;
};

// Closes a list with windows in flight, with one step of it refused.
Closed closed_with(NicHandler handler, std::size_t refuse_at) {
  HostFixture host;
  Closed result;
  const auto verbs = std::make_shared<Closing>(host);
  ListInUse use(host, handler, verbs);
  get_to(Work::kHeld, use);
  verbs->calls = 0;
  verbs->refuse_at = refuse_at;
  use.list.reset();
  result.live = use.memory->live;
  use.let_time_pass();  // whatever is left must still be there
  use.region.reset();
  use.context.reset();
  result.calls = verbs->calls;
  result.refused = verbs->refused;
  result.left = host.objects();
  verbs->end_process();
  EXPECT_EQ(host.objects(), nic::Commands::Objects{});
  return result;
}

TEST(ListStageClose, GoesOnWhenAStepIsRefusedAndKeepsWhatTheNicMayStillReach) {
  for (const NicHandler handler : kHandlers) {
    const Closed clean = closed_with(handler, Closing::kNone);
    // A QP, a CQ and three umems each, the source's region and the protection domain.
    EXPECT_EQ(clean.calls, kListEntries * 5 + 2u);
    EXPECT_EQ(clean.refused, 0u);
    EXPECT_EQ(clean.live, 0);
    EXPECT_EQ(clean.left, nic::Commands::Objects{});
    for (std::size_t at = 0; at < clean.calls; ++at) {
      SCOPED_TRACE(std::string(nic_handler_name(handler)) + ", step " + std::to_string(at));
      const Closed c = closed_with(handler, at);
      EXPECT_EQ(c.calls, clean.calls);
      EXPECT_EQ(c.live != 0, at < kListEntries * 5u);
      // One queue pair at most is left.
      EXPECT_LE(c.left.qps, 1u);
      EXPECT_LE(c.left.cqs, 1u);
      EXPECT_LE(c.left.uars, 1u);
      EXPECT_LE(c.left.umems, 3u);
      EXPECT_LE(c.left.regions, 1u);
      EXPECT_LE(c.left.pds, 1u);
      EXPECT_NE(c.left, nic::Commands::Objects{});
    }
  }
}

// One call for each object, however many there are.
TEST(ListStageClose, TakesAsManyStepsAsThereAreObjects) {
  std::vector<std::size_t> calls;
  for (const std::size_t n : {std::size_t{1}, std::size_t{512}}) {
    HostFixture host;
    const auto verbs = std::make_shared<Closing>(host);
    Provider provider = host.provider();
    provider.verbs = verbs;
    const Context context = Context::open(provider, {.handler = NicHandler::kDirect});
    const std::vector<QueuePairOptions> entries(n, {.depth = 4});
    std::optional<QpList> list(QpList::create(context, entries));
    for (std::size_t i = 0; i < n; ++i) (*list)[i].connect({Qpn(77), Psn(1), 1, 4096});
    verbs->calls = 0;
    list.reset();
    EXPECT_EQ(verbs->refused, 0u);
    EXPECT_EQ(host.objects().qps, 0u);
    calls.push_back(verbs->calls);
  }
  EXPECT_EQ(calls[1], 512 * calls[0]);
}

}  // namespace
}  // namespace peal
