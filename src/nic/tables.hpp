// What the software ConnectX knows of queues and keys, as plain data in fixed arrays, so that an
// engine on another processor can read the same tables. Changed only by Core, between steps; each
// change raises the epoch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "nic/refusal.hpp"
#include "peal/core/types.hpp"
#include "peal/mlx5/cqe.hpp"
#include "peal/mlx5/doorbell.hpp"
#include "peal/mlx5/wqe.hpp"

namespace peal::nic {

inline constexpr std::uint32_t kMaxQps = 2048;
inline constexpr std::uint32_t kMaxCqs = 2048;
inline constexpr std::uint32_t kMaxKeys = 4096;
inline constexpr std::uint32_t kMaxUars = 2048;
inline constexpr std::uint32_t kMaxUmems = 8192;
inline constexpr std::uint32_t kMaxPds = 256;

inline constexpr std::uint32_t kLogMaxQpDepth = 15;
inline constexpr std::uint32_t kLogMaxMessage = 30;
inline constexpr std::uint32_t kMaxWqeSegments = 64;  // max_wqe_sz_sq is 1024 bytes

// Where a memory key may be used; bits as in ibv_access_flags.
enum AccessFlag : std::uint32_t {
  kLocalWrite = 1u << 0,
  kRemoteWrite = 1u << 1,
  kRemoteRead = 1u << 2,
  kRemoteAtomic = 1u << 3,
};

// A registered memory region. `key` is index << 8 | tag and serves as both lkey and rkey; the index
// in it is scrambled (Tables::key_secret).
struct KeyEntry {
  std::uint32_t key = 0;       // 0: free
  std::uint32_t last_key = 0;  // the key that this entry had last, so that tags never repeat soon
  std::uint32_t pd = 0;
  std::uint32_t access = 0;
  std::uint64_t start = 0;  // the address by which the region is named (its iova)
  std::uint64_t bytes = 0;
  std::byte* memory = nullptr;
};

enum class QpState : std::uint8_t { kReset = 0, kInit = 1, kRtr = 2, kRts = 3, kError = 6 };

struct QpEntry {
  Qpn qpn;  // 0: free
  QpState state = QpState::kReset;
  std::uint8_t log_sq_size = 0;
  std::uint8_t log_msg_max = 0;
  std::uint8_t mtu = 0;  // coded: 1 is 256, 5 is 4096
  bool remote_write_enabled = false;
  bool remote_read_enabled = false;
  bool remote_atomic_enabled = false;
  std::uint8_t atomic_mode = 0;
  std::uint8_t log_sra_max = 0;  // reads and atomics that it may have in flight
  std::uint8_t log_rra_max = 0;  // and that the peer may
  std::uint32_t pd = 0;
  std::uint32_t cq = 0;   // index of its send CQ
  std::uint32_t uar = 0;  // index of its UAR
  const mlx5::Slot* sq = nullptr;
  const std::uint32_t* dbrec = nullptr;  // the send word; null: it has no record
  Qpn remote_qpn;
  Psn next_send_psn;
  Psn next_receive_psn;
  // Of its ring as it was last made empty, by creation or reset: which time, counted over all QPs,
  // and the index of the first WQE in it.
  std::uint64_t ring_generation = 0;
  std::uint64_t first_index = 0;
  std::uint64_t made_generation = 0;  // that of its creation
  std::uint8_t ack_timeout = 0;       // coded: 4.096 us * 2^n; 0 waits for ever (IBTA 9.7.6.1.3)
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry = 0;      // 7: for ever
  std::uint8_t min_rnr_timer = 0;  // coded (IBTA 9.7.5.2.8): what the peer waits without a receive

  // How long a request may stay unanswered before it is sent again. 0: for ever.
  PEAL_HOST_DEVICE std::uint64_t attempt_timeout_ns() const {
    return ack_timeout == 0 ? 0 : std::uint64_t{4096} << ack_timeout;
  }
  // And in all. Links that lose nothing need no second attempt, so that the time of all attempts is
  // waited for at once.
  PEAL_HOST_DEVICE std::uint64_t answer_timeout_ns() const {
    return attempt_timeout_ns() * (retry_count + 1u);
  }
  PEAL_HOST_DEVICE bool has_record() const { return dbrec != nullptr; }
  PEAL_HOST_DEVICE std::uint32_t depth() const { return 1u << log_sq_size; }
  PEAL_HOST_DEVICE std::uint32_t mtu_bytes() const { return 128u << mtu; }
  // How many PSNs a message, or a part of one, takes.
  PEAL_HOST_DEVICE std::uint32_t packets_of(std::uint32_t bytes) const {
    return bytes == 0 ? 1 : (bytes - 1) / mtu_bytes() + 1;
  }
};

struct CqEntry {
  bool used = false;
  std::uint8_t log_size = 0;
  mlx5::Cqe* ring = nullptr;
  bool collapsed = false;  // every CQE goes to entry 0
  bool ignores_overrun = false;
  std::uint64_t produced = 0;  // CQEs written so far; a QP reset does not touch it
  std::uint32_t uar = 0;
  const std::uint32_t* consumer_record = nullptr;  // null: the client gave none

  PEAL_HOST_DEVICE std::uint32_t entries() const { return 1u << log_size; }
  PEAL_HOST_DEVICE mlx5::Cqe* entry(std::uint64_t number) const {
    return &ring[collapsed ? 0 : number & (entries() - 1)];
  }
};

// One UAR page, with two doorbell registers. Any number of QPs with records ring on the one; the
// other is one QP's.
struct UarEntry {
  std::byte* page = nullptr;  // null: free

  PEAL_HOST_DEVICE std::uint64_t* doorbell(bool has_record) const {
    return reinterpret_cast<std::uint64_t*>(page + mlx5::uar_doorbell_offset(has_record));
  }
};

// Client memory that queues are built on.
struct UmemEntry {
  std::byte* memory = nullptr;  // null: free
  std::uint64_t bytes = 0;
  std::uint32_t users = 0;
};

// Indices start at 1, so that 0 names nothing.
struct Tables {
  std::uint64_t epoch = 0;
  Rules rules = default_rules();
  std::array<QpEntry, kMaxQps> qps;
  std::array<CqEntry, kMaxCqs> cqs;
  std::array<KeyEntry, kMaxKeys> keys;
  std::array<UarEntry, kMaxUars> uars;
  std::array<UmemEntry, kMaxUmems> umems;
  std::array<bool, kMaxPds> pds{};

  // QPNs and keys carry a base, so that two NICs of one run never use the same number: what is
  // addressed to the wrong one is then refused instead of hitting a stranger's.
  std::uint32_t qpn_base = 0;
  std::uint32_t key_base = 0;
  // What makes keys hard to guess: which bits of an index are turned over, where its tags begin,
  // and by how much they go on, which is odd, for all of them to have a turn. 0 counts them up.
  std::uint64_t key_secret = 0;

  PEAL_HOST_DEVICE QpEntry* find_qp(Qpn qpn) {
    const std::uint32_t index = qpn.value - qpn_base;
    return qpn.value > qpn_base && index < kMaxQps && qps[index].qpn == qpn ? &qps[index] : nullptr;
  }
  PEAL_HOST_DEVICE const QpEntry* find_qp(Qpn qpn) const {
    return const_cast<Tables*>(this)->find_qp(qpn);
  }

  // The place of an entry of `qps`.
  PEAL_HOST_DEVICE std::uint32_t index_of(const QpEntry& qp) const {
    return static_cast<std::uint32_t>(&qp - qps.data());
  }

  PEAL_HOST_DEVICE const KeyEntry* find_key(std::uint32_t key) const {
    const KeyEntry* entry = key_slot(key);
    return entry != nullptr && entry->key == key ? entry : nullptr;
  }
  // For the entry of `index`, which had `last_key`.
  std::uint32_t next_key(std::uint32_t index, std::uint32_t last_key) const {
    const auto first_tag = static_cast<std::uint32_t>(key_secret * (2 * index + 1) >> 56);
    const auto step = static_cast<std::uint32_t>(key_secret >> 12) | 1;
    const std::uint32_t tag = (last_key == 0 ? first_tag : last_key) + step;
    return ((key_base + (index ^ key_scramble())) << 8) | (tag & 0xff);
  }
  // True when the key's index was given out before, under another tag.
  PEAL_HOST_DEVICE bool key_is_stale(std::uint32_t key) const {
    const KeyEntry* entry = key_slot(key);
    return entry != nullptr && entry->key != key && entry->last_key != 0;
  }

 private:
  PEAL_HOST_DEVICE std::uint32_t key_scramble() const {
    return static_cast<std::uint32_t>(key_secret) & (kMaxKeys - 1);
  }
  PEAL_HOST_DEVICE const KeyEntry* key_slot(std::uint32_t key) const {
    const std::uint32_t scrambled = (key >> 8) - key_base;
    const std::uint32_t index = scrambled ^ key_scramble();
    return scrambled < kMaxKeys && index != 0 ? &keys[index] : nullptr;
  }
};

}  // namespace peal::nic
