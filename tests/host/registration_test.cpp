// How memory of a GPU gets to be registered, and what is said where it does not.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "host/host_fixture.hpp"
#include "mlx5/layout.hpp"
#include "peal/host/log.hpp"
#include "verbs/uar_mappings.hpp"

namespace peal::test {
namespace {

// Ordinary memory that says it is a GPU's. Its dmabufs are descriptors of /dev/null.
class GpuLikeMemory : public CountingMemory {
 public:
  using CountingMemory::CountingMemory;

  bool on_gpu(const void*) const override { return true; }
  verbs::Dmabuf export_dmabuf(const void* memory, std::size_t) override {
    ++exports;
    last_exported = memory;
    if (export_error != 0) {
      errno = export_error;
      return {};
    }
    last_fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    return {last_fd, 4096};
  }
  const char* uar_remedy() const override { return "a remedy"; }

  int export_error = 0;
  int exports = 0;
  int last_fd = -1;
  const void* last_exported = nullptr;
};

// A kernel that knows dmabufs: a descriptor stands for what was exported last.
class DmabufVerbs : public ForwardingVerbs {
 public:
  using ForwardingVerbs::ForwardingVerbs;

  ibv_mr* reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t bytes, std::uint64_t iova,
                        int fd, int access) override {
    EXPECT_EQ(offset, 4096u);
    EXPECT_NE(::fcntl(fd, F_GETFD), -1) << "it is still open";
    if (error != 0) return refuse<ibv_mr>();
    ++dmabufs;
    return reg_mr_iova(pd, reinterpret_cast<void*>(iova), bytes, iova, access);
  }
  mlx5dv_devx_umem* devx_umem_reg_dmabuf(ibv_context* context, std::uint64_t offset,
                                         std::size_t bytes, int fd, std::uint32_t access) override {
    EXPECT_EQ(offset, 4096u);
    EXPECT_NE(::fcntl(fd, F_GETFD), -1);
    if (error != 0) return refuse<mlx5dv_devx_umem>();
    ++dmabufs;
    return devx_umem_reg(context, const_cast<void*>(memory->last_exported), bytes, access);
  }
  template <class T>
  T* refuse() const {
    errno = error;
    return nullptr;
  }

  int error = 0;
  int dmabufs = 0;
  std::shared_ptr<GpuLikeMemory> memory;
};

struct RegistrationFixture : ::testing::Test {
  Context open(const std::string& refuse_all = "", int code = EFAULT) {
    refusals.refuse_all = refuse_all;
    refusals.code = code;
    Provider p = nics.provider(refusals.hook());
    p.verbs = verbs = std::make_shared<DmabufVerbs>(p.verbs);
    p.memory = verbs->memory = memory = std::make_shared<GpuLikeMemory>();
    return Context::open(p);
  }
  MemoryRegion region(const Context& context) {
    return MemoryRegion::create(context, payload.data(), payload.size(), Access::kLocalOnly);
  }

  Refusals refusals;
  HostFixture nics;
  std::shared_ptr<DmabufVerbs> verbs;
  std::shared_ptr<GpuLikeMemory> memory;
  std::vector<std::byte> payload = std::vector<std::byte>(8192);
};

TEST_F(RegistrationFixture, TakesADmabufAndClosesIt) {
  const Context context = open();
  const MemoryRegion r = region(context);
  EXPECT_EQ(verbs->dmabufs, 1);
  EXPECT_EQ(r.address(), reinterpret_cast<std::uint64_t>(payload.data()));
  EXPECT_EQ(::fcntl(memory->last_fd, F_GETFD), -1);
}

// EPROTONOSUPPORT is 93 and EFAULT 14: what kernels without the one or the other answer.
TEST_F(RegistrationFixture, FallsBackToTheAddress) {
  for (const int error : {EPROTONOSUPPORT, EOPNOTSUPP, EINVAL, ENOMEM}) {
    const Context context = open();
    verbs->error = error;
    const MemoryRegion r = region(context);
    EXPECT_EQ(verbs->dmabufs, 0);
    EXPECT_EQ(memory->exports, 1);
    EXPECT_EQ(::fcntl(memory->last_fd, F_GETFD), -1);
  }
  const Context context = open();
  memory->export_error = ENOTSUP;
  std::vector<std::string> lines;
  set_log(LogLevel::kWarning, [&](LogLevel, const std::string& line) { lines.push_back(line); });
  const MemoryRegion r = region(context);
  set_log(LogLevel::kWarning, {});
  EXPECT_EQ(verbs->dmabufs, 0);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("of GPU memory by its address, as peer memory; as a dmabuf: it cannot be "
                          "exported: "),
            std::string::npos)
      << lines[0];
}

TEST_F(RegistrationFixture, SaysBothResultsAndTheRemedy) {
  Context context = open("reg_mr", EFAULT);
  verbs->error = EPROTONOSUPPORT;
  const Error both = error_of([&] { region(context); });
  EXPECT_EQ(both.code(), EFAULT);
  EXPECT_TRUE(says(both, "registering 8192 bytes at 0x")) << both.what();
  EXPECT_TRUE(says(both,
                   "of GPU memory: as a dmabuf: Protocol not supported; by its address: Bad "
                   "address (dmabufs need Linux 5.12"))
      << both.what();
  EXPECT_TRUE(says(both, "nvidia_peermem")) << both.what();

  memory->export_error = ENOTSUP;
  EXPECT_TRUE(says(error_of([&] { region(context); }), "it cannot be exported: "));
  memory->export_error = 0;

  context = open("reg_mr", ENOMEM);
  verbs->error = ENOMEM;
  const Error full = error_of([&] { region(context); });
  EXPECT_EQ(full.code(), ENOMEM);
  EXPECT_TRUE(says(full, "RLIMIT_MEMLOCK is ")) << full.what();
  EXPECT_FALSE(says(full, "nvidia_peermem")) << full.what();
}

TEST_F(RegistrationFixture, OfOrdinaryMemoryOnlyTheAddressCounts) {
  Provider p = nics.provider();
  p.verbs = verbs = std::make_shared<DmabufVerbs>(p.verbs);
  const Context context = Context::open(p);
  const MemoryRegion r = region(context);
  EXPECT_EQ(verbs->dmabufs, 0);
}

// Rings and records too, by the same two ways.
TEST_F(RegistrationFixture, QueuesAreDmabufsOrFallBackToTheirAddresses) {
  const Context context = open();
  {
    QueuePair qp = QueuePair::create(context);
    EXPECT_EQ(memory->exports, 3);
    EXPECT_EQ(verbs->dmabufs, 3);
  }
  verbs->error = EPROTONOSUPPORT;
  QueuePair qp = QueuePair::create(context);
  EXPECT_EQ(memory->exports, 6);
  EXPECT_EQ(verbs->dmabufs, 3);
}

TEST_F(RegistrationFixture, AQueueThatCannotBeRegisteredLeavesNothing) {
  const Context context = open("devx_umem_reg", EFAULT);
  const int before = memory->live;
  const Error e = error_of([&] { QueuePair::create(context); });
  EXPECT_TRUE(says(e, "registering the umem of the send queue of GPU memory: as a dmabuf: "))
      << e.what();
  EXPECT_EQ(memory->live, before);
  EXPECT_EQ(nics.objects().umems, 0u);
}

TEST_F(RegistrationFixture, AProxyNamesTheRemedyOfAPageThatIsNotMapped) {
  std::string warning;
  Provider p = nics.provider();
  p.memory = std::make_shared<GpuLikeMemory>(
      [](std::string_view operation) { return operation == "map_uar" ? EPERM : 0; });
  const Context context =
      Context::open(p, {.warn = [&](const std::string& text) { warning = text; }});
  EXPECT_EQ(context.handler().resolved, NicHandler::kProxy);
  EXPECT_NE(warning.find("Operation not permitted (a remedy); a CPU proxy rings its queues"),
            std::string::npos)
      << warning;
}

// Numbers of 17 bits and more occur; none may be cut off.
TEST(UarPage, IsNamedWholeOrRefused) {
  class Numbered : public ForwardingVerbs {
   public:
    using ForwardingVerbs::ForwardingVerbs;
    mlx5dv_devx_uar* devx_alloc_uar(ibv_context* context, std::uint32_t flags) override {
      mlx5dv_devx_uar* uar = ForwardingVerbs::devx_alloc_uar(context, flags);
      own = uar->page_id;
      if (number != 0) uar->page_id = number;
      return uar;
    }
    void devx_free_uar(mlx5dv_devx_uar* uar) override {
      uar->page_id = own;
      ForwardingVerbs::devx_free_uar(uar);
    }
    mlx5dv_devx_obj* devx_obj_create(ibv_context* context, const void* in, std::size_t in_bytes,
                                     void* out, std::size_t out_bytes) override {
      namespace create = mlx5::devx::create_cq;
      const auto* bytes = static_cast<const std::byte*>(in);
      seen =
          mlx5::devx::get(bytes, mlx5::devx::within(create::cq_context, mlx5::devx::cqc::uar_page));
      return ForwardingVerbs::devx_obj_create(context, in, in_bytes, out, out_bytes);
    }
    std::uint32_t number = 0;
    std::uint32_t own = 0;
    std::uint64_t seen = 0;
  };
  HostFixture nics;
  Provider p = nics.provider();
  const auto verbs = std::make_shared<Numbered>(p.verbs);
  p.verbs = verbs;
  const Context context = Context::open(p);
  verbs->number = 0x10001;
  EXPECT_TRUE(says(error_of([&] { QueuePair::create(context); }), "CREATE_CQ"));
  EXPECT_EQ(verbs->seen, 0x10001u);
  verbs->number = 0x1000001;
  EXPECT_TRUE(says(error_of([&] { QueuePair::create(context); }),
                   "UAR page 16777217 of mlx5_software0 has a number of more than 24 bits"));
  EXPECT_EQ(nics.objects().uars, 0u);
}

struct Pages {
  void* map(void* page) {
    if (refuse != 0) {
      errno = refuse;
      return nullptr;
    }
    if (page == mapped) {
      errno = EEXIST;  // as CUDA answers for a page that it has
      return nullptr;
    }
    mapped = page;
    ++maps;
    return static_cast<std::byte*>(page) + 0x10000;
  }
  void unmap(void* page) {
    EXPECT_EQ(page, mapped);
    mapped = nullptr;
  }
  void* mapped = nullptr;
  int maps = 0;
  int refuse = 0;
};

TEST(UarMappings, APageIsMappedOnceForAllItsRegisters) {
  Pages pages;
  verbs::UarMappings mappings([&](void* p) { return pages.map(p); },
                              [&](void* p) { pages.unmap(p); });
  auto* page = reinterpret_cast<std::byte*>(0x40000);
  void* first = mappings.map(page + 0x800);
  void* second = mappings.map(page + 0x600);
  void* third = mappings.map(page + 0x800);
  EXPECT_EQ(pages.maps, 1);
  EXPECT_EQ(first, page + 0x10800);
  EXPECT_EQ(second, page + 0x10600);
  EXPECT_EQ(third, first);
  mappings.unmap(first);
  mappings.unmap(second);
  EXPECT_EQ(pages.mapped, page) << "one is left";
  mappings.unmap(third);
  EXPECT_EQ(pages.mapped, nullptr);
  EXPECT_NE(mappings.map(page + 0x800), nullptr) << "and again";
}

TEST(UarMappings, ARefusalLeavesNothing) {
  Pages pages;
  verbs::UarMappings mappings([&](void* p) { return pages.map(p); },
                              [&](void* p) { pages.unmap(p); });
  auto* page = reinterpret_cast<std::byte*>(0x40000);
  pages.refuse = EPERM;
  EXPECT_EQ(mappings.map(page + 0x800), nullptr);
  EXPECT_EQ(errno, EPERM);
  pages.refuse = 0;
  EXPECT_NE(mappings.map(page + 0x800), nullptr);
}

}  // namespace
}  // namespace peal::test
