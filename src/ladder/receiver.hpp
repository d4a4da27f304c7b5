// The end that PUTs arrive at, as the sending end sees it: in the same process or behind a channel.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ladder/channel.hpp"
#include "ladder/interrupt.hpp"
#include "ladder/payload_memory.hpp"
#include "peal/host/context.hpp"
#include "peal/host/memory_region.hpp"
#include "peal/host/queue_pair.hpp"

namespace peal::ladder {

// One row's traffic, before it starts.
struct RowSetup {
  std::string stage;
  std::string submit;
  std::uint64_t payload_bytes = 0;
  std::uint64_t slots = 0;  // of the largest segment
  std::uint32_t depth = 0;
  std::vector<QueuePairAddress> senders;
};

struct Destination {
  std::uint64_t address = 0;
  Rkey rkey;
  std::vector<QueuePairAddress> receivers;  // one for each sender
};

class Receiver {
 public:
  virtual ~Receiver() = default;

  // Makes the queues and the region of a row. Queues of the row before are gone.
  virtual Destination open_row(const RowSetup& setup) = 0;
  // Poisons the region for a segment.
  virtual void prepare(const SegmentPlan& plan) = 0;
  // Checks what arrived. Call it when every PUT has been acknowledged or its QP is in the error
  // state.
  virtual Verdict check(const SegmentPlan& plan, std::span<const std::uint64_t> acknowledged) = 0;
  virtual void close_row() = 0;

  // While PUTs are on their way: says that this end lives.
  virtual void say_alive() {}
  // Readable when the other end has something to say, which then is that it gave up; -1: never.
  virtual int watch_fd() const { return -1; }
  // To be called when watch_fd() is readable: throws what it means.
  virtual void hear() {}
};

class LocalReceiver final : public Receiver {
 public:
  // Its queue pairs are made with `queue_pairs`, but for the depth. `memory` must outlive it.
  LocalReceiver(Context context, PayloadMemory& memory, const QueuePairOptions& queue_pairs = {})
      : context_(std::move(context)), memory_(memory), options_(queue_pairs) {
    options_.depth = 1;  // it sends nothing, so the smallest ring will do
  }

  Destination open_row(const RowSetup& setup) override;
  void prepare(const SegmentPlan& plan) override;
  Verdict check(const SegmentPlan& plan, std::span<const std::uint64_t> acknowledged) override;
  void close_row() override;
  // Takes no more PUTs.
  void stop();

 private:
  Context context_;
  PayloadMemory& memory_;
  QueuePairOptions options_;
  std::vector<MemoryRegion> region_;  // none or one
  std::vector<QueuePair> queue_pairs_;
};

// Behind a channel to `peal server`. Every wait ends at the deadline.
class RemoteReceiver final : public Receiver {
 public:
  RemoteReceiver(Channel& channel, double deadline_s, const Interrupt& interrupt)
      : channel_(channel), deadline_s_(deadline_s), interrupt_(interrupt) {}

  Destination open_row(const RowSetup& setup) override;
  void prepare(const SegmentPlan& plan) override;
  Verdict check(const SegmentPlan& plan, std::span<const std::uint64_t> acknowledged) override;
  void close_row() override;
  void say_alive() override;
  int watch_fd() const override { return channel_.socket().fd(); }
  void hear() override;

 private:
  nlohmann::json ask(const nlohmann::json& message, std::string_view answer,
                     std::uint64_t bytes_to_work_on);

  Channel& channel_;
  double deadline_s_;
  const Interrupt& interrupt_;
  std::uint64_t row_bytes_ = 0;
};

// A wait that ends `seconds` from now, prolonged by the time that the slowest machine may need to
// go once over `bytes`.
Wait wait_for(double seconds, int interrupt_fd, std::uint64_t bytes = 0);

}  // namespace peal::ladder
