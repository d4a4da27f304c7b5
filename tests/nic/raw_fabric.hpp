// Two NICs with a connected QP and memory on both sides, for a client that writes every word
// itself. Time stands where the test puts it.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>

#include "link/loopback.hpp"
#include "nic/core.hpp"
#include "nic/raw_client.hpp"

namespace peal::test {

// Registered memory whose lifetime a test can end.
class RawMemory {
 public:
  RawMemory(nic::Commands& commands, std::uint32_t pd, std::size_t bytes, std::uint32_t access)
      : commands_(commands),
        bytes_(std::make_unique<std::byte[]>(bytes)),
        size_(bytes),
        key_(commands.register_region(pd, address(), bytes_.get(), bytes, access)) {}
  ~RawMemory() { free(); }
  RawMemory(const RawMemory&) = delete;
  RawMemory& operator=(const RawMemory&) = delete;

  std::byte* data() { return bytes_.get(); }
  std::byte& operator[](std::size_t i) { return bytes_[i]; }
  std::size_t size() const { return size_; }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(bytes_.get()); }
  std::uint32_t key() const { return key_; }
  void fill_by_index() {
    for (std::size_t i = 0; i < size_; ++i) bytes_[i] = std::byte((i * 31 + (i >> 8)) & 0xff);
  }

  // Deregisters and frees: an access by the NIC from now on is one to freed memory.
  void free() {
    if (bytes_ == nullptr) return;
    EXPECT_TRUE(commands_.deregister_region(key_));
    bytes_.reset();
  }

 private:
  nic::Commands& commands_;
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t size_;
  std::uint32_t key_;
};

struct RawFabricOptions {
  nic::CoreOptions sender = {.nic_number = 1};
  nic::CoreOptions receiver = {.nic_number = 2};
  std::uint8_t log_depth = 4;
  std::size_t memory_bytes = 1 << 16;
  RawQpOptions qp = {};  // its depth and first index come from here and from the sender
  RawConnection connection = {};
  bool connected = true;
  // Both or none; a loopback otherwise.
  link::Link* a = nullptr;
  link::Link* b = nullptr;
};

// Two NICs, a connected QP between them, memory on both sides; time stands where the test puts it.
template <class M = CpuMemory>
class RawFabric {
 public:
  explicit RawFabric(const RawFabricOptions& o = {})
      : sender(o.sender, o.a != nullptr ? *o.a : loopback.a()),
        receiver(o.receiver, o.b != nullptr ? *o.b : loopback.b()),
        sender_pd(sender.commands().allocate_pd()),
        receiver_pd(receiver.commands().allocate_pd()),
        uar(sender.commands()),
        peer_uar(receiver.commands()),
        source(sender.commands(), sender_pd, o.memory_bytes, nic::kLocalWrite),
        destination(receiver.commands(), receiver_pd, o.memory_bytes,
                    nic::kLocalWrite | nic::kRemoteWrite | nic::kRemoteRead | nic::kRemoteAtomic),
        qp(sender.commands(), sender_pd, uar, qp_options(o)),
        peer(receiver.commands(), receiver_pd, peer_uar, {.log_depth = 0}),
        connection(o.connection) {
    source.fill_by_index();
    connection.remote_qpn = peer.qpn();
    peer_connection = connection;
    peer_connection.remote_qpn = qp.qpn();
    std::swap(peer_connection.send_psn, peer_connection.receive_psn);
    if (!o.connected) return;
    qp.connect(connection);
    peer.connect(peer_connection);
  }
  RawFabric(const RawFabric&) = delete;
  RawFabric& operator=(const RawFabric&) = delete;

  static RawQpOptions qp_options(const RawFabricOptions& o) {
    RawQpOptions qp = o.qp;
    qp.log_depth = o.log_depth;
    qp.first_index = o.sender.first_wqe_index;
    return qp;
  }

  bool step_sender() { return sender.step(now_ns); }
  bool step_receiver() { return receiver.step(now_ns); }
  // Steps both NICs until neither has anything to do at this time.
  void settle() {
    for (int i = 0; i < 1'000'000; ++i) {
      bool worked = step_sender();
      worked |= step_receiver();
      if (!worked) return;
    }
    throw std::runtime_error("the NICs never came to rest");
  }

  Wqe write(std::uint64_t from, std::uint64_t to, std::uint32_t bytes) const {
    Wqe wqe;
    wqe.ctrl.opcode = static_cast<std::uint8_t>(mlx5::Opcode::kRdmaWrite);
    wqe.ctrl.ds = 3;
    wqe.ctrl.fm_ce_se = mlx5::kCompletionAlways;
    wqe.raddr = {destination.address() + to, Rkey(destination.key())};
    wqe.data = {bytes, Lkey(source.key()), source.address() + from};
    return wqe;
  }
  // Segments of the operations that have other ones.
  mlx5::Words16 ctrl(mlx5::Opcode opcode, std::uint8_t ds, std::uint8_t opmod = 0,
                     std::uint8_t fm_ce_se = mlx5::kCompletionAlways) const {
    mlx5::CtrlSeg c;
    c.opcode = static_cast<std::uint8_t>(opcode);
    c.ds = ds;
    c.opmod = opmod;
    c.fm_ce_se = fm_ce_se;
    return mlx5::encode(c);
  }
  mlx5::Words16 remote(std::uint64_t at) const {
    return mlx5::encode(mlx5::RaddrSeg{destination.address() + at, Rkey(destination.key())});
  }
  mlx5::Words16 local(std::uint64_t at, std::uint32_t bytes) const {
    return mlx5::encode(mlx5::DataSeg{bytes, Lkey(source.key()), source.address() + at});
  }
  std::vector<mlx5::Words16> read(std::uint64_t from, std::uint64_t to, std::uint32_t bytes) const {
    return {ctrl(mlx5::Opcode::kRdmaRead, 3), remote(from), local(to, bytes)};
  }
  std::vector<mlx5::Words16> fetch_add(std::uint64_t at, std::uint64_t add) const {
    return {ctrl(mlx5::Opcode::kFetchAdd, 4), remote(at), mlx5::encode(mlx5::AtomicSeg{add, add}),
            local(0, 8)};
  }
  // Writes, records, rings and lets the NICs come to rest.
  std::uint64_t run(const std::vector<mlx5::Words16>& segments) {
    const std::uint64_t index = qp.write_segments(segments);
    qp.record();
    qp.ring();
    settle();
    return index;
  }
  bool arrived(std::uint64_t from, std::uint64_t to, std::uint32_t bytes) {
    return std::memcmp(source.data() + from, destination.data() + to, bytes) == 0;
  }
  nic::QpCounters counters() const { return sender.counters(qp.qpn()); }
  nic::QpCounters peer_counters() const { return receiver.counters(peer.qpn()); }
  std::uint64_t refused(nic::Refusal why) const { return counters().reasons.refusals(why); }
  std::uint64_t warned(nic::Refusal why) const { return counters().reasons.warnings(why); }
  std::uint64_t peer_refused(nic::Refusal why) const {
    return peer_counters().reasons.refusals(why);
  }
  nic::QpState state() const { return sender.tables().find_qp(qp.qpn())->state; }
  nic::QpState peer_state() const { return receiver.tables().find_qp(peer.qpn())->state; }

  link::Loopback loopback;
  nic::Core<M> sender;
  nic::Core<M> receiver;
  std::uint32_t sender_pd;
  std::uint32_t receiver_pd;
  RawUar uar;
  RawUar peer_uar;
  RawMemory source;
  RawMemory destination;
  RawQp qp;
  RawQp peer;
  RawConnection connection;
  RawConnection peer_connection;
  std::uint64_t now_ns = 1;
};

}  // namespace peal::test
