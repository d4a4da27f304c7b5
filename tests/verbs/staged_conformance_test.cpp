// The conformance suite with queues, payload or both in memory that the CPU does not reach.
#include <memory>
#include <optional>

#include "engine/threads.hpp"
#include "nic/conformance.hpp"
#include "support/sealed_memory.hpp"
#include "verbs/staged_nic.hpp"

namespace peal::test {
namespace {

template <bool kQueuesSealed, bool kPayloadSealed>
struct StagedHarness : PlainMemory {
  using Memory = CpuMemory;
  using Nic = verbs::StagedNic;
  engine::Engine& run(Nic& a, Nic& b) {
    engine.emplace(std::vector<engine::Step>{a.step(), b.step()});
    return *engine;
  }
  Provider provider(Nic& nic, engine::Engine& e) {
    return kQueuesSealed ? nic.provider(e, sealed) : nic.provider(e);
  }
  std::span<std::byte> payload(std::size_t bytes) {
    if (!kPayloadSealed) return PlainMemory::payload(bytes);
    auto* memory = static_cast<std::byte*>(sealed->allocate(bytes));
    sealed_payloads.push_back(memory);
    return {SealedMemory::open(memory), bytes};
  }
  std::byte* registered(std::span<std::byte> payload) const {
    for (std::byte* memory : sealed_payloads) {
      if (SealedMemory::open(memory) == payload.data()) return memory;
    }
    return payload.data();
  }
  static QueueHandle opened(const QueueHandle& handle) { return SealedMemory::open(handle); }

  std::shared_ptr<SealedMemory> sealed = std::make_shared<SealedMemory>();
  verbs::StagedMemory::Range range{sealed->begin(), SealedMemory::kBytes, sealed};
  std::vector<std::byte*> sealed_payloads;
  std::optional<engine::ThreadsEngine> engine;
};

struct StagedNames {
  template <class Harness>
  static std::string GetName(int i) {
    return i == 0 ? "QueuesAndPayload" : i == 1 ? "Payload" : "Queues";
  }
};
using StagedHarnesses = testing::Types<StagedHarness<true, true>, StagedHarness<false, true>,
                                       StagedHarness<true, false>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Staged, Conformance, StagedHarnesses, StagedNames);

}  // namespace
}  // namespace peal::test
