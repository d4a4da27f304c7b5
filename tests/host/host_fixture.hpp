// Two software NICs that a test steps, their providers, and ways to make the device answer
// otherwise: refusing a call, or being another device.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/manual.hpp"
#include "link/loopback.hpp"
#include "peal/host/context.hpp"
#include "peal/host/memory_region.hpp"
#include "peal/host/queue_pair.hpp"
#include "support/forwarding_memory.hpp"
#include "verbs/software_nic.hpp"

namespace peal::test {

// Passes every call on; a test overrides what it wants to be different.
class ForwardingVerbs : public verbs::Verbs {
 public:
  explicit ForwardingVerbs(std::shared_ptr<verbs::Verbs> to) : to_(std::move(to)) {}

  ibv_device** get_device_list(int* count) override { return to_->get_device_list(count); }
  void free_device_list(ibv_device** list) override { to_->free_device_list(list); }
  const char* get_device_name(ibv_device* device) override { return to_->get_device_name(device); }
  ibv_context* open_device(ibv_device* device) override { return to_->open_device(device); }
  int close_device(ibv_context* context) override { return to_->close_device(context); }
  int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) override {
    return to_->query_port(context, port, attributes);
  }
  bool is_hardware(ibv_context* context) override { return to_->is_hardware(context); }
  int query_gid(ibv_context* context, std::uint8_t port, std::uint32_t index,
                ibv_gid_entry* entry) override {
    return to_->query_gid(context, port, index, entry);
  }
  int query_pkey(ibv_context* context, std::uint8_t port, std::uint16_t index,
                 std::uint16_t* pkey) override {
    return to_->query_pkey(context, port, index, pkey);
  }
  ibv_pd* alloc_pd(ibv_context* context) override { return to_->alloc_pd(context); }
  int dealloc_pd(ibv_pd* pd) override { return to_->dealloc_pd(pd); }
  int query_pdn(ibv_pd* pd, std::uint32_t* pdn) override { return to_->query_pdn(pd, pdn); }
  int query_remote_mac(ibv_pd* pd, ibv_ah_attr* path, std::uint8_t mac[6]) override {
    return to_->query_remote_mac(pd, path, mac);
  }
  ibv_mr* reg_mr_iova(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t iova,
                      int access) override {
    return to_->reg_mr_iova(pd, address, bytes, iova, access);
  }
  ibv_mr* reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t bytes, std::uint64_t iova,
                        int fd, int access) override {
    return to_->reg_dmabuf_mr(pd, offset, bytes, iova, fd, access);
  }
  int dereg_mr(ibv_mr* mr) override { return to_->dereg_mr(mr); }
  mlx5dv_devx_umem* devx_umem_reg(ibv_context* context, void* address, std::size_t bytes,
                                  std::uint32_t access) override {
    return to_->devx_umem_reg(context, address, bytes, access);
  }
  mlx5dv_devx_umem* devx_umem_reg_dmabuf(ibv_context* context, std::uint64_t offset,
                                         std::size_t bytes, int fd, std::uint32_t access) override {
    return to_->devx_umem_reg_dmabuf(context, offset, bytes, fd, access);
  }
  int devx_umem_dereg(mlx5dv_devx_umem* umem) override { return to_->devx_umem_dereg(umem); }
  mlx5dv_devx_uar* devx_alloc_uar(ibv_context* context, std::uint32_t flags) override {
    return to_->devx_alloc_uar(context, flags);
  }
  void devx_free_uar(mlx5dv_devx_uar* uar) override { to_->devx_free_uar(uar); }
  int devx_query_eqn(ibv_context* context, std::uint32_t vector, std::uint32_t* eqn) override {
    return to_->devx_query_eqn(context, vector, eqn);
  }
  int devx_general_cmd(ibv_context* context, const void* in, std::size_t in_bytes, void* out,
                       std::size_t out_bytes) override {
    return to_->devx_general_cmd(context, in, in_bytes, out, out_bytes);
  }
  mlx5dv_devx_obj* devx_obj_create(ibv_context* context, const void* in, std::size_t in_bytes,
                                   void* out, std::size_t out_bytes) override {
    return to_->devx_obj_create(context, in, in_bytes, out, out_bytes);
  }
  int devx_obj_query(mlx5dv_devx_obj* object, const void* in, std::size_t in_bytes, void* out,
                     std::size_t out_bytes) override {
    return to_->devx_obj_query(object, in, in_bytes, out, out_bytes);
  }
  int devx_obj_modify(mlx5dv_devx_obj* object, const void* in, std::size_t in_bytes, void* out,
                      std::size_t out_bytes) override {
    return to_->devx_obj_modify(object, in, in_bytes, out, out_bytes);
  }
  int devx_obj_destroy(mlx5dv_devx_obj* object) override { return to_->devx_obj_destroy(object); }

 private:
  std::shared_ptr<verbs::Verbs> to_;
};

// Host memory that can be refused, and counts what is alive.
class CountingMemory : public ForwardingMemory {
 public:
  using ForwardingMemory::ForwardingMemory;

  void* allocate(std::size_t bytes) override {
    void* memory = ForwardingMemory::allocate(bytes);
    if (memory != nullptr) ++live;
    return memory;
  }
  void release(void* memory, std::size_t bytes) override {
    --live;
    ForwardingMemory::release(memory, bytes);
  }
  void* map_uar(void* reg_addr) override {
    void* mapped = ForwardingMemory::map_uar(reg_addr);
    if (mapped != nullptr) ++mapped_uars;
    return mapped;
  }
  void unmap_uar(void* mapped) override {
    --mapped_uars;
    ForwardingMemory::unmap_uar(mapped);
  }

  int live = 0;
  int mapped_uars = 0;
};

// Notes every operation that is asked for, and can refuse one of them.
struct Refusals {
  std::vector<std::string> asked;
  std::size_t refuse_at = ~std::size_t{0};  // a place in `asked`
  std::string refuse_all;                   // an operation
  bool one_uar_type = false;                // a refused UAR page is not of either type
  int code = EPERM;

  verbs::RefuseHook hook() {
    return [this](std::string_view operation) {
      const std::size_t at = asked.size();
      asked.emplace_back(operation);
      const bool next_uar_type = at == refuse_at + 1 && operation == "devx_alloc_uar" &&
                                 asked[refuse_at] == operation && !one_uar_type;
      return at == refuse_at || next_uar_type || operation == refuse_all ? code : 0;
    };
  }
  std::size_t count(const std::string& operation) const {
    return static_cast<std::size_t>(std::count(asked.begin(), asked.end(), operation));
  }
};

struct HostFixture {
  Provider provider(verbs::RefuseHook refuse = {}) {
    return nic.provider(engine, std::move(refuse));
  }
  // Refused by `refusals`, and with memory that is counted.
  Provider counted_provider(Refusals& refusals) {
    Provider p = nic.provider(engine, refusals.hook());
    p.memory = memory = std::make_shared<CountingMemory>(refusals.hook());
    return p;
  }
  Provider peer_provider() { return peer_nic.provider(engine); }
  nic::Commands::Objects objects() { return nic.core().commands().objects(); }
  std::shared_ptr<CountingMemory> memory;  // of counted_provider()
  link::Loopback loopback;
  engine::ManualEngine engine;
  verbs::SoftwareNic nic{{.nic_number = 1}, loopback.a()};
  verbs::SoftwareNic peer_nic{{.nic_number = 2}, loopback.b()};
};

// The Error that `f` throws; a failure and an empty one when it throws none.
inline Error error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "no Error was thrown";
  return Error(0, "");
}

inline bool says(const Error& e, const std::string& text) {
  return std::string(e.what()).find(text) != std::string::npos;
}

}  // namespace peal::test
