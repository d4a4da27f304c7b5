// Kernels whose threads are producers: what they are told and what became of them, as plain data,
// and who launches them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/gpu/nic_kernel.hpp"
#include "ladder/exec.hpp"
#include "peal/device/operation.hpp"
#include "peal/device/queue_handle.hpp"

namespace peal::ladder::gpu {

// PUT i of producer p goes from and to place p * puts + i of its region.
struct ProduceWork {
  const QueueHandle* queues = nullptr;  // where the kernel reaches them; producer p uses p % qps
  std::uint32_t qps = 1;
  std::uint32_t producers = 1;
  std::uint32_t window = 1;  // PUTs in flight, all producers together
  std::uint32_t batch = 1;
  SubmitOptions submit;
  Sharing sharing = Sharing::kDevice;
  Exec exec = Exec::kThread;
  std::uint64_t puts = 0;  // of each producer
  std::uint64_t bytes = 0;
  std::uint64_t stride_bytes = 0;  // from place to place
  std::uint64_t source = 0;        // place 0
  Lkey lkey;
  std::uint64_t destination = 0;
  Rkey rkey;
  std::uint64_t timeout_ns = 0;
  // Each PUT with a signal behind it, in one submission: producer 0's word; the others' follow, 64
  // bytes apart. 0: none.
  std::uint64_t signal = 0;
  Sink sink;
};

struct Produced {
  Status status = Status::kOk;
  std::uint64_t puts = 0;  // posted
  std::uint64_t completed_puts = 0;
  std::uint64_t wqes = 0;
  std::uint64_t reservations = 0;
  std::uint64_t start_ns = 0;  // by the GPU's timer
  std::uint64_t end_ns = 0;
  std::uint64_t latency_max_ns = 0;
};

// What it needs of CUDA it has from its construction on, so that it can be used beside a kernel
// that runs for ever. Any one thread at a time.
class ProducerLauncher {
 public:
  // Runs on `gpu` up to `producers` with a window of up to `window` PUTs, all together. Throws
  // peal::Error, as run does.
  ProducerLauncher(std::uint32_t gpu, std::uint32_t producers, std::uint32_t window);
  ~ProducerLauncher();
  ProducerLauncher(const ProducerLauncher&) = delete;
  ProducerLauncher& operator=(const ProducerLauncher&) = delete;

  // Runs all producers, which start together, and returns when all have ended. `nic`, where it is
  // not null: its blocks run in the same kernel. Calls `watch` about ten times a second meanwhile.
  std::vector<Produced> run(const ProduceWork& work, const engine::gpu::Nic* nic,
                            const std::function<void()>& watch);

  // Of the last run, how many tickets of producer p took so long; by LatencyBuckets. Only where
  // the batch was 1.
  const std::uint64_t* latency_counts(std::uint32_t p) const;

  // Ends every wait of the run that goes on.
  void stop();
  const std::uint32_t* stop_word() const;

 private:
  struct Impl;
  Impl* impl_;
};

}  // namespace peal::ladder::gpu
