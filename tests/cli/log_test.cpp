// PEAL_LOG: what the library tells, on the standard error.
#include <gtest/gtest.h>
#include <stdlib.h>

#include "cli/peal.hpp"

namespace peal::test {
namespace {

Ended devices_with_log(const char* level) {
  ::setenv("PEAL_LOG", level, 1);
  Ended e = run_peal("devices --fault uarfail");
  ::unsetenv("PEAL_LOG");
  return e;
}

TEST(CommandLog, GoesToTheStandardErrorAsFarAsItWasAskedFor) {
  const Ended info = devices_with_log("info");
  EXPECT_EQ(info.status, 0);
  EXPECT_TRUE(contains(info.err, "peal: warning: mapping a UAR page")) << info.err;
  EXPECT_TRUE(contains(info.err, "peal: info: opened ")) << info.err;
  const Ended warning = devices_with_log("warning");
  EXPECT_TRUE(contains(warning.err, "peal: warning: ")) << warning.err;
  EXPECT_FALSE(contains(warning.err, "peal: info: ")) << warning.err;
  const Ended none = devices_with_log("");
  EXPECT_EQ(none.status, 0);
  EXPECT_FALSE(contains(none.err, "peal: warning: ")) << none.err;
}

TEST(CommandLog, RefusesALevelThatThereIsNot) {
  const Ended e = devices_with_log("Info");
  EXPECT_EQ(e.status, 2);
  EXPECT_EQ(e.out, "");
  EXPECT_EQ(e.err, "peal: PEAL_LOG must be error, warning, info or debug, not 'Info'\n");
}

}  // namespace
}  // namespace peal::test
