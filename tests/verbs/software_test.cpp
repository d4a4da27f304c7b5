#include "verbs/software.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "engine/manual.hpp"
#include "host/devx.hpp"
#include "link/loopback.hpp"
#include "peal/host/error.hpp"
#include "peal/mlx5/doorbell.hpp"
#include "verbs/software_nic.hpp"

namespace peal::verbs {
namespace {

namespace devx = mlx5::devx;

struct Software {
  explicit Software(RefuseHook refuse = {})
      : provider(nic.provider(engine, std::move(refuse))), verbs(*provider.verbs) {}
  // Opens and allocates behind the hook's back would be no test: these go through it.
  ibv_context* open() {
    ibv_device** list = verbs.get_device_list(nullptr);
    ibv_context* context = list == nullptr ? nullptr : verbs.open_device(list[0]);
    if (list != nullptr) verbs.free_device_list(list);
    return context;
  }
  link::Loopback loopback;
  engine::ManualEngine engine;
  SoftwareNic nic{{.nic_number = 1}, loopback.a()};
  Provider provider;
  Verbs& verbs;
};

TEST(SoftwareVerbs, ListsOneDeviceWithAnMlx5Name) {
  Software s;
  int count = 7;
  ibv_device** list = s.verbs.get_device_list(&count);
  ASSERT_NE(list, nullptr);
  EXPECT_EQ(count, 1);
  ASSERT_NE(list[0], nullptr);
  EXPECT_EQ(list[1], nullptr);
  EXPECT_EQ(std::string(s.verbs.get_device_name(list[0])).rfind("mlx5", 0), 0u);
  s.verbs.free_device_list(list);
}

TEST(SoftwareVerbs, HasOnePortWhichIsActive) {
  Software s;
  ibv_context* context = s.open();
  ibv_port_attr port{};
  EXPECT_EQ(s.verbs.query_port(context, 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_NE(port.lid, 0);
  EXPECT_EQ(port.active_mtu, IBV_MTU_4096);
  EXPECT_EQ(s.verbs.query_port(context, 0, &port), EINVAL);
  EXPECT_EQ(s.verbs.query_port(context, 2, &port), EINVAL);
  EXPECT_EQ(s.verbs.close_device(context), 0);
}

// An engine that no longer answers.
struct DeafEngine final : engine::Engine {
  void call(const std::function<void()>& f) override {
    if (deaf) throw Error(ETIMEDOUT, "no answer");
    f();
  }
  bool deaf = false;
};

// Destructors call these.
TEST(SoftwareVerbs, TakesNothingApartThatItsEngineDoesNotAnswerFor) {
  link::Loopback loopback;
  DeafEngine engine;
  SoftwareNic nic({.nic_number = 1}, loopback.a());
  const Provider provider = nic.provider(engine);
  Verbs& verbs = *provider.verbs;
  ibv_device** list = verbs.get_device_list(nullptr);
  ibv_context* context = verbs.open_device(list[0]);
  verbs.free_device_list(list);
  ibv_pd* pd = verbs.alloc_pd(context);
  alignas(4096) static std::byte memory[4096];
  ibv_mr* mr = verbs.reg_mr_iova(pd, memory, sizeof memory, 0, IBV_ACCESS_LOCAL_WRITE);
  mlx5dv_devx_umem* umem = verbs.devx_umem_reg(context, memory, sizeof memory, 0);
  mlx5dv_devx_uar* uar = verbs.devx_alloc_uar(context, 0);
  ASSERT_TRUE(mr != nullptr && umem != nullptr && uar != nullptr);
  const nic::Commands::Objects all = nic.core().commands().objects();
  engine.deaf = true;
  EXPECT_EQ(verbs.dereg_mr(mr), ETIMEDOUT);
  EXPECT_EQ(verbs.devx_umem_dereg(umem), ETIMEDOUT);
  verbs.devx_free_uar(uar);
  EXPECT_EQ(verbs.dealloc_pd(pd), ETIMEDOUT);
  EXPECT_EQ(nic.core().commands().objects(), all);
  EXPECT_THROW(verbs.devx_alloc_uar(context, 0), Error);  // and gives its page back
  engine.deaf = false;
  EXPECT_EQ(verbs.dereg_mr(mr), 0);
  EXPECT_EQ(verbs.devx_umem_dereg(umem), 0);
  verbs.devx_free_uar(uar);
  EXPECT_EQ(verbs.dealloc_pd(pd), 0);
  EXPECT_EQ(verbs.close_device(context), 0);
  EXPECT_EQ(nic.core().commands().objects(), nic::Commands::Objects{});
}

TEST(SoftwareVerbs, RefusesToFreeAPdThatHoldsARegion) {
  Software s;
  ibv_context* context = s.open();
  ibv_pd* pd = s.verbs.alloc_pd(context);
  ASSERT_NE(pd, nullptr);
  EXPECT_EQ(pd->context, context);
  std::byte memory[64];
  ibv_mr* mr = s.verbs.reg_mr_iova(pd, memory, sizeof memory, 0x5000, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->addr, memory);
  EXPECT_EQ(mr->length, sizeof memory);
  EXPECT_NE(mr->lkey, 0u);
  EXPECT_EQ(s.nic.core().tables().find_key(mr->lkey)->start, 0x5000u);
  EXPECT_EQ(s.verbs.dealloc_pd(pd), EBUSY);
  EXPECT_EQ(s.verbs.dereg_mr(mr), 0);
  EXPECT_EQ(s.verbs.dealloc_pd(pd), 0);
  s.verbs.close_device(context);
}

TEST(SoftwareVerbs, RefusesARegionOfNothing) {
  Software s;
  ibv_context* context = s.open();
  ibv_pd* pd = s.verbs.alloc_pd(context);
  std::byte memory[64];
  errno = 0;
  EXPECT_EQ(s.verbs.reg_mr_iova(pd, nullptr, 64, 0, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  errno = 0;
  EXPECT_EQ(s.verbs.reg_mr_iova(pd, memory, 0, 0, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  errno = 0;
  EXPECT_EQ(s.verbs.reg_mr_iova(pd, memory, 64, ~std::uint64_t{0} - 3, 0), nullptr);
  EXPECT_NE(errno, 0);
  errno = 0;
  EXPECT_EQ(s.verbs.devx_umem_reg(context, nullptr, 64, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  s.verbs.dealloc_pd(pd);
  s.verbs.close_device(context);
}

TEST(SoftwareVerbs, MapsEachAccessFlag) {
  Software s;
  ibv_context* context = s.open();
  ibv_pd* pd = s.verbs.alloc_pd(context);
  std::byte memory[64];
  const std::pair<int, std::uint32_t> flags[] = {
      {0, 0},
      {IBV_ACCESS_LOCAL_WRITE, nic::kLocalWrite},
      {IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, nic::kLocalWrite | nic::kRemoteWrite},
      {IBV_ACCESS_REMOTE_READ, nic::kRemoteRead},
      {IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC, nic::kLocalWrite | nic::kRemoteAtomic}};
  for (const auto& [ibv, ours] : flags) {
    ibv_mr* mr = s.verbs.reg_mr_iova(pd, memory, sizeof memory, 0, ibv);
    EXPECT_EQ(s.nic.core().tables().find_key(mr->lkey)->access, ours);
    s.verbs.dereg_mr(mr);
  }
  // Whoever lets the peer write may write.
  for (const int remote : {IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC}) {
    EXPECT_EQ(s.verbs.reg_mr_iova(pd, memory, sizeof memory, 0, remote), nullptr);
    EXPECT_EQ(errno, EINVAL);
  }
  s.verbs.dealloc_pd(pd);
  s.verbs.close_device(context);
}

TEST(SoftwareVerbs, GivesEachUarAPageOfItsOwnThatIsZero) {
  Software s;
  ibv_context* context = s.open();
  mlx5dv_devx_uar* a = s.verbs.devx_alloc_uar(context, 1);
  mlx5dv_devx_uar* b = s.verbs.devx_alloc_uar(context, 1);
  ASSERT_TRUE(a != nullptr && b != nullptr);
  EXPECT_NE(a->base_addr, b->base_addr);
  EXPECT_NE(a->page_id, b->page_id);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a->base_addr) % mlx5::kUarPageBytes, 0u);
  EXPECT_EQ(static_cast<std::byte*>(a->reg_addr) - static_cast<std::byte*>(a->base_addr),
            mlx5::kUarDoorbellOffset);
  EXPECT_EQ(*static_cast<std::uint64_t*>(a->reg_addr), 0u);
  s.verbs.devx_free_uar(a);
  s.verbs.devx_free_uar(b);
  EXPECT_EQ(s.nic.core().commands().objects().uars, 0u);
  s.verbs.close_device(context);
}

TEST(SoftwareVerbs, AnswersARefusedCommandWithStatusAndSyndrome) {
  Software s;
  ibv_context* context = s.open();
  host::Command<272, 272> query(devx::CommandOpcode::kQueryQp);
  query.set(devx::query_qp::qpn, 0x42);
  errno = 0;
  EXPECT_EQ(s.verbs.devx_general_cmd(context, query.in.data(), query.in.size(), query.out.data(),
                                     query.out.size()),
            EREMOTEIO);
  EXPECT_EQ(errno, EREMOTEIO);
  EXPECT_NE(query.get(devx::header::status), 0u);
  EXPECT_NE(query.get(devx::header::syndrome), 0u);

  host::Command<272, 16> create(devx::CommandOpcode::kCreateQp);
  errno = 0;
  EXPECT_EQ(s.verbs.devx_obj_create(context, create.in.data(), create.in.size(), create.out.data(),
                                    create.out.size()),
            nullptr);
  EXPECT_EQ(errno, EREMOTEIO);
  EXPECT_NE(create.get(devx::header::status), 0u);
  s.verbs.close_device(context);
}

TEST(SoftwareVerbs, RefusesBuffersTooShortForAnyAnswer) {
  Software s;
  ibv_context* context = s.open();
  const host::Command<272, 16> query(devx::CommandOpcode::kQueryHcaCap);
  for (std::size_t bytes = 0; bytes < 8; ++bytes) {
    std::vector<std::byte> out(bytes);
    EXPECT_NE(
        s.verbs.devx_general_cmd(context, query.in.data(), query.in.size(), out.data(), out.size()),
        0);
  }
  std::byte out[16];
  for (std::size_t bytes = 0; bytes < 8; ++bytes) {
    const std::vector<std::byte> in(bytes);
    errno = 0;
    EXPECT_EQ(s.verbs.devx_obj_create(context, in.data(), in.size(), out, sizeof out), nullptr);
    EXPECT_EQ(errno, EINVAL);
  }
  s.verbs.close_device(context);
}

TEST(SoftwareVerbs, MakesNoObjectOfACommandThatCreatesNone) {
  Software s;
  ibv_context* context = s.open();
  host::Command<272, 272> query(devx::CommandOpcode::kQueryQp);
  errno = 0;
  EXPECT_EQ(s.verbs.devx_obj_create(context, query.in.data(), query.in.size(), query.out.data(),
                                    query.out.size()),
            nullptr);
  EXPECT_EQ(errno, EINVAL);
  s.verbs.close_device(context);
}

TEST(SoftwareVerbs, FailsAnOperationThatTheHookRefusesWithItsErrno) {
  std::string refused;
  Software s([&](std::string_view operation) { return operation == refused ? ENOSPC : 0; });
  ibv_context* context = s.open();
  ibv_pd* pd = s.verbs.alloc_pd(context);
  std::byte memory[64];
  std::byte buffer[272] = {};
  const auto expect_null = [&](const char* operation, auto call) {
    refused = operation;
    errno = 0;
    EXPECT_EQ(call(), nullptr) << operation;
    EXPECT_EQ(errno, ENOSPC) << operation;
  };
  const auto create = [&](devx::CommandOpcode opcode) {
    host::Command<272, 16> c(opcode);
    return s.verbs.devx_obj_create(context, c.in.data(), c.in.size(), c.out.data(), c.out.size());
  };
  expect_null("get_device_list", [&] { return s.verbs.get_device_list(nullptr); });
  expect_null("open_device", [&] { return s.open(); });
  expect_null("alloc_pd", [&] { return s.verbs.alloc_pd(context); });
  expect_null("reg_mr", [&] { return s.verbs.reg_mr_iova(pd, memory, 64, 0, 0); });
  expect_null("devx_umem_reg", [&] { return s.verbs.devx_umem_reg(context, memory, 64, 0); });
  expect_null("devx_alloc_uar", [&] { return s.verbs.devx_alloc_uar(context, 0); });
  expect_null("create_cq", [&] { return create(devx::CommandOpcode::kCreateCq); });
  expect_null("create_qp", [&] { return create(devx::CommandOpcode::kCreateQp); });
  refused = "devx_general_cmd";
  EXPECT_EQ(s.verbs.devx_general_cmd(context, buffer, 16, buffer, sizeof buffer), ENOSPC);
  refused = "devx_obj_query";
  EXPECT_EQ(s.verbs.devx_obj_query(nullptr, buffer, 16, buffer, sizeof buffer), ENOSPC);
  refused = "devx_obj_modify";
  EXPECT_EQ(s.verbs.devx_obj_modify(nullptr, buffer, 16, buffer, sizeof buffer), ENOSPC);
  refused.clear();
  s.verbs.dealloc_pd(pd);
  s.verbs.close_device(context);
  EXPECT_EQ(s.nic.core().commands().objects(), nic::Commands::Objects{});
}

TEST(HostMemory, IsZeroAndStartsAtAPage) {
  HostMemory memory;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{100'000}}) {
    auto* p = static_cast<unsigned char*>(memory.allocate(bytes));
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % 4096, 0u);
    for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(p[i], 0);
    memory.release(p, bytes);
  }
  errno = 0;
  EXPECT_EQ(memory.allocate(~std::size_t{0} >> 1), nullptr);
  EXPECT_NE(errno, 0);
}

TEST(HostMemory, CopiesAndMapsUnlessTheHookRefuses) {
  std::string refused;
  HostMemory memory([&](std::string_view operation) { return operation == refused ? ENOSPC : 0; });
  const char from[] = "from here";
  auto* to = static_cast<char*>(memory.allocate(sizeof from));
  ASSERT_NE(to, nullptr);
  std::uint64_t uar_register = 0;
  EXPECT_EQ(memory.copy_to_device(to, from, sizeof from), 0);
  EXPECT_STREQ(to, from);
  EXPECT_EQ(memory.map_uar(&uar_register), &uar_register);

  refused = "copy_to_device";
  EXPECT_EQ(memory.copy_to_device(to, "other one", sizeof from), ENOSPC);
  EXPECT_STREQ(to, from);
  refused = "map_uar";
  errno = 0;
  EXPECT_EQ(memory.map_uar(&uar_register), nullptr);
  EXPECT_EQ(errno, ENOSPC);
  refused = "allocate";
  errno = 0;
  EXPECT_EQ(memory.allocate(1), nullptr);
  EXPECT_EQ(errno, ENOSPC);
  memory.release(to, sizeof from);
}

}  // namespace
}  // namespace peal::verbs
