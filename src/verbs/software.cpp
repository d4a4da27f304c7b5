#include "verbs/software.hpp"

#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#include "mlx5/layout.hpp"
#include "peal/host/error.hpp"
#include "peal/mlx5/doorbell.hpp"

// The library's type is opaque; this is what ours holds: how to undo the creation.
struct mlx5dv_devx_obj {
  peal::mlx5::devx::CommandOpcode destroy;
  std::uint32_t number;
};

namespace peal::verbs {
namespace {

namespace devx = mlx5::devx;

constexpr char kDeviceName[] = "mlx5_software0";

struct SoftwareDevice {
  ibv_device device{};
  SoftwareDevice() { std::memcpy(device.name, kDeviceName, sizeof kDeviceName); }
};

ibv_device* the_device() {
  static SoftwareDevice device;
  return &device.device;
}

struct SoftwarePd {
  ibv_pd pd{};
  std::uint32_t number = 0;
};

struct SoftwareUmem {
  mlx5dv_devx_umem umem{};
};

struct SoftwareUar {
  mlx5dv_devx_uar uar{};
};

std::uint32_t access_of(int ibv_access) {
  std::uint32_t access = 0;
  if (ibv_access & IBV_ACCESS_LOCAL_WRITE) access |= nic::kLocalWrite;
  if (ibv_access & IBV_ACCESS_REMOTE_WRITE) access |= nic::kRemoteWrite;
  if (ibv_access & IBV_ACCESS_REMOTE_READ) access |= nic::kRemoteRead;
  if (ibv_access & IBV_ACCESS_REMOTE_ATOMIC) access |= nic::kRemoteAtomic;
  return access;
}

template <class T>
T* null_with(int error) {
  errno = error;
  return nullptr;
}

}  // namespace

void* UarPages::take() {
  void* page = std::aligned_alloc(mlx5::kUarPageBytes, mlx5::kUarPageBytes);
  if (page != nullptr) std::memset(page, 0, mlx5::kUarPageBytes);
  return page;
}

void UarPages::give_back(void* page) {
  std::free(page);
}

bool SoftwareVerbs::refused(std::string_view operation) const {
  return refused_by(refuse_, operation);
}

ibv_device** SoftwareVerbs::get_device_list(int* count) {
  if (refused("get_device_list")) return nullptr;
  auto** list = new ibv_device* [2] { the_device(), nullptr };
  if (count != nullptr) *count = 1;
  return list;
}

void SoftwareVerbs::free_device_list(ibv_device** list) {
  delete[] list;
}

const char* SoftwareVerbs::get_device_name(ibv_device* device) {
  return device->name;
}

ibv_context* SoftwareVerbs::open_device(ibv_device* device) {
  if (refused("open_device")) return nullptr;
  auto* context = new ibv_context{};
  context->device = device;
  context->cmd_fd = -1;
  context->async_fd = -1;
  context->num_comp_vectors = 1;
  return context;
}

int SoftwareVerbs::close_device(ibv_context* context) {
  delete context;
  return 0;
}

int SoftwareVerbs::query_port(ibv_context*, std::uint8_t port, ibv_port_attr* attributes) {
  if (port != 1) return EINVAL;
  *attributes = ibv_port_attr{};
  attributes->state = IBV_PORT_ACTIVE;
  attributes->max_mtu = IBV_MTU_4096;
  attributes->active_mtu = static_cast<ibv_mtu>(std::countr_zero(port_.mtu_bytes) - 7);
  attributes->max_msg_sz = 1u << nic::kLogMaxMessage;
  attributes->gid_tbl_len = 1;
  attributes->link_layer = port_.roce_gid ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
  if (!port_.roce_gid) attributes->lid = 1;
  return 0;
}

// One slot. That of an InfiniBand port has a subnet's prefix and a number.
int SoftwareVerbs::query_gid(ibv_context*, std::uint8_t port, std::uint32_t index,
                             ibv_gid_entry* entry) {
  if (port != 1 || index != 0) return EINVAL;
  *entry = ibv_gid_entry{};
  entry->port_num = port;
  if (port_.roce_gid) {
    std::memcpy(entry->gid.raw, port_.roce_gid->data(), port_.roce_gid->size());
    entry->gid_type = IBV_GID_TYPE_ROCE_V2;
    return 0;
  }
  entry->gid.raw[0] = 0xfe;
  entry->gid.raw[1] = 0x80;
  entry->gid.raw[15] = 1;
  entry->gid_type = IBV_GID_TYPE_IB;
  return 0;
}

int SoftwareVerbs::query_pkey(ibv_context*, std::uint8_t port, std::uint16_t index,
                              std::uint16_t* pkey) {
  if (port != 1 || index != 0) return EINVAL;
  *pkey = 0xffff;
  return 0;
}

ibv_pd* SoftwareVerbs::alloc_pd(ibv_context* context) {
  if (refused("alloc_pd")) return nullptr;
  std::uint32_t number = 0;
  engine_.call([&] { number = commands_.allocate_pd(); });
  if (number == 0) return null_with<ibv_pd>(ENOMEM);
  auto* pd = new SoftwarePd;
  pd->pd.context = context;
  pd->pd.handle = number;
  pd->number = number;
  return &pd->pd;
}

int SoftwareVerbs::dealloc_pd(ibv_pd* pd) {
  auto* ours = reinterpret_cast<SoftwarePd*>(pd);
  bool freed = false;
  if (const int error = undo([&] { freed = commands_.free_pd(ours->number); })) return error;
  if (!freed) return EBUSY;
  delete ours;
  return 0;
}

int SoftwareVerbs::query_pdn(ibv_pd* pd, std::uint32_t* pdn) {
  *pdn = reinterpret_cast<SoftwarePd*>(pd)->number;
  return 0;
}

// An InfiniBand port has no Ethernet peers. To those of a RoCE port this machine's kernel finds the
// way, so that any address will do: one that is locally administered, and the peer's alone.
int SoftwareVerbs::query_remote_mac(ibv_pd*, ibv_ah_attr* path, std::uint8_t mac[6]) {
  if (!port_.roce_gid) return EOPNOTSUPP;
  mac[0] = 2;
  mac[1] = 0;
  std::memcpy(mac + 2, path->grh.dgid.raw + 12, 4);
  return 0;
}

ibv_mr* SoftwareVerbs::reg_mr_iova(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t iova,
                                   int access) {
  if (refused("reg_mr")) return nullptr;
  const bool peer_writes = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  if (address == nullptr || bytes == 0 || (peer_writes && (access & IBV_ACCESS_LOCAL_WRITE) == 0)) {
    return null_with<ibv_mr>(EINVAL);
  }
  std::uint32_t key = 0;
  engine_.call([&] {
    key = commands_.register_region(reinterpret_cast<SoftwarePd*>(pd)->number, iova,
                                    static_cast<std::byte*>(address), bytes, access_of(access));
  });
  if (key == 0) return null_with<ibv_mr>(ENOMEM);
  auto* mr = new ibv_mr{};
  mr->context = pd->context;
  mr->pd = pd;
  mr->addr = address;
  mr->length = bytes;
  mr->lkey = key;
  mr->rkey = key;
  return mr;
}

ibv_mr* SoftwareVerbs::reg_dmabuf_mr(ibv_pd*, std::uint64_t, std::size_t, std::uint64_t, int fd,
                                     int) {
  if (refused("reg_dmabuf_mr")) return nullptr;
  return null_with<ibv_mr>(fd < 0 ? EBADF : EOPNOTSUPP);
}

int SoftwareVerbs::dereg_mr(ibv_mr* mr) {
  bool freed = false;
  const auto f = [&] { freed = commands_.deregister_region(mr->lkey); };
  if (const int error = undo(f)) return error;
  if (!freed) return EINVAL;
  delete mr;
  return 0;
}

mlx5dv_devx_umem* SoftwareVerbs::devx_umem_reg(ibv_context*, void* address, std::size_t bytes,
                                               std::uint32_t) {
  if (refused("devx_umem_reg")) return nullptr;
  std::uint32_t number = 0;
  engine_.call([&] { number = commands_.register_umem(static_cast<std::byte*>(address), bytes); });
  if (number == 0) return null_with<mlx5dv_devx_umem>(EINVAL);
  auto* umem = new SoftwareUmem;
  umem->umem.umem_id = number;
  return &umem->umem;
}

mlx5dv_devx_umem* SoftwareVerbs::devx_umem_reg_dmabuf(ibv_context*, std::uint64_t, std::size_t,
                                                      int fd, std::uint32_t) {
  if (refused("devx_umem_reg_dmabuf")) return nullptr;
  return null_with<mlx5dv_devx_umem>(fd < 0 ? EBADF : EOPNOTSUPP);
}

int SoftwareVerbs::devx_umem_dereg(mlx5dv_devx_umem* umem) {
  auto* ours = reinterpret_cast<SoftwareUmem*>(umem);
  bool freed = false;
  const auto f = [&] { freed = commands_.deregister_umem(ours->umem.umem_id); };
  if (const int error = undo(f)) return error;
  if (!freed) return EBUSY;
  delete ours;
  return 0;
}

mlx5dv_devx_uar* SoftwareVerbs::devx_alloc_uar(ibv_context*, std::uint32_t) {
  if (refused("devx_alloc_uar")) return nullptr;
  void* page = pages_->take();
  if (page == nullptr) return null_with<mlx5dv_devx_uar>(ENOMEM);
  std::uint32_t number = 0;
  try {
    engine_.call([&] { number = commands_.allocate_uar(static_cast<std::byte*>(page)); });
  } catch (...) {
    pages_->give_back(page);
    throw;
  }
  if (number == 0) {
    pages_->give_back(page);
    return null_with<mlx5dv_devx_uar>(ENOMEM);
  }
  auto* uar = new SoftwareUar;
  uar->uar.base_addr = page;
  uar->uar.reg_addr = static_cast<std::byte*>(page) + mlx5::kUarDoorbellOffset;
  uar->uar.page_id = number;
  return &uar->uar;
}

void SoftwareVerbs::devx_free_uar(mlx5dv_devx_uar* uar) {
  auto* ours = reinterpret_cast<SoftwareUar*>(uar);
  bool freed = false;
  // A page that a queue still rings must stay.
  if (undo([&] { freed = commands_.free_uar(ours->uar.page_id); }) != 0 || !freed) return;
  pages_->give_back(ours->uar.base_addr);
  delete ours;
}

int SoftwareVerbs::devx_query_eqn(ibv_context*, std::uint32_t, std::uint32_t* eqn) {
  *eqn = 0;
  return 0;
}

int SoftwareVerbs::undo(const std::function<void()>& f) {
  try {
    engine_.call_to_undo(f);
    return 0;
  } catch (const Error& e) {
    return e.code();
  }
}

int SoftwareVerbs::execute(const void* in, std::size_t in_bytes, void* out, std::size_t out_bytes) {
  if (out_bytes < devx::header::kOutBytesMin) {
    errno = EINVAL;
    return EINVAL;
  }
  bool ok = false;
  engine_.call([&] {
    ok = commands_.execute({static_cast<const std::byte*>(in), in_bytes},
                           {static_cast<std::byte*>(out), out_bytes});
  });
  if (ok) return 0;
  errno = EREMOTEIO;
  return EREMOTEIO;
}

int SoftwareVerbs::devx_general_cmd(ibv_context*, const void* in, std::size_t in_bytes, void* out,
                                    std::size_t out_bytes) {
  if (refused("devx_general_cmd")) return errno;
  return execute(in, in_bytes, out, out_bytes);
}

mlx5dv_devx_obj* SoftwareVerbs::devx_obj_create(ibv_context*, const void* in, std::size_t in_bytes,
                                                void* out, std::size_t out_bytes) {
  const auto* bytes = static_cast<const std::byte*>(in);
  if (in_bytes < devx::header::kInBytesMin) return null_with<mlx5dv_devx_obj>(EINVAL);
  const auto opcode = static_cast<devx::CommandOpcode>(devx::get(bytes, devx::header::opcode));
  const bool is_cq = opcode == devx::CommandOpcode::kCreateCq;
  if (!is_cq && opcode != devx::CommandOpcode::kCreateQp) {
    return null_with<mlx5dv_devx_obj>(EINVAL);
  }
  if (refused(is_cq ? "create_cq" : "create_qp")) return nullptr;
  if (execute(in, in_bytes, out, out_bytes) != 0) return nullptr;
  const auto* answer = static_cast<const std::byte*>(out);
  return new mlx5dv_devx_obj{
      is_cq ? devx::CommandOpcode::kDestroyCq : devx::CommandOpcode::kDestroyQp,
      static_cast<std::uint32_t>(
          devx::get(answer, is_cq ? devx::create_cq::cqn : devx::create_qp::qpn))};
}

int SoftwareVerbs::devx_obj_query(mlx5dv_devx_obj*, const void* in, std::size_t in_bytes, void* out,
                                  std::size_t out_bytes) {
  if (refused("devx_obj_query")) return errno;
  return execute(in, in_bytes, out, out_bytes);
}

int SoftwareVerbs::devx_obj_modify(mlx5dv_devx_obj*, const void* in, std::size_t in_bytes,
                                   void* out, std::size_t out_bytes) {
  if (refused("devx_obj_modify")) return errno;
  return execute(in, in_bytes, out, out_bytes);
}

int SoftwareVerbs::devx_obj_destroy(mlx5dv_devx_obj* object) {
  std::byte in[devx::destroy_qp::kInBytes] = {};
  std::byte out[devx::destroy_qp::kOutBytes] = {};
  static_assert(sizeof in == devx::destroy_cq::kInBytes);
  devx::set(in, devx::header::opcode, static_cast<std::uint16_t>(object->destroy));
  devx::set(in,
            object->destroy == devx::CommandOpcode::kDestroyCq ? devx::destroy_cq::cqn
                                                               : devx::destroy_qp::qpn,
            object->number);
  bool ok = false;
  int error = undo([&] { ok = commands_.execute(in, out); });
  if (error == 0 && !ok) error = EREMOTEIO;
  if (error == 0) {
    delete object;
  } else {
    errno = error;
  }
  return error;
}

}  // namespace peal::verbs
