// Serial PUTs against memcpy of the same bytes between the same places, in turn, so that a ratio
// holds while the machine's speed drifts. memcpy runs on the CPU of the NIC's thread.
#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/threads.hpp"
#include "link/loopback.hpp"
#include "peal/device/put.hpp"
#include "peal/host/context.hpp"
#include "peal/host/memory_region.hpp"
#include "peal/host/queue_pair.hpp"
#include "peal/memory/cpu_memory.hpp"
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

// Two NICs on one thread, one queue, and memory at both ends.
struct Rig {
  explicit Rig(std::uint64_t bytes)
      : source(bytes),
        destination(bytes),
        source_region(
            MemoryRegion::create(sender, source.data(), source.size(), Access::kLocalOnly)),
        destination_region(MemoryRegion::create(receiver, destination.data(), destination.size(),
                                                Access::kRemoteWrite)),
        near(QueuePair::create(sender, {.depth = 64})),
        far(QueuePair::create(receiver, {.depth = 1})) {
    near.connect(far.address());
    far.connect(near.address());
    engine.call([] { pin_to_cpu(kNicCpu); });
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 31);
  }

  link::Loopback loopback;
  verbs::SoftwareNic sender_nic{{.nic_number = 1}, loopback.a()};
  verbs::SoftwareNic receiver_nic{{.nic_number = 2}, loopback.b()};
  engine::ThreadsEngine engine{{sender_nic.step(), receiver_nic.step()}};
  Context sender = Context::open(sender_nic.provider(engine));
  Context receiver = Context::open(receiver_nic.provider(engine));
  std::vector<std::byte> source;
  std::vector<std::byte> destination;
  MemoryRegion source_region;
  MemoryRegion destination_region;
  QueuePair near;
  QueuePair far;
};

double seconds_since(std::uint64_t start_ns) {
  return static_cast<double>(CpuMemory::now_ns() - start_ns) * 1e-9;
}

double time_puts(Rig& rig, std::uint64_t size, SubmitOptions submit) {
  SendQueue<CpuMemory, Sharing::kDevice> queue(rig.near.handle(), submit);
  std::memset(rig.destination.data(), 0, rig.destination.size());
  const std::uint64_t start = CpuMemory::now_ns();
  for (std::uint64_t at = 0; at + size <= rig.source.size(); at += size) {
    const Put p{rig.source_region.address() + at, rig.source_region.lkey(),
                rig.destination_region.address() + at, rig.destination_region.rkey(), size};
    Posted posted;
    Status status = put(queue, p, &posted);
    if (status == Status::kOk) status = wait(queue, posted.ticket);
    if (status != Status::kOk) {
      throw std::runtime_error("a PUT failed: " + std::string(status_name(status)));
    }
  }
  const double seconds = seconds_since(start);
  if (std::memcmp(rig.source.data(), rig.destination.data(), rig.source.size() / size * size)) {
    throw std::runtime_error("a PUT arrived wrong");
  }
  return seconds;
}

double time_memcpy(Rig& rig, std::uint64_t size) {
  std::memset(rig.destination.data(), 0, rig.destination.size());
  double seconds = 0;
  rig.engine.call([&] {  // on the NIC's thread
    const std::uint64_t start = CpuMemory::now_ns();
    for (std::uint64_t at = 0; at + size <= rig.source.size(); at += size) {
      CpuMemory::copy_payload(rig.destination.data() + at, rig.source.data() + at, size);
    }
    seconds = seconds_since(start);
  });
  return seconds;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

void compare(Rig& rig, std::uint64_t size, int rounds) {
  std::vector<double> copy, original, peal, original_ratio, peal_ratio;
  const auto gbps = [&](double seconds) {
    return static_cast<double>(rig.source.size() / size * size) * 8 / seconds / 1e9;
  };
  for (int i = 0; i < rounds; ++i) {
    copy.push_back(gbps(time_memcpy(rig, size)));
    original.push_back(
        gbps(time_puts(rig, size, {DoorbellOrder::kRingRecordRing, PublishOrder::kInOrder})));
    peal.push_back(
        gbps(time_puts(rig, size, {DoorbellOrder::kRecordRing, PublishOrder::kCombine})));
    original_ratio.push_back(original.back() / copy.back());
    peal_ratio.push_back(peal.back() / copy.back());
  }
  fmt::print("{:>8} {:>12.2f} {:>12.2f} {:>12.2f} {:>12.3f} {:>12.3f}\n", size, median(copy),
             median(original), median(peal), median(original_ratio), median(peal_ratio));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    int rounds = 11;
    std::uint64_t bytes = 64u << 20;
    for (int i = 1; i + 1 < argc; i += 2) {
      const std::string option = argv[i];
      if (option == "--rounds") {
        rounds = std::max(1, std::stoi(argv[i + 1]));
      } else if (option == "--bytes") {
        bytes = std::max(1ull, std::stoull(argv[i + 1])) << 20;  // MiB, with or without the M
      } else {
        fmt::print(stderr, "peal_bench: unknown option {}\n", option);
        return 2;
      }
    }
    pin_to_cpu(kProducerCpu);
    Rig rig(bytes);
    fmt::print(
        "serial PUTs by the software ConnectX (threads engine, loopback) and memcpy; "
        "medians of {} rounds, not a hardware result\n",
        rounds);
    fmt::print("{:>8} {:>12} {:>12} {:>12} {:>12} {:>12}\n", "bytes", "memcpy Gbps", "original",
               "peal", "orig/memcpy", "peal/memcpy");
    for (const std::uint64_t size : {4096u, 65536u, 1048576u}) compare(rig, size, rounds);
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "peal_bench: {}\n", e.what());
    return 1;
  }
}
