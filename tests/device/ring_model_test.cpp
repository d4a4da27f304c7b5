// The rings against a plain model: random operations, from start counters just below the wraps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "support/manual_fabric.hpp"
#include "support/scale.hpp"

namespace peal {
namespace {

using test::FabricOptions;
using test::ManualFabric;
using test::ManualMemory;
using test::scaled;

struct RingCase {
  std::uint32_t depth = 0;
  std::uint64_t first = 0;
  SubmitOptions submit;
  std::uint64_t operations = 0;
  std::uint64_t seed = 0;

  std::string text() const {
    return "depth " + std::to_string(depth) + ", first " + std::to_string(first) + ", " +
           doorbell_order_name(submit.doorbell) + ", " + publish_order_name(submit.publish) +
           ", seed " + std::to_string(seed);
  }
};

FabricOptions fabric_options(const RingCase& c) {
  FabricOptions options;
  options.depth = c.depth;
  options.memory_bytes = std::uint64_t{c.depth} * 2 * 16 + 64;
  options.sender.first_wqe_index = c.first;
  return options;
}

// The NIC is held but for the operations that let it step, so that the number of CQEs that it
// counts says exactly which tickets are done.
template <Sharing S>
class ModelRun {
 public:
  explicit ModelRun(const RingCase& c)
      : case_(c),
        random_(c.seed),
        fabric_(fabric_options(c)),
        queues_{fabric_.queue<S>(0, c.submit), fabric_.queue<S>(0, c.submit)},
        image_(fabric_.destination.size()),
        reserved_(c.first),
        ready_(c.first),
        checked_(c.first),
        wqes_from_(c.first),
        completed_(c.first) {
    fabric_.fill_source(c.seed);
    fabric_.hold();
  }

  void run() {
    for (std::uint64_t i = 0; i < case_.operations; ++i) {
      SCOPED_TRACE("operation " + std::to_string(i));
      operate();
      look_at_nic();
      look_at_completed();
      if (testing::Test::HasFatalFailure()) return;
    }
    finish();
  }

 private:
  static constexpr std::uint64_t kPlaceBytes = 16;

  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  SendQueue<ManualMemory, S>& queue() { return queues_[below(2)]; }
  // Every WQE below it has its CQE.
  std::uint64_t done() { return case_.first + fabric_.counters().cqes; }

  void operate() {
    switch (below(10)) {
      case 0:
      case 1:
      case 2: return reserve();
      case 3:
      case 4:
      case 5:
        if (!unpublished_.empty()) publish();
        return;
      case 6: return fabric_.step();
      case 7: return wait_for_any();
      case 8: return wait_with_running_nic();
      default:
        if (below(4) == 0) fabric_.settle();
        return;
    }
  }

  void reserve() {
    if (below(16) == 0) {
      Reservation r{77, 7};
      const std::uint32_t never = below(2) == 0 ? 0 : case_.depth + 1;
      ASSERT_EQ(queue().reserve(never, &r), Status::kInvalid);
      ASSERT_EQ(r.first, 77u);
      return;
    }
    const std::uint64_t most = below(4) == 0 ? case_.depth : std::min(case_.depth, 8u);
    const auto n = static_cast<std::uint32_t>(1 + below(most));
    // Now and then in full, with the NIC running: then it must succeed.
    const bool running = unpublished_.empty() && ready_ == reserved_ && below(4) == 0;
    const bool room = running || reserved_ + n - done() <= case_.depth;
    if (running) fabric_.release();
    Reservation r;
    const Status status = queue().reserve(n, &r, running ? kDefaultTimeoutNs : 3000);
    fabric_.hold();
    ASSERT_EQ(status, room ? Status::kOk : Status::kDeadline) << "n " << n;
    if (status != Status::kOk) return;
    ASSERT_EQ(r.first, reserved_);
    ASSERT_EQ(r.count, n);
    reserved_ += n;
    look_at_nic();
    write(r);
    unpublished_.push_back(r);
  }

  void write(const Reservation& r) {
    for (std::uint64_t index = r.first; index != r.end(); ++index) {
      const std::uint64_t place = index % (std::uint64_t{case_.depth} * 2) * kPlaceBytes;
      const std::uint64_t shift = below(kPlaceBytes);
      const std::uint64_t bytes = below(kPlaceBytes + 1 - shift);
      const Put put = fabric_.put(below(fabric_.source.size() - kPlaceBytes), place + shift, bytes);
      wqes_.push_back(put);
      write_wqe(queue(), index, put);
    }
  }

  // Only marks leave the order of publishing free.
  void publish() {
    const bool any = S != Sharing::kExclusive && case_.submit.publish == PublishOrder::kCombine;
    const std::size_t i = any ? below(unpublished_.size()) : 0;
    const Reservation r = unpublished_[i];
    unpublished_.erase(unpublished_.begin() + static_cast<std::ptrdiff_t>(i));

    const QueueHandle q = fabric_.sender_qps[0].handle();
    const std::uint64_t doorbells = q.state->doorbells;
    const std::uint64_t clock_ns = ManualMemory::hooks().now_ns;
    for (std::uint64_t index = r.first; index != r.end(); ++index) expect_untouched(index);
    ASSERT_EQ(queue().publish(r, 3000), Status::kOk);
    ASSERT_EQ(ManualMemory::hooks().now_ns, clock_ns) << "publishing waited";

    published_[r.first] = r.end();
    const std::uint64_t before = ready_;
    for (auto it = published_.find(ready_); it != published_.end(); it = published_.find(ready_)) {
      ready_ = it->second;
      published_.erase(it);
    }
    const std::uint64_t rings = case_.submit.doorbell == DoorbellOrder::kRingRecordRing ? 2 : 1;
    ASSERT_EQ(q.state->doorbells - doorbells, ready_ == before ? 0 : rings);
    ASSERT_EQ(q.state->rung, ready_);
    if (ready_ != before) {
      ASSERT_EQ(*q.doorbell, mlx5::encode_doorbell(ready_, q.qpn));  // not taken yet
    }
    if (ready_ != case_.first) {
      ASSERT_EQ(mlx5::decode_dbrec(*q.dbrec), static_cast<std::uint16_t>(ready_));
    }
  }

  // Nothing lands before it is published.
  void expect_untouched(std::uint64_t index) {
    const Put& put = wqes_[index - wqes_from_];
    const std::uint64_t to = put.remote_address - fabric_.destination_region.address();
    ASSERT_EQ(std::memcmp(&fabric_.destination[to], &image_[to], put.bytes), 0) << index;
  }

  void wait_for_any() {
    if (reserved_ == case_.first) return;
    const std::uint64_t back =
        std::min<std::uint64_t>(reserved_ - case_.first, std::uint64_t{case_.depth} * 3);
    const std::uint64_t ticket = reserved_ - 1 - below(back);
    const bool is_done = ticket < done();
    if (below(2) == 0) {
      ASSERT_EQ(queue().completions().try_wait(ticket), is_done ? Status::kOk : Status::kPending)
          << ticket;
    } else {
      ASSERT_EQ(wait(queue(), ticket, 3000), is_done ? Status::kOk : Status::kDeadline) << ticket;
    }
  }

  void wait_with_running_nic() {
    if (ready_ == case_.first) return;
    const std::uint64_t back = std::min<std::uint64_t>(ready_ - case_.first, case_.depth);
    const std::uint64_t ticket = ready_ - 1 - below(back);
    fabric_.release();
    ASSERT_EQ(wait(queue(), ticket), Status::kOk) << ticket;
    fabric_.hold();
    ASSERT_LT(ticket, done());
  }

  // Every WQE that has its CQE has landed, and was rung for.
  void look_at_nic() {
    const std::uint64_t end = done();
    ASSERT_LE(end, ready_);
    for (; checked_ != end; ++checked_) {
      const Put& put = wqes_[checked_ - wqes_from_];
      const std::uint64_t to = put.remote_address - fabric_.destination_region.address();
      const std::uint64_t from = put.local_address - fabric_.source_region.address();
      ASSERT_EQ(std::memcmp(&fabric_.destination[to], &fabric_.source[from], put.bytes), 0)
          << "WQE " << checked_;
      std::memcpy(&image_[to], &fabric_.source[from], put.bytes);
    }
    while (wqes_from_ < checked_) {
      wqes_.pop_front();
      ++wqes_from_;
    }
  }

  void look_at_completed() {
    const std::uint64_t now = queue().completions().completed();
    ASSERT_GE(now, completed_) << "completed fell";
    ASSERT_LE(now, done()) << "completed passed the NIC";
    completed_ = now;
  }

  void finish() {
    while (!unpublished_.empty()) {
      publish();
      if (testing::Test::HasFatalFailure()) return;
    }
    fabric_.settle();
    ASSERT_EQ(fabric_.counters().producer_index, reserved_);
    ASSERT_EQ(done(), reserved_);
    if (reserved_ != case_.first) {
      ASSERT_EQ(wait(queue(), reserved_ - 1), Status::kOk);
    }
    ASSERT_EQ(queue().completions().completed(), reserved_);
    look_at_nic();
    ASSERT_EQ(fabric_.destination, image_) << "a byte landed where none was asked for";
  }

  RingCase case_;
  std::mt19937_64 random_;
  ManualFabric fabric_;
  SendQueue<ManualMemory, S> queues_[2];
  std::vector<std::byte> image_;
  std::deque<Put> wqes_;  // of the indices from wqes_from_ on
  std::vector<Reservation> unpublished_;
  std::map<std::uint64_t, std::uint64_t> published_;  // beyond the contiguous prefix
  std::uint64_t reserved_;
  std::uint64_t ready_;
  std::uint64_t checked_;
  std::uint64_t wqes_from_;
  std::uint64_t completed_;
};

template <Sharing S>
void run_all(std::uint32_t depth, std::uint64_t operations) {
  std::mt19937_64 random(depth * 977 + static_cast<unsigned>(S));
  for (const std::uint64_t wrap :
       {std::uint64_t{0}, std::uint64_t{1} << 16, std::uint64_t{1} << 24, std::uint64_t{1} << 32,
        std::uint64_t{1} << 63, std::uint64_t{random() >> 1}}) {
    for (const DoorbellOrder doorbell :
         {DoorbellOrder::kRingRecordRing, DoorbellOrder::kRecordRing}) {
      for (const PublishOrder publish : {PublishOrder::kInOrder, PublishOrder::kCombine}) {
        RingCase c;
        c.depth = depth;
        c.first = wrap == 0 ? 0 : wrap - 1 - random() % (2 * depth);
        c.submit = {doorbell, publish};
        c.operations = scaled(operations);
        c.seed = random();
        SCOPED_TRACE(c.text());
        ModelRun<S> run(c);
        run.run();
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

void run_both(std::uint32_t depth, std::uint64_t operations) {
  run_all<Sharing::kExclusive>(depth, operations);
  if (testing::Test::HasFatalFailure()) return;
  run_all<Sharing::kDevice>(depth, operations);
}

TEST(Ring, AgreesWithModelWhenDepthIs1) {
  run_both(1, 1500);
}
TEST(Ring, AgreesWithModelWhenDepthIs2) {
  run_both(2, 1500);
}
TEST(Ring, AgreesWithModelWhenDepthIs4) {
  run_both(4, 1500);
}
TEST(Ring, AgreesWithModelWhenDepthIs8) {
  run_both(8, 1500);
}
TEST(Ring, AgreesWithModelWhenDepthIs64) {
  run_both(64, 1500);
}
TEST(Ring, AgreesWithModelWhenDepthIs1024) {
  run_both(1024, 400);
}
TEST(Ring, AgreesWithModelWhenDepthIsTheLargest) {
  run_both(32768, 60);
}

}  // namespace
}  // namespace peal
