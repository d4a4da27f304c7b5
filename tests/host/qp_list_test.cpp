// Lists of queue pairs: all or none, checked first, named when they fail, one flat device array.
#include "peal/host/qp_list.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "host/host_fixture.hpp"
#include "mlx5/layout.hpp"
#include "support/manual_fabric.hpp"
#include "support/variants.hpp"

namespace peal {
namespace {

using test::error_of;
using test::ForwardingVerbs;
using test::HostFixture;
using test::kHandlers;
using test::ManualFabric;
using test::ManualMemory;
using test::Refusals;
using test::says;

struct ListFixture : HostFixture {
  explicit ListFixture(NicHandler handler = NicHandler::kDirect)
      : context(Context::open(counted_provider(refusals), {.handler = handler})) {}
  Refusals refusals;
  Context context;
};

bool same(const QueueHandle& a, const QueueHandle& b) {
  return a.sq == b.sq && a.dbrec == b.dbrec && a.doorbell == b.doorbell && a.nic_cq == b.nic_cq &&
         a.state == b.state && a.marks == b.marks && a.proxy == b.proxy && a.stop == b.stop &&
         a.cq_base == b.cq_base && a.max_message_bytes == b.max_message_bytes &&
         a.depth == b.depth && a.cq_depth == b.cq_depth && a.layout == b.layout && a.qpn == b.qpn &&
         a.has_record == b.has_record && a.completion == b.completion &&
         a.fence_scope == b.fence_scope && a.handler == b.handler;
}

QueueHandle with_stop(QueueHandle h, const std::uint32_t* stop) {
  h.stop = stop;
  return h;
}

// ---- Device handles -----------------------------------------------------------------------------

TEST(ListStageHandles, AreAFlatCopyInOrder) {
  ListFixture f;
  std::vector<QueuePair> qps;
  for (std::uint32_t i = 0; i < 5; ++i) {
    qps.push_back(QueuePair::create(f.context, {.depth = 4u << i, .first_wqe_index = i}));
  }
  const std::vector<const QueuePair*> order{&qps[3], &qps[0], &qps[4]};
  std::uint32_t stop = 0;
  const int live = f.memory->live;
  const std::size_t asked = f.refusals.asked.size();
  {
    DeviceHandles handles = DeviceHandles::create(order, &stop);
    EXPECT_EQ(f.memory->live, live + 1);
    EXPECT_EQ(f.refusals.asked.size(), asked + 2);  // one allocation, one copy
    ASSERT_EQ(handles.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(same(handles.data()[i], with_stop(order[i]->handle(), &stop))) << i;
    }
    const QueueHandle* data = handles.data();
    DeviceHandles moved = std::move(handles);
    EXPECT_EQ(moved.data(), data);
    EXPECT_EQ(handles.data(), nullptr);
    EXPECT_EQ(handles.size(), 0u);
    moved = DeviceHandles::create(order);
    EXPECT_EQ(moved.data()[0].stop, nullptr);
    EXPECT_EQ(f.memory->live, live + 1);
  }
  EXPECT_EQ(f.memory->live, live);
}

// A library is known that looks into each entry unchecked.
TEST(ListStageHandles, RefuseAnEntryThatIsNoneAndNameIt) {
  ListFixture f;
  ListFixture other;
  QueuePair a = QueuePair::create(f.context, {.depth = 4});
  QueuePair b = QueuePair::create(f.context, {.depth = 4});
  QueuePair gone = QueuePair::create(f.context, {.depth = 4});
  const QueuePair kept = std::move(gone);
  const QueuePair foreign = QueuePair::create(other.context, {.depth = 4});
  struct Bad {
    std::vector<const QueuePair*> entries;
    std::vector<std::string> named;
  };
  const Bad bads[] = {
      {{}, {"no queue pair"}},
      {{nullptr}, {"entry 0 of 1", "null"}},
      {{&a, &b, nullptr}, {"entry 2 of 3", "null"}},
      {{&gone, &a}, {"entry 0 of 2", "moved"}},
      {{&a, &gone}, {"entry 1 of 2", "moved"}},
      {{&a, &b, &kept, &b}, {"entry 3 of 4", "entry 1", "again"}},
      {{&a, &a}, {"entry 1 of 2", "entry 0", "again"}},
      {{&a, &foreign}, {"entry 1 of 2", "another context"}},
  };
  const int live = f.memory->live;
  const std::size_t asked = f.refusals.asked.size();
  for (const Bad& bad : bads) {
    std::optional<DeviceHandles> out;
    const Error e = error_of([&] { out.emplace(DeviceHandles::create(bad.entries)); });
    EXPECT_EQ(e.code(), EINVAL);
    for (const std::string& text : bad.named)
      EXPECT_TRUE(says(e, text)) << text << ": " << e.what();
    EXPECT_FALSE(out);
  }
  EXPECT_EQ(f.refusals.asked.size(), asked) << "something was made before all was checked";
  EXPECT_EQ(f.memory->live, live);
}

// A library is known that frees the caller's pointer and returns success when the copy fails, and
// another place of it that returns success when memory cannot be had.
TEST(ListStageHandles, ThatCannotBeAllocatedOrCopiedLeaveNothingAndCanBeHadLater) {
  ListFixture f;
  const QueuePair a = QueuePair::create(f.context, {.depth = 4});
  const QueuePair b = QueuePair::create(f.context, {.depth = 4});
  const std::vector<const QueuePair*> both{&a, &b};
  const QueueHandle before[] = {a.handle(), b.handle()};
  const int live = f.memory->live;
  const std::pair<const char*, const char*> steps[] = {{"allocate", "allocating"},
                                                       {"copy_to_device", "copying"}};
  for (const auto& [operation, named] : steps) {
    for (const int code : {ENOMEM, EFAULT}) {
      f.refusals.refuse_all = operation;
      f.refusals.code = code;
      std::optional<DeviceHandles> out;
      const Error e = error_of([&] { out.emplace(DeviceHandles::create(both)); });
      EXPECT_EQ(e.code(), code);
      EXPECT_TRUE(says(e, named)) << e.what();
      EXPECT_TRUE(says(e, std::generic_category().message(code))) << e.what();
      EXPECT_FALSE(out);
      EXPECT_EQ(f.memory->live, live);
      EXPECT_TRUE(same(a.handle(), before[0]));
      EXPECT_TRUE(same(b.handle(), before[1]));
      f.refusals.refuse_all.clear();
      EXPECT_EQ(DeviceHandles::create(both).size(), 2u);
      EXPECT_EQ(f.memory->live, live);
    }
  }
}

// ---- Lists --------------------------------------------------------------------------------------

TEST(ListStageCreate, MakesEachEntryAsItsOptionsSay) {
  for (const NicHandler handler : kHandlers) {
    for (const bool companions : {false, true}) {
      ListFixture f(handler);
      const nic::Commands::Objects before = f.objects();
      std::uint32_t stop = 0;
      {
        const std::vector<QueuePairOptions> entries{{.depth = 4}, {.depth = 64}, {.depth = 1}};
        QpList list = QpList::create(f.context, entries, {.companions = companions, .stop = &stop});
        ASSERT_EQ(list.size(), 3u);
        EXPECT_EQ(list.has_companions(), companions);
        EXPECT_EQ(f.objects().qps, companions ? 6u : 3u);
        EXPECT_EQ(f.objects().uars, 3u);
        ASSERT_EQ(list.handles().size(), companions ? 6u : 3u);
        for (std::size_t i = 0; i < 3; ++i) {
          EXPECT_EQ(list[i].handle().depth, entries[i].depth);
          EXPECT_TRUE(same(list.handles().data()[i], with_stop(list[i].handle(), &stop)));
          if (!companions) continue;
          EXPECT_EQ(list.companion(i).handle().depth, entries[i].depth);
          EXPECT_EQ(list.companion(i).handle().doorbell, list[i].handle().doorbell);
          EXPECT_TRUE(
              same(list.handles().data()[3 + i], with_stop(list.companion(i).handle(), &stop)));
        }
        // A move keeps every handle true.
        const QueueHandle* data = list.handles().data();
        QpList moved = std::move(list);
        EXPECT_EQ(moved.handles().data(), data);
        EXPECT_TRUE(same(data[1], with_stop(moved[1].handle(), &stop)));
        moved = QpList::create(f.context, {entries.data(), 1});
        EXPECT_EQ(f.objects().qps, 1u);
      }
      EXPECT_EQ(f.objects(), before);
      EXPECT_EQ(f.memory->live, 0);
    }
  }
}

// A library is known that resolves the handler twice, cannot be asked for it, and makes companions
// by the one that was requested.
TEST(ListStageCreate, TellsTheHandlerEverywhereAndResolvesItOnce) {
  for (const bool mappable : {true, false}) {
    HostFixture host;
    Refusals refusals;
    if (!mappable) refusals.refuse_all = "map_uar";
    int warnings = 0;
    const Context context = Context::open(host.counted_provider(refusals),
                                          {.warn = [&](const std::string&) { ++warnings; }});
    const HandlerChoice expected =
        mappable
            ? HandlerChoice{NicHandler::kAutomatic, NicHandler::kDirect, HandlerReason::kUarMapped}
            : HandlerChoice{NicHandler::kAutomatic, NicHandler::kProxy,
                            HandlerReason::kUarNotMapped};
    const std::vector<QueuePairOptions> entries(3, {.depth = 4});
    const QpList list = QpList::create(context, entries, {.companions = true});
    EXPECT_TRUE(context.handler() == expected);
    EXPECT_TRUE(list.handler() == expected);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(list[i].handler() == expected);
      EXPECT_TRUE(list.companion(i).handler() == expected);
      EXPECT_TRUE(list.handles().data()[i].handler == expected);
      EXPECT_TRUE(list.handles().data()[3 + i].handler == expected);
      EXPECT_EQ(list.companion(i).handle().proxy == nullptr, mappable);
      EXPECT_EQ(list.companion(i).handle().doorbell, list[i].handle().doorbell);
    }
    // One page of the context's own to try, then one for each entry.
    EXPECT_EQ(refusals.count("devx_alloc_uar"), 4u);
    EXPECT_EQ(refusals.count("map_uar"), mappable ? 4u : 1u);
    EXPECT_EQ(warnings, mappable ? 0 : 1);
  }
}

TEST(ListStageCreate, ChecksEveryEntryBeforeItMakesAny) {
  ListFixture f;
  const std::size_t asked = f.refusals.asked.size();
  Error e = error_of([&] { QpList::create(f.context, {}); });
  EXPECT_EQ(e.code(), EINVAL);
  EXPECT_TRUE(says(e, "at least one")) << e.what();
  for (std::size_t k = 0; k < 4; ++k) {
    const QueuePairOptions bads[] = {{.depth = 0},
                                     {.depth = 48},
                                     {.depth = 65536},
                                     {.depth = 4, .ack_timeout = 32},
                                     {.depth = 4, .retry_count = 8}};
    for (const QueuePairOptions& bad : bads) {
      std::vector<QueuePairOptions> entries(4, {.depth = 4});
      entries[k] = bad;
      e = error_of([&] { QpList::create(f.context, entries); });
      EXPECT_EQ(e.code(), EINVAL);
      EXPECT_TRUE(says(e, "entry " + std::to_string(k) + " of 4")) << e.what();
      EXPECT_TRUE(says(e, bad.depth == 4 ? "retry_count" : "power of two")) << e.what();
    }
  }
  EXPECT_EQ(f.refusals.asked.size(), asked) << "something was made before all was checked";
}

// ---- Rollback -----------------------------------------------------------------------------------

// What an error must say of an operation that was refused.
std::string step_named(const std::string& operation) {
  if (operation == "devx_alloc_uar" || operation == "map_uar") return "UAR";
  if (operation == "devx_umem_reg") return "umem";
  if (operation == "create_cq") return "CREATE_CQ";
  if (operation == "create_qp") return "CREATE_QP";
  if (operation == "allocate") return "allocating";
  if (operation == "copy_to_device") return "copying";
  return "event queue";
}

// Refuses each operation of a list's creation in turn.
void expect_rollback_at_every_operation(NicHandler handler, bool companions) {
  SCOPED_TRACE(std::string(nic_handler_name(handler)) + (companions ? ", companions" : ""));
  constexpr std::size_t kEntries = 3;
  const std::vector<QueuePairOptions> entries(kEntries, {.depth = 4, .first_wqe_index = 9});
  std::uint32_t stop = 0x5a5a5a5a;
  const QpListOptions options{.companions = companions, .stop = &stop};
  ListFixture f(handler);
  const std::size_t opened = f.refusals.asked.size();
  { QpList::create(f.context, entries, options); }
  const std::vector<std::string> plan(f.refusals.asked.begin() + static_cast<long>(opened),
                                      f.refusals.asked.end());
  ASSERT_GE(plan.size(), kEntries * 9 + 2);
  ASSERT_EQ((plan.size() - 2) % kEntries, 0u);
  const std::size_t each = (plan.size() - 2) / kEntries;  // the array's allocation and copy follow
  for (const char* operation : {"devx_alloc_uar", "devx_umem_reg", "create_cq", "create_qp",
                                "allocate", "copy_to_device"}) {
    ASSERT_NE(std::count(plan.begin(), plan.end(), operation), 0) << operation;
  }
  const nic::Commands::Objects before = f.objects();
  for (std::size_t at = 0; at < plan.size(); ++at) {
    SCOPED_TRACE(plan[at] + ", operation " + std::to_string(at));
    f.refusals.code = at % 2 == 0 ? ENOMEM : EIO;
    f.refusals.refuse_at = f.refusals.asked.size() + at;
    std::optional<QpList> out;
    const std::vector<QueuePairOptions> given = entries;
    const std::string bytes_given(reinterpret_cast<const char*>(given.data()),
                                  kEntries * sizeof given[0]);
    const Error e = error_of([&] { out.emplace(QpList::create(f.context, given, options)); });
    EXPECT_EQ(e.code(), f.refusals.code);
    EXPECT_TRUE(says(e, step_named(plan[at]))) << e.what();
    EXPECT_TRUE(says(e, std::generic_category().message(f.refusals.code))) << e.what();
    const std::string entry = "entry " + std::to_string(at / each) + " of 3";
    EXPECT_EQ(says(e, entry), at < each * kEntries) << e.what();
    if (at >= each * kEntries) {
      EXPECT_TRUE(says(e, "device handles")) << e.what();
    }
    // All is as it was, the caller's memory too.
    EXPECT_FALSE(out);
    EXPECT_EQ(std::memcmp(given.data(), bytes_given.data(), bytes_given.size()), 0);
    EXPECT_EQ(stop, 0x5a5a5a5au);
    EXPECT_EQ(f.objects(), before);
    EXPECT_EQ(f.memory->live, 0);
    EXPECT_EQ(f.memory->mapped_uars, 0);
    const std::size_t retried = f.refusals.asked.size();
    EXPECT_NO_THROW(out.emplace(QpList::create(f.context, given, options)));
    EXPECT_EQ(f.refusals.asked.size(), retried + plan.size());
    out.reset();
    EXPECT_EQ(f.objects(), before);
    EXPECT_EQ(f.memory->live, 0);
  }
}

TEST(ListStageRollback, AtEveryEntryAndStepLeavesNothingAndNamesThem) {
  for (const NicHandler handler : kHandlers) {
    for (const bool companions : {false, true}) {
      expect_rollback_at_every_operation(handler, companions);
    }
  }
}

TEST(ListStageRollback, NamesTheCompanionThatFailed) {
  ListFixture f;
  int creates = 0;
  const Context context = Context::open(f.provider([&](std::string_view operation) {
    return operation == "create_qp" && ++creates == 4 ? ENOSPC : 0;
  }));
  const std::vector<QueuePairOptions> entries(3, {.depth = 4});
  const Error e = error_of([&] { QpList::create(context, entries, {.companions = true}); });
  EXPECT_EQ(e.code(), ENOSPC);
  EXPECT_TRUE(says(e, "companion of entry 1 of 3")) << e.what();
}

TEST(ListStageCheck, RefusesCompanionsOfAnEntryWithoutARecordBeforeAnythingIsMade) {
  ListFixture f;
  const std::vector<QueuePairOptions> entries{{.depth = 4}, {.depth = 4, .doorbell_record = false}};
  const std::size_t asked = f.refusals.asked.size();
  const Error e = error_of([&] { QpList::create(f.context, entries, {.companions = true}); });
  EXPECT_EQ(e.code(), EINVAL);
  EXPECT_TRUE(says(e, "entry 1 of 2")) << e.what();
  EXPECT_EQ(f.refusals.asked.size(), asked);
  const QpList list = QpList::create(f.context, entries);
  EXPECT_TRUE(list.handles().data()[0].has_record);
  EXPECT_FALSE(list.handles().data()[1].has_record);
}

// The second CREATE_QP names a protection domain that is none.
struct WrongPd : ForwardingVerbs {
  using ForwardingVerbs::ForwardingVerbs;
  int creates = 0;
  mlx5dv_devx_obj* devx_obj_create(ibv_context* c, const void* in, std::size_t in_bytes, void* out,
                                   std::size_t out_bytes) override {
    namespace devx = mlx5::devx;
    const auto* bytes = static_cast<const std::byte*>(in);
    std::vector<std::byte> changed(bytes, bytes + in_bytes);
    if (devx::get(bytes, devx::header::opcode) ==
            static_cast<std::uint64_t>(devx::CommandOpcode::kCreateQp) &&
        ++creates == 2) {
      devx::set(changed.data(), devx::within(devx::create_qp::qpc, devx::qpc::pd), 0xffffff);
    }
    return ForwardingVerbs::devx_obj_create(c, changed.data(), in_bytes, out, out_bytes);
  }
};

TEST(ListStageRollback, KeepsTheCommandsStatusAndSyndrome) {
  HostFixture host;
  Provider p = host.provider();
  p.verbs = std::make_shared<WrongPd>(p.verbs);
  const Context context = Context::open(p);
  const nic::Commands::Objects before = host.objects();
  const std::vector<QueuePairOptions> entries(3, {.depth = 4});
  const Error e = error_of([&] { QpList::create(context, entries); });
  EXPECT_EQ(e.code(), EREMOTEIO);
  EXPECT_NE(e.command_status(), 0);
  EXPECT_NE(e.command_syndrome(), 0u);
  EXPECT_TRUE(says(e, "entry 1 of 3")) << e.what();
  EXPECT_TRUE(says(e, "CREATE_QP")) << e.what();
  EXPECT_EQ(host.objects(), before);
  EXPECT_EQ(QpList::create(context, entries).size(), 3u);
}

// ---- Connecting and using -----------------------------------------------------------------------

TEST(ListStageConnect, RefusesAnotherNumberOfAddressesBeforeAnything) {
  ListFixture f;
  const std::vector<QueuePairOptions> entries(3, {.depth = 4});
  QpList list = QpList::create(f.context, entries);
  const std::vector<QueuePairAddress> addresses(4, {Qpn(77), Psn(1), 1, 4096});
  const std::size_t asked = f.refusals.asked.size();
  for (const std::size_t n : {std::size_t{0}, std::size_t{2}, std::size_t{4}}) {
    const Error e = error_of([&] { list.connect({addresses.data(), n}); });
    EXPECT_EQ(e.code(), EINVAL);
    EXPECT_TRUE(says(e, "3 queue pairs")) << e.what();
    EXPECT_TRUE(says(e, std::to_string(n) + " addresses")) << e.what();
  }
  EXPECT_EQ(f.refusals.asked.size(), asked);
  EXPECT_NO_THROW(list.connect({addresses.data(), 3}));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(list[i].state(), QueuePairState::kRts);
}

TEST(ListStageConnect, NamesTheEntryThatFailsAndItsStep) {
  for (std::size_t k = 0; k < 3; ++k) {
    ListFixture f;
    const std::vector<QueuePairOptions> entries(3, {.depth = 4});
    QpList list = QpList::create(f.context, entries);
    std::vector<QueuePairAddress> addresses(3, {Qpn(77), Psn(1), 1, 4096});
    addresses[k].qpn = Qpn(0);
    const Error e = error_of([&] { list.connect(addresses); });
    EXPECT_EQ(e.code(), EREMOTEIO);
    EXPECT_NE(e.command_syndrome(), 0u);
    EXPECT_TRUE(says(e, "entry " + std::to_string(k) + " of 3")) << e.what();
    EXPECT_TRUE(says(e, "INIT2RTR")) << e.what();
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(list[i].state() == QueuePairState::kRts, i < k) << i;
    }
  }
}

TEST(ListStageConnect, CarriesPutsThroughTheDeviceArray) {
  for (const NicHandler handler : kHandlers) {
    test::FabricOptions fabric_options;
    fabric_options.qps = 0;
    fabric_options.handler = handler;
    ManualFabric fabric(fabric_options);
    fabric.fill_source(3);
    const std::vector<QueuePairOptions> entries(3, {.depth = 4});
    QpList senders = QpList::create(fabric.sender, entries, {.companions = true});
    QpList receivers = QpList::create(fabric.receiver, entries, {.companions = true});
    std::vector<QueuePairAddress> to_receivers, to_senders;
    for (std::size_t i = 0; i < 3; ++i) {
      to_receivers.push_back(receivers[i].address());
      to_senders.push_back(senders[i].address());
      senders.companion(i).connect(receivers.companion(i).address());
      receivers.companion(i).connect(senders.companion(i).address());
    }
    senders.connect(to_receivers);
    receivers.connect(to_senders);
    for (std::size_t i = 0; i < senders.handles().size(); ++i) {
      SendQueue<ManualMemory, Sharing::kExclusive> queue(senders.handles().data()[i]);
      for (std::uint64_t k = 0; k < 9; ++k) {
        const std::uint64_t offset = (i * 9 + k) * 100;
        Posted posted;
        ASSERT_EQ(put(queue, fabric.put(offset, offset, 100), &posted), Status::kOk);
        ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
      }
    }
    EXPECT_TRUE(std::equal(fabric.source.begin(), fabric.source.begin() + 6 * 900,
                           fabric.destination.begin()));
  }
}

TEST(ListStageConnect, CarriesTheStopWordToEveryHandle) {
  ManualFabric fabric;
  std::uint32_t stop = 0;
  const std::vector<QueuePairOptions> entries(2, {.depth = 4});
  const QpList list = QpList::create(fabric.sender, entries, {.companions = true, .stop = &stop});
  for (std::size_t i = 0; i < list.handles().size(); ++i) {
    SendQueue<ManualMemory, Sharing::kDevice> queue(list.handles().data()[i]);
    stop = 0;
    EXPECT_FALSE(queue.completions().stopped());
    stop = 1;
    EXPECT_EQ(wait(queue, 0), Status::kStopped);
  }
}

}  // namespace
}  // namespace peal
