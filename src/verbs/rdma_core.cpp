#include "verbs/rdma_core.hpp"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>
#include <utility>

#include "peal/host/error.hpp"
#include "peal/host/rdma_core.hpp"
#include "verbs/host_memory.hpp"

namespace peal::verbs {
namespace {

class Library {
 public:
  Library(const std::string& folder, const char* name) : name_(name) {
    const std::string path = folder.empty() ? name_ : folder + "/" + name_;
    handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) {
      throw Error(ENOENT, std::string("loading ") + name_ + ": " + dlerror() +
                              "; install the system's RDMA libraries (Debian: libibverbs1 and "
                              "ibverbs-providers)");
    }
  }

  // By the name's default version.
  template <class F>
  void find(F& function, const char* symbol) const {
    function = reinterpret_cast<F>(dlsym(handle_, symbol));
    if (function != nullptr) return;
    throw Error(ENOSYS,
                name_ + " has no " + symbol + ": it is older than the RDMA libraries of Debian 12");
  }

 private:
  std::string name_;
  void* handle_;
};

}  // namespace

RdmaCore::Functions RdmaCore::load(const std::string& folder) {
  Functions f{};
  const Library ibverbs(folder, "libibverbs.so.1");
  ibverbs.find(f.get_device_list, "ibv_get_device_list");
  ibverbs.find(f.free_device_list, "ibv_free_device_list");
  ibverbs.find(f.get_device_name, "ibv_get_device_name");
  ibverbs.find(f.close_device, "ibv_close_device");
  ibverbs.find(f.query_port, "ibv_query_port");
  ibverbs.find(f.query_gid_ex, "_ibv_query_gid_ex");
  ibverbs.find(f.query_pkey, "ibv_query_pkey");
  ibverbs.find(f.alloc_pd, "ibv_alloc_pd");
  ibverbs.find(f.dealloc_pd, "ibv_dealloc_pd");
  ibverbs.find(f.create_ah, "ibv_create_ah");
  ibverbs.find(f.destroy_ah, "ibv_destroy_ah");
  ibverbs.find(f.reg_mr_iova2, "ibv_reg_mr_iova2");
  ibverbs.find(f.reg_dmabuf_mr, "ibv_reg_dmabuf_mr");
  ibverbs.find(f.dereg_mr, "ibv_dereg_mr");
  const Library mlx5(folder, "libmlx5.so.1");
  mlx5.find(f.open_device, "mlx5dv_open_device");
  mlx5.find(f.init_obj, "mlx5dv_init_obj");
  mlx5.find(f.umem_reg, "mlx5dv_devx_umem_reg");
  mlx5.find(f.umem_reg_ex, "mlx5dv_devx_umem_reg_ex");
  mlx5.find(f.umem_dereg, "mlx5dv_devx_umem_dereg");
  mlx5.find(f.alloc_uar, "mlx5dv_devx_alloc_uar");
  mlx5.find(f.free_uar, "mlx5dv_devx_free_uar");
  mlx5.find(f.query_eqn, "mlx5dv_devx_query_eqn");
  mlx5.find(f.general_cmd, "mlx5dv_devx_general_cmd");
  mlx5.find(f.obj_create, "mlx5dv_devx_obj_create");
  mlx5.find(f.obj_query, "mlx5dv_devx_obj_query");
  mlx5.find(f.obj_modify, "mlx5dv_devx_obj_modify");
  mlx5.find(f.obj_destroy, "mlx5dv_devx_obj_destroy");
  return f;
}

RdmaCore::RdmaCore(const std::string& folder) : f_(load(folder)) {}

ibv_device** RdmaCore::get_device_list(int* count) {
  return f_.get_device_list(count);
}

void RdmaCore::free_device_list(ibv_device** list) {
  f_.free_device_list(list);
}

const char* RdmaCore::get_device_name(ibv_device* device) {
  return f_.get_device_name(device);
}

ibv_context* RdmaCore::open_device(ibv_device* device) {
  mlx5dv_context_attr attributes{};
  attributes.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
  return f_.open_device(device, &attributes);
}

int RdmaCore::close_device(ibv_context* context) {
  return f_.close_device(context);
}

// A subfunction's own entry is no PCI device, but lies below one.
bool RdmaCore::is_hardware(ibv_context* context) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path at = fs::canonical(fs::path(context->device->ibdev_path) / "device", error);
  for (; !error && at != at.root_path(); at = at.parent_path()) {
    std::ifstream file(at / "vendor");
    std::string vendor;
    if (file >> vendor) return vendor == "0x15b3";
  }
  return false;
}

int RdmaCore::query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) {
  *attributes = ibv_port_attr{};
  return f_.query_port(context, port, reinterpret_cast<_compat_ibv_port_attr*>(attributes));
}

int RdmaCore::query_gid(ibv_context* context, std::uint8_t port, std::uint32_t index,
                        ibv_gid_entry* entry) {
  *entry = ibv_gid_entry{};
  return f_.query_gid_ex(context, port, index, entry, 0, sizeof *entry);
}

// The library answers -1, and says by errno why where it knows.
int RdmaCore::query_pkey(ibv_context* context, std::uint8_t port, std::uint16_t index,
                         std::uint16_t* pkey) {
  __be16 key = 0;
  errno = 0;
  if (f_.query_pkey(context, port, index, &key) != 0) return errno != 0 ? errno : EINVAL;
  *pkey = ntohs(key);
  return 0;
}

ibv_pd* RdmaCore::alloc_pd(ibv_context* context) {
  return f_.alloc_pd(context);
}

int RdmaCore::dealloc_pd(ibv_pd* pd) {
  return f_.dealloc_pd(pd);
}

int RdmaCore::query_pdn(ibv_pd* pd, std::uint32_t* pdn) {
  mlx5dv_pd out{};
  mlx5dv_obj object{};
  object.pd.in = pd;
  object.pd.out = &out;
  const int error = f_.init_obj(&object, MLX5DV_OBJ_PD);
  *pdn = out.pdn;
  return error;
}

int RdmaCore::query_remote_mac(ibv_pd* pd, ibv_ah_attr* path, std::uint8_t mac[6]) {
  ibv_ah* ah = f_.create_ah(pd, path);
  if (ah == nullptr) return errno;
  mlx5dv_ah out{};
  mlx5dv_obj object{};
  object.ah.in = ah;
  object.ah.out = &out;
  const int error = f_.init_obj(&object, MLX5DV_OBJ_AH);
  if (error == 0) std::memcpy(mac, out.av->rmac, 6);
  f_.destroy_ah(ah);
  return error;
}

ibv_mr* RdmaCore::reg_mr_iova(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t iova,
                              int access) {
  return f_.reg_mr_iova2(pd, address, bytes, iova, static_cast<unsigned>(access));
}

ibv_mr* RdmaCore::reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t bytes,
                                std::uint64_t iova, int fd, int access) {
  return f_.reg_dmabuf_mr(pd, offset, bytes, iova, fd, access);
}

int RdmaCore::dereg_mr(ibv_mr* mr) {
  return f_.dereg_mr(mr);
}

mlx5dv_devx_umem* RdmaCore::devx_umem_reg(ibv_context* context, void* address, std::size_t bytes,
                                          std::uint32_t access) {
  return f_.umem_reg(context, address, bytes, access);
}

mlx5dv_devx_umem* RdmaCore::devx_umem_reg_dmabuf(ibv_context* context, std::uint64_t offset,
                                                 std::size_t bytes, int fd, std::uint32_t access) {
  mlx5dv_devx_umem_in in{};
  in.addr = reinterpret_cast<void*>(offset);  // of a dmabuf it is an offset
  in.size = bytes;
  in.access = access;
  in.pgsz_bitmap = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  in.comp_mask = MLX5DV_UMEM_MASK_DMABUF;
  in.dmabuf_fd = fd;
  return f_.umem_reg_ex(context, &in);
}

int RdmaCore::devx_umem_dereg(mlx5dv_devx_umem* umem) {
  return f_.umem_dereg(umem);
}

mlx5dv_devx_uar* RdmaCore::devx_alloc_uar(ibv_context* context, std::uint32_t flags) {
  return f_.alloc_uar(context, flags);
}

void RdmaCore::devx_free_uar(mlx5dv_devx_uar* uar) {
  f_.free_uar(uar);
}

int RdmaCore::devx_query_eqn(ibv_context* context, std::uint32_t vector, std::uint32_t* eqn) {
  return f_.query_eqn(context, vector, eqn);
}

int RdmaCore::devx_general_cmd(ibv_context* context, const void* in, std::size_t in_bytes,
                               void* out, std::size_t out_bytes) {
  return f_.general_cmd(context, in, in_bytes, out, out_bytes);
}

mlx5dv_devx_obj* RdmaCore::devx_obj_create(ibv_context* context, const void* in,
                                           std::size_t in_bytes, void* out, std::size_t out_bytes) {
  return f_.obj_create(context, in, in_bytes, out, out_bytes);
}

int RdmaCore::devx_obj_query(mlx5dv_devx_obj* object, const void* in, std::size_t in_bytes,
                             void* out, std::size_t out_bytes) {
  return f_.obj_query(object, in, in_bytes, out, out_bytes);
}

int RdmaCore::devx_obj_modify(mlx5dv_devx_obj* object, const void* in, std::size_t in_bytes,
                              void* out, std::size_t out_bytes) {
  return f_.obj_modify(object, in, in_bytes, out, out_bytes);
}

int RdmaCore::devx_obj_destroy(mlx5dv_devx_obj* object) {
  return f_.obj_destroy(object);
}

}  // namespace peal::verbs

namespace peal {

Provider rdma_core(std::shared_ptr<verbs::DeviceMemory> memory, const std::string& folder) {
  if (memory == nullptr) memory = std::make_shared<verbs::HostMemory>();
  return {std::make_shared<verbs::RdmaCore>(folder), std::move(memory)};
}

}  // namespace peal
