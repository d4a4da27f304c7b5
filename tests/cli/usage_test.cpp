#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/peal.hpp"
#include "cli/raw_peer.hpp"

namespace peal::test {
namespace {

struct Option {
  std::string name;
  std::vector<std::string> wrong;  // besides those that are wrong for every option
};

const std::vector<Option>& traffic_options() {
  static const std::vector<Option> options = {
      {"--size",
       {"1,", ",1", "1,,2", "1.5", "1e3", "0x10", "+1", "64 ", "1K2", "1P", "1099511627777",
        "18446744073709551616", "17179869184G"}},
      {"--iters", {"0", "1.5", "1e3", "0x10", "+1", "1000000001", "18446744073709551616"}},
      {"--repeat", {"0", "1.5", "1001", "4294967297", "18446744073709551616"}},
      {"--depth", {"0", "3", "100", "32769", "65536", "4294967360", "18446744073709551616"}},
      {"--producers", {"0", "1.5", "1025", "4294967297", "18446744073709551616"}},
      {"--qps", {"0", "1.5", "2048", "4294967297", "18446744073709551616"}},
      {"--seed", {"1.5", "0x1", "18446744073709551616"}},
      {"--deadline", {"0", "-0.5", "0.0001", "3601", "nan", "inf", "1e999", "5s", "0x1"}},
      {"--region", {"0", "1", "1.5", "1P", "18446744073709551616", "17179869184G"}},
      {"--stages", {"serial,", ",serial", "serial,nothing", "Serial", "serial serial"}},
      {"--submit", {"Peal", "original,peal", "peal "}},
      {"--doorbell", {"ring", "0", "ring_only,record_ring"}},
      {"--publish", {"order", "0"}},
      {"--sharing", {"none", "0"}},
      {"--completion", {"all", "0", "Tail"}},
      {"--order", {"lax", "0", "strict,relaxed"}},
      {"--dbsrc", {"record", "0", "MMIO"}},
      {"--rule",
       {"opcode", "opcode=", "opcode=0", "opcode=Off", "=off", "none=off", "opcodes=off",
        "opcode=off,wqe-index=off", "opcode=off "}},
      {"--nic", {"real", "0"}},
      {"--provider", {"efa", "hardware"}},
      {"--engine", {"sim", "gpux"}},
      {"--fault",
       {"corrupt",
        "corrupt@",
        "corrupt@-1",
        "corrupt@1/qp=1",
        "corrupt@1/qp=",
        "corrupt@1/2",
        "corrupt=1@1",
        "corrupt@18446744073709551616",
        "noop",
        "noop@x",
        "cqe@1",
        "cqe=0@1",
        "cqe=0x13",
        "cqe=0x99@1",
        "cqe=256@1",
        "hold",
        "hold=",
        "hold=-1",
        "hold=86400001",
        "delay=1.5",
        "delay=18446744073709551616",
        "preset=",
        "preset=9223372036854775809",
        "regfail=0",
        "regfail=ENOTHING",
        "regfail=4096",
        "drop=2",
        "dup=10%",
        "reorder=-0",
        "linkdelay=1.5",
        "Corrupt@1",
        "corrupt@1 ",
        "hold=1@1"}},
  };
  return options;
}

// Wrong for an option of any kind.
const std::vector<std::string> kAlwaysWrong = {"", "-1", "junk", "9999999999999999999999", "\n"};

TEST(Usage, RefusesEveryWrongValueInOneSentence) {
  std::size_t first = 0;  // another value for each option, where not all are tried
  for (const Option& option : traffic_options()) {
    std::vector<std::string> values = kAlwaysWrong;
    values.insert(values.end(), option.wrong.begin(), option.wrong.end());
    for (std::size_t i = 0; i < scaled(values.size()); ++i) {
      const std::string& value = values[(first + i) % values.size()];
      expect_refusal({"ladder", "--size", "64", "--iters", "1", option.name, value});
    }
    ++first;
  }
}

TEST(Usage, NamesTheOptionThatIsWrong) {
  for (const Option& option : traffic_options()) {
    for (const std::string& value : {std::string("junk"), std::string()}) {
      const Ended e = run_peal(Arguments{"ladder", option.name + "=" + value});
      EXPECT_EQ(e.status, 2) << e.err;
      EXPECT_TRUE(contains(e.err, option.name == "--fault" ? "fault" : option.name)) << e.err;
    }
  }
}

TEST(Usage, RefusesWrongValuesBeforeAClientConnects) {
  const RawListener listener;
  for (const Option& option : traffic_options()) {
    for (const std::string& value : {std::string("junk"), std::string()}) {
      expect_refusal(client_of(listener.port(), {option.name, value}));
    }
  }
  for (const std::string port : {"", "0", "-1", "65536", "1.5", "junk", "18446744073709551616"}) {
    expect_refusal({"client", "127.0.0.1", "--port", port});
  }
  pollfd polled{listener.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&polled, 1, 0), 0) << "somebody connected";
}

TEST(Usage, RefusesWrongValuesBeforeAServerListens) {
  for (const Option& option : traffic_options()) {
    // Whether a region holds a payload is known once there is a payload.
    for (const std::string& value : {std::string("junk"), std::string()}) {
      expect_refusal({"server", "--port", "0", option.name, value});
    }
  }
  for (const std::string port : {"", "-1", "65536", "1.5", "junk", "18446744073709551616"}) {
    expect_refusal({"server", "--port", port});
  }
  for (const std::string timeout : {"", "0", "-1", "1.5", "junk", "31536001"}) {
    expect_refusal({"server", "--port", "0", "--timeout", timeout});
  }
  for (const std::string address : {"", "256.0.0.1", "203.0.113.1"}) {
    expect_refusal({"server", "--port", "0", "--bind", address});
  }
}

TEST(Usage, RefusesWhatItDoesNotKnow) {
  expect_refusal({});
  expect_refusal({""});
  expect_refusal({"junk"});
  expect_refusal({"--junk"});
  expect_refusal({"ladder", "--junk"});
  expect_refusal({"ladder", "--junk", "1"});
  expect_refusal({"ladder", "junk"});
  expect_refusal({"ladder", "ladder"});
  expect_refusal({"ladder", "--once"});
  expect_refusal({"ladder", "--port", "1"});
  expect_refusal({"client"});
  expect_refusal({"client", ""});
  expect_refusal({"client", "127.0.0.1", "127.0.0.1"});
  expect_refusal({"server", "junk"});
  expect_refusal({"server", "--json", "x"});
  expect_refusal({"server", "--once=junk"});
}

TEST(Usage, RefusesAnOptionWithoutItsValueAndOneThatIsGivenTwice) {
  for (const Option& option : traffic_options()) {
    expect_refusal({"ladder", option.name});
    if (option.name == "--fault") continue;
    expect_refusal({"ladder", option.name, "1", option.name, "1"});
  }
  expect_refusal({"ladder", "--json"});
  expect_refusal({"ladder", "--json", ""});
}

TEST(Usage, SaysWhatADepthShouldBe) {
  const Ended e = run_peal("ladder --size 64 --depth 100");
  EXPECT_EQ(e.status, 2);
  EXPECT_TRUE(contains(e.err, "power of two")) << e.err;
  EXPECT_TRUE(contains(e.err, "128")) << e.err;
}

// Both orders must end alike, and say the same.
void expect_order_is_free(const Arguments& a, const Arguments& b) {
  const Arguments traffic = words("ladder --size 64 --iters 5 --repeat 1 --json -");
  const Ended ab = run_peal(traffic + a + b);
  const Ended ba = run_peal(traffic + b + a);
  SCOPED_TRACE(a[0] + " " + a[1] + " " + b[0] + " " + b[1]);
  EXPECT_EQ(ab.status, ba.status);
  EXPECT_EQ(ab.err, ba.err);
  ASSERT_EQ(lines(ab.out), lines(ba.out));
  std::istringstream ab_rows(ab.out);
  std::istringstream ba_rows(ba.out);
  for (std::string left, right; std::getline(ab_rows, left) && std::getline(ba_rows, right);) {
    const auto l = nlohmann::json::parse(left);
    const auto r = nlohmann::json::parse(right);
    for (const char* key : {"submit", "doorbell", "publish", "sharing", "producers", "qps", "depth",
                            "window", "batch_effective", "region_bytes", "faults"}) {
      EXPECT_EQ(l.at(key), r.at(key)) << key;
    }
  }
}

TEST(Usage, TakesOptionsThatDependOnEachOtherInAnyOrder) {
  const std::vector<std::vector<Arguments>> groups = {
      {words("--submit peal"), words("--submit both"), words("--doorbell record_ring"),
       words("--doorbell ring_record_ring"), words("--doorbell ring_only"),
       words("--publish combine"), words("--dbsrc dbr")},
      {words("--producers 4"), words("--producers 2"), words("--qps 2"), words("--qps 4"),
       words("--sharing exclusive"), words("--sharing device"), words("--fault corrupt@1/qp=1")},
      {words("--nic null"), words("--fault noop@1"), words("--fault preset=9"), words("--depth 2"),
       words("--region 4K"), words("--stages serial")},
      {words("--window 8"), words("--batch 5"), words("--depth 4"), words("--producers 3"),
       words("--stages batch"), words("--stages independent")},
  };
  for (const auto& group : groups) {
    for (std::size_t i = 0; i < group.size(); ++i) {
      const std::size_t others = group.size() - i - 1;
      for (std::size_t j = 1; j <= others && j <= scaled(others); ++j) {
        expect_order_is_free(group[i], group[i + j]);
      }
    }
  }
}

TEST(Usage, RefusesCombinationsThatCannotBe) {
  expect_refusal(words("ladder --producers 4 --sharing exclusive"));
  expect_refusal(words("ladder --producers 4 --qps 2 --sharing exclusive"));
  expect_refusal(words("ladder --submit peal --doorbell record_ring"));
  expect_refusal(words("ladder --submit both --publish combine"));
  expect_refusal(words("ladder --submit peal --doorbell ring_only"));
  expect_refusal(words("ladder --doorbell ring_only --dbsrc dbr"));
  expect_refusal(words("client 127.0.0.1 --dbsrc dbr --doorbell ring_only"));
  expect_refusal(words("ladder --size 0 --fault corrupt@0"));
  expect_refusal(words("ladder --size 64,0 --fault noop@0"));
  expect_refusal(words("ladder --size 64 --nic null --fault corrupt@0"));
  expect_refusal(words("ladder --fault preset=1 --fault preset=2"));
  expect_refusal(words("ladder --size 1M --region 64K"));
  expect_refusal(words("ladder --rule opcode=off --rule opcode=warn"));
}

TEST(Usage, ExplainsItselfWhenAsked) {
  for (const std::string arguments :
       {"--help", "ladder --help", "client --help", "server --help", "--version"}) {
    const Ended e = run_peal(arguments);
    EXPECT_EQ(e.status, 0) << arguments;
    EXPECT_NE(e.out, "") << arguments;
    EXPECT_EQ(e.err, "") << arguments;
  }
}

}  // namespace
}  // namespace peal::test
