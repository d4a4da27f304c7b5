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

  void call(const std::function<void()>& f) override { run_between_steps(f, false); }
  void call_to_undo(const std::function<void()>& f) override { run_between_steps(f, true); }

 private:
  struct Call {
    const std::function<void()>* f;
    bool undoes;
    std::exception_ptr thrown;
    enum { kWaiting, kRunning, kDone } state = kWaiting;
  };

  void run_between_steps(const std::function<void()>& f, bool undoes);
  void run();
  bool step_all(std::uint64_t now_ns);
  void run_calls();

  std::vector<Step> steps_;
  std::exception_ptr thrown_;  // by a step: the last one of all. The engine's thread alone
  std::atomic<bool> stop_{false};
  std::atomic<bool> called_{false};
  std::mutex mutex_;
  std::condition_variable done_;
  std::deque<Call*> calls_;
  std::thread thread_;
};

}  // namespace peal::engine
