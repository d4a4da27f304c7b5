// Device memory without a device: its addresses are pages without access, so that whoever goes
// round its table ends the program. The table and the tests' producers reach the same bytes
// through a second mapping.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>
#include <vector>

#include "peal/device/queue_handle.hpp"
#include "verbs/software.hpp"

namespace peal::test {

class SealedMemory final : public verbs::DeviceMemory {
 public:
  static constexpr std::size_t kBytes = std::size_t{16} << 20;

  SealedMemory() : begin_(arena().take()) {}
  ~SealedMemory() override { arena().give_back(begin_); }
  SealedMemory(const SealedMemory&) = delete;
  SealedMemory& operator=(const SealedMemory&) = delete;

  std::byte* begin() const { return begin_; }

  // Where a test reaches what `p` points to; any other address is its own.
  template <class T>
  static T* open(T* p) {
    const Arena& a = arena();
    const auto* at = reinterpret_cast<const std::byte*>(p);
    if (at < a.sealed || at >= a.sealed + Arena::kArenaBytes) return p;
    return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(p) +
                                static_cast<std::uintptr_t>(a.open - a.sealed));
  }
  static QueueHandle open(QueueHandle h) {
    h.sq = open(h.sq);
    h.dbrec = open(h.dbrec);
    h.nic_cq = open(h.nic_cq);
    h.state = open(h.state);
    h.marks = open(h.marks);
    return h;
  }

  // What is released is not given out again.
  void* allocate(std::size_t bytes) override {
    const std::size_t pages = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
    if (pages > kBytes - used_) {
      errno = ENOMEM;
      return nullptr;
    }
    void* memory = begin_ + used_;
    used_ += pages;
    return memory;
  }
  void release(void*, std::size_t) override {}
  void* map_uar(void* reg_addr) override { return reg_addr; }
  void unmap_uar(void*) override {}
  // By words, which producers may be polling.
  int copy_to_device(void* to, const void* from, std::size_t bytes) override {
    if (const int error = copied()) return error;
    if (number_of(to) % 8 == 0 && bytes % 8 == 0) {
      store_words<std::uint64_t>(open(to), from, bytes);
    } else {
      store_words<std::uint32_t>(open(to), from, bytes);
    }
    return 0;
  }
  int copy_from_device(void* to, const void* from, std::size_t bytes) override {
    if (const int error = copied()) return error;
    return verbs::HostMemory().copy_from_device(to, open(from), bytes);
  }
  int copy_payload(void* to, const void* from, std::size_t bytes) override {
    if (const int error = copied()) return error;
    std::memcpy(open(to), open(from), bytes);
    return 0;
  }
  bool reached_by_cpu() const override { return false; }

  std::atomic<std::uint64_t> copies{0};
  std::atomic<int> fails_with{0};  // an errno value: of every copy from now on

 private:
  static constexpr std::size_t kPageBytes = 4096;

  // One for the program, so that an address is translated without a lock.
  struct Arena {
    static constexpr std::size_t kArenaBytes = 64 * kBytes;

    Arena() {
      fd = memfd_create("sealed", MFD_CLOEXEC);
      if (fd < 0 || ftruncate(fd, kArenaBytes) != 0) throw std::bad_alloc();
      sealed = map(PROT_NONE);
      open = map(PROT_READ | PROT_WRITE);
      for (std::size_t at = 0; at < kArenaBytes; at += kBytes) free.push_back(sealed + at);
    }
    std::byte* map(int protection) const {
      void* p = mmap(nullptr, kArenaBytes, protection, MAP_SHARED | MAP_NORESERVE, fd, 0);
      if (p == MAP_FAILED) throw std::bad_alloc();
      return static_cast<std::byte*>(p);
    }
    std::byte* take() {
      const std::lock_guard lock(mutex);
      if (free.empty()) throw std::bad_alloc();
      std::byte* begin = free.back();
      free.pop_back();
      return begin;
    }
    // Zeroed for the next one.
    void give_back(std::byte* begin) {
      const std::lock_guard lock(mutex);
      fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin - sealed, kBytes);
      free.push_back(begin);
    }

    int fd;
    std::byte* sealed;
    std::byte* open;
    std::mutex mutex;
    std::vector<std::byte*> free;
  };
  static Arena& arena() {
    static Arena one;
    return one;
  }

  static std::uintptr_t number_of(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

  template <class T>
  static void store_words(void* to, const void* from, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes / sizeof(T); ++i) {
      T word;
      std::memcpy(&word, static_cast<const std::byte*>(from) + i * sizeof word, sizeof word);
      std::atomic_ref<T>(static_cast<T*>(to)[i]).store(word, std::memory_order_release);
    }
  }

  int copied() {
    ++copies;
    return fails_with;
  }

  std::byte* begin_;
  std::size_t used_ = 0;  // allocate() is called by one thread
};

}  // namespace peal::test
