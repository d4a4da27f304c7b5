// A client that writes every word itself: commands, slots, records, doorbells. So a test can do
// what the library never would, and sees what the NIC answers.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "host/devx.hpp"
#include "mlx5/layout.hpp"
#include "nic/commands.hpp"
#include "peal/memory/cpu_memory.hpp"
#include "peal/mlx5/cqe.hpp"
#include "peal/mlx5/doorbell.hpp"
#include "peal/mlx5/wqe.hpp"

namespace peal::test {

// Large enough for every command and every answer.
using RawCommand = host::Command<272, 4112>;

inline bool execute(nic::Commands& commands, RawCommand& command) {
  return commands.execute(command.in, command.out);
}
inline mlx5::devx::CommandStatus status_of(const RawCommand& command) {
  return static_cast<mlx5::devx::CommandStatus>(command.get(mlx5::devx::header::status));
}

// A UAR page, which several QPs may share.
class RawUar {
 public:
  explicit RawUar(nic::Commands& commands)
      : commands_(commands),
        page_(std::make_unique<Page>()),
        number_(commands.allocate_uar(page_->bytes)) {}
  ~RawUar() { EXPECT_TRUE(commands_.free_uar(number_)); }
  RawUar(const RawUar&) = delete;
  RawUar& operator=(const RawUar&) = delete;

  std::uint32_t number() const { return number_; }
  // In the register of QPs with a record, or of those without.
  void ring(std::uint64_t word, bool has_record = true) {
    CpuMemory::ring_doorbell_after_dbrec(doorbell(has_record), word, FenceScope::kSystem);
  }
  std::uint64_t* doorbell(bool has_record = true) {
    return reinterpret_cast<std::uint64_t*>(page_->bytes + (has_record ? 0x800 : 0x600));
  }

 private:
  struct Page {
    alignas(mlx5::kUarPageBytes) std::byte bytes[mlx5::kUarPageBytes] = {};
  };
  nic::Commands& commands_;
  std::unique_ptr<Page> page_;
  std::uint32_t number_;
};

struct Wqe {
  mlx5::CtrlSeg ctrl;
  mlx5::RaddrSeg raddr;
  mlx5::DataSeg data;
};

inline mlx5::Slot slot_of(const Wqe& wqe) {
  mlx5::Slot slot;
  slot.segment[0] = mlx5::encode(wqe.ctrl);
  if (wqe.ctrl.ds >= 3) {
    slot.segment[1] = mlx5::encode(wqe.raddr);
    slot.segment[2] = mlx5::encode(wqe.data);
  }
  return slot;
}

inline Wqe nop(std::uint8_t ds = 1, std::uint8_t fm_ce_se = mlx5::kCompletionAlways) {
  Wqe wqe;
  wqe.ctrl.opcode = static_cast<std::uint8_t>(mlx5::Opcode::kNop);
  wqe.ctrl.ds = ds;
  wqe.ctrl.fm_ce_se = fm_ce_se;
  return wqe;
}

struct RawConnection {
  Qpn remote_qpn{};
  Psn send_psn{0x123456};
  Psn receive_psn{0x654321};
  std::uint8_t mtu = 5;  // coded: 4096 bytes
  std::uint8_t log_msg_max = 30;
  bool remote_write = true;
  bool remote_read = true;
  bool remote_atomic = true;
  std::uint8_t atomic_mode = mlx5::devx::qpc::kAtomicModeUpTo8Bytes;
  std::uint8_t log_sra_max = 4;
  std::uint8_t log_rra_max = 4;
  std::uint32_t opt_param_mask = 0;
  std::uint8_t ack_timeout = 14;  // coded: 67 ms
  std::uint8_t retry_count = 6;
  std::uint8_t rnr_retry = 0;
  std::uint8_t min_rnr_timer = 0;
};

struct RawQpOptions {
  std::uint8_t log_depth = 4;
  std::uint64_t first_index = 0;
  std::uint8_t log_cq_size = 10;  // deep, so that a test may look at the CQEs late
  bool ignores_overrun = true;
  bool collapsed = false;
  bool has_record = true;
};

// One QP with its rings.
class RawQp {
 public:
  RawQp(nic::Commands& commands, std::uint32_t pd, RawUar& uar, const RawQpOptions& options = {})
      : commands_(commands),
        uar_(uar),
        ring_(std::size_t{1} << options.log_depth),
        cq_(std::size_t{1} << options.log_cq_size),
        has_record_(options.has_record),
        next_(options.first_index) {
    for (mlx5::Cqe& entry : cq_) {
      entry.word[mlx5::kCqeOwnerWord] = swap_bytes(std::uint32_t{mlx5::kInitialOpOwn});
    }
    records_.word[mlx5::kDbrecSendWord] = mlx5::encode_dbrec(options.first_index);
    ring_umem_ = umem(ring_.data(), ring_.size() * sizeof(mlx5::Slot));
    cq_umem_ = umem(cq_.data(), cq_.size() * sizeof(mlx5::Cqe));
    record_umem_ = umem(&records_, sizeof records_);
    create_cq(options);
    create_qp(pd, options);
  }
  ~RawQp() { destroy(); }
  RawQp(const RawQp&) = delete;
  RawQp& operator=(const RawQp&) = delete;

  Qpn qpn() const { return qpn_; }
  std::uint32_t cqn() const { return cqn_; }
  std::uint64_t next() const { return next_; }

  // ---- Control ---------------------------------------------------------------------------------

  bool modify(mlx5::devx::CommandOpcode opcode, const RawConnection& c = {}) {
    namespace qpc = mlx5::devx::qpc;
    RawCommand command(opcode);
    const auto in = [](mlx5::devx::Field f) {
      return mlx5::devx::within(mlx5::devx::modify_qp::qpc, f);
    };
    command.set(mlx5::devx::modify_qp::qpn, qpn_.value);
    command.set(mlx5::devx::modify_qp::opt_param_mask, c.opt_param_mask);
    command.set(in(qpc::rwe), c.remote_write ? 1 : 0);
    command.set(in(qpc::rre), c.remote_read ? 1 : 0);
    command.set(in(qpc::rae), c.remote_atomic ? 1 : 0);
    command.set(in(qpc::atomic_mode), c.atomic_mode);
    command.set(in(qpc::log_sra_max), c.log_sra_max);
    command.set(in(qpc::log_rra_max), c.log_rra_max);
    command.set(in(mlx5::devx::within(qpc::primary_address_path, mlx5::devx::ads::vhca_port_num)),
                1);
    command.set(in(qpc::mtu), c.mtu);
    command.set(in(qpc::log_msg_max), c.log_msg_max);
    command.set(in(qpc::remote_qpn), c.remote_qpn.value);
    command.set(in(qpc::next_rcv_psn), c.receive_psn.value);
    command.set(in(qpc::next_send_psn), c.send_psn.value);
    command.set(in(qpc::retry_count), c.retry_count);
    command.set(in(qpc::rnr_retry), c.rnr_retry);
    command.set(in(qpc::min_rnr_nak), c.min_rnr_timer);
    command.set(in(mlx5::devx::within(qpc::primary_address_path, mlx5::devx::ads::ack_timeout)),
                c.ack_timeout);
    return execute(commands_, command);
  }
  void to_init(const RawConnection& c) {
    ASSERT_TRUE(modify(mlx5::devx::CommandOpcode::kRst2InitQp, c));
  }
  void to_rtr(const RawConnection& c) {
    ASSERT_TRUE(modify(mlx5::devx::CommandOpcode::kInit2RtrQp, c));
  }
  void to_rts(const RawConnection& c) {
    ASSERT_TRUE(modify(mlx5::devx::CommandOpcode::kRtr2RtsQp, c));
  }
  void connect(const RawConnection& c) {
    to_init(c);
    to_rtr(c);
    to_rts(c);
  }
  void to_error() { ASSERT_TRUE(modify(mlx5::devx::CommandOpcode::k2ErrQp)); }
  void to_reset() { ASSERT_TRUE(modify(mlx5::devx::CommandOpcode::k2RstQp)); }

  void destroy() {
    if (qpn_ == Qpn()) return;
    RawCommand qp(mlx5::devx::CommandOpcode::kDestroyQp);
    qp.set(mlx5::devx::destroy_qp::qpn, qpn_.value);
    EXPECT_TRUE(execute(commands_, qp));
    RawCommand cq(mlx5::devx::CommandOpcode::kDestroyCq);
    cq.set(mlx5::devx::destroy_cq::cqn, cqn_);
    EXPECT_TRUE(execute(commands_, cq));
    for (const std::uint32_t u : {ring_umem_, cq_umem_, record_umem_}) {
      EXPECT_TRUE(commands_.deregister_umem(u));
    }
    qpn_ = Qpn();
  }

  // ---- Data path -------------------------------------------------------------------------------

  // Writes a WQE at the next index, with that index and this QPN. Returns the index.
  std::uint64_t write(Wqe wqe) {
    wqe.ctrl.wqe_index = static_cast<std::uint16_t>(next_);
    wqe.ctrl.qpn = qpn_;
    return write_as_is(wqe);
  }
  std::uint64_t write_as_is(const Wqe& wqe) {
    const std::uint64_t index = next_;
    ring_[index & (ring_.size() - 1)] = slot_of(wqe);
    next_ += wqe.ctrl.ds == 0 ? 1 : (wqe.ctrl.ds + 3u) / 4u;
    return index;
  }
  // A WQE given as its segments, of which the first is a ctrl segment: with the next index and this
  // QPN. Returns the index.
  std::uint64_t write_segments(std::vector<mlx5::Words16> segments) {
    mlx5::CtrlSeg ctrl = mlx5::decode_ctrl(segments[0]);
    ctrl.wqe_index = static_cast<std::uint16_t>(next_);
    ctrl.qpn = qpn_;
    segments[0] = mlx5::encode(ctrl);
    const std::uint64_t index = next_;
    for (std::size_t i = 0; i < segments.size(); ++i) {
      ring_[(index + i / 4) & (ring_.size() - 1)].segment[i % 4] = segments[i];
    }
    next_ += (segments.size() + 3) / 4;
    return index;
  }
  mlx5::Slot& slot(std::uint64_t index) { return ring_[index & (ring_.size() - 1)]; }
  // How many CQEs the client says it has consumed.
  void consume_to(std::uint32_t count) {
    CpuMemory::store_dbrec_after_wqes(&records_.word[2], swap_bytes(count & 0xffffff),
                                      FenceScope::kSystem);
  }
  void record() { record_at(next_); }
  void record_at(std::uint64_t pi) {
    CpuMemory::store_dbrec_after_wqes(&records_.word[mlx5::kDbrecSendWord], mlx5::encode_dbrec(pi),
                                      FenceScope::kSystem);
  }
  void ring() { ring_at(next_); }
  void ring_at(std::uint64_t pi) { uar_.ring(mlx5::encode_doorbell(pi, qpn_), has_record_); }
  std::uint64_t post(const Wqe& wqe) {
    const std::uint64_t index = write(wqe);
    if (has_record_) record();
    ring();
    return index;
  }
  // After another client of this queue: the next WQE and the next CQE are these.
  void go_on_at(std::uint64_t index, std::uint64_t cqe) {
    next_ = index;
    cqes_polled_ = cqe;
  }
  // As a client does after a reset.
  void start_over() {
    next_ = 0;
    record_at(0);
  }

  // The next CQE, if it is there.
  std::optional<mlx5::CqeFields> poll() {
    const mlx5::Cqe& entry = cq_[cqes_polled_ & (cq_.size() - 1)];
    const mlx5::CqeOwnerWord seen = mlx5::decode_cqe_owner_word(
        CpuMemory::load_cqe_owner_acquire(&entry.word[mlx5::kCqeOwnerWord], FenceScope::kSystem));
    if (seen.opcode == mlx5::CqeOpcode::kInvalid ||
        seen.owner != mlx5::cqe_owner(cqes_polled_, cq_.size())) {
      return std::nullopt;
    }
    ++cqes_polled_;
    return mlx5::decode(entry);
  }
  std::vector<mlx5::CqeFields> poll_all() {
    std::vector<mlx5::CqeFields> all;
    while (const auto cqe = poll()) all.push_back(*cqe);
    return all;
  }
  mlx5::Cqe& entry(std::uint64_t number) { return cq_[number & (cq_.size() - 1)]; }

  // The memory itself, for another client of this queue.
  std::vector<mlx5::Slot>& slots() { return ring_; }
  std::vector<mlx5::Cqe>& cqes() { return cq_; }
  std::uint32_t* records() { return records_.word; }

 private:
  struct alignas(64) Records {
    std::uint32_t word[4] = {};  // the QP's, then the CQ's
  };

  std::uint32_t umem(void* memory, std::size_t bytes) {
    return commands_.register_umem(static_cast<std::byte*>(memory), bytes);
  }

  void create_cq(const RawQpOptions& options) {
    namespace create = mlx5::devx::create_cq;
    namespace cqc = mlx5::devx::cqc;
    const auto in = [](mlx5::devx::Field f) { return mlx5::devx::within(create::cq_context, f); };
    RawCommand command(mlx5::devx::CommandOpcode::kCreateCq);
    command.set(in(cqc::log_cq_size), options.log_cq_size);
    command.set(in(cqc::oi), options.ignores_overrun ? 1 : 0);
    command.set(in(cqc::cc), options.collapsed ? 1 : 0);
    command.set(in(cqc::dbr_umem_valid), 1);
    command.set(in(cqc::dbr_umem_id), record_umem_);
    command.set(in(cqc::dbr_addr), mlx5::kDbrecBytes);
    command.set(in(cqc::uar_page), uar_.number());
    command.set(create::cq_umem_valid, 1);
    command.set(create::cq_umem_id, cq_umem_);
    if (!execute(commands_, command)) throw std::runtime_error("CREATE_CQ refused");
    cqn_ = static_cast<std::uint32_t>(command.get(create::cqn));
  }

  void create_qp(std::uint32_t pd, const RawQpOptions& options) {
    namespace create = mlx5::devx::create_qp;
    namespace qpc = mlx5::devx::qpc;
    const auto in = [](mlx5::devx::Field f) { return mlx5::devx::within(create::qpc, f); };
    RawCommand command(mlx5::devx::CommandOpcode::kCreateQp);
    command.set(in(qpc::pd), pd);
    command.set(in(qpc::log_sq_size), options.log_depth);
    command.set(in(qpc::rq_type), qpc::kRqTypeNone);
    command.set(in(qpc::uar_page), uar_.number());
    command.set(in(qpc::cqn_snd), cqn_);
    command.set(in(qpc::dbr_umem_valid), 1);
    command.set(in(qpc::dbr_umem_id), record_umem_);
    command.set(in(qpc::send_dbr_mode), options.has_record ? 0 : 1);
    command.set(create::wq_umem_valid, 1);
    command.set(create::wq_umem_id, ring_umem_);
    if (!execute(commands_, command)) throw std::runtime_error("CREATE_QP refused");
    qpn_ = Qpn(static_cast<std::uint32_t>(command.get(create::qpn)));
  }

  nic::Commands& commands_;
  RawUar& uar_;
  std::vector<mlx5::Slot> ring_;
  std::vector<mlx5::Cqe> cq_;
  bool has_record_;
  Records records_;
  std::uint32_t ring_umem_ = 0;
  std::uint32_t cq_umem_ = 0;
  std::uint32_t record_umem_ = 0;
  std::uint32_t cqn_ = 0;
  Qpn qpn_;
  std::uint64_t next_ = 0;
  std::uint64_t cqes_polled_ = 0;
};

constexpr bool succeeded(const mlx5::CqeFields& cqe) {
  return cqe.opcode == mlx5::CqeOpcode::kRequester;
}
constexpr bool failed_with(const mlx5::CqeFields& cqe, mlx5::Syndrome syndrome) {
  return cqe.opcode == mlx5::CqeOpcode::kRequesterError &&
         cqe.syndrome == static_cast<std::uint8_t>(syndrome);
}

}  // namespace peal::test
