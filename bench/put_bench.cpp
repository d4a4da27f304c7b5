// PUTs in stages against memcpy of the same bytes between the same places, in turn, so that a ratio
// holds while the machine's speed drifts. memcpy runs on the CPU of the NIC's thread, the producers
// on the other. Every payload of every round is checked.
#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/threads.hpp"
#include "ladder/memory.hpp"
#include "ladder/parse.hpp"
#include "ladder/payload.hpp"
#include "ladder/producers.hpp"
#include "ladder/usage_error.hpp"
#include "link/loopback.hpp"
#include "peal/host/context.hpp"
#include "peal/host/memory_region.hpp"
#include "peal/host/queue_pair.hpp"
#include "verbs/software_nic.hpp"

namespace {

using namespace peal;

void pin_to_cpu(unsigned cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu % std::thread::hardware_concurrency(), &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

constexpr unsigned kProducerCpu = 0;
constexpr unsigned kNicCpu = 1;

struct Shape {
  std::uint32_t producers;
  std::uint32_t qps;
  std::uint32_t window;
  std::uint32_t batch;
};
constexpr Shape kSerial = {1, 1, 1, 1};
constexpr Shape kBatch = {1, 1, 256, 32};
constexpr Shape kTwoShare = {2, 1, 256, 32};
constexpr Shape kTwoQps = {2, 2, 256, 32};

constexpr SubmitOptions kOriginal = {DoorbellOrder::kRingRecordRing, PublishOrder::kInOrder};
constexpr SubmitOptions kPeal = {DoorbellOrder::kRecordRing, PublishOrder::kCombine};

// Two NICs on one thread, two queues, and memory at both ends.
struct Rig {
  explicit Rig(std::uint64_t bytes)
      : source(bytes),
        destination(bytes),
        source_region(
            MemoryRegion::create(sender, source.bytes().data(), bytes, Access::kLocalOnly)),
        destination_region(MemoryRegion::create(receiver, destination.bytes().data(), bytes,
                                                Access::kRemoteWrite)) {
    for (int i = 0; i < 2; ++i) {
      near.push_back(QueuePair::create(sender, {.depth = 1024}));
      far.push_back(QueuePair::create(receiver, {.depth = 1}));
      near[i].connect(far[i].address());
      far[i].connect(near[i].address());
    }
    engine.call([] { pin_to_cpu(kNicCpu); });
  }

  link::Loopback loopback;
  verbs::SoftwareNic sender_nic{{.nic_number = 1}, loopback.a()};
  verbs::SoftwareNic receiver_nic{{.nic_number = 2}, loopback.b()};
  engine::ThreadsEngine engine{{sender_nic.step(), receiver_nic.step()}};
  Context sender = Context::open(sender_nic.provider(engine));
  Context receiver = Context::open(receiver_nic.provider(engine));
  ladder::Buffer source;
  ladder::Buffer destination;
  MemoryRegion source_region;
  MemoryRegion destination_region;
  std::vector<QueuePair> near;
  std::vector<QueuePair> far;
};

ladder::SegmentPlan plan_of(std::uint64_t size, std::uint64_t puts, std::uint32_t producers) {
  ladder::SegmentPlan plan;
  plan.seed = 1;
  plan.producers = producers;
  plan.puts_per_producer = puts / producers;
  plan.payload_bytes = size;
  return plan;
}

// PUTs a second.
double put_rate(Rig& rig, const Shape& shape, SubmitOptions submit, std::uint64_t size,
                std::uint64_t puts) {
  ladder::SegmentWork work;
  work.plan = plan_of(size, puts, shape.producers);
  for (std::uint32_t i = 0; i < shape.qps; ++i) work.queues.push_back(rig.near[i].handle());
  work.submit = submit;
  work.window = shape.window;
  work.batch = shape.batch;
  work.source = rig.source_region.address();
  work.lkey = rig.source_region.lkey();
  work.destination = rig.destination_region.address();
  work.rkey = rig.destination_region.rkey();
  work.timeout_ns = kDefaultTimeoutNs;
  ladder::fill_source(rig.source.bytes(), work.plan);
  ladder::poison_destination(rig.destination.bytes(), work.plan);
  const auto results = ladder::CpuProducers().run(work, [] {});
  std::uint64_t start_ns = UINT64_MAX;
  std::uint64_t end_ns = 0;
  std::vector<std::uint64_t> acknowledged;
  for (const auto& r : results) {
    if (r.status != Status::kOk) {
      throw std::runtime_error("a PUT failed: " + std::string(status_name(r.status)));
    }
    start_ns = std::min(start_ns, r.start_ns);
    end_ns = std::max(end_ns, r.end_ns);
    acknowledged.push_back(r.acknowledged);
  }
  const auto verdict = ladder::check_destination(rig.destination.bytes(), work.plan, acknowledged);
  if (verdict.mismatches != 0) throw std::runtime_error("a PUT arrived wrong");
  return static_cast<double>(work.plan.slots()) / (static_cast<double>(end_ns - start_ns) * 1e-9);
}

// Copies a second, from and to where the PUTs go.
double copy_rate(Rig& rig, std::uint64_t size, std::uint64_t puts) {
  const ladder::SegmentPlan plan = plan_of(size, puts, 1);
  const ladder::SlotLayout layout = plan.layout();
  ladder::fill_source(rig.source.bytes(), plan);
  ladder::poison_destination(rig.destination.bytes(), plan);
  double seconds = 0;
  rig.engine.call([&] {  // on the NIC's thread
    const std::uint64_t start = CpuMemory::now_ns();
    for (std::uint64_t i = 0; i < puts; ++i) {
      const std::uint64_t at = layout.offset_of(i);
      CpuMemory::copy_payload(rig.destination.bytes().data() + at, rig.source.bytes().data() + at,
                              size);
    }
    seconds = static_cast<double>(CpuMemory::now_ns() - start) * 1e-9;
  });
  return static_cast<double>(puts) / seconds;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

struct Series {
  std::vector<double> rate;
  std::vector<double> ratio;  // to what was measured beside it in the same round
  void add(double r, double beside) {
    rate.push_back(r);
    ratio.push_back(r / beside);
  }
};

std::string rate_text(const std::vector<double>& puts_per_second, std::uint64_t size) {
  const double rate = median(puts_per_second);
  if (size < 512) return fmt::format("{:.2f} Mpps", rate / 1e6);
  return fmt::format("{:.2f} Gbps", rate * static_cast<double>(size) * 8 / 1e9);
}

void print(const std::string& what, std::uint64_t size, const std::vector<double>& rates,
           const std::string& ratios) {
  fmt::print("{:>8}  {:<28} {:>14}  {}\n", size, what, rate_text(rates, size), ratios);
}

void compare_stages(Rig& rig, std::uint64_t size, std::uint64_t puts, int rounds) {
  std::vector<double> copy;
  Series serial[2], batch[2], gain[2];
  const SubmitOptions submits[] = {kOriginal, kPeal};
  for (int i = 0; i < rounds; ++i) {
    copy.push_back(copy_rate(rig, size, puts));
    for (int s = 0; s < 2; ++s) {
      serial[s].add(put_rate(rig, kSerial, submits[s], size, puts), copy.back());
      batch[s].add(put_rate(rig, kBatch, submits[s], size, puts), copy.back());
      gain[s].add(batch[s].rate.back(), serial[s].rate.back());
    }
  }
  print("memcpy", size, copy, "");
  const char* names[] = {"original", "peal"};
  for (int s = 0; s < 2; ++s) {
    print(fmt::format("serial {}", names[s]), size, serial[s].rate,
          fmt::format("{:.3f} of memcpy", median(serial[s].ratio)));
    print(fmt::format("batch {}", names[s]), size, batch[s].rate,
          fmt::format("{:.3f} of memcpy, {:.1f} times serial", median(batch[s].ratio),
                      median(gain[s].ratio)));
  }
}

void compare_sharing(Rig& rig, std::uint64_t size, std::uint64_t puts, int rounds) {
  const SubmitOptions submits[] = {kOriginal, kPeal};
  const char* names[] = {"original", "peal"};
  for (int s = 0; s < 2; ++s) {
    Series apart, shared;
    for (int i = 0; i < rounds; ++i) {
      apart.add(put_rate(rig, kTwoQps, submits[s], size, puts), 1);
      shared.add(put_rate(rig, kTwoShare, submits[s], size, puts), apart.rate.back());
    }
    print(fmt::format("two producers, two QPs, {}", names[s]), size, apart.rate, "");
    print(fmt::format("two producers, one QP, {}", names[s]), size, shared.rate,
          fmt::format("{:.3f} of two QPs", median(shared.ratio)));
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    int rounds = 11;
    std::uint64_t bytes = 64u << 20;
    for (int i = 1; i < argc; i += 2) {
      const std::string option = argv[i];
      const std::string value = i + 1 < argc ? argv[i + 1] : "";
      if (option == "--rounds") {
        rounds = static_cast<int>(ladder::parse_count(option, value, {1, 1000}));
      } else if (option == "--bytes") {
        bytes = ladder::parse_bytes(option, value, {1u << 20, 1u << 30});
      } else {
        throw ladder::UsageError(fmt::format("'{}' is neither --rounds nor --bytes", option));
      }
    }
    pin_to_cpu(kProducerCpu);
    Rig rig(bytes + (2u << 20));  // guards too
    fmt::print(
        "PUTs by the software ConnectX (threads engine, loopback) and memcpy; medians of {} "
        "rounds, all payloads checked, not a hardware result\n",
        rounds);
    for (const std::uint64_t size : {8u, 4096u, 65536u, 1048576u}) {
      // Small ones stay in the caches, as the memory of a ring of signals would.
      compare_stages(rig, size, std::min<std::uint64_t>(bytes / size, 1u << 17), rounds);
    }
    for (const std::uint64_t size : {8u, 4096u}) {
      compare_sharing(rig, size, std::min<std::uint64_t>(bytes / size, 1u << 17), rounds);
    }
    return 0;
  } catch (const ladder::UsageError& e) {
    fmt::print(stderr, "peal_bench: {}\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    fmt::print(stderr, "peal_bench: {}\n", e.what());
    return 1;
  }
}
