// Kernels whose threads are producers, as the tests launch them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "peal/device/put.hpp"

namespace peal::engine::gpu {
struct Nic;
}

namespace peal::test {

// How many threads act as one producer.
enum class Exec : std::uint8_t { kThread, kWarp, kBlock };
inline const char* exec_name(Exec e) {
  return e == Exec::kThread ? "thread" : e == Exec::kWarp ? "warp" : "block";
}

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

// Empty where a GPU can be used; otherwise why not.
std::string why_no_gpu();

// Launches producers. What it needs of CUDA it has from its construction on, so that it can be used
// beside a kernel that runs for ever.
class Launcher {
 public:
  static constexpr std::uint32_t kProducersMax = 64;
  static constexpr std::uint32_t kWindowMax = 1024;

  Launcher();  // throws std::runtime_error where CUDA does, as does run
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // One thread a producer: of blocks of their own, or where the sharing is block, of one. Returns
  // when all have ended. With a `nic`, its blocks are in the same kernel, and a producer that is a
  // block has as many threads as they.
  std::vector<Outcome> run(const std::vector<QueueHandle>& queues, const Job& job,
                           const engine::gpu::Nic* nic = nullptr);

 private:
  struct Impl;
  Impl* impl_;
};

}  // namespace peal::test
