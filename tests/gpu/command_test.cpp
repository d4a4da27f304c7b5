// `peal ladder` and `peal client` with producers on a GPU, as their users run them: the program is
// the one beside this one. Skipped where there is no GPU.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "verbs/cuda_check.hpp"

namespace peal::test {
inline std::string beside_this_program() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "peal";
}
}  // namespace peal::test
#define PEAL_COMMAND_PATH peal::test::beside_this_program()
#define PEAL_COMMAND_HAS_SANITIZER 0
#include "cli/peal.hpp"

namespace peal::test {
namespace {

class GpuCommand : public testing::Test {
 protected:
  void SetUp() override {
    const std::string why = cuda::why_no_gpu();
    if (!why.empty()) GTEST_SKIP() << why;
  }
};

struct RanOnGpu {
  Ended end;
  Rows rows;
};

RanOnGpu run_on_gpu(const std::string& arguments) {
  const RowFile file;
  RanOnGpu r;
  r.end = run_peal(words("ladder --repeat 1 " + arguments) + Arguments{"--json", file.path()});
  r.rows = file.rows();
  return r;
}

void expect_valid(const RanOnGpu& r, std::size_t rows) {
  EXPECT_EQ(r.end.status, 0) << r.end.err;
  EXPECT_EQ(r.rows.size(), rows) << r.end.err;
  for (const nlohmann::json& row : r.rows) {
    EXPECT_TRUE(row["validated"].get<bool>()) << row;
    EXPECT_TRUE(row["gpu"].is_string()) << row;
    EXPECT_TRUE(row["driver"].is_string()) << row;
    EXPECT_GT(row["copy_ceiling_gbps"].get<double>(), 0) << row;
    EXPECT_EQ(row["total_bytes"],
              row["puts"].get<std::uint64_t>() * row["payload_bytes"].get<std::uint64_t>())
        << row;
  }
}

TEST_F(GpuCommand, AllStagesOnEachEngineWithEachMemory) {
  for (const char* where :
       {"--engine gpu", "--engine gpu --memory host", "--engine gpu --doorbell-memory gpu",
        "--engine gpu --memory host,gpu", "--engine gpu --blocks-per-qp 2", "--engine gpu-fused",
        "--initiator gpu", "--initiator gpu --memory gpu", "--initiator gpu --handler proxy",
        "--engine threads --memory gpu"}) {
    SCOPED_TRACE(where);
    const RanOnGpu r = run_on_gpu(std::string(where) + " --iters 100 --size 4096,1021,0");
    expect_valid(r, 3 * 5 * 2);
  }
}

TEST_F(GpuCommand, WarpsAndBlocksOfEachSharing) {
  for (const char* engine : {"gpu", "gpu-fused", "threads --initiator gpu"}) {
    for (const char* exec : {"warp", "block"}) {
      for (const char* rest : {"--stages batch,independent --sharing exclusive --completion tail",
                               "--stages shared --submit peal", "--stages shared --submit original",
                               "--stages batch --sharing block"}) {
        SCOPED_TRACE(std::string(engine) + " " + exec + " " + rest);
        const RanOnGpu r = run_on_gpu(std::string("--iters 100 --size 4096 --engine ") + engine +
                                      " --exec " + exec + " " + rest);
        EXPECT_EQ(r.end.status, 0) << r.end.err;
        for (const nlohmann::json& row : r.rows) EXPECT_EQ(row["exec"], exec);
      }
    }
  }
}

TEST_F(GpuCommand, RingOnlyAndEachOrder) {
  for (const char* engine : {"gpu", "gpu-fused", "threads --initiator gpu"}) {
    for (const char* order : {"ring_only", "record_ring", "ring_record_ring"}) {
      for (const char* publish : {"in_order", "combine"}) {
        SCOPED_TRACE(std::string(engine) + " " + order + " " + publish);
        const RanOnGpu r = run_on_gpu(std::string("--iters 100 --size 64 --engine ") + engine +
                                      " --doorbell " + order + " --publish " + publish);
        expect_valid(r, 5);
        for (const nlohmann::json& row : r.rows) EXPECT_EQ(row["doorbell"], order);
      }
    }
  }
}

TEST_F(GpuCommand, AWrongByteIsFound) {
  for (const char* engine : {"gpu", "gpu-fused", "threads --memory gpu --initiator gpu"}) {
    for (const char* fault : {"corrupt@17", "noop@17"}) {
      SCOPED_TRACE(std::string(engine) + " " + fault);
      const RanOnGpu r =
          run_on_gpu(std::string("--iters 100 --size 4096 --stages batch --engine ") + engine +
                     " --fault " + fault);
      EXPECT_EQ(r.end.status, 1) << r.end.err;
      EXPECT_TRUE(r.rows.empty());
      EXPECT_TRUE(contains(r.end.err, "stage batch, producer 0, PUT 17")) << r.end.err;
    }
  }
}

TEST_F(GpuCommand, AnErrorCqeEndsTheRunAndNamesItsPut) {
  for (const char* engine : {"gpu", "gpu-fused", "threads --initiator gpu"}) {
    for (const char* completion : {"every", "tail"}) {
      SCOPED_TRACE(std::string(engine) + " " + completion);
      const RanOnGpu r =
          run_on_gpu(std::string("--iters 100 --size 64 --stages window --engine ") + engine +
                     " --completion " + completion + " --fault cqe=0x13@17");
      EXPECT_EQ(r.end.status, 3) << r.end.err;
      EXPECT_TRUE(r.rows.empty());
      // A collapsed CQ shows none of those before.
      const bool tail = std::string(completion) == "tail";
      EXPECT_TRUE(contains(r.end.err, tail ? "producer 0, PUT 0 or later" : "producer 0, PUT 17"))
          << r.end.err;
      EXPECT_TRUE(contains(r.end.err, "syndrome 0x13")) << r.end.err;
      EXPECT_TRUE(contains(r.end.err, "17 of the timed traffic")) << r.end.err;
    }
  }
}

TEST_F(GpuCommand, AHeldNicEndsAtTheDeadline) {
  for (const char* engine : {"gpu", "gpu-fused", "threads --initiator gpu"}) {
    SCOPED_TRACE(engine);
    const RanOnGpu r = run_on_gpu(
        std::string("--iters 100 --size 64 --stages batch --deadline 0.5 --fault hold=60000 "
                    "--engine ") +
        engine);
    EXPECT_EQ(r.end.status, 4) << r.end.err;
    EXPECT_TRUE(contains(r.end.err, "no completion within 0.5 s")) << r.end.err;
    EXPECT_TRUE(contains(r.end.err, "NIC: ")) << r.end.err;  // where its QP stands
  }
}

TEST_F(GpuCommand, CtrlCEndsItWithAVerdict) {
  for (const char* engine : {"gpu", "gpu-fused"}) {
    SCOPED_TRACE(engine);
    Process process(peal_command(words("ladder --stages batch --engine") + Arguments{engine} +
                                 words("--size 4096 --iters 1000000000 --repeat 1 --region 256M")),
                    on_terminal());
    EXPECT_TRUE(process.wait_for_err(kTimedTraffic)) << process.err();
    process.signal(SIGINT);
    EXPECT_EQ(process.wait(), 130) << process.err();
    EXPECT_TRUE(contains(process.err(), "interrupted")) << process.err();
  }
}

TEST_F(GpuCommand, AClientAgainstAServer) {
  for (const char* client : {"--engine gpu", "--initiator gpu", "--initiator gpu --memory gpu"}) {
    SCOPED_TRACE(client);
    const Pair pair = run_pair(std::string(client) + " --repeat 1 --iters 100 --size 4096,64");
    expect_both(pair, 0);
    EXPECT_EQ(pair.rows.size(), 2u * 5 * 2);
    for (const nlohmann::json& row : pair.rows) {
      EXPECT_TRUE(row["validated"].get<bool>());
      EXPECT_TRUE(row["gpu"].is_string());
      EXPECT_EQ(row["engine"], "threads");
    }
  }
}

TEST_F(GpuCommand, AWrongByteIsFoundByTheServer) {
  expect_both(run_pair("--engine gpu --repeat 1 --iters 100 --size 4096 --stages batch "
                       "--fault corrupt@3"),
              1);
}

TEST_F(GpuCommand, WhatTheMachineLacksIsOneSentence) {
  for (const auto& [arguments, part] :
       {std::pair{"--engine gpu --stages serial --gpu 63", "names GPU 63"},
        std::pair{"--engine gpu --stages serial --nic-gpu 63", "names GPU 63"},
        std::pair{"--engine gpu --stages serial --memory gpu,gpu63", "names GPU 63"},
        std::pair{"--engine gpu --stages serial --region 1T",
                  "bytes of memory of GPU 0, which has"},
        std::pair{"--engine gpu-fused --stages shared --producers 1000 --qps 64 --nic-blocks 64",
                  "in one kernel"}}) {
    SCOPED_TRACE(arguments);
    const Ended e = run_peal("ladder --size 64 --iters 10 " + std::string(arguments));
    EXPECT_EQ(e.status, 5) << e.err;
    EXPECT_TRUE(contains(e.err, part)) << e.err;
  }
}

}  // namespace
}  // namespace peal::test
