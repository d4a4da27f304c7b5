// GPUs and their driver as proc, sysfs and CUDA show them.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "bringup/parts.hpp"

namespace peal::bringup {
namespace {

namespace fs = std::filesystem;

const fs::path kProc = "/proc/driver/nvidia";

// "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build ...", or
// "... NVIDIA UNIX x86_64 Kernel Module  535.161.08 ...".
std::string driver_release(const std::string& line) {
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const bool number = word.find_first_not_of("0123456789.") == std::string::npos;
    if (number && word.find('.') != std::string::npos) return word;
  }
  return "of an unknown release";
}

Item check_driver(const Machine& m, Need need) {
  const std::string name = "NVIDIA driver";
  const auto line = line_of(m, kProc / "version");
  if (!line) {
    return missing(name, "not loaded",
                   "the driver of NVIDIA or of the distribution, with the open kernel modules "
                   "(from Turing on), then modprobe nvidia; container: --gpus all",
                   need);
  }
  const bool open = line->find("Open Kernel") != std::string::npos;
  return ok(name, fmt::format("{}, {} kernel module", driver_release(*line),
                              open ? "open" : "proprietary"));
}

// Of `RegistryDwords: "A=1;B=0x2;"`.
std::optional<unsigned> registry_value(const std::string& line, const std::string& key) {
  std::string text = line.substr(std::min(line.find('"'), line.size()));
  std::erase_if(text, [](char c) { return c == '"' || c == ' '; });
  std::istringstream entries(text);
  for (std::string entry; std::getline(entries, entry, ';');) {
    int value = 0;
    if (entry.rfind(key + "=", 0) == 0 &&
        std::sscanf(entry.c_str() + key.size() + 1, "%i", &value) == 1) {
      return static_cast<unsigned>(value);
    }
  }
  return std::nullopt;
}

Item check_doorbell_mapping(const Machine& m) {
  constexpr unsigned kSysAdmin = 21;  // CAP_SYS_ADMIN
  const std::string name = "doorbell mapping";
  const std::string wanted =
      "grep RegistryDwords /proc/driver/nvidia/params: PeerMappingOverride=1";
  const auto text = text_of(m, kProc / "params");
  if (!text) return unknown(name, "the driver's settings cannot be read", wanted);
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("RegistryDwords:", 0) != 0) continue;
    if (registry_value(line, "PeerMappingOverride").value_or(0) != 0) {
      return ok(name, "PeerMappingOverride=1: GPU threads may ring by themselves");
    }
    if (is_capable(m, kSysAdmin)) {
      return ok(name, "without PeerMappingOverride=1, which CAP_SYS_ADMIN makes up for");
    }
    return missing(name, "no PeerMappingOverride=1: a CPU proxy rings for GPU threads",
                   "options nvidia NVreg_RegistryDwords=\"PeerMappingOverride=1;\" in "
                   "/etc/modprobe.d/nvidia.conf (entries of one line, divided by ;), then "
                   "update-initramfs -u or dracut -f, then reboot; or run as root",
                   Need::kOptional);
  }
  return unknown(name, "the driver's settings do not say", wanted);
}

bool has_kernel(const std::string& release, unsigned major, unsigned minor) {
  unsigned x = 0;
  unsigned y = 0;
  if (std::sscanf(release.c_str(), "%u.%u", &x, &y) != 2) return false;
  return x > major || (x == major && y >= minor);
}

Item check_dmabuf(const Machine& m, const std::vector<Gpu>& gpus) {
  const std::string name = "dmabuf";
  constexpr const char* kRemedy =
      "open kernel modules from Turing on, CUDA 11.7, Linux 5.12 or later; or nvidia_peermem";
  const std::string kernel = line_of(m, "/proc/sys/kernel/osrelease").value_or("unknown");
  if (gpus.empty() || !gpus.front().dmabuf) {
    return unknown(name, "CUDA cannot be asked; Linux " + kernel,
                   "libcuda.so.1, of the NVIDIA driver, and a GPU that this user may open");
  }
  for (const Gpu& gpu : gpus) {
    if (gpu.dmabuf != true) {
      return missing(name, fmt::format("CUDA does not export memory of GPU {}", gpu.number),
                     kRemedy, Need::kOptional);
    }
  }
  if (!has_kernel(kernel, 5, 12)) {
    return unknown(name, "CUDA exports it; Linux " + kernel + " may not take it", kRemedy);
  }
  return ok(name, "CUDA exports GPU memory, and Linux " + kernel + " has what a NIC needs for it");
}

Item check_peermem(const Machine& m) {
  const std::string name = "peer memory";
  for (const char* module : {"nvidia_peermem", "nv_peer_mem"}) {
    if (is_there(m, fs::path("/sys/module") / module)) {
      return ok(name, std::string(module) + " is loaded");
    }
  }
  return missing(name, "nvidia_peermem is not loaded; with dmabuf it need not be",
                 "modprobe nvidia_peermem: it wants a kernel with peer memory (DOCA-OFED's driver, "
                 "installed before NVIDIA's)",
                 Need::kOptional);
}

Item check_gdrdrv(const Machine& m) {
  const std::string name = "gdrdrv";
  if (is_there(m, "/sys/module/gdrdrv")) return ok(name, "loaded");
  return missing(name, "not loaded; nothing here depends on it", "GDRCopy, if other software does",
                 Need::kOptional);
}

std::string model_name(const Machine& m, const std::string& address) {
  std::istringstream lines(
      text_of(m, kProc / "gpus" / address / "information").value_or("Model: NVIDIA GPU"));
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("Model:", 0) != 0) continue;
    const std::size_t at = line.find_first_not_of(" \t", 6);
    if (at != std::string::npos) return line.substr(at);
  }
  return "NVIDIA GPU";
}

Item check_distance(const Machine& m, const Nic& nic, const std::vector<Gpu>& gpus) {
  const bool one_node = !is_there(m, "/sys/devices/system/node/node1");
  std::string seen;
  const Gpu* nearest = nullptr;
  Distance least = Distance::kUnknown;
  for (const Gpu& gpu : gpus) {
    const Distance distance =
        gpu.place ? distance_between(*nic.place, *gpu.place, one_node) : Distance::kUnknown;
    seen += fmt::format("{}GPU {} {} ({})", seen.empty() ? "" : ", ", gpu.number,
                        distance_name(distance), distance_text(distance));
    if (distance < least) {
      least = distance;
      nearest = &gpu;
    }
  }
  if (nearest == nullptr) return unknown("distance", seen, "nvidia-smi topo -m");
  if (gpus.size() > 1) seen += fmt::format("; nearest: GPU {}", nearest->number);
  return ok("distance", seen);
}

Item check_acs(const Machine& m, const Nic& nic, const std::vector<Gpu>& gpus) {
  const std::string name = "PCIe ACS";
  std::vector<std::string> redirecting;
  std::string unread;
  std::size_t bridges = 0;
  for (const Gpu& gpu : gpus) {
    if (!gpu.place || distance_between(*nic.place, *gpu.place, true) > Distance::kPxb) continue;
    for (const PciPlace& bridge : bridges_between(*nic.place, *gpu.place)) {
      const auto& known = redirecting;
      if (std::find(known.begin(), known.end(), bridge.address()) != known.end()) continue;
      ++bridges;
      switch (redirects_peers(text_of(m, bridge.folder / "config").value_or(""))) {
        case Setting::kOn: redirecting.push_back(bridge.address()); break;
        case Setting::kUnreadable: unread = bridge.address(); break;
        case Setting::kOff:
        case Setting::kAbsent: break;
      }
    }
  }
  if (bridges == 0) return ok(name, "no PCIe switch joins the NIC and a GPU");
  if (!redirecting.empty()) {
    return missing(
        name,
        fmt::format("peer traffic is sent to the root complex by {}", fmt::join(redirecting, ", ")),
        fmt::format("setpci -s {} ECAP_ACS+6.w=0000 as root, for each, until the next boot; or ACS "
                    "off in the firmware setup",
                    redirecting.front()),
        Need::kOptional);
  }
  if (!unread.empty()) {
    return unknown(
        name, "the PCI configuration space is root's to read",
        fmt::format("lspci -vvv -s {} as root: ACSCtl with ReqRedir- CmpltRedir-", unread));
  }
  return ok(name, "no bridge between sends peer traffic to the root complex");
}

Item check_iommu(const Machine& m, const Nic& nic) {
  const std::string name = "IOMMU";
  if (names_in(m, "/sys/kernel/iommu_groups").empty()) return ok(name, "none is on");
  const auto type = line_of(m, nic.place->folder / "iommu_group/type");
  if (!type) {
    return unknown(name, "the NIC's group does not tell its type",
                   "dmesg: \"iommu: Default domain type\"");
  }
  if (*type == "identity") return ok(name, "passes the NIC's addresses through");
  return missing(
      name, fmt::format("translates the NIC's addresses ({}): slower to a GPU, or refused", *type),
      "iommu=pt on the kernel's command line, then reboot", Need::kOptional);
}

}  // namespace

std::vector<Gpu> find_gpus(const Machine& m) {
  const fs::path devices = "/sys/bus/pci/devices";
  std::vector<Gpu> gpus;
  const auto add = [&](const std::string& address, std::optional<bool> dmabuf) {
    gpus.push_back(
        {static_cast<std::uint32_t>(gpus.size()), address, place_of(m, devices / address), dmabuf});
  };
  if (m.cuda_gpus) {
    for (const CudaGpu& gpu : *m.cuda_gpus) add(gpu.pci_address, gpu.dmabuf);
    return gpus;
  }
  for (const std::string& address : names_in(m, devices)) {
    const bool nvidia = line_of(m, devices / address / "vendor") == "0x10de";
    const std::string kind = line_of(m, devices / address / "class").value_or("");
    // Display and 3D controllers.
    if (nvidia && (kind.rfind("0x0300", 0) == 0 || kind.rfind("0x0302", 0) == 0)) {
      add(address, std::nullopt);
    }
  }
  return gpus;
}

Section check_gpus(const Machine& m, const std::vector<Gpu>& gpus,
                   std::optional<std::uint32_t> wanted) {
  const Need need = wanted ? Need::kNeeded : Need::kOptional;
  Section section{"GPUs", {}};
  for (const Gpu& gpu : gpus) {
    section.items.push_back(ok(fmt::format("GPU {}", gpu.number),
                               fmt::format("{} at {}", model_name(m, gpu.address), gpu.address)));
  }
  if (wanted ? *wanted >= gpus.size() : gpus.empty()) {
    section.items.push_back(missing(
        wanted ? fmt::format("GPU {}", *wanted) : "GPU",
        fmt::format("this machine has {} NVIDIA GPU{}", gpus.size(), gpus.size() == 1 ? "" : "s"),
        wanted ? "a smaller --gpu, or more in CUDA_VISIBLE_DEVICES"
               : "GPU producers alone need one",
        need));
  }
  section.items.push_back(check_driver(m, need));
  if (section.items.back().status == Status::kMissing) return section;
  section.items.push_back(check_doorbell_mapping(m));
  Item dmabuf = check_dmabuf(m, gpus);
  Item peermem = check_peermem(m);
  // One of the two will do.
  if (wanted && dmabuf.status == Status::kMissing && peermem.status == Status::kMissing) {
    dmabuf.need = Need::kNeeded;
  }
  section.items.push_back(std::move(dmabuf));
  section.items.push_back(std::move(peermem));
  section.items.push_back(check_gdrdrv(m));
  return section;
}

Section check_paths(const Machine& m, const Nic& nic, const std::vector<Gpu>& gpus) {
  return {nic.name + " to the GPUs",
          {check_distance(m, nic, gpus), check_acs(m, nic, gpus), check_iommu(m, nic)}};
}

}  // namespace peal::bringup
