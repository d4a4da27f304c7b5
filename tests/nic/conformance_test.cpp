// The conformance suite under the engines that run anywhere.
#include "nic/conformance.hpp"

#include <memory>

#include "engine/manual.hpp"
#include "engine/threads.hpp"
#include "support/manual_memory.hpp"

namespace peal::test {
namespace {

// A pause steps both NICs: one thread, virtual time.
struct ManualHarness : PlainMemory {
  using Memory = ManualMemory;
  using Nic = verbs::SoftwareNic;
  ManualHarness() = default;
  ~ManualHarness() { ManualMemory::hooks() = {}; }
  ManualHarness(const ManualHarness&) = delete;
  ManualHarness& operator=(const ManualHarness&) = delete;
  engine::Engine& run(Nic& a, Nic& b) {
    engine.add(a.step());
    engine.add(b.step());
    ManualMemory::hooks() = {};
    ManualMemory::hooks().on_pause = [this] {
      engine.advance(ManualMemory::hooks().ns_per_pause);
      engine.step();
    };
    return engine;
  }
  engine::ManualEngine engine;
};

struct ThreadsHarness : PlainMemory {
  using Memory = CpuMemory;
  using Nic = verbs::SoftwareNic;
  engine::Engine& run(Nic& a, Nic& b) {
    engine = std::make_unique<engine::ThreadsEngine>(std::vector<engine::Step>{a.step(), b.step()});
    return *engine;
  }
  std::unique_ptr<engine::ThreadsEngine> engine;
};

struct EngineNames {
  template <class Harness>
  static std::string GetName(int) {
    return std::is_same_v<Harness, ManualHarness> ? "Manual" : "Threads";
  }
};
using Engines = testing::Types<ManualHarness, ThreadsHarness>;
INSTANTIATE_TYPED_TEST_SUITE_P(Engine, Conformance, Engines, EngineNames);

}  // namespace
}  // namespace peal::test
