// How memory comes to be registered with a NIC, whoever it belongs to.
#pragma once

#include <cerrno>
#include <cstddef>
#include <string>

#include "host/context_impl.hpp"

namespace peal::host {

// What kept memory from being registered, as errno values; 0: that was not tried, or it worked.
struct RegistrationRefusals {
  bool gpu_memory = false;
  int exporting = 0;
  int by_dmabuf = 0;
  int by_address = 0;
};

// Throws Error: `what`, each refusal, and what would help.
[[noreturn]] void throw_not_registered(const std::string& what, const RegistrationRefusals& r);

// That it worked by the address alone.
void log_by_address(const std::string& what, const RegistrationRefusals& r) noexcept;

// A GPU's memory as a dmabuf, or where that is refused by its address, which needs the kernel to
// know peer memory; any other by its address. `by_dmabuf(dmabuf)` and `by_address()` answer with a
// pointer, or null and errno.
template <class ByDmabuf, class ByAddress>
auto register_memory(const Context::Impl& context, const void* memory, std::size_t bytes,
                     const std::string& what, const ByDmabuf& by_dmabuf,
                     const ByAddress& by_address) {
  RegistrationRefusals refusals;
  refusals.gpu_memory = context.memory().on_gpu(memory);
  if (refusals.gpu_memory) {
    const verbs::OwnedDmabuf dmabuf(context.memory().export_dmabuf(memory, bytes));
    if (dmabuf.get().fd < 0) {
      refusals.exporting = errno;
    } else {
      if (auto* registered = by_dmabuf(dmabuf.get())) return registered;
      refusals.by_dmabuf = errno;
    }
  }
  auto* registered = by_address();
  if (registered != nullptr) {
    if (refusals.gpu_memory) log_by_address(what, refusals);
    return registered;
  }
  refusals.by_address = errno;
  throw_not_registered(what, refusals);
}

}  // namespace peal::host
