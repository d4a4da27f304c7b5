// The device-memory table where the producers are CPU threads: ordinary memory.
#pragma once

#include <functional>
#include <string_view>
#include <utility>

#include "verbs/verbs.hpp"

namespace peal::verbs {

// Asked before each operation, by its name ("reg_mr", "devx_alloc_uar", ...); an errno value makes
// it fail with that, 0 lets it through.
using RefuseHook = std::function<int(std::string_view operation)>;

// True, with errno set, when the hook refuses.
bool refused_by(const RefuseHook& refuse, std::string_view operation);

// Plain host memory; a UAR register is reached by its own address. The hook is asked before
// "allocate", "map_uar" and "copy_to_device".
class HostMemory final : public DeviceMemory {
 public:
  explicit HostMemory(RefuseHook refuse = {}) : refuse_(std::move(refuse)) {}

  void* allocate(std::size_t bytes) override;
  void release(void* memory, std::size_t bytes) override;
  void* map_uar(void* reg_addr) override;
  void unmap_uar(void*) override {}
  int copy_to_device(void* to, const void* from, std::size_t bytes) override;
  int copy_from_device(void* to, const void* from, std::size_t bytes) override;

 private:
  RefuseHook refuse_;
};

}  // namespace peal::verbs
