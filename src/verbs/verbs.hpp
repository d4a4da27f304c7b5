// The functions of libibverbs and libmlx5 that the control path calls, as a table: the same names,
// arguments and errors. Filled by the system's libraries or by the software ConnectX; the control
// path does not know by which.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace peal::verbs {

class Verbs {
 public:
  virtual ~Verbs() = default;

  virtual ibv_device** get_device_list(int* count) = 0;
  virtual void free_device_list(ibv_device** list) = 0;
  virtual const char* get_device_name(ibv_device* device) = 0;
  virtual ibv_context* open_device(ibv_device* device) = 0;
  virtual int close_device(ibv_context* context) = 0;
  // Whether there is a device on a bus behind it, and not software that answers alike.
  virtual bool is_hardware(ibv_context* context) = 0;
  virtual int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) = 0;
  // ibv_query_gid_ex; ENODATA where the slot is empty.
  virtual int query_gid(ibv_context* context, std::uint8_t port, std::uint32_t index,
                        ibv_gid_entry* entry) = 0;
  // ibv_query_pkey, but for the error: an errno value. The key in host order; 0: the slot is empty.
  virtual int query_pkey(ibv_context* context, std::uint8_t port, std::uint16_t index,
                         std::uint16_t* pkey) = 0;

  virtual ibv_pd* alloc_pd(ibv_context* context) = 0;
  virtual int dealloc_pd(ibv_pd* pd) = 0;
  // mlx5dv_init_obj(MLX5DV_OBJ_PD)
  virtual int query_pdn(ibv_pd* pd, std::uint32_t* pdn) = 0;
  // The Ethernet address of the peer that `path` leads to: ibv_create_ah, then
  // mlx5dv_init_obj(MLX5DV_OBJ_AH).
  virtual int query_remote_mac(ibv_pd* pd, ibv_ah_attr* path, std::uint8_t mac[6]) = 0;
  virtual ibv_mr* reg_mr_iova(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t iova,
                              int access) = 0;
  // The `bytes` from `offset` on of what `fd` stands for, under the addresses from `iova` on.
  virtual ibv_mr* reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t bytes,
                                std::uint64_t iova, int fd, int access) = 0;
  virtual int dereg_mr(ibv_mr* mr) = 0;

  virtual mlx5dv_devx_umem* devx_umem_reg(ibv_context* context, void* address, std::size_t bytes,
                                          std::uint32_t access) = 0;
  // mlx5dv_devx_umem_reg_ex with MLX5DV_UMEM_MASK_DMABUF.
  virtual mlx5dv_devx_umem* devx_umem_reg_dmabuf(ibv_context* context, std::uint64_t offset,
                                                 std::size_t bytes, int fd,
                                                 std::uint32_t access) = 0;
  virtual int devx_umem_dereg(mlx5dv_devx_umem* umem) = 0;
  virtual mlx5dv_devx_uar* devx_alloc_uar(ibv_context* context, std::uint32_t flags) = 0;
  virtual void devx_free_uar(mlx5dv_devx_uar* uar) = 0;
  virtual int devx_query_eqn(ibv_context* context, std::uint32_t vector, std::uint32_t* eqn) = 0;
  virtual int devx_general_cmd(ibv_context* context, const void* in, std::size_t in_bytes,
                               void* out, std::size_t out_bytes) = 0;
  virtual mlx5dv_devx_obj* devx_obj_create(ibv_context* context, const void* in,
                                           std::size_t in_bytes, void* out,
                                           std::size_t out_bytes) = 0;
  virtual int devx_obj_query(mlx5dv_devx_obj* object, const void* in, std::size_t in_bytes,
                             void* out, std::size_t out_bytes) = 0;
  virtual int devx_obj_modify(mlx5dv_devx_obj* object, const void* in, std::size_t in_bytes,
                              void* out, std::size_t out_bytes) = 0;
  virtual int devx_obj_destroy(mlx5dv_devx_obj* object) = 0;
};

// Part of a dmabuf. Who is given one closes it.
struct Dmabuf {
  int fd = -1;
  std::uint64_t offset = 0;
};

class OwnedDmabuf {
 public:
  explicit OwnedDmabuf(Dmabuf dmabuf) : dmabuf_(dmabuf) {}
  ~OwnedDmabuf() {
    if (dmabuf_.fd >= 0) close(dmabuf_.fd);
  }
  OwnedDmabuf(const OwnedDmabuf&) = delete;
  OwnedDmabuf& operator=(const OwnedDmabuf&) = delete;

  const Dmabuf& get() const { return dmabuf_; }

 private:
  Dmabuf dmabuf_;
};

// Memory that the producers' processor and the NIC both reach, as a table.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // Zeroed, aligned to a page; null and errno when it cannot be had.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory, std::size_t bytes) = 0;
  // The address by which a producer reaches the UAR register at `reg_addr`; null and errno when it
  // cannot be mapped. Registers of one page may be mapped one by one.
  virtual void* map_uar(void* reg_addr) = 0;
  virtual void unmap_uar(void* mapped) = 0;
  // What would help where that is refused, as a clause; empty where nothing is known to.
  virtual const char* uar_remedy() const { return ""; }
  // Copies `bytes` of ordinary memory into memory of this table. Returns when it has been done: 0,
  // or an errno value.
  virtual int copy_to_device(void* to, const void* from, std::size_t bytes) = 0;
  // The other way round, of whole 4-byte words, while the device may be writing them.
  virtual int copy_from_device(void* to, const void* from, std::size_t bytes) = 0;
  // Copies payload, of any length and alignment: each end is of this table or ordinary memory.
  virtual int copy_payload(void* to, const void* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
    return 0;
  }
  // Whether the CPU reaches what allocate() gives by the same addresses. Where it does not, every
  // function above that copies is overridden.
  virtual bool reached_by_cpu() const { return true; }

  // Memory that a CPU thread and the producers both reach by the same addresses, as a proxy and
  // they must: otherwise like allocate() and release(). Where it is not to be had, ENOTSUP.
  virtual void* allocate_shared(std::size_t bytes) {
    if (reached_by_cpu()) return allocate(bytes);
    errno = ENOTSUP;
    return nullptr;
  }
  virtual void release_shared(void* memory, std::size_t bytes) { release(memory, bytes); }

  // Whether `memory`, of this table or any other, is a GPU's own: a NIC has to be helped to it.
  virtual bool on_gpu(const void*) const { return false; }
  // Of memory that is: fd -1 and errno when it cannot be exported.
  virtual Dmabuf export_dmabuf(const void*, std::size_t) {
    errno = ENOTSUP;
    return {};
  }
};

}  // namespace peal::verbs
