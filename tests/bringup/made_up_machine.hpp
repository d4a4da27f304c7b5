// A machine that a test makes up: a folder with its own sys, proc and dev, and what else
// bringup::Machine asks. As it is made, it has all that a run on hardware needs: a ConnectX-7 and a
// GPU below one PCIe switch.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "bringup/check.hpp"

namespace peal::test {

namespace fs = std::filesystem;

// Of a bridge: with an ACS capability behind another one.
inline std::string config_with_acs(bool redirects) {
  std::string config(4096, '\0');
  config.replace(0x100, 4, std::string("\x01\x00\x01\x14", 4));  // AER, next at 0x140
  config[0x120] = 0x0d;  // of that one, and not a capability
  config[0x126] = redirects ? 0x01 : 0x1d;
  config.replace(0x140, 4, std::string("\x0d\x00\x01\x00", 4));
  config[0x146] = redirects ? 0x1d : 0x01;
  return config;
}

// Of an endpoint: with a PCIe capability behind another one.
inline std::string config_with_relaxed_ordering(bool on) {
  std::string config(256, '\0');
  config[0x34] = 0x40;
  config.replace(0x40, 2, std::string("\x01\x60", 2));  // power management, next at 0x60
  config.replace(0x60, 2, std::string("\x10\x00", 2));
  config[0x68] = on ? 0x10 : 0x00;
  return config;
}

class MadeUpMachine {
 public:
  MadeUpMachine() {
    // Hundreds of small files: in memory, where that is possible.
    std::string path = "/dev/shm/peal_machine_XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) {
      path = ::testing::TempDir() + "peal_machine_XXXXXX";
      if (::mkdtemp(path.data()) == nullptr) {
        throw std::system_error(errno, std::generic_category(), "mkdtemp");
      }
    }
    root_ = path;
    as_user();
    write("/proc/sys/kernel/osrelease", "6.1.0-18-amd64");
    write("/proc/driver/nvidia/version",
          "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build");
    write("/proc/driver/nvidia/params",
          "EnableMSI: 1\nRegistryDwords: \"A=1; PeerMappingOverride=1;\"\n"
          "RegistryDwordsPerDevice: \"\"");
    write("/sys/module/nvidia_peermem/version", "580.95.05");
    write("/sys/module/gdrdrv/version", "2.5");
    write("/sys/devices/system/node/node1/cpulist", "32-63");
    for (const char* bridge :
         {"0000:3b:00.0", "0000:3b:00.0/0000:3c:00.0", "0000:3b:00.0/0000:3c:01.0"}) {
      write(kSwitch + "/" + bridge + "/config", config_with_acs(false));
    }
    add_nic("mlx5_0", kSwitch + "/0000:3b:00.0/0000:3c:00.0/0000:3d:00.0");
    add_gpu(kSwitch + "/0000:3b:00.0/0000:3c:01.0/0000:3e:00.0", true);
  }
  MadeUpMachine(const MadeUpMachine&) = delete;
  MadeUpMachine& operator=(const MadeUpMachine&) = delete;
  ~MadeUpMachine() { fs::remove_all(root_); }

  static inline const std::string kSwitch = "/sys/devices/pci0000:3a/0000:3a:00.0";
  static inline const std::string kPort = "/sys/class/infiniband/mlx5_0/ports/1";

  std::map<std::string, bringup::Library> libraries = {
      {"libibverbs.so.1", {"", "/usr/lib/libibverbs.so.1.14.44.0", {}}},
      {"libmlx5.so.1", {"", "/usr/lib/libmlx5.so.1.24.44.0", {}}},
  };
  std::set<std::string> forbidden;  // files that this user may not use
  std::uint64_t memlock_bytes = bringup::kNoLimit;
  std::optional<std::vector<bringup::CudaGpu>> cuda_gpus = std::vector<bringup::CudaGpu>{};
  std::function<bringup::DevxAnswer(const std::string&)> ask_devx = [](const std::string&) {
    return bringup::DevxAnswer{true, "opened"};
  };

  void write(const std::string& file, const std::string& text) {
    const fs::path path = below(file);
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text << '\n';
  }
  void remove(const std::string& file) { fs::remove_all(below(file)); }
  // Opens, and cannot be read.
  void make_unreadable(const std::string& file) {
    remove(file);
    fs::create_directories(below(file));
  }
  void link(const std::string& file, const std::string& to) {
    remove(file);
    fs::create_directories(below(file).parent_path());
    fs::create_symlink(fs::relative(below(to), below(file).parent_path()), below(file));
  }

  void as_user(const std::string& capabilities = "0000000000000000",
               const std::string& users = "0 0 4294967295") {
    write("/proc/self/status", "Name: peal\nCapPrm: ffffffffffffffff\nCapEff:\t" + capabilities);
    write("/proc/self/uid_map", "         " + users);
  }

  void add_pci_device(const std::string& folder, const std::string& vendor,
                      const std::string& device, const std::string& kind, int numa_node) {
    write(folder + "/vendor", vendor);
    write(folder + "/device", device);
    write(folder + "/class", kind);
    write(folder + "/numa_node", std::to_string(numa_node));
    link("/sys/bus/pci/devices/" + fs::path(folder).filename().string(), folder);
  }

  // A port that is up, with RoCE v1 and v2 GIDs of a link-local and of an IPv4 address.
  void add_nic(const std::string& name, const std::string& folder, int numa_node = 0) {
    const std::string number = name.substr(name.find('_') + 1);
    add_pci_device(folder, "0x15b3", "0x1021", "0x020000", numa_node);
    write(folder + "/config", config_with_relaxed_ordering(true));
    write("/sys/bus/pci/drivers/mlx5_core/module/version", "6.1");
    link(folder + "/driver", "/sys/bus/pci/drivers/mlx5_core");
    write("/sys/kernel/iommu_groups/7/type", "identity");
    link(folder + "/iommu_group", "/sys/kernel/iommu_groups/7");
    const std::string rdma = "/sys/class/infiniband/" + name;
    link(rdma + "/device", folder);
    write(rdma + "/fw_ver", "28.39.1002");
    write(rdma + "/board_id", "MT_0000000838");
    write("/sys/class/infiniband_verbs/uverbs" + number + "/ibdev", name);
    write("/dev/infiniband/uverbs" + number, "");
    const std::string port = rdma + "/ports/1";
    write(port + "/state", "4: ACTIVE");
    write(port + "/phys_state", "5: LinkUp");
    write(port + "/link_layer", "Ethernet");
    write(port + "/rate", "400 Gb/sec (4X NDR)");
    write("/sys/class/net/eth" + number + "/mtu", "9000");
    add_gid(port, 0, "fe80:0000:0000:0000:0a00:27ff:fe00:0001", "IB/RoCE v1", "eth" + number);
    add_gid(port, 1, "fe80:0000:0000:0000:0a00:27ff:fe00:0001", "RoCE v2", "eth" + number);
    add_gid(port, 2, "0000:0000:0000:0000:0000:ffff:0a00:0005", "IB/RoCE v1", "eth" + number);
    add_gid(port, 3, "0000:0000:0000:0000:0000:ffff:0a00:0005", "RoCE v2", "eth" + number);
  }

  void add_gid(const std::string& port, int index, const std::string& gid, const std::string& type,
               const std::string& interface) {
    const std::string at = "/" + std::to_string(index);
    write(port + "/gids" + at, gid);
    write(port + "/gid_attrs/types" + at, type);
    write(port + "/gid_attrs/ndevs" + at, interface);
  }
  void remove_gids() {
    for (const char* folder : {"/gids", "/gid_attrs"}) remove(kPort + folder);
  }

  void add_gpu(const std::string& folder, bool dmabuf, int numa_node = 0) {
    const std::string address = fs::path(folder).filename();
    add_pci_device(folder, "0x10de", "0x2335", "0x030200", numa_node);
    write("/proc/driver/nvidia/gpus/" + address + "/information", "Model: \t\t NVIDIA H200");
    cuda_gpus->push_back({address, dmabuf});
  }

  bringup::Machine machine() const {
    bringup::Machine m;
    m.root = root_;
    m.load = [this](const std::string& name, const std::vector<std::string>&) {
      return libraries.at(name);
    };
    m.may_use = [this](const fs::path& file) {
      return forbidden.count("/" + file.lexically_relative(root_).string()) == 0;
    };
    m.memlock_bytes = memlock_bytes;
    m.cuda_gpus = cuda_gpus;
    m.ask_devx = ask_devx;
    return m;
  }

  bringup::Report check(const bringup::Wanted& wanted = {}) const {
    return bringup::check(machine(), wanted);
  }

 private:
  fs::path below(const std::string& file) const { return root_ / fs::path(file).relative_path(); }

  fs::path root_;
};

}  // namespace peal::test
