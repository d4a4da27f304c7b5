// Kernels whose threads are producers, as the tests launch them.
#pragma once

#include <cstdint>
#include <vector>

#include "ladder/exec.hpp"
#include "ladder/gpu/produce.hpp"
#include "peal/device/put.hpp"
#include "verbs/cuda_check.hpp"

namespace peal::test {

using cuda::why_no_gpu;
using ladder::Exec;
using ladder::exec_name;

// What each producer does: puts, one after the other or in a window, each to a place of its own.
struct Job {
  std::uint64_t source = 0;  // of producer 0's first PUT; the others' follow
  Lkey lkey;
  std::uint64_t target = 0;
  Rkey rkey;
  std::uint32_t bytes = 0;
  std::uint32_t puts = 0;  // of each producer
  std::uint32_t window = 1;
  std::uint32_t batch = 1;
  std::uint32_t producers = 1;
  std::uint32_t queues = 1;
  std::uint64_t timeout_ns = kDefaultTimeoutNs;
  SubmitOptions submit;
  Sharing sharing = Sharing::kDevice;
  Exec exec = Exec::kThread;
  bool signals = false;      // each PUT with a signal behind it
  std::uint64_t signal = 0;  // of producer 0; the others' follow, 64 bytes apart
  Sink sink;
};

// What became of a producer.
struct Outcome {
  Status status = Status::kOk;
  std::uint64_t posted = 0;
  std::uint64_t completed = 0;
  std::uint64_t started_ns = 0;  // by the GPU's timer
  std::uint64_t ended_ns = 0;
};

// The ladder's launcher, for the tests' jobs.
class Launcher {
 public:
  static constexpr std::uint32_t kProducersMax = 64;
  static constexpr std::uint32_t kWindowMax = 1024;

  Launcher();  // throws peal::Error, as run does
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // Returns when all producers have ended. With a `nic`, its blocks are in the same kernel.
  std::vector<Outcome> run(const std::vector<QueueHandle>& queues, const Job& job,
                           const engine::gpu::Nic* nic = nullptr);

 private:
  ladder::gpu::ProducerLauncher launcher_;
  QueueHandle* queues_ = nullptr;  // pinned
};

}  // namespace peal::test
