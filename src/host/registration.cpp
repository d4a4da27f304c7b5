#include "host/registration.hpp"

#include <sys/resource.h>

#include <system_error>

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

}  // namespace

void throw_not_registered(const std::string& what, const RegistrationRefusals& r) {
  if (!r.gpu_memory)
    throw Error(r.by_address, what + ": " + text_of(r.by_address) + " (" + memlock() + ")");
  std::string sentence = what + " of GPU memory: as a dmabuf: ";
  sentence +=
      r.exporting != 0 ? "it cannot be exported: " + text_of(r.exporting) : text_of(r.by_dmabuf);
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
