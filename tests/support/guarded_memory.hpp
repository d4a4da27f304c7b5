// Memory that ends the test when it is touched after it was given back: its pages stay mapped
// without access until the test ends, so that nothing else takes their place.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <new>
#include <utility>
#include <vector>

#include "support/forwarding_memory.hpp"

namespace peal::test {

class GuardedPages {
 public:
  explicit GuardedPages(std::size_t bytes)
      : data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
        bytes_(bytes) {
    if (data_ == MAP_FAILED) throw std::bad_alloc();
  }
  GuardedPages(GuardedPages&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  GuardedPages& operator=(GuardedPages&&) = delete;
  ~GuardedPages() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t size() const { return bytes_; }
  // From here on any access ends the program.
  void forbid() { mprotect(data_, bytes_, PROT_NONE); }

 private:
  void* data_;
  std::size_t bytes_;
};

class GuardedMemory : public ForwardingMemory {
 public:
  void* allocate(std::size_t bytes) override {
    all_.emplace_back(bytes);
    ++live;
    return all_.back().data();
  }
  void release(void* memory, std::size_t) override {
    --live;
    for (GuardedPages& pages : all_) {
      if (pages.data() == memory) pages.forbid();
    }
  }

  int live = 0;

 private:
  std::vector<GuardedPages> all_;
};

}  // namespace peal::test
