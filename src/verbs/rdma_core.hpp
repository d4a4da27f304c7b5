// The verbs table filled by the system's libraries, libibverbs and libmlx5, which are loaded at run
// time: a build needs their headers only, and a machine without them can still run everything else.
#pragma once

#include <string>

#include "verbs/verbs.hpp"

namespace peal::verbs {

class RdmaCore final : public Verbs {
 public:
  // As rdma_core() says. Throws Error.
  explicit RdmaCore(const std::string& folder = {});

  ibv_device** get_device_list(int* count) override;
  void free_device_list(ibv_device** list) override;
  const char* get_device_name(ibv_device* device) override;
  // With DevX, or not at all.
  ibv_context* open_device(ibv_device* device) override;
  int close_device(ibv_context* context) override;
  // By what the kernel names behind the device.
  bool is_hardware(ibv_context* context) override;
  int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) override;
  int query_gid(ibv_context* context, std::uint8_t port, std::uint32_t index,
                ibv_gid_entry* entry) override;
  int query_pkey(ibv_context* context, std::uint8_t port, std::uint16_t index,
                 std::uint16_t* pkey) override;
  ibv_pd* alloc_pd(ibv_context* context) override;
  int dealloc_pd(ibv_pd* pd) override;
  int query_pdn(ibv_pd* pd, std::uint32_t* pdn) override;
  int query_remote_mac(ibv_pd* pd, ibv_ah_attr* path, std::uint8_t mac[6]) override;
  ibv_mr* reg_mr_iova(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t iova,
                      int access) override;
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
  struct Functions {
    decltype(&::ibv_get_device_list) get_device_list;
    decltype(&::ibv_free_device_list) free_device_list;
    decltype(&::ibv_get_device_name) get_device_name;
    decltype(&::ibv_close_device) close_device;
    // The function behind the header's macro of that name; it writes the older, shorter attributes.
    int (*query_port)(ibv_context*, std::uint8_t, _compat_ibv_port_attr*);
    decltype(&::_ibv_query_gid_ex) query_gid_ex;
    decltype(&::ibv_query_pkey) query_pkey;
    decltype(&::ibv_alloc_pd) alloc_pd;
    decltype(&::ibv_dealloc_pd) dealloc_pd;
    decltype(&::ibv_create_ah) create_ah;
    decltype(&::ibv_destroy_ah) destroy_ah;
    decltype(&::ibv_reg_mr_iova2) reg_mr_iova2;
    decltype(&::ibv_reg_dmabuf_mr) reg_dmabuf_mr;
    decltype(&::ibv_dereg_mr) dereg_mr;
    decltype(&::mlx5dv_open_device) open_device;
    decltype(&::mlx5dv_init_obj) init_obj;
    decltype(&::mlx5dv_devx_umem_reg) umem_reg;
    decltype(&::mlx5dv_devx_umem_reg_ex) umem_reg_ex;
    decltype(&::mlx5dv_devx_umem_dereg) umem_dereg;
    decltype(&::mlx5dv_devx_alloc_uar) alloc_uar;
    decltype(&::mlx5dv_devx_free_uar) free_uar;
    decltype(&::mlx5dv_devx_query_eqn) query_eqn;
    decltype(&::mlx5dv_devx_general_cmd) general_cmd;
    decltype(&::mlx5dv_devx_obj_create) obj_create;
    decltype(&::mlx5dv_devx_obj_query) obj_query;
    decltype(&::mlx5dv_devx_obj_modify) obj_modify;
    decltype(&::mlx5dv_devx_obj_destroy) obj_destroy;
  };
  static Functions load(const std::string& folder);

  const Functions f_;
};

}  // namespace peal::verbs
