#include "peal/host/memory_region.hpp"

#include <sys/resource.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "host/context_impl.hpp"

namespace peal {
namespace {

// Registration pins memory, so the limit on locked memory is the usual cause of ENOMEM.
std::string memlock_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "unknown";
  if (limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return std::to_string(limit.rlim_cur) + " bytes";
}

}  // namespace

MemoryRegion MemoryRegion::create(const Context& context, void* memory, std::size_t bytes,
                                  Access access) {
  int flags = IBV_ACCESS_LOCAL_WRITE;
  if (allows(access, Access::kRemoteWrite)) flags |= IBV_ACCESS_REMOTE_WRITE;
  if (allows(access, Access::kRemoteRead)) flags |= IBV_ACCESS_REMOTE_READ;
  if (allows(access, Access::kRemoteAtomic)) flags |= IBV_ACCESS_REMOTE_ATOMIC;
  MemoryRegion region(context);
  ibv_mr* mr = context.impl().verbs().reg_mr_iova(context.impl().pd, memory, bytes,
                                                  reinterpret_cast<std::uint64_t>(memory), flags);
  if (mr == nullptr) {
    const int error = errno;
    char where[64];
    std::snprintf(where, sizeof where, "registering %zu bytes at %p", bytes, memory);
    throw system_error(error, std::string(where) + " (RLIMIT_MEMLOCK is " + memlock_limit() + ")");
  }
  region.mr_ = mr;
  region.address_ = reinterpret_cast<std::uint64_t>(memory);
  region.bytes_ = bytes;
  region.lkey_ = Lkey(mr->lkey);
  region.rkey_ = Rkey(mr->rkey);
  return region;
}

MemoryRegion::MemoryRegion(MemoryRegion&& other) noexcept
    : context_(other.context_),
      mr_(std::exchange(other.mr_, nullptr)),
      address_(other.address_),
      bytes_(other.bytes_),
      lkey_(other.lkey_),
      rkey_(other.rkey_) {}

MemoryRegion& MemoryRegion::operator=(MemoryRegion&& other) noexcept {
  std::swap(context_, other.context_);
  std::swap(mr_, other.mr_);
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  std::swap(lkey_, other.lkey_);
  std::swap(rkey_, other.rkey_);
  return *this;
}

MemoryRegion::~MemoryRegion() {
  if (mr_ != nullptr) context_.impl().verbs().dereg_mr(static_cast<ibv_mr*>(mr_));
}

}  // namespace peal
