// One UAR page, shared by the queue pairs that ring on it, and freed with the last of them.
#pragma once

#include <cstdint>
#include <memory>

#include "host/context_impl.hpp"

namespace peal::host {

// The context must outlive it. Not thread-safe; its destructor may run on any thread.
class Uar {
 public:
  // Throws Error.
  static std::shared_ptr<Uar> allocate(Context::Impl& context);
  ~Uar();
  Uar(const Uar&) = delete;
  Uar& operator=(const Uar&) = delete;

  // Makes the register of queues with a doorbell record, or of those without, reachable for the
  // producers: 0, or an errno value. Once.
  int map(bool has_record = true);

  std::uint32_t page_id() const { return uar_->page_id; }
  // The same register as the CPU reaches it.
  std::uint64_t* cpu_register(bool has_record = true) const;
  // The register as the producers reach it; null unless it was mapped.
  std::uint64_t* mapped() const { return static_cast<std::uint64_t*>(mapped_); }

 private:
  Uar(Context::Impl& context, mlx5dv_devx_uar* uar) : context_(context), uar_(uar) {}

  Context::Impl& context_;
  mlx5dv_devx_uar* uar_;
  void* mapped_ = nullptr;
};

}  // namespace peal::host
