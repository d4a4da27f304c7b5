// Handles of another version than the code that uses them: refused by the host, and by each queue
// that is made of one.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "host/host_fixture.hpp"
#include "peal/device/producer.hpp"
#include "peal/host/qp_list.hpp"
#include "support/loop_queue.hpp"

namespace peal {
namespace {

using test::error_of;
using test::HostFixture;
using test::LoopQueue;
using test::RecordingMemory;

constexpr std::uint32_t kNextLayout = kQueueHandleLayout + 1;

TEST(HandleLayout, AnotherBuildIsRefusedByTheHost) {
  HostFixture f;
  const Context context = Context::open(f.provider());
  const QueuePair qp = QueuePair::create(context);
  const QpList list = QpList::create(context, std::vector<QueuePairOptions>(1));
  const QueuePair* const entries[] = {&qp};

  EXPECT_TRUE(is_compatible(qp.handle()));
  EXPECT_TRUE(is_compatible(list.handles().data()[0]));
  const std::function<void()> calls[] = {
      [&] { static_cast<void>(qp.handle(kNextLayout)); },
      [&] { static_cast<void>(list.handles(kNextLayout)); },
      [&] { DeviceHandles::create(entries, nullptr, kNextLayout); },
  };
  for (const auto& call : calls) {
    const Error e = error_of(call);
    EXPECT_EQ(e.code(), EINVAL);
    EXPECT_STREQ(e.what(),
                 "a handle of layout 0x50450002 was asked for, but this library makes 0x50450001: "
                 "build both from one version of Peal");
  }
}

// Whatever else the handle holds, which another version puts elsewhere.
TEST(HandleLayout, AQueueOfAnotherBuildsHandlePostsNothing) {
  for (const int other_bytes : {0x00, 0xff, 0x5a}) {
    LoopQueue loop(16);
    QueueHandle handle;
    std::memset(static_cast<void*>(&handle), other_bytes, sizeof handle);
    handle.layout = kNextLayout;
    EXPECT_FALSE(is_compatible(handle));
    RecordingMemory::log().clear();

    SendQueue<RecordingMemory, Sharing::kDevice> queue(handle);
    Posted posted;
    Reservation r;
    const Put p{0x1000, Lkey(1), 0x2000, Rkey(2), 8};
    EXPECT_EQ(queue.reserve(1, &r), Status::kInvalid);
    EXPECT_EQ(put(queue, p, &posted), Status::kInvalid);
    EXPECT_EQ(put_signal(queue, p, FetchAdd{}, &posted), Status::kInvalid);
    EXPECT_EQ(nop(queue, &posted), Status::kInvalid);
    EXPECT_EQ(flush(queue), Status::kInvalid);

    InFlight fifo[4];
    Producer<RecordingMemory, Sharing::kExclusive> producer(handle, {{}, 4, 4}, fifo);
    EXPECT_EQ(producer.put(p), Status::kInvalid);
    EXPECT_EQ(producer.put_many(5, [&](std::uint64_t) { return p; }), Status::kInvalid);
    EXPECT_EQ(producer.flush(), Status::kOk) << "nothing was posted";
    EXPECT_TRUE(RecordingMemory::log().empty());

    handle = loop.handle();
    SendQueue<RecordingMemory, Sharing::kDevice> right(handle);
    EXPECT_EQ(put(right, p, &posted), Status::kOk);
  }
}

}  // namespace
}  // namespace peal
