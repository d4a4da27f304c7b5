// Where a context's NIC comes from.
#pragma once

#include <memory>

namespace peal {

namespace verbs {
class Verbs;
class DeviceMemory;
}  // namespace verbs

// The tables of functions behind the control path. Opaque to users; SoftwareFabric makes them.
// Contexts keep their provider alive.
struct Provider {
  std::shared_ptr<verbs::Verbs> verbs;
  std::shared_ptr<verbs::DeviceMemory> memory;
};

}  // namespace peal
