// The conformance suite under the simulated engine: the test itself is one of its agents.
#include "nic/conformance.hpp"

#include "engine/sim.hpp"
#include "sim/sim_nic.hpp"

namespace peal::test {
namespace {

struct SimHarness : PlainMemory {
  using Memory = sim::SimMemory;
  using Nic = sim::SimNic;
  engine::Engine& run(Nic& a, Nic& b) {
    engine.add("nics", 1, {{a.step()}, {b.step()}});
    return engine;
  }
  sim::Simulation simulation{{.seed = 7}};
  engine::SimEngine engine{simulation};
};

struct SimName {
  template <class Harness>
  static std::string GetName(int) {
    return "Sim";
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(SimEngine, Conformance, testing::Types<SimHarness>, SimName);

}  // namespace
}  // namespace peal::test
