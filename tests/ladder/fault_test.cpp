#include "ladder/fault.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "ladder/usage_error.hpp"

namespace peal::ladder {
namespace {

using Kind = FaultSpec::Kind;

std::string fault_refusal(std::string_view text) {
  try {
    parse_fault(text);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Fault, ReadsTheFaultsOfOneWqe) {
  const FaultSpec corrupt = parse_fault("corrupt@0");
  EXPECT_EQ(corrupt.kind, Kind::kCorrupt);
  EXPECT_EQ(corrupt.at, 0u);
  EXPECT_EQ(corrupt.qp, 0u);
  EXPECT_EQ(corrupt.text, "corrupt@0");

  const FaultSpec noop = parse_fault("noop@18446744073709551615/qp=3");
  EXPECT_EQ(noop.kind, Kind::kNoop);
  EXPECT_EQ(noop.at, 18446744073709551615u);
  EXPECT_EQ(noop.qp, 3u);

  const FaultSpec cqe = parse_fault("cqe=0x13@5/qp=4294967295");
  EXPECT_EQ(cqe.kind, Kind::kCqe);
  EXPECT_EQ(cqe.value, 0x13u);
  EXPECT_EQ(cqe.at, 5u);
  EXPECT_EQ(cqe.qp, 4294967295u);
  EXPECT_EQ(parse_fault("cqe=21@0").value, 0x15u);
}

TEST(Fault, ReadsTheFaultsWithAValue) {
  EXPECT_EQ(parse_fault("hold=250").kind, Kind::kHold);
  EXPECT_EQ(parse_fault("hold=250").value, 250u);
  EXPECT_EQ(parse_fault("delay=10").kind, Kind::kDelay);
  EXPECT_EQ(parse_fault("delay=10").value, 10u);
  EXPECT_EQ(parse_fault("linkdelay=10").kind, Kind::kLinkDelay);
  EXPECT_EQ(parse_fault("linkdelay=10").value, 10u);
  EXPECT_EQ(parse_fault("preset=65530").kind, Kind::kPreset);
  EXPECT_EQ(parse_fault("preset=0xfffa").value, 65530u);
  EXPECT_EQ(parse_fault("preset=9223372036854775808").value, std::uint64_t{1} << 63);
}

TEST(Fault, ReadsTheProbabilities) {
  EXPECT_EQ(parse_fault("drop=0.25").kind, Kind::kDrop);
  EXPECT_EQ(parse_fault("drop=0.25").probability, 0.25);
  EXPECT_EQ(parse_fault("dup=1").kind, Kind::kDup);
  EXPECT_EQ(parse_fault("dup=1").probability, 1.0);
  EXPECT_EQ(parse_fault("reorder=0").kind, Kind::kReorder);
  EXPECT_EQ(parse_fault("reorder=1e-3").probability, 1e-3);
}

TEST(Fault, ReadsTheFaultsOfTheControlPath) {
  EXPECT_EQ(parse_fault("uarfail").kind, Kind::kUarFail);
  EXPECT_EQ(parse_fault("regfail=ENOMEM").kind, Kind::kRegFail);
  EXPECT_EQ(parse_fault("regfail=ENOMEM").value, std::uint64_t{ENOMEM});
  EXPECT_EQ(parse_fault("regfail=EINVAL").value, std::uint64_t{EINVAL});
  EXPECT_EQ(parse_fault("regfail=EFAULT").value, std::uint64_t{EFAULT});
  EXPECT_EQ(parse_fault("regfail=EOPNOTSUPP").value, std::uint64_t{EOPNOTSUPP});
  EXPECT_EQ(parse_fault("regfail=EPROTONOSUPPORT").value, std::uint64_t{EPROTONOSUPPORT});
  EXPECT_EQ(parse_fault("regfail=14").value, std::uint64_t{EFAULT});
  EXPECT_EQ(parse_fault("regfail=93").value, std::uint64_t{EPROTONOSUPPORT});
}

TEST(Fault, NamesTheTextAndWhatIsExpectedWhenItRefuses) {
  EXPECT_EQ(fault_refusal("corrupt@-1"),
            "fault 'corrupt@-1' is not understood: expected corrupt@K or corrupt@K/qp=Q, whole "
            "numbers from 0");
  EXPECT_EQ(fault_refusal("drop=2"),
            "fault 'drop=2' is not understood: expected drop=P, a probability from 0 to 1");
  EXPECT_EQ(fault_refusal("crash@1"),
            "fault 'crash@1' is unknown: expected one of corrupt, noop, cqe, hold, delay, preset, "
            "drop, dup, reorder, linkdelay, uarfail, regfail");
}

TEST(Fault, RefusesMalformedPlaces) {
  for (const char* text : {"corrupt",
                           "corrupt@",
                           "corrupt@x",
                           "corrupt@-1",
                           "corrupt@+1",
                           "corrupt@1 ",
                           "corrupt@ 1",
                           "corrupt@1x",
                           "corrupt@1.5",
                           "corrupt@0x1",
                           "corrupt@18446744073709551616",
                           "corrupt=1@1",
                           "corrupt@1@2",
                           "corrupt@1/",
                           "corrupt@1/qp",
                           "corrupt@1/qp=",
                           "corrupt@1/qp=-1",
                           "corrupt@1/qp=x",
                           "corrupt@1/qp=4294967296",
                           "corrupt@1/qp=1/qp=2",
                           "corrupt@1/lane=1",
                           "corrupt@/qp=1",
                           "corrupt/qp=1",
                           "noop",
                           "noop@",
                           "noop=1@1"}) {
    EXPECT_NE(fault_refusal(text).find(std::string("'") + text + "' is not understood"),
              std::string::npos)
        << text << ": " << fault_refusal(text);
  }
}

TEST(Fault, RefusesSyndromesThatNoErrorCqeCarries) {
  for (const char* text :
       {"cqe@1", "cqe=@1", "cqe=0@1", "cqe=0x0@1", "cqe=0x@1", "cqe=0x03@1", "cqe=0x113@1",
        "cqe=256@1", "cqe=-1@1", "cqe=13x@1", "cqe=0x13", "cqe=0x13@", "cqe=0x13@1/qp"}) {
    EXPECT_NE(fault_refusal(text).find("is not understood"), std::string::npos)
        << text << ": " << fault_refusal(text);
  }
}

TEST(Fault, RefusesMalformedValues) {
  for (const char* text : {"hold",
                           "hold=",
                           "hold=-1",
                           "hold=1s",
                           "hold=1.5",
                           "hold=86400001",
                           "hold=1@2",
                           "hold=99999999999999999999",
                           "hold@1",
                           "delay",
                           "delay=",
                           "delay=-1",
                           "delay=us",
                           "delay=86400000001",
                           "delay=1/qp=1",
                           "preset",
                           "preset=",
                           "preset=-1",
                           "preset=0x",
                           "preset=9223372036854775809",
                           "preset=99999999999999999999",
                           "drop",
                           "drop=",
                           "drop=-0.1",
                           "drop=-0",
                           "drop=1.1",
                           "drop=nan",
                           "drop=inf",
                           "drop=50%",
                           "drop=0.1@1",
                           "drop=1e-999",
                           "dup=",
                           "dup=2",
                           "reorder=x",
                           "reorder=0,5",
                           "uarfail=",
                           "uarfail=1",
                           "uarfail@1",
                           "regfail",
                           "regfail=",
                           "regfail=0",
                           "regfail=-14",
                           "regfail=4096",
                           "regfail=ENOPE",
                           "regfail=enomem",
                           "regfail=ENOMEM@1"}) {
    EXPECT_NE(fault_refusal(text).find("is not understood"), std::string::npos)
        << text << ": " << fault_refusal(text);
  }
}

TEST(Fault, RefusesUnknownNames) {
  for (const char* text : {"", "@1", "=1", "Corrupt@1", "corrupt ", " corrupt@1", "uarfail ", "cq",
                           "dropp=1", "corrupt\n@1"}) {
    EXPECT_NE(fault_refusal(text).find("is unknown"), std::string::npos)
        << text << ": " << fault_refusal(text);
  }
}

}  // namespace
}  // namespace peal::ladder
