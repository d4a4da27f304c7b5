// Where payload lies, and which GPU copies it: what the machine has.
#include <cuda_runtime.h>

#include "gpu/fabric.hpp"

namespace peal::test {
namespace {

// In bulk and not, of one block and of several.
void expect_all_sizes(Setup setup) {
  for (const std::uint32_t bytes : {60u, 1024u, 4096u, 100'000u}) {
    setup.bytes = 4 << 20;
    setup.depth = 128;
    Fabric fabric(setup);
    Job job = fabric.job();
    job.bytes = bytes;
    job.puts = std::min(1000u, (4u << 20) / bytes);
    job.window = 64;
    job.batch = 32;
    expect_all(fabric, job, fabric.run(job));
  }
}

class Places : public Gpu, public testing::WithParamInterface<std::tuple<NicOn, std::uint32_t>> {
 protected:
  test::Setup setup() const {
    const auto [nic, blocks] = GetParam();
    return {.nic = nic, .blocks = blocks, .blocks_a_queue = blocks};
  }
};
INSTANTIATE_TEST_SUITE_P(Nic, Places,
                         testing::Combine(testing::Values(NicOn::kGpu, NicOn::kFused),
                                          testing::Values(1u, 4u)),
                         [](const auto& p) {
                           return std::string(name_of(std::get<0>(p.param))) + "_" +
                                  std::to_string(std::get<1>(p.param));
                         });

TEST_P(Places, FromPinnedHostMemoryToTheGpu) {
  test::Setup s = setup();
  s.source = std::make_shared<verbs::CudaHostMemory>();
  expect_all_sizes(s);
}

TEST_P(Places, FromTheGpuToPinnedHostMemory) {
  test::Setup s = setup();
  s.target = std::make_shared<verbs::CudaHostMemory>();
  expect_all_sizes(s);
}

using cuda::OnGpu;

class TwoGpus : public Places {
 protected:
  void SetUp() override {
    Places::SetUp();
    if (IsSkipped()) return;
    int devices = 0;
    cudaGetDeviceCount(&devices);
    int there = 0;
    int back = 0;
    if (devices > 1) {
      cudaDeviceCanAccessPeer(&there, 0, 1);
      cudaDeviceCanAccessPeer(&back, 1, 0);
    }
    if (there == 0 || back == 0) GTEST_SKIP() << "there are no two GPUs that reach each other";
    for (const int device : {0, 1}) {
      const OnGpu on(device);
      const cudaError_t error = cudaDeviceEnablePeerAccess(1 - device, 0);
      ASSERT_TRUE(error == cudaSuccess || error == cudaErrorPeerAccessAlreadyEnabled)
          << cudaGetErrorString(error);
      cudaGetLastError();
    }
  }
  static std::shared_ptr<verbs::DeviceMemory> memory_of(int device) {
    const OnGpu on(device);
    return std::make_shared<verbs::CudaDeviceMemory>(16 << 20);
  }
};
INSTANTIATE_TEST_SUITE_P(Nic, TwoGpus,
                         testing::Combine(testing::Values(NicOn::kGpu), testing::Values(1u, 4u)),
                         [](const auto& p) { return std::to_string(std::get<1>(p.param)); });

TEST_P(TwoGpus, FromOneToTheOther) {
  test::Setup s = setup();
  s.target = memory_of(1);
  expect_all_sizes(s);
}

TEST_P(TwoGpus, FromTheOtherToThisOne) {
  test::Setup s = setup();
  s.source = memory_of(1);
  expect_all_sizes(s);
}

// Its kernel, and with it the copying, on the GPU that has neither the queues nor the producers.
TEST_P(TwoGpus, TheOtherOneIsTheNic) {
  test::Setup s = setup();
  s.device = 1;
  s.target = memory_of(1);
  expect_all_sizes(s);
  int device = -1;
  cudaGetDevice(&device);
  EXPECT_EQ(device, 0);
}

}  // namespace
}  // namespace peal::test
