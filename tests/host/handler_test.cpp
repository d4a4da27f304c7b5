// Who rings a context's queues: decided once, known everywhere.
#include <gtest/gtest.h>

#include <cerrno>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "host/host_fixture.hpp"
#include "peal/device/nic_handler.hpp"
#include "support/manual_fabric.hpp"

namespace peal {
namespace {

using test::error_of;
using test::HostFixture;
using test::ManualFabric;
using test::Refusals;
using test::says;

constexpr NicHandler kAll[] = {NicHandler::kAutomatic, NicHandler::kDirect, NicHandler::kProxy};

struct Opened {
  explicit Opened(NicHandler requested, bool mappable) {
    if (!mappable) refusals.refuse_all = "map_uar";
    context.emplace(Context::open(
        host.counted_provider(refusals),
        {.handler = requested, .warn = [this](const std::string& w) { warnings.push_back(w); }}));
  }
  HostFixture host;
  Refusals refusals;
  std::vector<std::string> warnings;
  std::optional<Context> context;
};

TEST(HandlerStageResolve, HasANameForEveryValue) {
  EXPECT_STREQ(nic_handler_name(NicHandler::kAutomatic), "automatic");
  EXPECT_STREQ(nic_handler_name(NicHandler::kDirect), "direct");
  EXPECT_STREQ(nic_handler_name(NicHandler::kProxy), "proxy");
  EXPECT_STREQ(handler_reason_text(HandlerReason::kRequested), "requested");
  EXPECT_STREQ(handler_reason_text(HandlerReason::kUarMapped), "the UAR page can be mapped");
  EXPECT_STREQ(handler_reason_text(HandlerReason::kUarNotMapped), "the UAR page cannot be mapped");
}

struct ResolveCase {
  NicHandler requested;
  bool mappable;
  HandlerChoice choice;
  std::size_t probes;  // mappings that open() tries
  std::size_t warnings;
};
const ResolveCase kResolveCases[] = {
    {NicHandler::kAutomatic,
     true,
     {NicHandler::kAutomatic, NicHandler::kDirect, HandlerReason::kUarMapped},
     1,
     0},
    {NicHandler::kAutomatic,
     false,
     {NicHandler::kAutomatic, NicHandler::kProxy, HandlerReason::kUarNotMapped},
     1,
     1},
    {NicHandler::kDirect,
     true,
     {NicHandler::kDirect, NicHandler::kDirect, HandlerReason::kRequested},
     1,
     0},
    {NicHandler::kProxy,
     true,
     {NicHandler::kProxy, NicHandler::kProxy, HandlerReason::kRequested},
     0,
     0},
    {NicHandler::kProxy,
     false,
     {NicHandler::kProxy, NicHandler::kProxy, HandlerReason::kRequested},
     0,
     0},
};

TEST(HandlerStageResolve, DecidesOncePerContextAndTellsEverywhere) {
  for (const ResolveCase& c : kResolveCases) {
    SCOPED_TRACE(std::string(nic_handler_name(c.requested)) + (c.mappable ? "" : ", refused"));
    Opened o(c.requested, c.mappable);
    EXPECT_TRUE(o.context->handler() == c.choice);
    EXPECT_EQ(o.refusals.count("devx_alloc_uar"), 1u);
    EXPECT_EQ(o.refusals.count("map_uar"), c.probes);
    EXPECT_EQ(o.host.objects().uars, 0u) << "the probe stayed";
    EXPECT_EQ(o.host.memory->mapped_uars, 0);
    EXPECT_EQ(o.warnings.size(), c.warnings);

    const bool direct = c.choice.resolved == NicHandler::kDirect;
    std::vector<QueuePair> qps;
    for (std::size_t i = 1; i <= 3; ++i) {
      qps.push_back(QueuePair::create(*o.context, {.depth = 4}));
      const QueueHandle handle = qps.back().handle();
      EXPECT_TRUE(qps.back().handler() == c.choice);
      EXPECT_TRUE(handle.handler == c.choice);
      EXPECT_EQ(handle.proxy == nullptr, direct);
      EXPECT_EQ(handle.doorbell != nullptr, direct);
      // Each queue maps its own page, or none; nobody asks again whether it could.
      EXPECT_EQ(o.refusals.count("devx_alloc_uar"), 1 + i);
      EXPECT_EQ(o.refusals.count("map_uar"), c.probes + (direct ? i : 0));
    }
    EXPECT_EQ(o.warnings.size(), c.warnings);
    qps.clear();
    EXPECT_EQ(o.host.memory->mapped_uars, 0);
    EXPECT_EQ(o.host.memory->live, 0);
    o.context.reset();
    EXPECT_EQ(o.host.objects(), nic::Commands::Objects{});
  }
}

TEST(HandlerStageResolve, WarnsOfTheFallbackWithDeviceAndCause) {
  Opened o(NicHandler::kAutomatic, false);
  ASSERT_EQ(o.warnings.size(), 1u);
  for (const std::string& text : {o.context->device_name(), std::string("UAR"),
                                  std::generic_category().message(EPERM), std::string("proxy")}) {
    EXPECT_NE(o.warnings[0].find(text), std::string::npos) << o.warnings[0];
  }
}

TEST(HandlerStageResolve, IsSilentWithoutACallback) {
  HostFixture host;
  Refusals refusals;
  refusals.refuse_all = "map_uar";
  const Context context = Context::open(host.counted_provider(refusals));
  EXPECT_EQ(context.handler().resolved, NicHandler::kProxy);
}

TEST(HandlerStageResolve, FailsWhenDirectIsRequestedAndCannotBeHad) {
  for (const int code : {EPERM, ENOMEM, EOPNOTSUPP}) {
    HostFixture host;
    Refusals refusals;
    refusals.refuse_all = "map_uar";
    refusals.code = code;
    int warnings = 0;
    const Error e = error_of([&] {
      Context::open(
          host.counted_provider(refusals),
          {.handler = NicHandler::kDirect, .warn = [&](const std::string&) { ++warnings; }});
    });
    EXPECT_EQ(e.code(), code);
    EXPECT_TRUE(says(e, "direct")) << e.what();
    EXPECT_TRUE(says(e, "UAR")) << e.what();
    EXPECT_TRUE(says(e, std::generic_category().message(code))) << e.what();
    EXPECT_EQ(warnings, 0);
    EXPECT_EQ(host.objects(), nic::Commands::Objects{});
  }
}

// A library is known that logs this, returns success and then calls a method of the null page.
TEST(HandlerStageResolve, FailsInEveryModeWhenThereIsNoUarPage) {
  for (const NicHandler requested : kAll) {
    SCOPED_TRACE(nic_handler_name(requested));
    HostFixture host;
    Refusals refusals;
    refusals.code = ENOSPC;
    refusals.refuse_all = "devx_alloc_uar";
    int warnings = 0;
    const ContextOptions options{.handler = requested,
                                 .warn = [&](const std::string&) { ++warnings; }};
    Error e = error_of([&] { Context::open(host.counted_provider(refusals), options); });
    EXPECT_EQ(e.code(), ENOSPC);
    EXPECT_TRUE(says(e, "UAR")) << e.what();
    EXPECT_EQ(host.objects(), nic::Commands::Objects{});

    refusals.refuse_all.clear();
    const Context context = Context::open(host.counted_provider(refusals), options);
    const nic::Commands::Objects before = host.objects();
    refusals.refuse_all = "devx_alloc_uar";
    e = error_of([&] { QueuePair::create(context, {.depth = 4}); });
    EXPECT_EQ(e.code(), ENOSPC);
    EXPECT_TRUE(says(e, "UAR")) << e.what();
    EXPECT_EQ(host.objects(), before);
    EXPECT_EQ(host.memory->live, 0);
    EXPECT_EQ(warnings, 0);
  }
}

TEST(HandlerStageResolve, IsNotTakenUpAgainWhenALaterMappingFails) {
  for (const NicHandler requested : {NicHandler::kAutomatic, NicHandler::kDirect}) {
    Opened o(requested, true);
    const HandlerChoice choice = o.context->handler();
    const nic::Commands::Objects before = o.host.objects();
    o.refusals.refuse_all = "map_uar";
    const Error e = error_of([&] { QueuePair::create(*o.context, {.depth = 4}); });
    EXPECT_EQ(e.code(), EPERM);
    EXPECT_TRUE(says(e, "UAR")) << e.what();
    EXPECT_TRUE(o.warnings.empty());
    EXPECT_TRUE(o.context->handler() == choice);
    EXPECT_EQ(o.host.objects(), before);
    EXPECT_EQ(o.host.memory->live, 0);
    o.refusals.refuse_all.clear();
    EXPECT_NE(QueuePair::create(*o.context, {.depth = 4}).handle().doorbell, nullptr);
  }
}

// The non-cached type may be refused while there is room for the other.
TEST(HandlerStageResolve, TakesAUarPageOfTheOtherTypeWhereOneIsRefused) {
  Opened o(NicHandler::kDirect, true);
  o.refusals.one_uar_type = true;
  const auto& asked = o.refusals.asked;
  const auto first = static_cast<std::ptrdiff_t>(asked.size());
  QueuePair::create(*o.context, {.depth = 4});
  const auto place = std::find(asked.begin() + first, asked.end(), "devx_alloc_uar");
  ASSERT_NE(place, asked.end());
  o.refusals.refuse_at = asked.size() + static_cast<std::size_t>(place - asked.begin() - first);
  EXPECT_NE(QueuePair::create(*o.context, {.depth = 4}).handle().doorbell, nullptr);
  EXPECT_EQ(o.refusals.asked[o.refusals.refuse_at], "devx_alloc_uar");
  EXPECT_EQ(o.refusals.asked[o.refusals.refuse_at + 1], "devx_alloc_uar");
}

// Every operation of a queue's creation in turn, so also the proxy's word.
TEST(HandlerStageResolve, LeavesNothingOfAQueueThatCouldNotBeMade) {
  for (const NicHandler requested : {NicHandler::kDirect, NicHandler::kProxy}) {
    for (std::size_t at = 0;; ++at) {
      SCOPED_TRACE(std::string(nic_handler_name(requested)) + ", operation " + std::to_string(at));
      Opened o(requested, true);
      const nic::Commands::Objects before = o.host.objects();
      const std::size_t first = o.refusals.asked.size();
      o.refusals.refuse_at = first + at;
      std::optional<QueuePair> qp;
      try {
        qp.emplace(QueuePair::create(*o.context, {.depth = 4}));
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), EPERM);
        EXPECT_EQ(o.host.objects(), before);
        EXPECT_EQ(o.host.memory->live, 0);
        EXPECT_EQ(o.host.memory->mapped_uars, 0);
        EXPECT_NO_THROW(QueuePair::create(*o.context, {.depth = 4}));
        continue;
      }
      EXPECT_GT(at, 10u);  // counters, marks, UAR, three rings twice, CQ, QP at least
      break;
    }
  }
}

// ---- Companions ---------------------------------------------------------------------------------

// The peer of a companion, and one PUT through it.
struct Companion {
  Companion(ManualFabric& f, const QueuePair& main)
      : fabric(f),
        qp(QueuePair::create_companion(
            main, {.depth = 4, .first_wqe_index = f.sender_nic.core().options().first_wqe_index})),
        peer(QueuePair::create(f.receiver, {.depth = 1})) {
    qp.connect(peer.address());
    peer.connect(qp.address());
  }
  ManualFabric& fabric;
  QueuePair qp;
  QueuePair peer;
};

void put_and_check(ManualFabric& fabric, const QueuePair& qp, std::uint64_t offset) {
  SendQueue<test::ManualMemory, Sharing::kExclusive> queue(qp.handle());
  fabric.fill_source(offset + 1);
  Posted posted;
  ASSERT_EQ(put(queue, fabric.put(offset, offset, 100), &posted), Status::kOk);
  ASSERT_EQ(wait(queue, posted.ticket), Status::kOk);
  ASSERT_TRUE(std::equal(&fabric.source[offset], &fabric.source[offset] + 100,
                         &fabric.destination[offset]));
}

TEST(HandlerStageCompanion, SharesThePageAndOutlivesItsMainOrNot) {
  for (const NicHandler handler : {NicHandler::kDirect, NicHandler::kProxy}) {
    for (const bool main_first : {true, false}) {
      SCOPED_TRACE(std::string(nic_handler_name(handler)) + (main_first ? ", main first" : ""));
      test::FabricOptions options;
      options.handler = handler;
      ManualFabric fabric(options);
      const std::uint32_t uars = fabric.sender_nic.core().commands().objects().uars;
      std::optional<Companion> companion(std::in_place, fabric, fabric.sender_qps[0]);
      EXPECT_EQ(fabric.sender_nic.core().commands().objects().uars, uars);
      EXPECT_EQ(companion->qp.handle().doorbell, fabric.sender_qps[0].handle().doorbell);
      for (std::uint64_t i = 0; i < 10; ++i) {
        put_and_check(fabric, fabric.sender_qps[0], i * 200);
        put_and_check(fabric, companion->qp, i * 200 + 100);
      }
      if (main_first) {
        fabric.sender_qps.clear();
        for (std::uint64_t i = 0; i < 10; ++i) put_and_check(fabric, companion->qp, i * 100);
        companion.reset();
      } else {
        companion.reset();
        for (std::uint64_t i = 0; i < 10; ++i) {
          put_and_check(fabric, fabric.sender_qps[0], i * 100);
        }
        fabric.sender_qps.clear();
      }
      const auto objects = fabric.sender_nic.core().commands().objects();
      EXPECT_EQ(objects.uars + objects.qps + objects.cqs + objects.umems, 0u);
    }
  }
}

// A library is known that makes companions by what was requested, and resolves that anew.
TEST(HandlerStageCompanion, IsRungByTheResolvedHandler) {
  for (const ResolveCase& c : kResolveCases) {
    SCOPED_TRACE(std::string(nic_handler_name(c.requested)) + (c.mappable ? "" : ", refused"));
    Opened o(c.requested, c.mappable);
    const QueuePair main = QueuePair::create(*o.context, {.depth = 4});
    const std::size_t maps = o.refusals.count("map_uar");
    // What the machine would say by now is not asked.
    o.refusals.refuse_all = c.mappable ? "map_uar" : "";
    const QueuePair companion = QueuePair::create_companion(main, {.depth = 8});
    EXPECT_TRUE(companion.handler() == c.choice);
    EXPECT_TRUE(companion.handle().handler == c.choice);
    EXPECT_EQ(companion.handle().proxy == nullptr, c.choice.resolved == NicHandler::kDirect);
    EXPECT_EQ(companion.handle().doorbell, main.handle().doorbell);
    EXPECT_NE(companion.handle().state, main.handle().state);
    EXPECT_EQ(o.refusals.count("map_uar"), maps);
    EXPECT_EQ(o.warnings.size(), c.warnings);
    EXPECT_EQ(o.host.objects().uars, 1u);
  }
}

TEST(HandlerStageCompanion, OfAMovedFromQueuePairIsRefused) {
  Opened o(NicHandler::kAutomatic, true);
  QueuePair main = QueuePair::create(*o.context, {.depth = 4});
  EXPECT_TRUE(main.valid());
  const QueuePair elsewhere = std::move(main);
  EXPECT_FALSE(main.valid());
  const Error e = error_of([&] { QueuePair::create_companion(main); });
  EXPECT_EQ(e.code(), EINVAL);
  EXPECT_TRUE(says(e, "moved")) << e.what();
}

}  // namespace
}  // namespace peal
