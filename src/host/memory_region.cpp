#include "peal/host/memory_region.hpp"

#include <cerrno>
#include <cstdio>
#include <utility>

#include "host/context_impl.hpp"
#include "host/log.hpp"
#include "host/registration.hpp"

namespace peal {

MemoryRegion MemoryRegion::create(const Context& context, void* memory, std::size_t bytes,
                                  Access access) {
  int flags = IBV_ACCESS_LOCAL_WRITE;
  if (allows(access, Access::kRemoteWrite)) flags |= IBV_ACCESS_REMOTE_WRITE;
  if (allows(access, Access::kRemoteRead)) flags |= IBV_ACCESS_REMOTE_READ;
  if (allows(access, Access::kRemoteAtomic)) flags |= IBV_ACCESS_REMOTE_ATOMIC;
  MemoryRegion region(context);
  const Context::Impl& impl = context.impl();
  const auto iova = reinterpret_cast<std::uint64_t>(memory);
  char what[64];
  std::snprintf(what, sizeof what, "registering %zu bytes at %p", bytes, memory);
  ibv_mr* mr = host::register_memory(
      impl, memory, bytes, what,
      [&](const verbs::Dmabuf& d) {
        return impl.verbs().reg_dmabuf_mr(impl.pd, d.offset, bytes, iova, d.fd, flags);
      },
      [&] { return impl.verbs().reg_mr_iova(impl.pd, memory, bytes, iova, flags); });
  region.mr_ = mr;
  region.address_ = iova;
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
  if (mr_ == nullptr) return;
  host::log_kept(context_.impl().verbs().dereg_mr(static_cast<ibv_mr*>(mr_)),
                 context_.device_name(), "a memory region");
}

}  // namespace peal
