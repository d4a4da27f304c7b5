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

void ThreadsEngine::run_between_steps(const std::function<void()>& f, bool undoes) {
  Call call{&f, undoes, nullptr};
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
      if (thrown_ && !call->undoes) std::rethrow_exception(thrown_);
      (*call->f)();
    } catch (...) {
      call->thrown = std::current_exception();
    }
    lock.lock();
    call->state = Call::kDone;
    done_.notify_all();
  }
}

bool ThreadsEngine::step_all(std::uint64_t now_ns) {
  if (thrown_) return false;
  bool worked = false;
  try {
    for (const Step& step : steps_) worked |= step(now_ns);
  } catch (...) {
    thrown_ = std::current_exception();
  }
  return worked;
}

void ThreadsEngine::run() {
  std::uint32_t idle = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    if (called_.load(std::memory_order_relaxed)) run_calls();
    if (step_all(CpuMemory::now_ns())) {
      idle = 0;
    } else if (++idle < kIdleTurnsBeforeSleep) {
      CpuMemory::pause(idle);
    } else {
      std::this_thread::sleep_for(kIdleSleep);
    }
  }
}

}  // namespace peal::engine
