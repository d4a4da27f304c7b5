// The memory that queues of a NIC behind a bus lie in, with a software ConnectX on a CPU thread in
// the NIC's place: it knows no dmabufs, and its UAR pages are no device's, so that both fall-backs
// are taken. Skipped where there is no GPU.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "engine/threads.hpp"
#include "gpu/producers.hpp"
#include "link/loopback.hpp"
#include "peal/host/context.hpp"
#include "peal/host/cuda.hpp"
#include "peal/host/memory_region.hpp"
#include "peal/host/queue_pair.hpp"
#include "verbs/cuda_nic_memory.hpp"
#include "verbs/staged_nic.hpp"

namespace peal::test {
namespace {

constexpr std::size_t kNicArena = 8 << 20;
constexpr std::size_t kNicPayload = 1 << 20;

class NicMemory : public testing::Test {
 protected:
  void SetUp() override {
    const std::string why = why_no_gpu();
    if (!why.empty()) GTEST_SKIP() << why;
  }
};

TEST_F(NicMemory, ExportsWhatIsOnTheGpu) {
  verbs::CudaNicMemory memory(kNicArena);
  auto* first = static_cast<std::byte*>(memory.allocate(10000));
  auto* second = static_cast<std::byte*>(memory.allocate(4096));
  ASSERT_NE(second, nullptr);
  EXPECT_TRUE(memory.on_gpu(second));
  EXPECT_FALSE(memory.reached_by_cpu());
  const verbs::OwnedDmabuf a(memory.export_dmabuf(first, 10000));
  if (a.get().fd < 0 && errno == ENOTSUP) GTEST_SKIP() << "this driver exports no dmabufs";
  const verbs::OwnedDmabuf b(memory.export_dmabuf(second, 4096));
  ASSERT_GE(a.get().fd, 0) << errno;
  ASSERT_GE(b.get().fd, 0) << errno;
  EXPECT_NE(::fcntl(a.get().fd, F_GETFD), -1);
  EXPECT_EQ(b.get().offset - a.get().offset, static_cast<std::uint64_t>(second - first));
  memory.release(first, 10000);
  memory.release(second, 4096);
}

TEST_F(NicMemory, SharesPinnedMemoryWithTheCpu) {
  verbs::CudaNicMemory memory(kNicArena);
  auto* word = static_cast<std::uint64_t*>(memory.allocate_shared(64));
  ASSERT_NE(word, nullptr);
  EXPECT_FALSE(memory.on_gpu(word));
  EXPECT_EQ(*word, 0u);  // by the CPU
  const std::uint64_t seven = 7;
  EXPECT_EQ(memory.copy_to_device(word, &seven, sizeof seven), 0);
  EXPECT_EQ(*word, 7u);
  memory.release_shared(word, 64);
}

TEST_F(NicMemory, WithoutAnArenaAllOfItIsPinned) {
  verbs::CudaNicMemory memory(0);
  void* ring = memory.allocate(4096);
  ASSERT_NE(ring, nullptr);
  EXPECT_FALSE(memory.on_gpu(ring));
  EXPECT_TRUE(memory.reached_by_cpu());
  memory.release(ring, 4096);
}

// Rings on the GPU, record and producer index where a CPU thread rings by them.
TEST_F(NicMemory, AProxyRingsForGpuProducersWhereTheUarIsNotMapped) {
  const auto memory = std::make_shared<verbs::CudaNicMemory>(kNicArena);
  void* begin = memory->allocate(4096);  // the arena's
  memory->release(begin, 4096);
  const verbs::StagedMemory::Range range(begin, kNicArena, memory);
  link::Loopback loopback;
  verbs::StagedNic sender_nic({.nic_number = 1}, loopback.a());
  verbs::StagedNic receiver_nic({.nic_number = 2}, loopback.b());
  engine::ThreadsEngine engine({sender_nic.step(), receiver_nic.step()});
  std::vector<std::string> warnings;
  const Context sender =
      Context::open(sender_nic.provider(engine, memory),
                    {.warn = [&](const std::string& text) { warnings.push_back(text); }});
  const Context receiver = Context::open(receiver_nic.provider(engine));

  ASSERT_EQ(sender.handler().resolved, NicHandler::kProxy);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("PeerMappingOverride=1); a CPU proxy rings its queues instead"),
            std::string::npos)
      << warnings[0];

  std::vector<std::byte> target(kNicPayload);
  std::vector<std::byte> sent(kNicPayload);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 7 + 1);
  auto* source = static_cast<std::byte*>(memory->allocate(kNicPayload));
  ASSERT_NE(source, nullptr);
  ASSERT_EQ(memory->copy_payload(source, sent.data(), sent.size()), 0);
  {
    const MemoryRegion from = MemoryRegion::create(sender, source, kNicPayload, Access::kLocalOnly);
    const MemoryRegion to =
        MemoryRegion::create(receiver, target.data(), target.size(), Access::kRemoteWrite);
    QueuePair qp = QueuePair::create(sender, {.depth = 64});
    QueuePair peer = QueuePair::create(receiver, {.depth = 1});
    qp.connect(peer.address());
    peer.connect(qp.address());
    EXPECT_TRUE(memory->on_gpu(qp.handle().sq));
    EXPECT_FALSE(memory->on_gpu(qp.handle().dbrec));
    EXPECT_EQ(qp.handle().doorbell, nullptr);

    Launcher launcher;
    Job j;
    j.source = from.address();
    j.lkey = from.lkey();
    j.target = to.address();
    j.rkey = to.rkey();
    j.bytes = 4096;
    j.puts = kNicPayload / 4096;
    j.producers = 1;
    j.window = 16;
    j.batch = 4;
    for (const Outcome& o : launcher.run({qp.handle()}, j)) EXPECT_EQ(o.status, Status::kOk);
    EXPECT_GT(qp.doorbells(), 0u);
    EXPECT_EQ(target, sent);
  }
  memory->release(source, kNicPayload);
}

// Of a page that is no device's there is nothing to map.
TEST_F(NicMemory, DirectSaysWhatWouldLetTheGpuRing) {
  const auto memory = std::make_shared<verbs::CudaNicMemory>(kNicArena);
  link::Loopback nobody;
  verbs::StagedNic nic({.nic_number = 1}, nobody.a());
  engine::ThreadsEngine engine({nic.step()});
  try {
    Context::open(nic.provider(engine, memory), {.handler = NicHandler::kDirect});
    FAIL() << "it was mapped";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("PeerMappingOverride=1"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace peal::test
