#include "host/proxy.hpp"

#include <sched.h>

#include <chrono>
#include <system_error>

#include "host/idle.hpp"
#include "peal/host/error.hpp"
#include "peal/memory/cpu_memory.hpp"

namespace peal::host {
namespace {

void pass_the_time(const IdleTurn& turn) {
  switch (turn.kind) {
    case IdleTurn::kSpin: CpuMemory::pause(0); break;
    case IdleTurn::kYield: sched_yield(); break;
    case IdleTurn::kSleep:
      std::this_thread::sleep_for(std::chrono::nanoseconds(turn.sleep_ns));
      break;
  }
}

}  // namespace

Proxy::~Proxy() {
  stop_.store(true);
  if (thread_.joinable()) thread_.join();
}

void Proxy::add(const ProxyQueue& queue) {
  lock_.change([&] {
    if (!by_hand_ && !thread_.joinable()) start_thread();
    queues_.push_back(queue);
  });
}

void Proxy::remove(const ProxyWord* word) noexcept {
  lock_.change(
      [&] { std::erase_if(queues_, [word](const ProxyQueue& q) { return q.word == word; }); });
}

bool Proxy::progress() {
  const auto lock = lock_.lock_pass();
  bool rang = false;
  for (ProxyQueue& q : queues_) rang |= ring_if_told<CpuMemory>(q);
  return rang;
}

void Proxy::start_thread() {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& e) {
    throw system_error(e.code().value(), "starting the proxy's thread");
  }
}

void Proxy::run() {
  std::uint32_t idle_looks = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    if (progress()) {
      idle_looks = 0;
    } else {
      if (idle_looks <= kSpinTurns + kYieldTurns) ++idle_looks;
      pass_the_time(idle_turn(idle_looks));
    }
  }
}

}  // namespace peal::host
