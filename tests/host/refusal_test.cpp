// A device that refuses: each step in turn, and nothing is left of what was begun.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "host/host_fixture.hpp"
#include "peal/host/device_handles.hpp"
#include "peal/host/sinks.hpp"
#include "peal/mlx5/doorbell.hpp"

namespace peal {
namespace {

using test::error_of;
using test::HostFixture;
using test::says;

struct Step {
  const char* operation;  // of the hook
  int nth;                // which of the calls to it, from 0
  const char* named;      // what the error must say
};
const Step kSteps[] = {
    {"get_device_list", 0, "listing RDMA devices"},
    {"open_device", 0, "opening device mlx5"},
    {"devx_general_cmd", 0, "QUERY_HCA_CAP"},
    {"devx_general_cmd", 1, "QUERY_HCA_CAP"},  // the second group
    {"alloc_pd", 0, "protection domain"},
    {"reg_mr", 0, "registering 64 bytes"},
    {"devx_alloc_uar", 0, "UAR"},  // the context's probe
    {"devx_alloc_uar", 1, "UAR"},
    {"map_uar", 1, "mapping the UAR"},
    {"devx_umem_reg", 0, "send queue"},
    {"devx_umem_reg", 1, "doorbell record"},
    {"devx_umem_reg", 2, "completion queue"},
    {"create_cq", 0, "CREATE_CQ"},
    {"create_qp", 0, "CREATE_QP"},
    {"devx_obj_modify", 0, "RST2INIT"},
    {"devx_obj_modify", 1, "INIT2RTR"},
    {"devx_obj_modify", 2, "RTR2RTS"},
    {"devx_obj_query", 0, "QUERY_QP"},
    {"devx_obj_modify", 3, "2ERR"},
};

// All that the control path does, one step a call, each after what it needs.
struct Life {
  explicit Life(HostFixture& host) : fixture(host) {}
  void open(const verbs::RefuseHook& refuse) {
    context.emplace(Context::open(fixture.provider(refuse)));
  }
  void make_region() {
    region.emplace(MemoryRegion::create(*context, memory, sizeof memory, Access::kRemoteWrite));
  }
  void make_qp() { qp.emplace(QueuePair::create(*context, {.depth = 4})); }
  void connect() { qp->connect({Qpn(0x1234), Psn(7), 1, 4096}); }

  HostFixture& fixture;
  std::byte memory[64] = {};
  std::optional<Context> context;
  std::optional<MemoryRegion> region;
  std::optional<QueuePair> qp;
};

TEST(Refusal, OfEachStepIsAnErrorThatNamesItAndLeavesNothingBehind) {
  for (const Step& step : kSteps) {
    for (const int code : {EIO, ENOMEM, EPERM}) {
      HostFixture host;
      int seen = 0;
      // A UAR page of one type is asked for, then of the other.
      const int calls = step.operation == std::string_view("devx_alloc_uar") ? 2 : 1;
      const verbs::RefuseHook refuse = [&](std::string_view operation) {
        if (operation != step.operation) return 0;
        const int nth = seen++;
        return nth >= step.nth && nth < step.nth + calls ? code : 0;
      };
      Life life(host);
      nic::Commands::Objects before = host.objects();
      const std::function<void()> steps[] = {
          [&] { life.open(refuse); }, [&] { life.make_region(); }, [&] { life.make_qp(); },
          [&] { life.connect(); },    [&] { life.qp->state(); },   [&] { life.qp->to_error(); },
      };
      std::optional<Error> error;
      for (const auto& run : steps) {
        before = host.objects();
        try {
          run();
        } catch (const Error& e) {
          error.emplace(e);
          break;
        }
      }
      ASSERT_TRUE(error) << step.operation;
      EXPECT_EQ(error->code(), code) << step.operation;
      EXPECT_TRUE(says(*error, step.named)) << step.operation << ": " << error->what();
      EXPECT_TRUE(says(*error, std::generic_category().message(code))) << error->what();
      EXPECT_EQ(host.objects(), before) << step.operation << " " << step.nth;

      // What there was before goes on: the step succeeds when it is taken again.
      if (!life.context) {
        EXPECT_NO_THROW(life.open(refuse)) << step.operation;
      }
      if (!life.region) {
        EXPECT_NO_THROW(life.make_region()) << step.operation;
      }
      if (!life.qp) {
        EXPECT_NO_THROW(life.make_qp()) << step.operation;
        EXPECT_NO_THROW(life.connect()) << step.operation;
      }
      life.qp.reset();
      life.region.reset();
      life.context.reset();
      EXPECT_EQ(host.objects(), nic::Commands::Objects{}) << step.operation;
    }
  }
}

// One of several fails: the others are as they were.
TEST(Refusal, OfTheThirdQueueLeavesTheFirstTwo) {
  HostFixture host;
  int creates = 0;
  const Context context = Context::open(host.provider([&](std::string_view operation) {
    return operation == "create_qp" && ++creates == 3 ? ENOSPC : 0;
  }));
  std::vector<QueuePair> qps;
  const Error e = error_of([&] {
    for (int i = 0; i < 5; ++i) qps.push_back(QueuePair::create(context, {.depth = 4}));
  });
  EXPECT_EQ(e.code(), ENOSPC);
  ASSERT_EQ(qps.size(), 2u);
  EXPECT_EQ(host.objects().qps, 2u);
  EXPECT_EQ(host.objects().cqs, 2u);
  EXPECT_EQ(host.objects().uars, 2u);
  for (const QueuePair& qp : qps) EXPECT_EQ(qp.state(), QueuePairState::kReset);
}

TEST(Refusal, AHundredTimesIsFollowedByASuccess) {
  HostFixture host;
  int refusals = 100;
  const Context context = Context::open(host.provider([&](std::string_view operation) {
    return operation == "create_qp" && refusals-- > 0 ? ENOMEM : 0;
  }));
  const nic::Commands::Objects before = host.objects();
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(error_of([&] { QueuePair::create(context, {.depth = 4}); }).code(), ENOMEM);
  }
  EXPECT_EQ(host.objects(), before);
  EXPECT_NO_THROW(QueuePair::create(context, {.depth = 4}));
}

// Memory that cannot be had, at each of the allocations of a queue.
TEST(Refusal, OfEachAllocationOfAQueueLeavesNothingBehind) {
  struct Scarce : test::ForwardingMemory {
    int left = 1 << 30;
    int live = 0;
    bool map_refused = false;
    void* allocate(std::size_t bytes) override {
      if (left-- <= 0) {
        errno = ENOMEM;
        return nullptr;
      }
      ++live;
      return ForwardingMemory::allocate(bytes);
    }
    void release(void* memory, std::size_t bytes) override {
      --live;
      ForwardingMemory::release(memory, bytes);
    }
    void* map_uar(void* reg_addr) override {
      if (!map_refused) return ForwardingMemory::map_uar(reg_addr);
      errno = EPERM;
      return nullptr;
    }
  };
  HostFixture host;
  const auto scarce = std::make_shared<Scarce>();
  Provider p = host.provider();
  p.memory = scarce;
  const Context context = Context::open(p);
  const nic::Commands::Objects before = host.objects();
  int allocations = 0;
  for (;; ++allocations) {
    ASSERT_LT(allocations, 100);
    scarce->left = allocations;
    try {
      QueuePair::create(context, {.depth = 4});
      break;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ENOMEM);
      EXPECT_TRUE(says(e, "allocating")) << e.what();
    }
    EXPECT_EQ(scarce->live, 0);
    EXPECT_EQ(host.objects(), before);
  }
  EXPECT_GE(allocations, 5);  // counters, marks, and three rings
  EXPECT_EQ(scarce->live, 0);
  scarce->left = 100;
  scarce->map_refused = true;
  const Error e = error_of([&] { QueuePair::create(context, {.depth = 4}); });
  EXPECT_EQ(e.code(), EPERM);
  EXPECT_TRUE(says(e, "UAR")) << e.what();
  EXPECT_EQ(scarce->live, 0);
  EXPECT_EQ(host.objects(), before);
}

// Device memory that the host reaches by copies alone: any other access ends the program.
struct Sealed : test::ForwardingMemory {
  std::map<std::byte*, std::size_t> all;
  bool map_refused = false;

  void* allocate(std::size_t bytes) override {
    void* memory = ForwardingMemory::allocate(bytes);
    all[static_cast<std::byte*>(memory)] = bytes;
    mprotect(memory, bytes, PROT_NONE);
    return memory;
  }
  void release(void* memory, std::size_t bytes) override {
    all.erase(static_cast<std::byte*>(memory));
    ForwardingMemory::release(memory, bytes);
  }
  void* map_uar(void* reg_addr) override {
    if (!map_refused) return ForwardingMemory::map_uar(reg_addr);
    errno = EPERM;
    return nullptr;
  }
  int copy_to_device(void* to, const void* from, std::size_t bytes) override {
    return opened(to, [&] { return ForwardingMemory::copy_to_device(to, from, bytes); });
  }
  int copy_from_device(void* to, const void* from, std::size_t bytes) override {
    return opened(from, [&] { return ForwardingMemory::copy_from_device(to, from, bytes); });
  }
  bool reached_by_cpu() const override { return false; }

  template <class F>
  int opened(const void* address, const F& f) {
    const auto* at = static_cast<const std::byte*>(address);
    for (const auto& [memory, size] : all) {
      if (at < memory || at >= memory + size) continue;
      mprotect(memory, size, PROT_READ | PROT_WRITE);
      const int error = f();
      mprotect(memory, size, PROT_NONE);
      return error;
    }
    return EFAULT;
  }
};

TEST(DeviceMemory, IsTouchedByTheHostThroughItsTableAlone) {
  for (const CompletionMode completion : {CompletionMode::kEvery, CompletionMode::kTail}) {
    HostFixture host;
    const auto sealed = std::make_shared<Sealed>();
    Provider p = host.provider();
    p.memory = sealed;
    {
      const Context context = Context::open(p);
      QueuePair qp =
          QueuePair::create(context, {.depth = 16, .first_wqe_index = 5, .completion = completion});
      qp.connect(qp.address());
      const QueueHandle q = qp.handle();
      std::uint64_t reserved = 0;
      ASSERT_EQ(sealed->copy_from_device(&reserved, &q.state->reserved, 8), 0);
      EXPECT_EQ(reserved, 5u);
      std::uint32_t word = 0;
      ASSERT_EQ(sealed->copy_from_device(&word, q.dbrec, 4), 0);
      EXPECT_EQ(word, mlx5::encode_dbrec(5));
      for (int i = 0; i < 16; ++i) {
        ASSERT_EQ(sealed->copy_from_device(&word, &q.nic_cq[i].word[mlx5::kCqeOwnerWord], 4), 0);
        EXPECT_EQ(mlx5::decode_cqe_owner_word(word).opcode, mlx5::CqeOpcode::kInvalid);
      }
      qp.reset();
      ASSERT_EQ(sealed->copy_from_device(&reserved, &q.state->reserved, 8), 0);
      EXPECT_EQ(reserved, 0u);
      const std::array<const QueuePair*, 1> one{&qp};
      const DeviceHandles handles = DeviceHandles::create(one);
      EXPECT_EQ(handles.size(), 1u);
      const Sinks sinks = Sinks::create(context, 3);
      EXPECT_EQ(sinks.size(), 3u);
    }
    EXPECT_TRUE(sealed->all.empty());
  }
}

TEST(DeviceMemory, ThatTheCpuDoesNotReachHasNoProxy) {
  HostFixture host;
  const auto sealed = std::make_shared<Sealed>();
  Provider p = host.provider();
  p.memory = sealed;
  Error e = error_of([&] { Context::open(p, {.handler = NicHandler::kProxy}); });
  EXPECT_EQ(e.code(), ENOTSUP);
  EXPECT_TRUE(says(e, "the CPU does not reach")) << e.what();
  sealed->map_refused = true;
  e = error_of([&] { Context::open(p); });
  EXPECT_EQ(e.code(), ENOTSUP);
  EXPECT_TRUE(says(e, "mapping a UAR page")) << e.what();
  EXPECT_TRUE(says(e, "a CPU proxy cannot ring")) << e.what();
}

}  // namespace
}  // namespace peal
