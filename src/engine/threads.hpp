// An engine of one CPU thread that steps all its cores in turn: with few CPUs, two NICs on one
// thread beat two threads that wait for each other.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/engine.hpp"

namespace peal::engine {

class ThreadsEngine final : public Engine {
 public:
  explicit ThreadsEngine(std::vector<Step> steps);
  ~ThreadsEngine() override;
  ThreadsEngine(const ThreadsEngine&) = delete;
  ThreadsEngine& operator=(const ThreadsEngine&) = delete;

  void call(const std::function<void()>& f) override;

 private:
  struct Call {
    const std::function<void()>* f;
    std::exception_ptr thrown;
    enum { kWaiting, kRunning, kDone } state = kWaiting;
  };

  void run();
  void run_calls();

  std::vector<Step> steps_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> called_{false};
  std::mutex mutex_;
  std::condition_variable done_;
  std::deque<Call*> calls_;
  std::thread thread_;
};

}  // namespace peal::engine
