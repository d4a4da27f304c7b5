// A queue of plain memory whose NIC is the test: it completes what has been rung for, when told to.
// Two runs from one state have the same addresses, so their stores can be held against each other.
#pragma once

#include <cstdint>
#include <vector>

#include "peal/device/queue_handle.hpp"
#include "peal/mlx5/doorbell.hpp"
#include "support/recording_memory.hpp"

namespace peal::test {

class LoopQueue {
 public:
  explicit LoopQueue(std::uint32_t depth, std::uint64_t first = 0)
      : depth_(depth), sq_(depth), cq_(depth), marks_(depth), first_(first) {
    reset();
  }
  ~LoopQueue() { ManualMemory::hooks() = {}; }
  LoopQueue(const LoopQueue&) = delete;
  LoopQueue& operator=(const LoopQueue&) = delete;

  // As it was when it was made: counters, rings and the log of stores.
  void reset() {
    sq_.assign(depth_, mlx5::Slot{});
    mlx5::Cqe never;
    never.word[mlx5::kCqeOwnerWord] = swap_bytes(std::uint32_t{mlx5::kInitialOpOwn});
    cq_.assign(depth_, never);
    marks_.assign(depth_, 0);
    dbrec_ = mlx5::encode_dbrec(first_);
    doorbell_ = 0;
    state_ = QueueState{};
    state_.reserved = state_.ready = state_.rung = state_.completed = first_;
    done_ = first_;
    RecordingMemory::log().clear();
    ManualMemory::hooks() = {};
    ManualMemory::hooks().on_pause = [this] { complete(per_pause); };
  }

  QueueHandle handle() {
    QueueHandle h;
    h.sq = sq_.data();
    h.dbrec = &dbrec_;
    h.doorbell = &doorbell_;
    h.nic_cq = cq_.data();
    h.state = &state_;
    h.marks = marks_.data();
    h.cq_base = 0 - first_;
    h.max_message_bytes = max_message_bytes;
    h.depth = h.cq_depth = depth_;
    h.qpn = Qpn(0x123456);
    return h;
  }

  // Completes the oldest WQEs, as many as `most` and as have been rung for. Says how many.
  std::uint64_t complete(std::uint64_t most = UINT64_MAX) {
    std::uint64_t n = 0;
    for (; n < most && outstanding() != 0; ++n) write_cqe(mlx5::CqeOpcode::kRequester, {});
    return n;
  }
  // The oldest WQE fails, and all that has been rung for after it is flushed.
  void fail(mlx5::Syndrome syndrome) {
    write_cqe(mlx5::CqeOpcode::kRequesterError, syndrome);
    while (outstanding() != 0) {
      write_cqe(mlx5::CqeOpcode::kRequesterError, mlx5::Syndrome::kFlushed);
    }
  }
  // WQEs that have been rung for and not completed.
  std::uint64_t outstanding() const {
    if (doorbell_ == 0) return 0;
    return static_cast<std::uint16_t>(mlx5::decode_doorbell(doorbell_).pi() - done_);
  }
  std::uint64_t done() const { return done_ - first_; }
  const QueueState& state() const { return state_; }

  std::uint64_t per_pause = UINT64_MAX;  // WQEs that a pause completes
  std::uint64_t max_message_bytes = 1u << 30;

 private:
  void write_cqe(mlx5::CqeOpcode opcode, mlx5::Syndrome syndrome) {
    const std::uint64_t number = done_ - first_;
    mlx5::CqeFields f;
    f.opcode = opcode;
    f.owner = mlx5::cqe_owner(number, depth_);
    f.wqe_counter = static_cast<std::uint16_t>(done_);
    f.syndrome = static_cast<std::uint8_t>(syndrome);
    f.wqe_opcode = static_cast<std::uint8_t>(mlx5::Opcode::kRdmaWrite);
    ManualMemory::store_cqe(&cq_[number & (depth_ - 1)], mlx5::encode(f));
    ++done_;
  }

  std::uint32_t depth_;
  std::vector<mlx5::Slot> sq_;
  std::vector<mlx5::Cqe> cq_;
  std::vector<std::uint64_t> marks_;
  std::uint32_t dbrec_ = 0;
  std::uint64_t doorbell_ = 0;
  QueueState state_;
  std::uint64_t first_;
  std::uint64_t done_ = 0;
};

}  // namespace peal::test
