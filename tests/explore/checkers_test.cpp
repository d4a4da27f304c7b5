// Each checker finds what it is for, and nothing in what is right.
#include "explore/checkers.hpp"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>

namespace peal::explore {
namespace {

struct Checked {
  Findings findings{[this] { ++firsts; }};
  int firsts = 0;
};

// What a counter checker says of a change, from all counters at 100 and a ring of 8.
std::string of_change(const std::function<void(QueueState&)>& change) {
  Checked c;
  QueueState state{};
  state.reserved = state.ready = state.rung = state.completed = 100;
  QueueHandle queue;
  queue.state = &state;
  queue.depth = 8;
  CounterChecker checker(c.findings, queue, "QP 0");
  checker.look();
  EXPECT_FALSE(c.findings.first());
  change(state);
  checker.look();
  return c.findings.first().sentence;
}

TEST(CounterChecker, KnowsTheRules) {
  EXPECT_EQ(of_change([](QueueState&) {}), "");
  EXPECT_EQ(of_change([](QueueState& s) {
              s.reserved = 108;
              s.ready = 105;
              s.rung = 103;
              s.completed = 101;
            }),
            "");
  const auto says = [](const std::function<void(QueueState&)>& change, const char* what) {
    const std::string sentence = of_change(change);
    EXPECT_NE(sentence.find(what), std::string::npos) << sentence << " / " << what;
  };
  says([](QueueState& s) { s.completed = 99; }, "`completed` went back");
  says([](QueueState& s) { s.rung = 99; }, "`rung` went back");
  says([](QueueState& s) { s.ready = 99; }, "`ready` went back");
  says([](QueueState& s) { s.reserved = 99; }, "`reserved` went back");
  says([](QueueState& s) { s.reserved = s.ready = s.completed = 101; }, "completed than rung");
  says([](QueueState& s) { s.reserved = s.rung = 101; }, "rung than written");
  says([](QueueState& s) { s.ready = 101; }, "written than reserved");
  says([](QueueState& s) { s.reserved = 109; }, "than the ring holds");
}

TEST(CounterChecker, KnowsThatTheFirstErrorStays) {
  Checked c;
  QueueState state{};
  QueueHandle queue;
  queue.state = &state;
  queue.depth = 8;
  CounterChecker checker(c.findings, queue, "QP 0");
  state.error = 5;
  checker.look();
  EXPECT_FALSE(c.findings.first());
  state.error = 6;
  checker.look();
  EXPECT_EQ(c.findings.first().checker, "counters");
}

// 64 bytes of destination.
struct Landing : Checked {
  std::array<std::byte, 64> memory{};
  LandingChecker checker{findings, memory.data(), memory.size()};
};

TEST(LandingChecker, AcceptsEachAskedByteOnce) {
  Landing c;
  c.checker.ask(8, 16);
  c.checker.landed(&c.memory[16], 8);
  c.checker.landed(&c.memory[8], 8);
  c.checker.acknowledge(8, 16, "a PUT");
  c.checker.ask(8, 16);
  c.checker.landed(&c.memory[8], 16);
  c.checker.acknowledge(8, 16, "the next PUT");
  EXPECT_FALSE(c.findings.first()) << c.findings.first().sentence;
}

TEST(LandingChecker, FindsAByteThatLandsTwice) {
  Landing c;
  c.checker.ask(8, 16);
  c.checker.landed(&c.memory[8], 16);
  c.checker.landed(&c.memory[23], 1);
  EXPECT_NE(c.findings.first().sentence.find("byte 23"), std::string::npos);
}

TEST(LandingChecker, FindsWhatNobodyAskedFor) {
  Landing c;
  c.checker.ask(8, 16);
  c.checker.landed(&c.memory[8], 17);
  EXPECT_NE(c.findings.first().sentence.find("byte 24"), std::string::npos);
}

TEST(LandingChecker, FindsAWriteBeyondTheEnd) {
  Landing c;
  c.checker.ask(56, 8);
  c.checker.landed(&c.memory[56], 16);
  EXPECT_NE(c.findings.first().sentence.find("byte 64"), std::string::npos);
}

TEST(LandingChecker, FindsWhatWasAcknowledgedAndNeverLanded) {
  Landing c;
  c.checker.ask(8, 16);
  c.checker.landed(&c.memory[8], 15);
  c.checker.acknowledge(8, 16, "producer 0's PUT 3");
  EXPECT_NE(c.findings.first().sentence.find("producer 0's PUT 3"), std::string::npos);
  EXPECT_NE(c.findings.first().sentence.find("byte 23"), std::string::npos);
}

TEST(Findings, KeepTheFirst) {
  Checked c;
  c.findings.add("a", "first");
  c.findings.add("b", "second");
  EXPECT_EQ(c.findings.first().sentence, "first");
  EXPECT_EQ(c.firsts, 1);
}

}  // namespace
}  // namespace peal::explore
