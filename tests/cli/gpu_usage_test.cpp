// Wrong use of what runs on a GPU, told before a GPU is looked for.
#include <gtest/gtest.h>

#include "cli/peal.hpp"

namespace peal::test {
namespace {

TEST(CliGpuUsage, WhatDoesNotGoTogetherIsOneSentence) {
  for (const auto& [arguments, part] : {
           std::pair{"--exec warp", "--exec warp needs producers on a GPU"},
           std::pair{"--exec lane", "must be one of thread, warp, block"},
           std::pair{"--engine gpu --initiator cpu", "not with --initiator cpu"},
           std::pair{"--engine gpu --handler proxy", "has no proxy"},
           std::pair{"--engine gpu-fused --order strict", "not with --order strict"},
           std::pair{"--engine gpu --dbsrc dbr", "not with --dbsrc dbr"},
           std::pair{"--engine gpu --fault delay=10", "not with --fault delay=10"},
           std::pair{"--engine gpu --memory gpux", "--memory must be a whole number"},
           std::pair{"--engine gpu --memory nic", "--memory takes host, gpu or gpuN"},
           std::pair{"--engine gpu --memory gpu,", "--memory takes host, gpu or gpuN"},
           std::pair{"--engine gpu --nic-blocks 3 --blocks-per-qp 2",
                     "to be a multiple of --blocks-per-qp 2"},
           std::pair{"--engine gpu --nic-blocks 0", "--nic-blocks"},
           std::pair{"--engine gpu-fused --nic-gpu 1", "not with --nic-gpu of another GPU"},
           std::pair{"--engine gpu --blocks-per-qp 17", "--blocks-per-qp"},
           std::pair{"--nic-blocks 4", "--nic-blocks is of --engine gpu"},
           std::pair{"--nic-gpu 1", "--nic-gpu is of --engine gpu"},
           std::pair{"--initiator gpu --doorbell-memory gpu", "a CPU polls its own memory"},
           std::pair{"--gpu 0", "--gpu has no use here"},
           std::pair{"--engine gpu --gpu 64", "--gpu"},
           std::pair{"--engine gpu --sharing block --producers 1025", "--producers"},
           std::pair{"--engine gpu --sharing block --exec warp --producers 33 --stages shared",
                     "one block of threads, which has at most 1024, not 1056"},
           std::pair{"--engine gpu --sharing block --exec block --stages shared",
                     "needs a QP for each producer"},
       }) {
    expect_refusal(words(std::string("ladder --size 64 --iters 1 ") + arguments), part);
  }
}

}  // namespace
}  // namespace peal::test
