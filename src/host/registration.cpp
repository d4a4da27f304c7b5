#include "host/registration.hpp"

#include <sys/resource.h>

#include <system_error>

#include "host/log.hpp"

namespace peal::host {
namespace {

std::string text_of(int error) {
  return std::generic_category().message(error);
}

// Registration pins memory, so the limit on locked memory is the usual cause of ENOMEM.
std::string memlock() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "RLIMIT_MEMLOCK is unknown";
  if (limit.rlim_cur == RLIM_INFINITY) return "RLIMIT_MEMLOCK is unlimited";
  return "RLIMIT_MEMLOCK is " + std::to_string(limit.rlim_cur) +
         " bytes: raise it with `ulimit -l unlimited`, LimitMEMLOCK=infinity in a systemd unit or "
         "--ulimit memlock=-1 for a container";
}

// Why not as a dmabuf.
std::string dmabuf_text(const RegistrationRefusals& r) {
  return r.exporting != 0 ? "it cannot be exported: " + text_of(r.exporting) : text_of(r.by_dmabuf);
}

}  // namespace

void log_by_address(const std::string& what, const RegistrationRefusals& r) noexcept {
  log(LogLevel::kWarning, what,
      " of GPU memory by its address, as peer memory; as a dmabuf: ", dmabuf_text(r));
}

void throw_not_registered(const std::string& what, const RegistrationRefusals& r) {
  if (!r.gpu_memory) {
    throw Error(r.by_address, what + ": " + text_of(r.by_address) + " (" + memlock() + ")");
  }
  std::string sentence = what + " of GPU memory: as a dmabuf: " + dmabuf_text(r);
  sentence += "; by its address: " + text_of(r.by_address);
  if (r.by_address == ENOMEM || r.by_dmabuf == ENOMEM) {
    sentence += " (" + memlock() + ")";
  } else {
    sentence +=
        " (dmabufs need Linux 5.12 and NVIDIA's open kernel module, addresses its module "
        "nvidia_peermem)";
  }
  throw Error(r.by_address, sentence);
}

}  // namespace peal::host
