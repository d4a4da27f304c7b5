// The verbs table filled by a software ConnectX: every call becomes a command to its core, executed
// by its engine between two steps. Answers and errors are those of the libraries.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/engine.hpp"
#include "nic/commands.hpp"
#include "verbs/host_memory.hpp"
#include "verbs/verbs.hpp"

namespace peal::verbs {

// Where the pages come from that stand for UAR pages.
class UarPages {
 public:
  virtual ~UarPages() = default;
  // Of mlx5::kUarPageBytes, zeroed and aligned to that; null where there is none.
  virtual void* take();
  virtual void give_back(void* page);
};

// What the device's one port says of itself.
struct SoftwarePort {
  // Of a RoCE v2 port, an IPv4 address as ::ffff:a.b.c.d; absent: an InfiniBand port.
  std::optional<std::array<std::uint8_t, 16>> roce_gid = {};
  std::uint32_t mtu_bytes = 4096;  // a RoCE MTU
};

// `engine` and `commands` must outlive it.
class SoftwareVerbs final : public Verbs {
 public:
  SoftwareVerbs(engine::Engine& engine, nic::Commands& commands, RefuseHook refuse = {},
                std::shared_ptr<UarPages> pages = std::make_shared<UarPages>(),
                const SoftwarePort& port = {})
      : engine_(engine),
        commands_(commands),
        refuse_(std::move(refuse)),
        pages_(std::move(pages)),
        port_(port) {}

  ibv_device** get_device_list(int* count) override;
  void free_device_list(ibv_device** list) override;
  const char* get_device_name(ibv_device* device) override;
  ibv_context* open_device(ibv_device* device) override;
  int close_device(ibv_context* context) override;
  bool is_hardware(ibv_context*) override { return false; }
  int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) override;
  int query_gid(ibv_context* context, std::uint8_t port, std::uint32_t index,
                ibv_gid_entry* entry) override;
  // One slot, with the key of the default partition.
  int query_pkey(ibv_context* context, std::uint8_t port, std::uint16_t index,
                 std::uint16_t* pkey) override;
  ibv_pd* alloc_pd(ibv_context* context) override;
  int dealloc_pd(ibv_pd* pd) override;
  int query_pdn(ibv_pd* pd, std::uint32_t* pdn) override;
  int query_remote_mac(ibv_pd* pd, ibv_ah_attr* path, std::uint8_t mac[6]) override;
  ibv_mr* reg_mr_iova(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t iova,
                      int access) override;
  // Like a kernel without dmabuf: EOPNOTSUPP.
  ibv_mr* reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t bytes, std::uint64_t iova,
                        int fd, int access) override;
  int dereg_mr(ibv_mr* mr) override;
  mlx5dv_devx_umem* devx_umem_reg(ibv_context* context, void* address, std::size_t bytes,
                                  std::uint32_t access) override;
  mlx5dv_devx_umem* devx_umem_reg_dmabuf(ibv_context* context, std::uint64_t offset,
                                         std::size_t bytes, int fd, std::uint32_t access) override;
  int devx_umem_dereg(mlx5dv_devx_umem* umem) override;
  mlx5dv_devx_uar* devx_alloc_uar(ibv_context* context, std::uint32_t flags) override;
  void devx_free_uar(mlx5dv_devx_uar* uar) override;
  int devx_query_eqn(ibv_context* context, std::uint32_t vector, std::uint32_t* eqn) override;
  int devx_general_cmd(ibv_context* context, const void* in, std::size_t in_bytes, void* out,
                       std::size_t out_bytes) override;
  mlx5dv_devx_obj* devx_obj_create(ibv_context* context, const void* in, std::size_t in_bytes,
                                   void* out, std::size_t out_bytes) override;
  int devx_obj_query(mlx5dv_devx_obj* object, const void* in, std::size_t in_bytes, void* out,
                     std::size_t out_bytes) override;
  int devx_obj_modify(mlx5dv_devx_obj* object, const void* in, std::size_t in_bytes, void* out,
                      std::size_t out_bytes) override;
  int devx_obj_destroy(mlx5dv_devx_obj* object) override;

 private:
  bool refused(std::string_view operation) const;
  // Takes something apart between two steps; 0, or an errno value when that could not be done.
  // Destructors rest on it: it throws nothing.
  int undo(const std::function<void()>& f);
  // Runs one command; 0, or EREMOTEIO when its status is not OK.
  int execute(const void* in, std::size_t in_bytes, void* out, std::size_t out_bytes);

  engine::Engine& engine_;
  nic::Commands& commands_;
  RefuseHook refuse_;
  std::shared_ptr<UarPages> pages_;
  const SoftwarePort port_;
};

}  // namespace peal::verbs
