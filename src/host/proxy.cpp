#include "host/proxy.hpp"

#include <sched.h>

#include <chrono>
#include <system_error>

#include "host/idle.hpp"
#include "peal/host/error.hpp"
#include "peal/memory/cpu_memory.hpp"
#include "peal/mlx5/doorbell.hpp"

namespace peal::host {
namespace {

// Any change is rung: indices that agree in their low bits are different indices.
bool ring_if_told(ProxyQueue& q) {
  const std::uint64_t pi = CpuMemory::load_proxy_pi_acquire(&q.word->pi);  // MO-11
  if (pi == q.rung) return false;
  q.rung = pi;
  // Before the doorbell, so that nobody who learns of these WQEs from the NIC finds it uncounted.
  CpuMemory::store_relaxed(&q.word->doorbells, q.word->doorbells + 1);
  CpuMemory::store_dbrec_after_wqes(q.dbrec, mlx5::encode_dbrec(pi), FenceScope::kSystem);  // MO-1
  CpuMemory::ring_doorbell_after_dbrec(q.doorbell, mlx5::encode_doorbell(pi, q.qpn),
                                       FenceScope::kSystem);  // MO-2
  return true;
}

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
  for (ProxyQueue& q : queues_) rang |= ring_if_told(q);
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
