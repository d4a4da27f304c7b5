// libmlx5.so.1, as far as Peal asks for it.
#include <cerrno>

#include "stand_in/stand_in.hpp"

using namespace peal::stand_in;

extern "C" {

ibv_context* mlx5dv_open_device(ibv_device* device, mlx5dv_context_attr* attributes) {
  if (attributes == nullptr || attributes->flags != MLX5DV_CONTEXT_FLAGS_DEVX) {
    errno = EOPNOTSUPP;  // without DevX nothing below would work
    return nullptr;
  }
  return open(device);
}

int mlx5dv_init_obj(mlx5dv_obj* object, std::uint64_t type) {
  if (type == MLX5DV_OBJ_PD) {
    return of(object->pd.in->context).query_pdn(object->pd.in, &object->pd.out->pdn);
  }
  if (type == MLX5DV_OBJ_AH) {
    object->ah.out->av = &reinterpret_cast<Ah*>(object->ah.in)->av;
    return 0;
  }
  return ENOTSUP;
}

mlx5dv_devx_umem* mlx5dv_devx_umem_reg(ibv_context* context, void* address, std::size_t bytes,
                                       std::uint32_t access) {
  return made(of(context).devx_umem_reg(context, address, bytes, access), of(context));
}

mlx5dv_devx_umem* mlx5dv_devx_umem_reg_ex(ibv_context* context, mlx5dv_devx_umem_in* in) {
  if (in->comp_mask != MLX5DV_UMEM_MASK_DMABUF) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  const auto offset = reinterpret_cast<std::uint64_t>(in->addr);
  return made(
      of(context).devx_umem_reg_dmabuf(context, offset, in->size, in->dmabuf_fd, in->access),
      of(context));
}

int mlx5dv_devx_umem_dereg(mlx5dv_devx_umem* umem) {
  peal::verbs::Verbs& by = maker_of(umem);
  forget(umem);
  const int error = by.devx_umem_dereg(umem);
  if (error != 0) note(umem, by);
  return error;
}

mlx5dv_devx_uar* mlx5dv_devx_alloc_uar(ibv_context* context, std::uint32_t flags) {
  return made(of(context).devx_alloc_uar(context, flags), of(context));
}

void mlx5dv_devx_free_uar(mlx5dv_devx_uar* uar) {
  peal::verbs::Verbs& by = maker_of(uar);
  forget(uar);
  by.devx_free_uar(uar);
}

int mlx5dv_devx_query_eqn(ibv_context* context, std::uint32_t vector, std::uint32_t* eqn) {
  return of(context).devx_query_eqn(context, vector, eqn);
}

int mlx5dv_devx_general_cmd(ibv_context* context, const void* in, std::size_t in_bytes, void* out,
                            std::size_t out_bytes) {
  return of(context).devx_general_cmd(context, in, in_bytes, out, out_bytes);
}

mlx5dv_devx_obj* mlx5dv_devx_obj_create(ibv_context* context, const void* in, std::size_t in_bytes,
                                        void* out, std::size_t out_bytes) {
  return made(of(context).devx_obj_create(context, in, in_bytes, out, out_bytes), of(context));
}

int mlx5dv_devx_obj_query(mlx5dv_devx_obj* object, const void* in, std::size_t in_bytes, void* out,
                          std::size_t out_bytes) {
  return maker_of(object).devx_obj_query(object, in, in_bytes, out, out_bytes);
}

int mlx5dv_devx_obj_modify(mlx5dv_devx_obj* object, const void* in, std::size_t in_bytes, void* out,
                           std::size_t out_bytes) {
  return maker_of(object).devx_obj_modify(object, in, in_bytes, out, out_bytes);
}

int mlx5dv_devx_obj_destroy(mlx5dv_devx_obj* object) {
  peal::verbs::Verbs& by = maker_of(object);
  forget(object);
  return by.devx_obj_destroy(object);
}

}  // extern "C"
