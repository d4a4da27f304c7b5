// How long a software fabric lives, seen from what was made of it.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "peal/device/put.hpp"
#include "peal/host/context.hpp"
#include "peal/host/memory_region.hpp"
#include "peal/host/queue_pair.hpp"
#include "peal/host/software.hpp"
#include "peal/memory/cpu_memory.hpp"

namespace peal {
namespace {

using FabricQueue = SendQueue<CpuMemory, Sharing::kExclusive>;

constexpr std::uint32_t kFabricDepth = 16;

// One end, with memory of its own.
struct FabricEnd {
  explicit FabricEnd(Provider provider)
      : context(Context::open(std::move(provider))),
        region(MemoryRegion::create(context, memory.data(), memory.size(), Access::kRemoteWrite)),
        qp(QueuePair::create(context, {.depth = kFabricDepth})) {}

  std::vector<std::byte> memory = std::vector<std::byte>(1 << 16);
  Context context;
  MemoryRegion region;
  QueuePair qp;
};

struct ConnectedEnds {
  explicit ConnectedEnds(const SoftwareFabric& fabric) {
    sender.emplace(fabric.provider(0));
    receiver.emplace(fabric.provider(1));
    sender->qp.connect(receiver->qp.address());
    receiver->qp.connect(sender->qp.address());
  }
  Put put() const {
    return {sender->region.address(), sender->region.lkey(), receiver->region.address(),
            receiver->region.rkey(), sender->memory.size()};
  }
  std::optional<FabricEnd> sender;
  std::optional<FabricEnd> receiver;
};

// Expired when the NICs and their thread are gone.
std::weak_ptr<void> life_of(const SoftwareFabric& fabric) {
  return fabric.provider(0).verbs;
}

TEST(SoftwareFabric, ServesItsContextsWhenItIsGoneItself) {
  std::optional<SoftwareFabric> fabric = SoftwareFabric::create();
  const std::weak_ptr<void> life = life_of(*fabric);
  {
    ConnectedEnds ends(*fabric);
    fabric.reset();
    ASSERT_FALSE(life.expired());
    std::memset(ends.sender->memory.data(), 0x5a, ends.sender->memory.size());
    FabricQueue queue(ends.sender->qp.handle());
    Posted posted;
    ASSERT_EQ(put(queue, ends.put(), &posted), Status::kOk);
    EXPECT_EQ(wait(queue, posted.ticket), Status::kOk);
    EXPECT_EQ(ends.receiver->memory, ends.sender->memory);
  }
  EXPECT_TRUE(life.expired());
}

// Whichever end goes first, with a ring full of PUTs that nobody has waited for.
TEST(SoftwareFabric, EndsWithItsLastContextWhateverIsInFlight) {
  for (const bool sender_first : {false, true}) {
    std::optional<SoftwareFabric> fabric = SoftwareFabric::create();
    const std::weak_ptr<void> life = life_of(*fabric);
    ConnectedEnds ends(*fabric);
    FabricQueue queue(ends.sender->qp.handle());
    for (std::uint32_t i = 0; i < kFabricDepth; ++i) {
      Posted posted;
      ASSERT_EQ(put(queue, ends.put(), &posted), Status::kOk);
    }
    fabric.reset();
    (sender_first ? ends.sender : ends.receiver).reset();
    EXPECT_FALSE(life.expired());
    (sender_first ? ends.receiver : ends.sender).reset();
    EXPECT_TRUE(life.expired());
  }
}

TEST(SoftwareFabric, OpensSeveralContextsOnAnEnd) {
  const SoftwareFabric fabric = SoftwareFabric::create();
  const FabricEnd first(fabric.provider(0));
  const FabricEnd second(fabric.provider(0));
  EXPECT_NE(first.qp.address().qpn, second.qp.address().qpn);
  EXPECT_NE(first.region.rkey(), second.region.rkey());
}

TEST(SoftwareFabric, HasTwoEnds) {
  const SoftwareFabric fabric = SoftwareFabric::create();
  try {
    fabric.provider(2);
    FAIL() << "there is a third end";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), EINVAL);
    EXPECT_STREQ(e.what(), "a software fabric has the ends 0 and 1, but no 2");
  }
}

}  // namespace
}  // namespace peal
