#include "ladder/parse.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "ladder/usage_error.hpp"

namespace peal::ladder {
namespace {

std::string parse_refusal(const std::function<void()>& parse) {
  try {
    parse();
  } catch (const UsageError& e) {
    return e.what();
  }
  return "accepted";
}

constexpr std::uint64_t kMaxCount = std::numeric_limits<std::uint64_t>::max();

TEST(ParseCount, ReadsWholeNumbersWithinTheLimits) {
  EXPECT_EQ(parse_count("--iters", "1"), 1u);
  EXPECT_EQ(parse_count("--iters", "1003"), 1003u);
  EXPECT_EQ(parse_count("--seed", "0", {.min = 0}), 0u);
  EXPECT_EQ(parse_count("--seed", "18446744073709551615", {.min = 0}), kMaxCount);
  EXPECT_EQ(parse_count("--qps", "16", {.min = 1, .max = 16}), 16u);
}

TEST(ParseCount, NamesOptionLimitsAndTextWhenItRefuses) {
  EXPECT_EQ(parse_refusal([] { parse_count("--iters", "-3", {.min = 1, .max = 1000}); }),
            "--iters must be a whole number from 1 to 1000, not '-3'");
}

TEST(ParseCount, RefusesEverythingThatIsNotSuchANumber) {
  for (const char* text : {"", "0", "-1", "-0", "+1", " 1", "1 ", "1.0", "1e3", "0x10", "1K", "ten",
                           "1001", "18446744073709551616", "99999999999999999999999", "1,2"}) {
    EXPECT_THROW(parse_count("--iters", text, {.min = 1, .max = 1000}), UsageError) << text;
  }
}

TEST(ParseBytes, ReadsPlainNumbersAndPowersOf1024) {
  EXPECT_EQ(parse_bytes("--size", "1"), 1u);
  EXPECT_EQ(parse_bytes("--size", "65537"), 65537u);
  EXPECT_EQ(parse_bytes("--size", "4K"), 4096u);
  EXPECT_EQ(parse_bytes("--size", "64KiB"), 65536u);
  EXPECT_EQ(parse_bytes("--size", "3M"), 3u << 20);
  EXPECT_EQ(parse_bytes("--size", "256MiB"), 256u << 20);
  EXPECT_EQ(parse_bytes("--size", "2G"), std::uint64_t{2} << 30);
  EXPECT_EQ(parse_bytes("--size", "16GiB"), std::uint64_t{16} << 30);
}

TEST(ParseBytes, TakesZeroOnlyWhereTheLimitsDo) {
  EXPECT_EQ(parse_bytes("--size", "0", {.min = 0}), 0u);
  EXPECT_THROW(parse_bytes("--region", "0"), UsageError);
}

TEST(ParseBytes, IsExactAtTheEndOf64Bits) {
  EXPECT_EQ(parse_bytes("--size", "17179869183G"), std::uint64_t{17179869183} << 30);
  EXPECT_THROW(parse_bytes("--size", "17179869184G"), UsageError);
}

TEST(ParseBytes, NamesOptionLimitsAndTextWhenItRefuses) {
  EXPECT_EQ(parse_refusal([] { parse_bytes("--size", "4KB", {.min = 0, .max = 1024}); }),
            "--size must be a number of bytes from 0 to 1024, such as 4096 or 64KiB, not '4KB'");
}

TEST(ParseBytes, KnowsTebibytes) {
  EXPECT_EQ(parse_bytes("--region", "2T"), std::uint64_t{2} << 40);
  EXPECT_EQ(parse_bytes("--region", "1TiB"), std::uint64_t{1} << 40);
  EXPECT_THROW(parse_bytes("--region", "16777216T"), UsageError);
}

TEST(ParseBytes, RefusesEverythingThatIsNotANumberOfBytes) {
  for (const char* text : {"", "-1", "K", "KiB", "4k", "4kb", "4KB", "4B", "4 K", "4KK", "4KiBK",
                           "4iB", "1.5K", "0x10", "1P", "K4", "18446744073709551616"}) {
    EXPECT_THROW(parse_bytes("--size", text), UsageError) << text;
  }
  EXPECT_THROW(parse_bytes("--size", "2K", {.min = 1, .max = 2047}), UsageError);
}

TEST(ParseSizeList, ReadsOneOrMoreSizesInOrder) {
  EXPECT_EQ(parse_size_list("--size", "4096"), (std::vector<std::uint64_t>{4096}));
  EXPECT_EQ(parse_size_list("--size", "65536,4K,1"), (std::vector<std::uint64_t>{65536, 4096, 1}));
  EXPECT_EQ(parse_size_list("--size", "0,1", {.min = 0}), (std::vector<std::uint64_t>{0, 1}));
}

TEST(ParseSizeList, RefusesAnEmptyOrWrongElement) {
  for (const char* text : {"", ",", "4096,", ",4096", "4096,,1", "4096, 1", "4096;1", "1,-1"}) {
    EXPECT_THROW(parse_size_list("--size", text), UsageError) << text;
  }
}

}  // namespace
}  // namespace peal::ladder
