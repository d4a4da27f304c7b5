#include "peal/host/log.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "host/host_fixture.hpp"

namespace peal {
namespace {

using test::HostFixture;

// What is logged while it lives.
class Logged {
 public:
  explicit Logged(LogLevel up_to) {
    set_log(up_to,
            [this](LogLevel level, const std::string& line) { lines.emplace_back(level, line); });
  }
  ~Logged() { set_log(LogLevel::kDebug, {}); }

  std::size_t of(LogLevel level) const {
    std::size_t n = 0;
    for (const auto& line : lines) n += line.first == level ? 1 : 0;
    return n;
  }
  bool says(LogLevel level, const std::string& text) const {
    for (const auto& line : lines) {
      if (line.first == level && line.second.find(text) != std::string::npos) return true;
    }
    return false;
  }

  std::vector<std::pair<LogLevel, std::string>> lines;
};

struct KeepsRegions : test::ForwardingVerbs {
  using ForwardingVerbs::ForwardingVerbs;
  ~KeepsRegions() override {
    for (ibv_mr* mr : regions) ForwardingVerbs::dereg_mr(mr);
    for (ibv_pd* pd : domains) ForwardingVerbs::dealloc_pd(pd);
  }
  int dereg_mr(ibv_mr* mr) override {
    regions.push_back(mr);
    return EBUSY;
  }
  int dealloc_pd(ibv_pd* pd) override {
    const int error = ForwardingVerbs::dealloc_pd(pd);
    if (error != 0) domains.push_back(pd);
    return error;
  }
  std::vector<ibv_mr*> regions;
  std::vector<ibv_pd*> domains;
};

// Opens, falls back, connects and closes a device, which may keep its memory regions.
void open_and_close(bool keeps_regions) {
  HostFixture host;
  Provider provider = host.provider();
  if (keeps_regions) provider.verbs = std::make_shared<KeepsRegions>(provider.verbs);
  provider.memory = std::make_shared<test::CountingMemory>(
      [](std::string_view operation) { return operation == "map_uar" ? EPERM : 0; });
  const Context context = Context::open(provider);
  const Context peer = Context::open(host.peer_provider());
  std::uint64_t word = 0;
  const MemoryRegion region = MemoryRegion::create(context, &word, sizeof word, Access::kLocalOnly);
  QueuePair near = QueuePair::create(context);
  const QueuePair far = QueuePair::create(peer);
  near.connect(far.address());
  near.to_error();
}

TEST(Log, TellsWhatWasOpenedTheFallbackAndEachChangeOfState) {
  const Logged log(LogLevel::kDebug);
  open_and_close(false);
  EXPECT_TRUE(log.says(LogLevel::kWarning, "a CPU proxy rings"));
  EXPECT_TRUE(log.says(LogLevel::kInfo, "proxy, because: the UAR page cannot be mapped"));
  EXPECT_TRUE(log.says(LogLevel::kInfo, "direct, because: the UAR page can be mapped"));
  EXPECT_TRUE(log.says(LogLevel::kDebug, "2ERR_QP"));
  EXPECT_EQ(log.of(LogLevel::kInfo), 2u);
  EXPECT_EQ(log.of(LogLevel::kDebug), 4u);  // to INIT, RTR, RTS and ERR
  EXPECT_EQ(log.of(LogLevel::kError), 0u);
}

TEST(Log, TellsWhatTheDeviceDidNotLetGoOfAtClose) {
  const Logged log(LogLevel::kError);
  open_and_close(true);
  EXPECT_TRUE(log.says(LogLevel::kError, "a memory region: error " + std::to_string(EBUSY)));
  EXPECT_TRUE(log.says(LogLevel::kError, "a protection domain: error "));  // which it lies in
  EXPECT_EQ(log.of(LogLevel::kError), 2u);
}

TEST(Log, TellsNothingBelowTheLevelAskedForNorAfterItsEnd) {
  {
    Logged log(LogLevel::kWarning);
    open_and_close(false);
    EXPECT_EQ(log.lines.size(), 1u);
    EXPECT_EQ(log.of(LogLevel::kWarning), 1u);
    set_log(LogLevel::kDebug, {});
    open_and_close(true);
    EXPECT_EQ(log.lines.size(), 1u);
  }
}

TEST(Log, DropsWhatTheCallbackThrows) {
  int calls = 0;
  set_log(LogLevel::kDebug, [&calls](LogLevel, const std::string&) {
    ++calls;
    throw std::runtime_error("no");
  });
  EXPECT_NO_THROW(open_and_close(true));
  set_log(LogLevel::kDebug, {});
  EXPECT_EQ(calls, 9);
}

}  // namespace
}  // namespace peal
