// A reliable-connected queue pair for one-sided operations, made through DevX commands: send queue,
// completion queue, doorbell record, UAR. No receive queue.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "peal/core/types.hpp"
#include "peal/device/queue_handle.hpp"
#include "peal/device/wait.hpp"
#include "peal/host/context.hpp"

namespace peal {

struct QueuePairOptions {
  std::uint32_t depth = 1024;  // slots; a power of two up to the device's limit
  // Index of the first WQE. Hardware starts at 0; a software ConnectX can be told to start
  // elsewhere, and then both must agree.
  std::uint64_t first_wqe_index = 0;
  // When a peer does not answer: each attempt waits 4.096 us * 2^ack_timeout (1 to 31; 18 is 1.07
  // s), and there are retry_count (0 to 7) more after the first. Then the WQE fails with syndrome
  // 0x15.
  std::uint8_t ack_timeout = 18;
  std::uint8_t retry_count = 6;
  // Of its packets, where the path is made by a GID: the IP header's DSCP and ECN, or the GRH's.
  std::uint8_t traffic_class = 0;
  CompletionMode completion = CompletionMode::kEvery;
  // False: without a doorbell record, for DoorbellOrder::kRingOnly and no other. The device must
  // offer it (Context::offers_recordless), and the queue pair has a UAR page of its own.
  bool doorbell_record = true;
  // PSN of the first packet that it will send. Absent: drawn at random, as it should be wherever a
  // packet of an earlier queue pair may still arrive.
  std::optional<Psn> first_psn = {};
};

// What the peer must know to connect.
struct QueuePairAddress {
  Qpn qpn;
  Psn psn;  // of the first packet that this side will send
  std::uint16_t lid = 0;
  std::uint32_t mtu_bytes = 0;
  std::optional<Gid> gid = {};             // where its path is made by one
  std::optional<std::uint16_t> pkey = {};  // connect() refuses another partition; absent: unknown
};

enum class QueuePairState : std::uint8_t { kReset, kInit, kRtr, kRts, kError, kUnknown };
const char* queue_pair_state_name(QueuePairState state);

// Move-only. Destroys its objects in order when destroyed: QP, CQ, UAR, rings; under a proxy it is
// taken from that first, which then never touches it again. Any one thread at a time; the data path
// works on handle() and needs no lock against it. A moved-from one may only be asked whether it is
// valid(), assigned to and destroyed.
class QueuePair {
 public:
  // Throws Error; on failure nothing is left behind.
  static QueuePair create(const Context& context, const QueuePairOptions& options = {});
  // One more of main's context that rings on main's UAR page, by the same resolved handler. The
  // page is shared: either may be destroyed first. Both need a doorbell record: of two rings of one
  // register a NIC may see the last one only. Throws Error, also when `main` is not valid.
  static QueuePair create_companion(const QueuePair& main, const QueuePairOptions& options = {});
  // Throws the Error with which create would refuse these options by themselves.
  static void check(const Context& context, const QueuePairOptions& options);
  // Those with which create_companion would, also as those of its main queue pair.
  static void check_companion(const Context& context, const QueuePairOptions& options);
  QueuePair(QueuePair&&) noexcept;
  QueuePair& operator=(QueuePair&&) noexcept;
  ~QueuePair();

  // False after a move from it.
  bool valid() const { return impl_ != nullptr; }
  const Context& context() const;
  HandlerChoice handler() const;
  QueuePairAddress address() const;

  // INIT, RTR, RTS. The MTU becomes the smaller of both sides'. Throws Error, naming the
  // transition, also where no packet of the peer's partition would be taken.
  void connect(const QueuePairAddress& peer);

  // To the error state: every posted WQE completes, flushed, so every wait for a ticket ends. For
  // use before destruction, which no producer may still be on the queue for. Throws Error.
  void to_error();
  // After that: whether the last WQE that was posted has its CQE, and with it every one. Throws
  // Error.
  bool flushed() const;

  // Back to RST and empty, for use after an error or from the start again: first to error, where
  // every WQE posted is flushed, then the counters, the doorbell record and the error latch start
  // over, and a new start PSN is drawn. Handles taken before are void: take handle() anew, tell the
  // peer the new address(), and connect(). No producer may be on the queue. Blocks until the device
  // has flushed, at most `timeout_ns`. Throws Error; then the queue stays in error.
  void reset(std::uint64_t timeout_ns = kDefaultTimeoutNs);

  // Asks the device. Throws Error.
  QueuePairState state() const;

  // A copy of what the producers count, for when none is on the queue. Throws Error.
  QueueState counters() const;
  // Doorbell stores so far: the producers' own, and those of a proxy. Likewise.
  std::uint64_t doorbells() const;

  // For the data path; valid as long as this object. `stop` may be set by the caller. `layout` is
  // left as it is: that of the caller's build. Throws Error when it is not this library's.
  QueueHandle handle(std::uint32_t layout = kQueueHandleLayout) const;

 private:
  struct Impl;
  explicit QueuePair(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace peal
