// The control half of the NIC: DevX commands and registrations, against the tables.
// Every object that another uses refuses to go first. Runs between steps, on the engine's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "mlx5/layout.hpp"
#include "nic/tables.hpp"

namespace peal::nic {

// What the data path must do when a command changes a QP. `qp` is its index in the tables.
class QueueEvents {
 public:
  virtual void qp_created(std::uint32_t qp) = 0;
  virtual void qp_destroyed(std::uint32_t qp) = 0;
  virtual void qp_reset(std::uint32_t qp) = 0;
  // A UAR page is about to be freed: false if it may not.
  virtual bool uar_freed(const UarEntry& uar) = 0;
  // A command broke a rule: true if it must fail. `qp` is 0 where none is concerned.
  virtual bool rule_broken(Refusal reason, std::uint32_t qp) = 0;
  virtual void qp_receives_from(std::uint32_t qp, Psn psn) = 0;
  virtual void qp_sends_from(std::uint32_t qp, Psn psn) = 0;
  // The region of `key` is deregistered: its memory may be freed when this returns.
  virtual void region_forgotten(std::uint32_t key) = 0;

 protected:
  ~QueueEvents() = default;
};

class Commands {
 public:
  struct Limits {
    std::uint8_t log_max_message = kLogMaxMessage;
    bool offers_recordless = true;  // QPs without a doorbell record
  };

  Commands(Tables& tables, QueueEvents& events, Limits limits)
      : tables_(tables), events_(events), limits_(limits), contexts_(kMaxQps) {}

  // Executes one DevX command and fills the answer's status and syndrome. False when the status is
  // not OK. `out` must hold the 8 bytes of an answer's head.
  bool execute(std::span<const std::byte> in, std::span<std::byte> out);

  // The registrations that DevX has no command for. 0 or false is a refusal.
  std::uint32_t allocate_pd();
  bool free_pd(std::uint32_t pd);
  std::uint32_t allocate_uar(std::byte* page);
  bool free_uar(std::uint32_t uar);
  std::uint32_t register_umem(std::byte* memory, std::uint64_t bytes);
  bool deregister_umem(std::uint32_t umem);
  // `start` is the address by which the region will be named. Returns its key.
  std::uint32_t register_region(std::uint32_t pd, std::uint64_t start, std::byte* memory,
                                std::uint64_t bytes, std::uint32_t access);
  bool deregister_region(std::uint32_t key);

  // How many objects of each kind live.
  struct Objects {
    std::uint32_t pds, uars, umems, regions, cqs, qps;
    bool operator==(const Objects&) const = default;
  };
  Objects objects() const;

 private:
  using Status = mlx5::devx::CommandStatus;
  struct Answer {
    Status status = Status::kOk;
    std::uint32_t syndrome = 0;
  };
  using Context = std::array<std::byte, 232>;  // a qpc, as the client wrote it

  Answer dispatch(std::span<const std::byte> in, std::span<std::byte> out);
  // `rule` is broken by the command `in`: true if that must fail.
  bool rule_is_kept(Refusal rule, std::span<const std::byte> in);
  Answer query_hca_cap(std::span<const std::byte> in, std::span<std::byte> out);
  Answer create_cq(std::span<const std::byte> in, std::span<std::byte> out);
  Answer destroy_cq(std::span<const std::byte> in);
  Answer create_qp(std::span<const std::byte> in, std::span<std::byte> out);
  Answer destroy_qp(std::span<const std::byte> in);
  Answer modify_qp(mlx5::devx::CommandOpcode opcode, std::span<const std::byte> in);
  Answer query_qp(std::span<const std::byte> in, std::span<std::byte> out);

  // The part of a umem from `offset` on; null where `bytes` do not fit, or where it does not lie at
  // a multiple of `alignment`.
  std::byte* umem_range(std::uint64_t umem, std::uint64_t offset, std::uint64_t bytes,
                        std::uint32_t alignment);

  struct Umems {
    std::uint32_t ring = 0;
    std::uint32_t dbrec = 0;
  };

  Tables& tables_;
  QueueEvents& events_;
  Limits limits_;
  std::vector<Context> contexts_;  // by QP index
  std::vector<Umems> qp_umems_ = std::vector<Umems>(kMaxQps);
  std::vector<Umems> cq_umems_ = std::vector<Umems>(kMaxCqs);
};

}  // namespace peal::nic
