// Rings for producers that cannot: they store a producer index, and a CPU thread turns it into
// doorbell record and doorbell. Knows queues by their words only.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "host/pass_lock.hpp"
#include "host/proxy_ring.hpp"

namespace peal::host {

// Any thread. Its own thread starts with the first queue and is joined by the destructor.
class Proxy {
 public:
  Proxy() = default;
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  // No thread, from now on: whoever calls this calls progress(). Before the first queue.
  void drive_by_hand() { by_hand_ = true; }

  // Blocks for one pass at most. Throws Error when the thread cannot be started; then the queue was
  // not added.
  void add(const ProxyQueue& queue);

  // On return the proxy does not touch this queue's words and never will. Nothing happens if it is
  // not there. Blocks for one pass at most.
  void remove(const ProxyWord* word) noexcept;

  // One pass over the queues; true if any was rung.
  bool progress();

 private:
  void start_thread();
  void run();

  PassLock lock_;
  std::vector<ProxyQueue> queues_;
  bool by_hand_ = false;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace peal::host
