#include "bringup/check.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "bringup/made_up_machine.hpp"

namespace peal::bringup {

void PrintTo(const Item& item, std::ostream* os) {
  *os << static_cast<int>(item.status) << " " << item.name << ": " << item.seen << " -> "
      << item.remedy;
}

namespace {

using test::MadeUpMachine;
using Names = std::vector<std::string>;

Item item_of(const Report& report, const std::string& section, const std::string& name) {
  for (const Section& s : report.sections) {
    if (s.title != section) continue;
    for (const Item& item : s.items) {
      if (item.name == name) return item;
    }
  }
  ADD_FAILURE() << "no " << section << ": " << name << " in\n" << text_of(report);
  return {};
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// That it has this status, says `seen`, and `remedy` too.
void expect_item(const Item& item, Status status, const std::string& seen,
                 const std::string& remedy = "") {
  EXPECT_EQ(item.status, status) << testing::PrintToString(item);
  EXPECT_TRUE(says(item.seen, seen)) << testing::PrintToString(item);
  EXPECT_TRUE(says(item.remedy, remedy)) << testing::PrintToString(item);
  EXPECT_EQ(item.remedy.empty(), status == Status::kOk) << testing::PrintToString(item);
}

TEST(Bringup, FindsAllOnAMachineThatHasAll) {
  const MadeUpMachine m;
  const Report report = m.check({"mlx5_0", 1, 0});
  for (const Section& section : report.sections) {
    for (const Item& item : section.items) {
      EXPECT_EQ(item.status, Status::kOk) << section.title << ": " << testing::PrintToString(item);
    }
  }
  EXPECT_EQ(report.lacking, Names{});
  expect_item(item_of(report, "libraries", "libmlx5.so.1"), Status::kOk, "rdma-core 44.0");
  expect_item(item_of(report, "mlx5_0", "device"), Status::kOk,
              "ConnectX-7 at 0000:3d:00.0, firmware 28.39.1002, board MT_0000000838, driver "
              "mlx5_core");
  expect_item(item_of(report, "mlx5_0", "port 1"), Status::kOk,
              "4: ACTIVE, 5: LinkUp, Ethernet, 400 Gb/sec (4X NDR), MTU 4096 (eth0 has 9000)");
  expect_item(item_of(report, "GPUs", "GPU 0"), Status::kOk, "NVIDIA H200 at 0000:3e:00.0");
  expect_item(item_of(report, "GPUs", "NVIDIA driver"), Status::kOk,
              "580.95.05, open kernel module");
}

TEST(Bringup, LacksLibrariesThatDoNotLoad) {
  MadeUpMachine m;
  m.libraries["libibverbs.so.1"] = {"cannot open shared object file", "", {}};
  m.libraries["libmlx5.so.1"] = {"cannot open shared object file", "", {}};
  const Report report = m.check();
  expect_item(item_of(report, "libraries", "libibverbs.so.1"), Status::kMissing,
              "cannot open shared object file", "apt-get install libibverbs1 ibverbs-providers");
  EXPECT_EQ(report.lacking, (Names{"libraries: libibverbs.so.1", "libraries: libmlx5.so.1"}));
}

TEST(Bringup, NamesWhatAnOldLibraryDoesNotHave) {
  MadeUpMachine m;
  m.libraries["libibverbs.so.1"] = {
      "", "/usr/lib/libibverbs.so.1.8.28.0", {"_ibv_query_gid_ex", "ibv_reg_dmabuf_mr"}};
  const Report report = m.check();
  expect_item(item_of(report, "libraries", "libibverbs.so.1"), Status::kMissing,
              "rdma-core 28.0, /usr/lib/libibverbs.so.1.8.28.0, without _ibv_query_gid_ex, "
              "ibv_reg_dmabuf_mr",
              "rdma-core 34 or later");
  EXPECT_EQ(report.lacking, Names{"libraries: libibverbs.so.1"});
}

TEST(Bringup, LacksADeviceWhereThereIsNone) {
  MadeUpMachine m;
  for (const char* folder : {"/sys/class/infiniband", "/sys/class/infiniband_verbs",
                             "/dev/infiniband", "/sys/bus/pci/devices/0000:3d:00.0"}) {
    m.remove(folder);
  }
  const Report report = m.check();
  expect_item(item_of(report, "NIC", "mlx5 device"), Status::kMissing, "no RDMA device",
              "software ConnectX");
  EXPECT_EQ(report.lacking, Names{"NIC: mlx5 device"});
}

TEST(Bringup, SaysWhichModuleANicWaitsFor) {
  MadeUpMachine m;
  m.remove("/sys/class/infiniband");
  expect_item(item_of(m.check(), "NIC", "mlx5 device"), Status::kMissing,
              "ConnectX-7 at 0000:3d:00.0 has the driver mlx5_core, and is no RDMA device",
              "modprobe mlx5_ib ib_uverbs");
  m.remove(MadeUpMachine::kSwitch + "/0000:3b:00.0/0000:3c:00.0/0000:3d:00.0/driver");
  expect_item(item_of(m.check(), "NIC", "mlx5 device"), Status::kMissing,
              "at 0000:3d:00.0 has no driver", "modprobe mlx5_core");
}

TEST(Bringup, TakesNoDeviceOfAnotherVendorOrDriver) {
  const std::string folder = MadeUpMachine::kSwitch + "/0000:3b:00.0/0000:3c:00.0/0000:3d:00.0";
  MadeUpMachine of_vendor;
  of_vendor.write(folder + "/vendor", "0x14e4");
  expect_item(item_of(of_vendor.check(), "NIC", "mlx5 device"), Status::kMissing,
              "no mlx5 device, but mlx5_0");
  MadeUpMachine of_driver;
  of_driver.write("/sys/bus/pci/drivers/mlx4_core/module/version", "4.0");
  of_driver.link(folder + "/driver", "/sys/bus/pci/drivers/mlx4_core");
  EXPECT_EQ(of_driver.check().lacking, Names{"NIC: mlx5 device"});
}

TEST(Bringup, LacksAPortThatIsDown) {
  MadeUpMachine m;
  m.write(MadeUpMachine::kPort + "/state", "1: DOWN");
  m.write(MadeUpMachine::kPort + "/phys_state", "3: Disabled");
  const Report report = m.check();
  expect_item(item_of(report, "mlx5_0", "port 1"), Status::kMissing, "1: DOWN, 3: Disabled",
              "ip link set eth0 up");
  EXPECT_EQ(report.lacking, Names{"mlx5_0: port 1"});
}

TEST(Bringup, WantsASubnetManagerOfAnInfinibandPort) {
  MadeUpMachine m;
  m.write(MadeUpMachine::kPort + "/link_layer", "InfiniBand");
  m.write(MadeUpMachine::kPort + "/lid", "0x0");
  m.write(MadeUpMachine::kPort + "/state", "2: INIT");
  m.remove_gids();
  m.add_gid(MadeUpMachine::kPort, 0, "fe80:0000:0000:0000:b83f:d203:0012:3456", "IB/RoCE v1", "");
  expect_item(item_of(m.check(), "mlx5_0", "port 1"), Status::kMissing, "LID 0x0", "opensm");
  m.write(MadeUpMachine::kPort + "/state", "4: ACTIVE");
  EXPECT_EQ(m.check().lacking, Names{});  // an InfiniBand GID is not of RoCE v2
}

TEST(Bringup, NeedsOneNicThatIsWhole) {
  MadeUpMachine m;
  m.add_nic("mlx5_10", "/sys/devices/pci0000:5a/0000:5a:00.0/0000:5b:00.0");
  m.write(MadeUpMachine::kPort + "/state", "1: DOWN");
  EXPECT_EQ(m.check().lacking, Names{});
  EXPECT_EQ(m.check({"mlx5_10", 1, {}}).lacking, Names{});
  EXPECT_EQ(m.check({"mlx5_0", 1, {}}).lacking, Names{"mlx5_0: port 1"});
  const Report none = m.check({"mlx5_1", 1, {}});
  expect_item(item_of(none, "mlx5_1", "mlx5 device"), Status::kMissing, "there are mlx5_0, mlx5_10",
              "--device");
  EXPECT_EQ(none.lacking, Names{"mlx5_1: mlx5 device"});
}

TEST(Bringup, NeedsThePortThatARunWouldUse) {
  MadeUpMachine m;
  const std::string second = "/sys/class/infiniband/mlx5_0/ports/2";
  m.write(second + "/state", "1: DOWN");
  EXPECT_EQ(m.check().lacking, Names{});
  EXPECT_EQ(m.check({"", 2, {}}).lacking, (Names{"mlx5_0: port 2"}));
  expect_item(item_of(m.check({"", 3, {}}), "mlx5_0", "port 3"), Status::kMissing,
              "there are 2: 1, 2", "--ib-port");
}

TEST(Bringup, TellsTheMtuThatAnInterfaceLeaves) {
  MadeUpMachine m;
  for (const auto& [interface, path] : std::map<std::string, std::string>{
           {"1500", "MTU 1024 "}, {"4191", "MTU 2048 "}, {"4192", "MTU 4096 "}, {"68", "MTU 0 "}}) {
    m.write("/sys/class/net/eth0/mtu", interface);
    expect_item(item_of(m.check(), "mlx5_0", "port 1"), Status::kOk, path);
  }
}

TEST(Bringup, TakesTheRoceV2GidOfAnIpv4AddressFirst) {
  MadeUpMachine m;
  const auto gid = [&] { return item_of(m.check(), "mlx5_0", "GID"); };
  expect_item(gid(), Status::kOk, "index 3 would be taken, RoCE v2 10.0.0.5 of eth0");
  m.remove_gids();
  const auto add = [&](int index, const std::string& address, const std::string& type) {
    m.add_gid(MadeUpMachine::kPort, index, address, type, "eth0");
  };
  add(0, "fe80:0000:0000:0000:0a00:27ff:fe00:0001", "RoCE v2");
  expect_item(gid(), Status::kOk, "index 0 would be taken, RoCE v2 fe80::a00:27ff:fe00:1 of eth0");
  expect_item(gid(), Status::kOk, "for this link only");
  add(1, "2001:0db8:0000:0000:0000:0000:0000:0001", "RoCE v2");
  expect_item(gid(), Status::kOk, "index 1 would be taken, RoCE v2 2001:db8::1 of eth0; all:");
  add(10, "0000:0000:0000:0000:0000:ffff:c0a8:4d02", "RoCE v2");
  add(9, "0000:0000:0000:0000:0000:ffff:c0a8:4d01", "RoCE v2");
  expect_item(gid(), Status::kOk, "index 9 would be taken, RoCE v2 192.168.77.1");
}

TEST(Bringup, SaysWhatItMeansThatAllGidsAreOfRoceV1) {
  MadeUpMachine m;
  for (const char* index : {"/1", "/3"}) {
    m.write(MadeUpMachine::kPort + "/gid_attrs/types" + index, "IB/RoCE v1");
  }
  const Report report = m.check();
  expect_item(item_of(report, "mlx5_0", "GID"), Status::kMissing,
              "no RoCE v2: index 0 would be taken, IB/RoCE v1 fe80::a00:27ff:fe00:1 of eth0",
              "ip address add");
  EXPECT_EQ(report.lacking, Names{});
}

// Types of empty slots cannot be read; GIDs of some neither.
TEST(Bringup, SkipsGidSlotsThatAreEmptyOrCannotBeRead) {
  MadeUpMachine m;
  m.remove_gids();
  const std::string& port = MadeUpMachine::kPort;
  m.add_gid(port, 0, "0000:0000:0000:0000:0000:0000:0000:0000", "RoCE v2", "eth0");
  m.add_gid(port, 1, "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2", "eth0");
  m.make_unreadable(port + "/gid_attrs/types/1");
  m.add_gid(port, 2, "0000:0000:0000:0000:0000:ffff:0a00:0002", "RoCE v2", "eth0");
  m.make_unreadable(port + "/gids/2");
  m.add_gid(port, 3, "not a gid", "RoCE v2", "eth0");
  expect_item(item_of(m.check(), "mlx5_0", "GID"), Status::kMissing, "all slots are empty");
  m.add_gid(port, 4, "0000:0000:0000:0000:0000:ffff:0a00:0004", "RoCE v2", "eth0");
  m.make_unreadable(port + "/gid_attrs/ndevs/4");
  expect_item(item_of(m.check(), "mlx5_0", "GID"), Status::kOk,
              "index 4 would be taken, RoCE v2 10.0.0.4; all: 4 RoCE v2 10.0.0.4");
}

TEST(Bringup, LacksAccessInAContainerWithoutTheDeviceFiles) {
  MadeUpMachine m;
  m.remove("/dev/infiniband");
  Report report = m.check();
  expect_item(item_of(report, "mlx5_0", "access"), Status::kMissing,
              "/dev/infiniband/uverbs0 is not there", "--device=/dev/infiniband");
  EXPECT_EQ(report.lacking, Names{"mlx5_0: access"});
  m.write("/dev/infiniband/uverbs0", "");
  m.forbidden = {"/dev/infiniband/uverbs0"};
  expect_item(item_of(m.check(), "mlx5_0", "access"), Status::kMissing, "may not be read",
              "chmod 0666 /dev/infiniband/uverbs0");
  m.remove("/sys/class/infiniband_verbs");
  expect_item(item_of(m.check(), "mlx5_0", "access"), Status::kMissing, "ib_uverbs is not loaded",
              "modprobe ib_uverbs");
}

TEST(Bringup, LacksLockedMemoryUnlessTheMachineItselfLiftsTheLimit) {
  MadeUpMachine m;
  const auto memory = [&] { return item_of(m.check(), "this process", "locked memory"); };
  m.memlock_bytes = 64 << 10;
  expect_item(memory(), Status::kMissing, "RLIMIT_MEMLOCK is 64 KiB", "--ulimit memlock=-1");
  EXPECT_EQ(m.check().lacking, Names{"this process: locked memory"});
  m.as_user("0000000000004000");
  expect_item(memory(), Status::kOk, "CAP_IPC_LOCK");
  m.as_user("0000000000004000", "0 1000 1");  // of a user namespace: a rootless container
  expect_item(memory(), Status::kMissing, "64 KiB");
  m.as_user("0000000000002000");
  expect_item(memory(), Status::kMissing, "64 KiB");
  m.memlock_bytes = (64 << 20) - 1;
  expect_item(memory(), Status::kMissing, "");
  m.memlock_bytes = 64 << 20;
  expect_item(memory(), Status::kOk, "--region 32M");
}

TEST(Bringup, AsksADeviceForDevxWhereItCan) {
  MadeUpMachine m;
  m.ask_devx = [](const std::string& device) { return DevxAnswer{false, device + " refuses"}; };
  EXPECT_EQ(m.check().lacking, Names{"mlx5_0: DevX"});
  expect_item(item_of(m.check(), "mlx5_0", "DevX"), Status::kMissing, "mlx5_0 refuses", "firmware");
  m.ask_devx = nullptr;
  expect_item(item_of(m.check(), "mlx5_0", "DevX"), Status::kUnknown, "only opening", "mlx5_0");
  EXPECT_EQ(m.check().lacking, Names{});
}

TEST(Bringup, SaysWithoutTheDriversSettingThatAProxyRings) {
  MadeUpMachine m;
  const auto mapping = [&] { return item_of(m.check({"", 1, 0}), "GPUs", "doorbell mapping"); };
  for (const char* dwords : {"", "PeerMappingOverride=0;", "NoPeerMappingOverride=1;"}) {
    m.write("/proc/driver/nvidia/params",
            "RegistryDwordsPerDevice: \"PeerMappingOverride=1\"\nRegistryDwords: \"" +
                std::string(dwords) + "\"\nPeerMappingOverride=1");
    expect_item(mapping(), Status::kMissing, "a CPU proxy rings",
                "NVreg_RegistryDwords=\"PeerMappingOverride=1;\"");
  }
  EXPECT_EQ(m.check({"", 1, 0}).lacking, Names{});
  m.as_user("0000000000200000");
  expect_item(mapping(), Status::kOk, "CAP_SYS_ADMIN");
  m.as_user("0000000000200000", "0 1000 1");
  expect_item(mapping(), Status::kMissing, "");
  m.write("/proc/driver/nvidia/params", "RegistryDwords: \"PeerMappingOverride=0x1\"");
  expect_item(mapping(), Status::kOk, "");
  m.write("/proc/driver/nvidia/params", "EnableMSI: 1");
  expect_item(mapping(), Status::kUnknown, "do not say", "/proc/driver/nvidia/params");
  m.remove("/proc/driver/nvidia/params");
  expect_item(mapping(), Status::kUnknown, "cannot be read", "/proc/driver/nvidia/params");
}

TEST(Bringup, TellsTheKernelModulesApart) {
  MadeUpMachine m;
  m.write("/proc/driver/nvidia/version",
          "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Sat Feb 17 22:55:48 UTC "
          "2024");
  expect_item(item_of(m.check(), "GPUs", "NVIDIA driver"), Status::kOk,
              "535.161.08, proprietary kernel module");
  m.remove("/proc/driver/nvidia/version");
  EXPECT_EQ(m.check().lacking, Names{});
  EXPECT_EQ(m.check({"", 1, 0}).lacking, Names{"GPUs: NVIDIA driver"});
}

TEST(Bringup, NeedsOneWayToRegisterMemoryOfAGpuThatProduces) {
  MadeUpMachine m;
  const auto dmabuf = [&] { return item_of(m.check({"", 1, 0}), "GPUs", "dmabuf"); };
  m.remove("/sys/module/nvidia_peermem");
  expect_item(item_of(m.check({"", 1, 0}), "GPUs", "peer memory"), Status::kMissing, "not loaded",
              "modprobe nvidia_peermem");
  EXPECT_EQ(m.check({"", 1, 0}).lacking, Names{});
  m.write("/proc/sys/kernel/osrelease", "5.11.0-generic");
  expect_item(dmabuf(), Status::kUnknown, "Linux 5.11.0-generic", "5.12");
  EXPECT_EQ(m.check({"", 1, 0}).lacking, Names{});
  m.cuda_gpus->front().dmabuf = false;
  expect_item(dmabuf(), Status::kMissing, "CUDA does not export memory of GPU 0", "open kernel");
  EXPECT_EQ(m.check({"", 1, 0}).lacking, Names{"GPUs: dmabuf"});
  EXPECT_EQ(m.check().lacking, Names{});  // a CPU's threads produce
  m.write("/sys/module/nv_peer_mem/version", "1.3");
  EXPECT_EQ(m.check({"", 1, 0}).lacking, Names{});
  m.cuda_gpus.reset();
  expect_item(dmabuf(), Status::kUnknown, "CUDA cannot be asked", "libcuda.so.1");
}

TEST(Bringup, LacksAGpuThatIsNotThere) {
  MadeUpMachine m;
  EXPECT_EQ(m.check({"", 1, 1}).lacking, Names{"GPUs: GPU 1"});
  m.cuda_gpus.reset();  // then PCI counts
  EXPECT_EQ(m.check({"", 1, 0}).lacking, Names{});
  EXPECT_EQ(m.check({"", 1, 1}).lacking, Names{"GPUs: GPU 1"});
  m.remove("/sys/bus/pci/devices/0000:3e:00.0");
  EXPECT_EQ(m.check({"", 1, 0}).lacking, Names{"GPUs: GPU 0"});
  EXPECT_EQ(m.check().lacking, Names{});
}

// Two NICs and two GPUs at every distance that there is.
TEST(Bringup, TellsTheDistanceFromEachNicToEachGpu) {
  struct Case {
    std::string nic, gpu;
    int nic_node, gpu_node;
    std::string distance;
  };
  const std::string root = "/sys/devices/pci0000:70/0000:70:01.0";
  const std::string up = root + "/0000:71:00.0";
  const std::vector<Case> cases = {
      {up + "/0000:72:00.0/0000:73:00.0", up + "/0000:72:01.0/0000:74:00.0", 0, 0, "PIX"},
      {up + "/0000:72:00.0/0000:73:00.0", up + "/0000:72:01.0/0000:75:00.0/0000:76:00.0", 0, 0,
       "PXB"},
      {root + "/0000:78:00.0", "/sys/devices/pci0000:70/0000:70:02.0/0000:79:00.0", 0, 0, "PHB"},
      {root + "/0000:78:00.0", "/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0", 0, 0, "NODE"},
      {root + "/0000:78:00.0", "/sys/devices/pci0000:c0/0000:c0:01.0/0000:c1:00.0", 0, 1, "SYS"},
      {root + "/0000:78:00.0", "/sys/devices/pci0000:c0/0000:c0:01.0/0000:c1:00.0", -1, 1,
       "unknown"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.distance);
    MadeUpMachine m;
    m.add_nic("mlx5_1", c.nic, c.nic_node);
    m.add_gpu(c.gpu, true, c.gpu_node);
    const Report report = m.check();
    const Item first = item_of(report, "mlx5_0 to the GPUs", "distance");
    EXPECT_TRUE(says(first.seen, "GPU 0 PIX (one PCIe switch), GPU 1 "));
    EXPECT_TRUE(says(first.seen, "nearest: GPU 0"));
    const Item second = item_of(report, "mlx5_1 to the GPUs", "distance");
    EXPECT_TRUE(says(second.seen, "GPU 1 " + c.distance + " (")) << second.seen;
    if (c.distance == "PIX") {
      EXPECT_TRUE(says(second.seen, "nearest: GPU 1")) << second.seen;
    }
    const Item alone = item_of(m.check({"mlx5_1", 1, 1}), "mlx5_1 to the GPUs", "distance");
    EXPECT_EQ(alone.status, c.distance == "unknown" ? Status::kUnknown : Status::kOk);
    EXPECT_FALSE(says(alone.seen, "GPU 0")) << alone.seen;
  }
}

TEST(Bringup, KnowsTheDistanceOnAMachineOfOneNodeThatDoesNotNumberIt) {
  MadeUpMachine m;
  m.add_gpu("/sys/devices/pci0000:c0/0000:c0:01.0/0000:c1:00.0", true, -1);
  m.remove("/sys/devices/system/node/node1");
  EXPECT_TRUE(says(item_of(m.check(), "mlx5_0 to the GPUs", "distance").seen, "GPU 1 NODE"));
}

TEST(Bringup, NamesTheBridgesThatSendPeerTrafficUp) {
  MadeUpMachine m;
  const auto acs = [&] { return item_of(m.check({"", 1, 0}), "mlx5_0 to the GPUs", "PCIe ACS"); };
  // These are above both: nothing between them passes there.
  m.write(MadeUpMachine::kSwitch + "/config", test::config_with_acs(true));
  m.write(MadeUpMachine::kSwitch + "/0000:3b:00.0/config", test::config_with_acs(true));
  expect_item(acs(), Status::kOk, "no bridge");
  const std::string port = MadeUpMachine::kSwitch + "/0000:3b:00.0/0000:3c:01.0/config";
  m.write(port, std::string(63, '\0'));
  expect_item(acs(), Status::kUnknown, "root's to read", "lspci -vvv -s 0000:3c:01.0");
  m.write(port, test::config_with_acs(true));
  expect_item(acs(), Status::kMissing, "root complex by 0000:3c:01.0",
              "setpci -s 0000:3c:01.0 ECAP_ACS+6.w=0000");
  EXPECT_EQ(m.check({"", 1, 0}).lacking, Names{});
  // Capabilities that lead nowhere, or in a circle.
  std::string circle = test::config_with_acs(true);
  circle.replace(0x140, 4, std::string("\x01\x00\x01\x10", 4));
  m.write(port, circle);
  expect_item(acs(), Status::kOk, "");
  circle.replace(0x140, 4, std::string("\x01\x00\xf1\xff", 4));
  m.write(port, circle);
  expect_item(acs(), Status::kOk, "");
}

TEST(Bringup, TellsWhetherTheNicMayRelaxOrder) {
  MadeUpMachine m;
  const std::string config =
      MadeUpMachine::kSwitch + "/0000:3b:00.0/0000:3c:00.0/0000:3d:00.0/config";
  const auto ordering = [&] { return item_of(m.check(), "mlx5_0", "relaxed ordering"); };
  expect_item(ordering(), Status::kOk, "");
  m.write(config, test::config_with_relaxed_ordering(false));
  expect_item(ordering(), Status::kMissing, "off", "setpci -s 0000:3d:00.0 CAP_EXP+8.w=0010:0010");
  EXPECT_EQ(m.check().lacking, Names{});
  m.write(config, test::config_with_relaxed_ordering(true).substr(0, 63));
  expect_item(ordering(), Status::kUnknown, "root's to read", "lspci");
  m.remove(config);
  expect_item(ordering(), Status::kUnknown, "root's to read", "lspci");
}

TEST(Bringup, TellsWhatTheIommuDoes) {
  MadeUpMachine m;
  const auto iommu = [&] { return item_of(m.check(), "mlx5_0 to the GPUs", "IOMMU"); };
  m.write("/sys/kernel/iommu_groups/7/type", "DMA-FQ");
  expect_item(iommu(), Status::kMissing, "DMA-FQ", "iommu=pt");
  m.make_unreadable("/sys/kernel/iommu_groups/7/type");
  expect_item(iommu(), Status::kUnknown, "does not tell", "dmesg");
  EXPECT_EQ(m.check().lacking, Names{});
  m.remove("/sys/kernel/iommu_groups");
  expect_item(iommu(), Status::kOk, "none is on");
}

TEST(Bringup, PrintsALineAnItemWithItsRemedyBelow) {
  MadeUpMachine m;
  m.memlock_bytes = 0;
  m.ask_devx = nullptr;
  m.remove("/sys/module/gdrdrv");
  const Report report = m.check();
  std::istringstream lines(text_of(report));
  std::string line;
  for (const Section& section : report.sections) {
    ASSERT_TRUE(std::getline(lines, line));
    EXPECT_EQ(line, section.title);
    for (const Item& item : section.items) {
      const std::string word = item.status == Status::kOk        ? "ok"
                               : item.status == Status::kMissing ? "missing"
                                                                 : "unknown";
      ASSERT_TRUE(std::getline(lines, line));
      EXPECT_EQ(line.rfind("  " + word + " ", 0), 0u) << line;
      EXPECT_TRUE(says(line, item.name)) << line;
      EXPECT_TRUE(says(line, item.seen)) << line;
      EXPECT_EQ(says(line, "(not needed)"), item.name == "gdrdrv") << line;
      if (item.remedy.empty()) continue;
      ASSERT_TRUE(std::getline(lines, line));
      EXPECT_EQ(line, "           -> " + item.remedy);
    }
  }
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(line, "needed and missing: this process: locked memory");
  EXPECT_FALSE(std::getline(lines, line));
}

}  // namespace
}  // namespace peal::bringup
