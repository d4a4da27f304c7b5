// From what mlx5dv_init_obj(MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ) says to what peal::adopt takes. The only
// header that needs rdma-core's, of which it calls nothing.
#pragma once

#include <infiniband/mlx5dv.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "peal/host/adopt.hpp"

namespace peal {

// Of a QP from ibv_create_qp or mlx5dv_create_qp, unused and in RTS, with a send CQ of its own; see
// peal::adopt for what more it needs. `qpn` is ibv_qp::qp_num. A QP that was used before needs
// first_index and cq_base set. The addresses are the CPU's: for GPU producers each is replaced by
// the one by which the GPU reaches it. Throws Error with EINVAL.
inline ForeignQueue foreign_queue(const mlx5dv_qp& qp, const mlx5dv_cq& cq, Qpn qpn) {
  if (qp.sq.stride != 64) {
    throw Error(EINVAL, "the send queue's stride is " + std::to_string(qp.sq.stride) +
                            ", but Peal writes slots of 64 bytes");
  }
  if (cq.cqe_size != 64) {
    throw Error(EINVAL, "the CQ has entries of " + std::to_string(cq.cqe_size) +
                            " bytes, but Peal reads such of 64");
  }
  ForeignQueue queue;
  queue.sq = qp.sq.buf;
  queue.depth = qp.sq.wqe_cnt;
  queue.cq = cq.buf;
  queue.cq_depth = cq.cqe_cnt;
  if (qp.dbrec != nullptr) queue.dbrec = reinterpret_cast<std::uint32_t*>(qp.dbrec) + 1;
  queue.doorbell = qp.bf.reg;
  queue.qpn = qpn;
  return queue;
}

}  // namespace peal
