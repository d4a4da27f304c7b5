// A lock between one that passes over something again and again and those that change it now and
// then. A plain mutex would do but for this: who unlocks and locks at once can keep others out.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace peal::host {

class PassLock {
 public:
  // Blocks while a change is under way or waits: passes give way, and a change waits for one pass
  // at most.
  std::unique_lock<std::mutex> lock_pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_.load() == 0; });
    return lock;
  }

  // Runs `f` between two passes. Not from within a pass or another change.
  template <class F>
  void change(const F& f) {
    waiting_.fetch_add(1);  // before the lock, so that the next pass knows
    const std::lock_guard lock(mutex_);
    const Leave leave{*this};
    f();
  }

  // Changes that wait or are under way.
  std::uint32_t waiting() const { return waiting_.load(); }

 private:
  struct Leave {
    PassLock& of;
    ~Leave() {
      of.waiting_.fetch_sub(1);
      of.changed_.notify_all();
    }
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<std::uint32_t> waiting_{0};
};

}  // namespace peal::host
