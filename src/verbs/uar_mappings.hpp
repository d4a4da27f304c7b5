// UAR pages as another processor has mapped them. A page is mapped once, however many of its
// registers are asked for: queue pairs share pages, and CUDA refuses a page that it has already.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "peal/mlx5/doorbell.hpp"

namespace peal::verbs {

// Any thread.
class UarMappings {
 public:
  // `map` answers with the address of a page for the other processor, or null and errno.
  UarMappings(std::function<void*(void* page)> map, std::function<void(void* page)> unmap)
      : map_(std::move(map)), unmap_(std::move(unmap)) {}

  // Of the register at `reg_addr`; null and errno.
  void* map(void* reg_addr) {
    const std::lock_guard lock(mutex_);
    const std::uintptr_t page = page_of(reg_addr);
    auto at = pages_.find(page);
    if (at == pages_.end()) {
      void* mapped = map_(reinterpret_cast<void*>(page));
      if (mapped == nullptr) return nullptr;
      at = pages_.emplace(page, Page{reinterpret_cast<std::uintptr_t>(mapped), 0}).first;
    }
    ++at->second.users;
    return reinterpret_cast<void*>(at->second.mapped +
                                   (reinterpret_cast<std::uintptr_t>(reg_addr) - page));
  }

  // What map() answered with, once for each time.
  void unmap(void* mapped) {
    const std::lock_guard lock(mutex_);
    for (auto at = pages_.begin(); at != pages_.end(); ++at) {
      if (at->second.mapped != page_of(mapped)) continue;
      if (--at->second.users > 0) return;
      unmap_(reinterpret_cast<void*>(at->first));
      pages_.erase(at);
      return;
    }
  }

 private:
  struct Page {
    std::uintptr_t mapped;
    std::size_t users;
  };

  static std::uintptr_t page_of(void* address) {
    const auto a = reinterpret_cast<std::uintptr_t>(address);
    return a - a % mlx5::kUarPageBytes;
  }

  std::mutex mutex_;
  const std::function<void*(void*)> map_;
  const std::function<void(void*)> unmap_;
  std::map<std::uintptr_t, Page> pages_;  // by the page's own address
};

}  // namespace peal::verbs
