#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "cli/peal.hpp"

namespace peal::test {
namespace {

TEST(Check, SaysWhatAMachineWithoutANicLacks) {
  std::error_code error;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband", error);
  if (!error && devices != end(devices)) GTEST_SKIP() << "there may be a NIC";
  const Ended e = run_peal("devices --check");
  EXPECT_EQ(e.status, 5) << e.err;
  EXPECT_EQ(e.err, "");
  EXPECT_TRUE(contains(e.out, "  missing  mlx5 device ")) << e.out;
  EXPECT_TRUE(contains(e.out, "\nneeded and missing: ")) << e.out;
  const Ended gpu = run_peal("devices --check --device mlx5_0 --gpu 1023");
  EXPECT_EQ(gpu.status, 5) << gpu.err;
  EXPECT_TRUE(contains(gpu.out, "GPUs: GPU 1023")) << gpu.out;
}

TEST(Check, RefusesWrongOptionsInOneSentence) {
  expect_refusal({"devices", "--gpu", "0"}, "--check");
  expect_refusal({"devices", "--check", "--device", ""}, "--device");
  expect_refusal({"devices", "--check", "--gpu", "1024"}, "--gpu");
  expect_refusal({"devices", "--check", "--gpu", "-1"}, "--gpu");
  expect_refusal({"devices", "--check", "--ib-port", "0"}, "--ib-port");
  expect_refusal({"devices", "--check", "--rules"}, "--rules");
  expect_refusal({"devices", "--check", "mlx5_0"});
}

}  // namespace
}  // namespace peal::test
