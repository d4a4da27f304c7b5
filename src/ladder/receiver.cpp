#include "ladder/receiver.hpp"

#include "ladder/messages.hpp"
#include "ladder/outcome.hpp"

namespace peal::ladder {
namespace {

// Under a sanitizer on a busy machine; a wait so long is still a wait that ends.
constexpr double kSlowestBytesPerSecond = 20e6;

}  // namespace

Wait wait_for(double seconds, int interrupt_fd, std::uint64_t bytes) {
  const double total = seconds + static_cast<double>(bytes) / kSlowestBytesPerSecond;
  return {std::chrono::steady_clock::now() +
              std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                  std::chrono::duration<double>(total)),
          interrupt_fd};
}

Destination LocalReceiver::open_row(const RowSetup& setup) {
  close_row();
  const std::uint64_t bytes = SlotLayout::for_payload(setup.payload_bytes).bytes_for(setup.slots);
  region_.push_back(
      MemoryRegion::create(context_, memory_.take(bytes), bytes, Access::kRemoteWrite));
  Destination d;
  d.address = region_[0].address();
  d.rkey = region_[0].rkey();
  for (std::size_t i = 0; i < setup.senders.size(); ++i) {
    queue_pairs_.push_back(QueuePair::create(context_, options_));
    queue_pairs_.back().connect(setup.senders[i]);
    d.receivers.push_back(queue_pairs_.back().address());
  }
  return d;
}

void LocalReceiver::prepare(const SegmentPlan& plan) {
  memory_.poison(plan);
}

Verdict LocalReceiver::check(const SegmentPlan& plan, std::span<const std::uint64_t> acknowledged) {
  return memory_.check(plan, acknowledged);
}

void LocalReceiver::stop() {
  for (QueuePair& qp : queue_pairs_) qp.to_error();
}

void LocalReceiver::close_row() {
  queue_pairs_.clear();
  region_.clear();
}

nlohmann::json RemoteReceiver::ask(const nlohmann::json& message, std::string_view answer,
                                   std::uint64_t bytes_to_work_on) {
  // Once Ctrl-C has been heard, the verdict over what ran is still wanted; the deadline bounds it.
  const int interrupt_fd = interrupt_.raised() ? -1 : interrupt_.fd();
  channel_.send(message, wait_for(deadline_s_, interrupt_fd));
  return channel_.receive(answer, wait_for(deadline_s_, interrupt_fd, bytes_to_work_on));
}

Destination RemoteReceiver::open_row(const RowSetup& setup) {
  row_bytes_ = SlotLayout::for_payload(setup.payload_bytes).bytes_for(setup.slots);
  nlohmann::json message = to_json(setup);
  message["type"] = "row";
  const nlohmann::json answer = ask(message, "row_ready", row_bytes_);
  const Destination d = read_message([&] { return destination_from(answer); });
  if (d.receivers.size() != setup.senders.size()) {
    throw PeerError(PeerError::Kind::kProtocol, "the peer answered for another number of QPs");
  }
  return d;
}

void RemoteReceiver::prepare(const SegmentPlan& plan) {
  nlohmann::json message = to_json(plan);
  message["type"] = "segment";
  ask(message, "segment_ready", row_bytes_);
}

Verdict RemoteReceiver::check(const SegmentPlan& plan,
                              std::span<const std::uint64_t> acknowledged) {
  nlohmann::json message = to_json(plan);
  message["type"] = "check";
  message["acknowledged"] = std::vector<std::uint64_t>(acknowledged.begin(), acknowledged.end());
  const nlohmann::json answer = ask(message, "verdict", row_bytes_);
  return read_message([&] { return verdict_from(answer); });
}

void RemoteReceiver::close_row() {
  ask({{"type", "row_done"}}, "row_closed", row_bytes_);
}

void RemoteReceiver::say_alive() {
  channel_.send({{"type", "alive"}}, wait_for(deadline_s_, -1));
}

void RemoteReceiver::hear() {
  channel_.receive_any("PUTs to end", wait_for(deadline_s_, -1));
  throw PeerError(PeerError::Kind::kProtocol, "the peer spoke while PUTs were on their way");
}

}  // namespace peal::ladder
