#include "engine/threads.hpp"

#include <cerrno>
#include <chrono>

#include "peal/host/error.hpp"
#include "peal/memory/cpu_memory.hpp"

namespace peal::engine {
namespace {

// A step is bounded, and the longest one copies a single message of 1 GiB.
constexpr std::chrono::seconds kCallDeadline{30};

// Idle turns before the thread begins to sleep between looks, and for how long.
constexpr std::uint32_t kIdleTurnsBeforeSleep = 20'000;
constexpr std::chrono::microseconds kIdleSleep{50};

}  // namespace

ThreadsEngine::ThreadsEngine(std::vector<Step> steps)
    : steps_(std::move(steps)), thread_([this] { run(); }) {}

ThreadsEngine::~ThreadsEngine() {
  stop_.store(true);
  thread_.join();
}

void ThreadsEngine::call(const std::function<void()>& f) {
  Call call{&f, nullptr};
  std::unique_lock lock(mutex_);
  calls_.push_back(&call);
  called_.store(true);
  done_.wait_for(lock, kCallDeadline, [&call] { return call.state != Call::kWaiting; });
  if (call.state == Call::kWaiting) {
    std::erase(calls_, &call);
    throw Error(ETIMEDOUT, "the NIC's thread did not take a command within 30 s");
  }
  // It refers to this frame, so there is no leaving before its end.
  done_.wait(lock, [&call] { return call.state == Call::kDone; });
  if (call.thrown) std::rethrow_exception(call.thrown);
}

void ThreadsEngine::run_calls() {
  std::unique_lock lock(mutex_);
  called_.store(false);
  while (!calls_.empty()) {
    Call* call = calls_.front();
    calls_.pop_front();
    call->state = Call::kRunning;
    lock.unlock();
    try {
      (*call->f)();
    } catch (...) {
      call->thrown = std::current_exception();
    }
    lock.lock();
    call->state = Call::kDone;
    done_.notify_all();
  }
}

void ThreadsEngine::run() {
  std::uint32_t idle = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    if (called_.load(std::memory_order_relaxed)) run_calls();
    const std::uint64_t now_ns = CpuMemory::now_ns();
    bool worked = false;
    for (const Step& step : steps_) worked |= step(now_ns);
    if (worked) {
      idle = 0;
    } else if (++idle < kIdleTurnsBeforeSleep) {
      CpuMemory::pause(idle);
    } else {
      std::this_thread::sleep_for(kIdleSleep);
    }
  }
}

}  // namespace peal::engine
