// An engine whose data path is a persistent kernel: blocks of threads fetch runs of WQEs, check
// them with the core's own functions, copy their payload concurrently and write their CQEs. The
// control path stays that of the cores, on the CPU; what it changes reaches the kernel as new
// tables.
//
// Both ends' NICs are in this one kernel: payload goes straight from the sender's regions to the
// receiver's, which may lie in this GPU's memory, another GPU's, or pinned host memory.
// Writes are placed in any order among themselves (relaxed); an atomic, a read and a fenced WQE
// come after all before them and before all after them. Not served: WAIT and WQEs of several slots,
// which are refused; strictness about records.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/engine.hpp"
#include "nic/core.hpp"
#include "peal/memory/cpu_memory.hpp"

namespace peal::engine {

namespace gpu {
struct Nic;
}

struct GpuEngineOptions {
  std::uint32_t blocks = 8;
  // So many blocks serve the same queues, each such group its share of the sender's: one fetches,
  // checks and completes, all copy. 1 to 16, and divides `blocks`.
  std::uint32_t blocks_a_queue = 1;
  bool null_payload = false;  // completes without moving
  // CUDA's number of the GPU that runs the kernel; below 0: the current one at construction. The
  // queues and the payload may lie elsewhere, as long as that GPU reaches them: whoever makes
  // memory on another GPU enables the access.
  int device = -1;
  // Starts no kernel: the blocks are part of each kernel of producers (serve.cuh), and what the
  // control path changes reaches the next one.
  bool fused = false;
};

// The queues' memory is that of verbs::CudaDeviceMemory, their pages those of verbs::CudaUarPages.
// While it lives, nothing may be asked of CUDA that waits for the device: no allocation, no first
// launch.
class GpuEngine final : public Engine {
 public:
  using Core = nic::Core<CpuMemory>;

  // The cores must outlive it; nobody else steps them. Throws peal::Error.
  GpuEngine(Core& sender, Core& receiver, const GpuEngineOptions& options = {});
  // Stops the kernel and waits for its end, at most 10 s; one that does not end keeps its memory.
  ~GpuEngine() override;

  // Runs `f`, and returns when every block that runs works with what it changed. Throws peal::Error
  // when one does not answer within 10 s, and from then on; and when `f` arms faults that are not
  // served (delay; more than 32 of a queue, or 64 in all), which are disarmed then.
  void call(const std::function<void()>& f) override;

  // Fused: what the kernel of producers needs. Whoever launches it sets `producers` in a copy and
  // `*ended` to 0.
  const gpu::Nic& nic() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace peal::engine
