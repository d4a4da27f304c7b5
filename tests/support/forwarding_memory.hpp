// Host memory as a table of functions, for tests that change or watch some of them.
#pragma once

#include <cstddef>
#include <utility>

#include "verbs/software.hpp"

namespace peal::test {

class ForwardingMemory : public verbs::DeviceMemory {
 public:
  explicit ForwardingMemory(verbs::RefuseHook refuse = {}) : host_(std::move(refuse)) {}

  void* allocate(std::size_t bytes) override { return host_.allocate(bytes); }
  void release(void* memory, std::size_t bytes) override { host_.release(memory, bytes); }
  void* map_uar(void* reg_addr) override { return host_.map_uar(reg_addr); }
  void unmap_uar(void* mapped) override { host_.unmap_uar(mapped); }
  int copy_to_device(void* to, const void* from, std::size_t bytes) override {
    return host_.copy_to_device(to, from, bytes);
  }
  int copy_from_device(void* to, const void* from, std::size_t bytes) override {
    return host_.copy_from_device(to, from, bytes);
  }

 private:
  verbs::HostMemory host_;
};

}  // namespace peal::test
