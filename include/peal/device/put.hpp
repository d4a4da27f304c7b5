// PUT: an RDMA WRITE from a registered local buffer into the peer's registered memory.
#pragma once

#include <cstdint>

#include "peal/core/status.hpp"
#include "peal/device/send_queue.hpp"
#include "peal/mlx5/wqe.hpp"

namespace peal {

// Addresses are those by which the regions were registered; keys are host order.
struct Put {
  std::uint64_t local_address = 0;
  Lkey lkey;
  std::uint64_t remote_address = 0;
  Rkey rkey;
  std::uint64_t bytes = 0;
};

// What a call posted.
struct Posted {
  std::uint64_t ticket = 0;  // index of its last WQE: wait for this one
  std::uint32_t wqes = 0;
};

// How many WQEs a PUT of `bytes` takes: one up to the NIC's largest message, a no-op for 0 bytes.
PEAL_HOST_DEVICE inline std::uint64_t wqes_of_put(const QueueHandle& q, std::uint64_t bytes) {
  return bytes == 0 ? 1 : (bytes - 1) / q.max_message_bytes + 1;
}

// Writes the WQE of one chunk (0 bytes: a no-op, which completes and touches no memory) into a
// reserved slot.
template <class M, Sharing S>
PEAL_HOST_DEVICE void write_put_wqe(SendQueue<M, S>& queue, std::uint64_t index, const Put& put) {
  mlx5::CtrlSeg ctrl;
  ctrl.wqe_index = static_cast<std::uint16_t>(index);
  ctrl.qpn = queue.handle().qpn;
  ctrl.fm_ce_se = mlx5::kCompletionAlways;
  if (put.bytes == 0) {
    ctrl.opcode = static_cast<std::uint8_t>(mlx5::Opcode::kNop);
    ctrl.ds = 1;
    queue.write_segment(index, 0, mlx5::encode(ctrl));
    return;
  }
  ctrl.opcode = static_cast<std::uint8_t>(mlx5::Opcode::kRdmaWrite);
  ctrl.ds = 3;
  mlx5::RaddrSeg raddr;
  raddr.address = put.remote_address;
  raddr.rkey = put.rkey;
  mlx5::DataSeg data;
  data.byte_count = static_cast<std::uint32_t>(put.bytes);
  data.lkey = put.lkey;
  data.address = put.local_address;
  queue.write_segment(index, 0, mlx5::encode(ctrl));
  queue.write_segment(index, 1, mlx5::encode(raddr));
  queue.write_segment(index, 2, mlx5::encode(data));
}

// Posts one PUT and rings; does not wait for its completion. A PUT above the NIC's largest message
// is split into chunks; more chunks than the ring holds are posted as completions make room.
// Blocks only for room or for another publisher, at most `timeout_ns` each time.
// On kOk `posted` is set, and the local buffer must stay unchanged until posted->ticket succeeds.
// On an error nothing, or a first run of the chunks, has been posted.
template <class M, Sharing S>
PEAL_HOST_DEVICE Status put(SendQueue<M, S>& queue, const Put& put, Posted* posted,
                            std::uint64_t timeout_ns = kDefaultTimeoutNs) {
  const QueueHandle& q = queue.handle();
  const std::uint64_t wqes = wqes_of_put(q, put.bytes);
  Put rest = put;
  for (std::uint64_t done = 0; done < wqes;) {
    const std::uint64_t left = wqes - done;
    const std::uint32_t n = left < q.depth ? static_cast<std::uint32_t>(left) : q.depth;
    Reservation r;
    Status status = queue.reserve(n, &r, timeout_ns);
    if (status != Status::kOk) return status;
    for (std::uint64_t index = r.first; index != r.end(); ++index) {
      Put chunk = rest;
      if (chunk.bytes > q.max_message_bytes) chunk.bytes = q.max_message_bytes;
      write_put_wqe(queue, index, chunk);
      rest.local_address += chunk.bytes;
      rest.remote_address += chunk.bytes;
      rest.bytes -= chunk.bytes;
    }
    status = queue.publish(r, timeout_ns);
    if (status != Status::kOk) return status;
    done += n;
    posted->ticket = r.end() - 1;
  }
  posted->wqes = static_cast<std::uint32_t>(wqes);
  return Status::kOk;
}

// Waits until the PUT that `ticket` names, and every one before it on this queue, has been placed
// at the peer. See CompletionQueue::wait.
template <class M, Sharing S>
PEAL_HOST_DEVICE Status wait(SendQueue<M, S>& queue, std::uint64_t ticket,
                             std::uint64_t timeout_ns = kDefaultTimeoutNs) {
  return queue.completions().wait(ticket, timeout_ns);
}

}  // namespace peal
