#include <gtest/gtest.h>

#include <cctype>
#include <string>

#include "cli/peal.hpp"

namespace peal::test {
namespace {

ProcessOptions with_address_space(rlim_t bytes) {
  ProcessOptions options;
  options.address_space_bytes = bytes;
  return options;
}

// Whole numbers that stand on their own: what is needed, and what there is.
int numbers(const std::string& text) {
  int n = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&text](std::size_t at) {
      return at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0;
    };
    if (digit(i) && !digit(i + 1)) ++n;
  }
  return n;
}

void expect_too_little_memory(const Ended& e) {
  EXPECT_EQ(e.status, 5) << e.err;
  EXPECT_EQ(e.out, "");
  EXPECT_EQ(lines(e.err), 1u) << e.err;
  EXPECT_EQ(numbers(e.err), 2) << e.err;
}

TEST(Machine, SaysHowMuchMemoryARunNeedsAndHowMuchThereIs) {
  expect_too_little_memory(
      run_peal("ladder --stages serial --size 1M --iters 1000000000 --repeat 1 --region 524288G"));
  const Pair pair =
      run_pair("--stages serial --size 1M --iters 1000000000 --repeat 1 --region 524288G");
  expect_both(pair, 5);
  expect_no_row(pair);
}

TEST(Machine, SaysSoWhenALimitIsLowerThanTheMachine) {
  if (command_has_sanitizer()) GTEST_SKIP() << "a sanitizer needs more than any limit gives";
  // The sum of both ends is too much, then one end alone.
  for (const std::string region : {"300M", "2G"}) {
    expect_too_little_memory(
        run_peal("ladder --stages serial --size 1M --iters 4000 --repeat 1 --region " + region,
                 with_address_space(rlim_t{512} << 20)));
  }
}

TEST(Machine, EndsBothEndsWhenTheServerHasTooLittleMemory) {
  if (command_has_sanitizer()) GTEST_SKIP() << "a sanitizer needs more than any limit gives";
  const Pair pair = run_pair(words("--size 1M --iters 600 --repeat 1 --region 600M"), {},
                             with_address_space(rlim_t{512} << 20));
  expect_both(pair, 5);
  expect_no_row(pair);
  for (const std::string& text : {pair.client.err, pair.server.err}) {
    EXPECT_TRUE(contains(text, "bytes of memory")) << text;
  }
}

TEST(Machine, TakesASmallerRegionByItselfWhereThereIsLittleMemory) {
  if (command_has_sanitizer()) GTEST_SKIP() << "a sanitizer needs more than any limit gives";
  const RowFile file;
  const Ended e =
      run_peal(words("ladder --stages serial --size 64K --iters 1500 --repeat 1 --json") +
                   Arguments{file.path()},
               with_address_space(rlim_t{384} << 20));
  EXPECT_EQ(e.status, 0) << e.err;
  const Rows rows = file.rows();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_LT(rows[0].at("region_bytes"), 384 << 20);
  EXPECT_GT(rows[0].at("segments"), 1);
}

TEST(Machine, NamesWhatCouldNotBeRegistered) {
  const Pair pair =
      run_pair("--stages serial --size 64 --iters 5 --repeat 1 --fault regfail=ENOMEM");
  expect_both(pair, 5);
  expect_no_row(pair);
  const Ended e =
      run_peal("ladder --stages serial --size 64 --iters 5 --repeat 1 --fault regfail=ENOMEM");
  EXPECT_EQ(e.status, 5);
  EXPECT_EQ(e.out, "");
  for (const std::string& text : {e.err, pair.client.err, pair.server.err}) {
    for (const char* part : {" bytes at 0x", "RLIMIT_MEMLOCK", "Cannot allocate memory"}) {
      EXPECT_TRUE(contains(text, part)) << part << " in " << text;
    }
    EXPECT_EQ(lines(text), 1u) << text;
  }
}

TEST(Machine, SaysWhichFileOfRowsItCannotOpen) {
  const Ended e = run_peal("ladder --stages serial --size 64 --iters 5 --json /nonexistent/rows");
  EXPECT_EQ(e.status, 5) << e.err;
  EXPECT_EQ(e.out, "");
  EXPECT_EQ(lines(e.err), 1u) << e.err;
  EXPECT_TRUE(contains(e.err, "/nonexistent/rows")) << e.err;
}

TEST(Machine, SaysSoWhenARowCannotBeWritten) {
  const Ended e =
      run_peal("ladder --stages serial --size 64 --iters 5 --repeat 1 --json /dev/full");
  EXPECT_EQ(e.status, 5) << e.err;
  EXPECT_TRUE(contains(e.err, "/dev/full")) << e.err;
  EXPECT_FALSE(contains(e.out, "validated")) << e.out;
}

}  // namespace
}  // namespace peal::test
