#include "peal/host/context.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "host/devx.hpp"
#include "host/host_fixture.hpp"

namespace peal {
namespace {

using test::error_of;
using test::ForwardingVerbs;
using test::HostFixture;
using test::says;

TEST(Context, OpensTheFirstDeviceOrTheOneNamed) {
  HostFixture host;
  std::string name;
  {
    const Context context = Context::open(host.provider());
    name = context.device_name();
    EXPECT_FALSE(name.empty());
    EXPECT_NE(context.lid(), 0);
    EXPECT_EQ(context.mtu_bytes(), 4096u);
    EXPECT_EQ(context.max_sq_depth(), 32768u);
    EXPECT_EQ(host.objects().pds, 1u);
  }
  const Context context = Context::open(host.provider(), {.device = name});
  EXPECT_EQ(context.device_name(), name);
}

TEST(Context, NamesTheDevicesThereAreWhenTheOneWantedIsNone) {
  HostFixture host;
  const std::string there = Context::open(host.provider()).device_name();
  for (const std::string& wanted : {std::string("mlx5_77"), there + "0", there.substr(0, 4)}) {
    const Error e = error_of([&] { Context::open(host.provider(), {.device = wanted}); });
    EXPECT_EQ(e.code(), ENODEV);
    EXPECT_TRUE(says(e, wanted)) << e.what();
    EXPECT_TRUE(says(e, there)) << e.what();
  }
  EXPECT_EQ(host.objects(), nic::Commands::Objects{});
}

TEST(Context, SaysThatThereIsNoDevice) {
  struct Empty : ForwardingVerbs {
    using ForwardingVerbs::ForwardingVerbs;
    ibv_device** get_device_list(int* count) override {
      *count = 0;
      return new ibv_device* [1] { nullptr };
    }
  };
  HostFixture host;
  Provider p = host.provider();
  p.verbs = std::make_shared<Empty>(p.verbs);
  const Error e = error_of([&] { Context::open(p); });
  EXPECT_EQ(e.code(), ENODEV);
  EXPECT_TRUE(says(e, "no RDMA device")) << e.what();
}

TEST(Context, RefusesAPortThatIsNotThereOrNotActive) {
  struct Down : ForwardingVerbs {
    using ForwardingVerbs::ForwardingVerbs;
    int query_port(ibv_context* c, std::uint8_t port, ibv_port_attr* a) override {
      const int error = ForwardingVerbs::query_port(c, port, a);
      a->state = IBV_PORT_DOWN;
      return error;
    }
  };
  HostFixture host;
  Error e = error_of([&] { Context::open(host.provider(), {.device = "", .port = 2}); });
  EXPECT_EQ(e.code(), EINVAL);
  EXPECT_TRUE(says(e, "port 2")) << e.what();
  Provider p = host.provider();
  p.verbs = std::make_shared<Down>(p.verbs);
  e = error_of([&] { Context::open(p); });
  EXPECT_EQ(e.code(), ENETDOWN);
  EXPECT_TRUE(says(e, "not active")) << e.what();
  EXPECT_EQ(host.objects(), nic::Commands::Objects{});
}

TEST(Context, TakesTheDevicesLimitsFromTheDevice) {
  struct Small : ForwardingVerbs {
    using ForwardingVerbs::ForwardingVerbs;
    bool rc = true;
    int devx_general_cmd(ibv_context* c, const void* in, std::size_t in_bytes, void* out,
                         std::size_t out_bytes) override {
      namespace devx = mlx5::devx;
      const int error = ForwardingVerbs::devx_general_cmd(c, in, in_bytes, out, out_bytes);
      std::byte* caps = devx::at(static_cast<std::byte*>(out), devx::query_hca_cap::capability);
      devx::set(caps, devx::hca_cap::log_max_qp_sz, 6);
      devx::set(caps, devx::hca_cap::rc, rc ? 1 : 0);
      return error;
    }
  };
  HostFixture host;
  Provider p = host.provider();
  const auto small = std::make_shared<Small>(p.verbs);
  p.verbs = small;
  {
    const Context context = Context::open(p);
    EXPECT_EQ(context.max_sq_depth(), 64u);
    EXPECT_NO_THROW(QueuePair::create(context, {.depth = 64}));
    const Error e = error_of([&] { QueuePair::create(context, {.depth = 128}); });
    EXPECT_TRUE(says(e, "64")) << e.what();
  }
  small->rc = false;
  const Error e = error_of([&] { Context::open(p); });
  EXPECT_EQ(e.code(), ENOTSUP);
  EXPECT_EQ(host.objects(), nic::Commands::Objects{});
}

TEST(Context, LivesUntilItsLastCopyAndItsLastChildAreGone) {
  HostFixture host;
  std::vector<std::byte> memory(4096);
  {
    auto context = std::make_unique<Context>(Context::open(host.provider()));
    MemoryRegion region =
        MemoryRegion::create(*context, memory.data(), memory.size(), Access::kRemoteWrite);
    QueuePair qp = QueuePair::create(*context, {.depth = 4});
    const Context copy = *context;
    context.reset();
    EXPECT_EQ(host.objects().pds, 1u);
    EXPECT_EQ(qp.state(), QueuePairState::kReset);
    EXPECT_NO_THROW(QueuePair::create(copy, {.depth = 4}));
  }
  EXPECT_EQ(host.objects(), nic::Commands::Objects{});
}

TEST(Context, KeepsItsProviderAlive) {
  HostFixture host;
  Provider p = host.provider();
  const std::weak_ptr<verbs::Verbs> verbs = p.verbs;
  {
    const Context context = Context::open(std::move(p));
    p = {};
    EXPECT_FALSE(verbs.expired());
    EXPECT_NO_THROW(QueuePair::create(context, {.depth = 1}));
  }
  EXPECT_TRUE(verbs.expired());
}

}  // namespace
}  // namespace peal
