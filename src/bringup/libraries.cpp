#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "bringup/parts.hpp"

namespace peal::bringup {
namespace {

constexpr const char* kInstall =
    "Debian, Ubuntu: apt-get install libibverbs1 ibverbs-providers; Fedora, RHEL: dnf install "
    "libibverbs; or DOCA-OFED";

struct Symbol {
  const char* name;
  unsigned since;  // the rdma-core that brought it
};

constexpr unsigned kAlways = 21;  // with DevX; nobody has an older one

constexpr Symbol kIbverbs[] = {
    {"ibv_get_device_list", kAlways}, {"ibv_free_device_list", kAlways},
    {"ibv_get_device_name", kAlways}, {"ibv_close_device", kAlways},
    {"ibv_query_port", kAlways},      {"ibv_query_pkey", kAlways},
    {"ibv_alloc_pd", kAlways},        {"ibv_dealloc_pd", kAlways},
    {"ibv_create_ah", kAlways},       {"ibv_destroy_ah", kAlways},
    {"ibv_dereg_mr", kAlways},        {"ibv_reg_mr_iova2", 28},
    {"_ibv_query_gid_ex", 32},        {"ibv_reg_dmabuf_mr", 34},
};

constexpr Symbol kMlx5[] = {
    {"mlx5dv_open_device", kAlways},     {"mlx5dv_init_obj", kAlways},
    {"mlx5dv_devx_umem_reg", kAlways},   {"mlx5dv_devx_umem_dereg", kAlways},
    {"mlx5dv_devx_alloc_uar", kAlways},  {"mlx5dv_devx_free_uar", kAlways},
    {"mlx5dv_devx_query_eqn", kAlways},  {"mlx5dv_devx_general_cmd", kAlways},
    {"mlx5dv_devx_obj_create", kAlways}, {"mlx5dv_devx_obj_query", kAlways},
    {"mlx5dv_devx_obj_modify", kAlways}, {"mlx5dv_devx_obj_destroy", kAlways},
    {"mlx5dv_devx_umem_reg_ex", 35},
};

// libibverbs.so.1.14.44.0 is of rdma-core 44.0.
std::string release_of(const std::string& file) {
  const std::string name = std::filesystem::path(file).filename();
  const std::size_t at = name.find(".so.1.");
  if (at == std::string::npos) return "of an unknown release";
  const std::size_t dot = name.find('.', at + 6);
  if (dot == std::string::npos) return "of an unknown release";
  return "rdma-core " + name.substr(dot + 1);
}

template <std::size_t N>
Item check_library(const Machine& machine, const char* name, const Symbol (&symbols)[N]) {
  std::vector<std::string> names;
  for (const Symbol& s : symbols) names.emplace_back(s.name);
  const Library library = machine.load(name, names);
  if (!library.why_not.empty()) {
    return missing(name, "cannot be loaded: " + library.why_not, kInstall);
  }
  const std::string what = release_of(library.file) + ", " + library.file;
  if (library.absent.empty()) return ok(name, fmt::format("{}, all {} functions", what, N));
  unsigned since = 0;
  for (const Symbol& s : symbols) {
    const auto& absent = library.absent;
    if (std::find(absent.begin(), absent.end(), s.name) != absent.end()) {
      since = std::max(since, s.since);
    }
  }
  return missing(
      name, fmt::format("{}, without {}", what, fmt::join(library.absent, ", ")),
      fmt::format("rdma-core {} or later, of a newer distribution or of DOCA-OFED", since));
}

}  // namespace

Section check_libraries(const Machine& machine) {
  return {"libraries",
          {check_library(machine, "libibverbs.so.1", kIbverbs),
           check_library(machine, "libmlx5.so.1", kMlx5)}};
}

Section check_process(const Machine& machine) {
  constexpr unsigned kIpcLock = 14;  // CAP_IPC_LOCK
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  constexpr std::uint64_t kLeast = 64 * kMiB;
  constexpr std::uint64_t kDefaultRegion = 256 * kMiB;
  constexpr const char* kRemedy =
      "shell: \"* - memlock unlimited\" in /etc/security/limits.conf, then log in again; systemd: "
      "LimitMEMLOCK=infinity in the unit; container: --ulimit memlock=-1 (--cap-add=IPC_LOCK helps "
      "root alone)";
  const std::string name = "locked memory";
  if (machine.memlock_bytes == kNoLimit) {
    return {"this process", {ok(name, "RLIMIT_MEMLOCK is unlimited")}};
  }
  const std::string limit = fmt::format("RLIMIT_MEMLOCK is {} KiB", machine.memlock_bytes / 1024);
  if (is_capable(machine, kIpcLock)) {
    return {"this process", {ok(name, limit + ", which CAP_IPC_LOCK lifts")}};
  }
  if (machine.memlock_bytes < kLeast) {
    return {"this process",
            {missing(name, limit + ", and what a NIC reaches must be locked", kRemedy)}};
  }
  const bool small = machine.memlock_bytes < kDefaultRegion;
  return {"this process",
          {ok(name, limit + (small ? ", less than --region takes by itself: --region 32M" : ""))}};
}

}  // namespace peal::bringup
