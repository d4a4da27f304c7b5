// Producers that are threads of a GPU.
#pragma once

#include "engine/gpu/gpu_engine.hpp"
#include "ladder/gpu/produce.hpp"
#include "ladder/producers.hpp"

namespace peal::ladder::gpu {

class GpuProducers final : public Producers {
 public:
  // As ProducerLauncher.
  GpuProducers(std::uint32_t gpu, std::uint32_t producers, std::uint32_t window, Exec exec)
      : launcher_(gpu, producers, window), exec_(exec) {}

  // From now on its kernels hold the blocks of that NIC too. It must outlive them.
  void serve(const engine::gpu::Nic& nic) { nic_ = &nic; }

  std::vector<ProducerResult> run(const SegmentWork& work,
                                  const std::function<void()>& watch) override;
  void stop() override { launcher_.stop(); }
  const std::uint32_t* stop_word() const override { return launcher_.stop_word(); }
  const char* clock() const override { return "%globaltimer"; }

 private:
  ProducerLauncher launcher_;
  Exec exec_;
  const engine::gpu::Nic* nic_ = nullptr;
};

}  // namespace peal::ladder::gpu
