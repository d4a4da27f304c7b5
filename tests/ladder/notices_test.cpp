#include "ladder/notices.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "engine/threads.hpp"
#include "ladder/nics.hpp"
#include "link/loopback.hpp"

namespace peal::ladder {
namespace {

using nic::Refusal;
using nic::Strictness;

std::vector<std::string> told(Notices& notices) {
  std::vector<std::string> lines;
  notices.tell([&](const std::string& line) { lines.push_back(line); });
  return lines;
}

TEST(Notices, TellEachRuleAndQpOnce) {
  Notices notices;
  const nic::Notify hear = notices.listener();
  for (std::uint64_t index = 0; index < 3; ++index) {
    hear({Refusal::kCqTooSmall, Strictness::kWarn, Qpn(0x1001), index});
    hear({Refusal::kCqTooSmall, Strictness::kWarn, Qpn(0x1002), index});
    hear({Refusal::kOpcode, Strictness::kRefuse, Qpn(0x1001), index});
  }
  const std::vector<std::string> lines = told(notices);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0],
            "the NIC warns: QPN 0x001001: more CQEs can be outstanding than the CQ has entries, "
            "and oi is set (cq-too-small)");
  EXPECT_NE(lines[1].find("0x001002"), std::string::npos);
  EXPECT_EQ(lines[2].rfind("the NIC refuses: QPN 0x001001: ", 0), 0u) << lines[2];
  EXPECT_TRUE(told(notices).empty());
  hear({Refusal::kOpcode, Strictness::kRefuse, Qpn(0x1001), 3});
  EXPECT_TRUE(told(notices).empty());
}

TEST(Notices, TellAgainOfNewQpsOfTheSameNumber) {
  Notices notices;
  const nic::Notify hear = notices.listener();
  hear({Refusal::kOpcode, Strictness::kRefuse, Qpn(0x1001), 0});
  notices.forget_told();
  hear({Refusal::kOpcode, Strictness::kRefuse, Qpn(0x1001), 0});
  EXPECT_EQ(told(notices).size(), 2u);
}

TEST(Notices, TellOfNoQpWhereNoneIsConcerned) {
  Notices notices;
  notices.listener()({Refusal::kDoorbellLeftBehind, Strictness::kWarn, Qpn(), 0});
  const std::vector<std::string> lines = told(notices);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].find("QPN"), std::string::npos) << lines[0];
}

TEST(Notices, SayNothingOfAFaultThatWasAskedFor) {
  Notices notices;
  notices.listener()({Refusal::kInjected, Strictness::kRefuse, Qpn(0x1001), 0});
  EXPECT_TRUE(told(notices).empty());
}

TEST(Notices, LoseNoneOfThoseThatComeWhileTheyAreTold) {
  constexpr std::uint32_t kQps = 2000;
  Notices notices;
  std::thread engine([hear = notices.listener()] {
    for (std::uint32_t q = 1; q <= kQps; ++q) {
      hear({Refusal::kOpcode, Strictness::kRefuse, Qpn(q), 0});
    }
  });
  std::vector<std::string> lines;
  while (lines.size() < kQps / 2) {
    for (std::string& line : told(notices)) lines.push_back(std::move(line));
  }
  engine.join();
  for (std::string& line : told(notices)) lines.push_back(std::move(line));
  EXPECT_EQ(lines.size(), kQps);
}

// Hands out a key that its NIC does not know.
class WrongKeyReceiver final : public Receiver {
 public:
  WrongKeyReceiver(Context context, PayloadMemory& memory) : local_(std::move(context), memory) {}
  Destination open_row(const RowSetup& setup) override {
    Destination d = local_.open_row(setup);
    d.rkey = Rkey(d.rkey.value ^ 0xff);
    return d;
  }
  void prepare(const SegmentPlan& plan) override { local_.prepare(plan); }
  Verdict check(const SegmentPlan& plan, std::span<const std::uint64_t> acknowledged) override {
    return local_.check(plan, acknowledged);
  }
  void close_row() override { local_.close_row(); }

 private:
  LocalReceiver local_;
};

// The lines that a run with a wrong rkey makes, which must end with an error CQE.
std::vector<std::string> lines_of_run(const std::vector<std::string>& rules) {
  LadderArguments arguments;
  arguments.size = "64";
  arguments.iters = "3";
  arguments.stages = "serial";
  arguments.rules = rules;
  const LadderOptions options = make_options(arguments);
  std::vector<std::string> lines;
  RunEvents events;
  events.note = [&](const std::string& line) { lines.push_back(line); };
  const Interrupt interrupt;
  Notices notices;
  link::Loopback loopback;
  verbs::SoftwareNic sender(sender_options(options, notices.listener()), loopback.a());
  verbs::SoftwareNic receiver(receiver_options(options, notices.listener()), loopback.b());
  engine::ThreadsEngine engine({sender.step(), receiver.step()});
  HostPayload source;
  HostPayload destination;
  CpuProducers producers;
  WrongKeyReceiver far_end(Context::open(receiver.provider(engine)), destination);
  const RunEnds ends{&sender.core(),
                     &engine,
                     open_sender(sender, engine, options, events),
                     producers,
                     source,
                     far_end,
                     notices,
                     {.link = "loopback"},
                     2};
  EXPECT_EQ(run_ladder(options, ends, interrupt, events).status(), kExitCompletionError);
  return lines;
}

std::size_t lines_with(const std::vector<std::string>& lines, const std::string& part) {
  return static_cast<std::size_t>(
      std::count_if(lines.begin(), lines.end(),
                    [&](const std::string& line) { return line.find(part) != std::string::npos; }));
}

TEST(Notices, ComeFromBothNicsOfARun) {
  const std::vector<std::string> lines = lines_of_run({});
  EXPECT_EQ(lines_with(lines, "the NIC refuses: QPN 0x"), 2u);
  EXPECT_EQ(lines_with(lines, "(rkey-stale)"), 1u);
  EXPECT_EQ(lines_with(lines, "(remote-refused)"), 1u);
}

TEST(Notices, DoNotComeOfARuleThatIsOff) {
  const std::vector<std::string> lines = lines_of_run({"rkey-stale=off"});
  EXPECT_EQ(lines_with(lines, "(rkey-stale)"), 0u);
  EXPECT_EQ(lines_with(lines, "(remote-refused)"), 1u);
}

}  // namespace
}  // namespace peal::ladder
