// A software ConnectX with the verbs table over it, ready for an engine.
#pragma once

#include <memory>

#include "engine/engine.hpp"
#include "link/link.hpp"
#include "nic/core.hpp"
#include "peal/host/provider.hpp"
#include "peal/memory/cpu_memory.hpp"
#include "verbs/software.hpp"

namespace peal::nic {
// Compiled once, in software_nic.cpp.
extern template class Core<CpuMemory>;
}  // namespace peal::nic

namespace peal::verbs {

// Of memory as the policy `M` sees it. The engine given to provider() must step step() and outlive
// every context on it.
template <class M>
class SoftwareNicOf {
 public:
  SoftwareNicOf(const nic::CoreOptions& options, link::Link& link, const SoftwarePort& port = {})
      : core_(options, link), port_(port) {}

  nic::Core<M>& core() { return core_; }
  engine::Step step() {
    return [this](std::uint64_t now_ns) { return core_.step(now_ns); };
  }

  Provider provider(engine::Engine& engine, RefuseHook refuse = {}) {
    auto memory = std::make_shared<HostMemory>(refuse);
    return provider(engine, std::move(memory), std::move(refuse));
  }
  // The NIC must reach `memory` as its policy expects.
  Provider provider(engine::Engine& engine, std::shared_ptr<DeviceMemory> memory,
                    RefuseHook refuse = {},
                    std::shared_ptr<UarPages> pages = std::make_shared<UarPages>()) {
    return {std::make_shared<SoftwareVerbs>(engine, core_.commands(), std::move(refuse),
                                            std::move(pages), port_),
            std::move(memory)};
  }

 private:
  nic::Core<M> core_;
  SoftwarePort port_;
};

using SoftwareNic = SoftwareNicOf<CpuMemory>;

}  // namespace peal::verbs
