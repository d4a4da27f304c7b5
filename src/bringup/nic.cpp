// NICs as sysfs shows them: device, ports, GIDs.
#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "bringup/parts.hpp"

namespace peal::bringup {
namespace {

namespace fs = std::filesystem;

const fs::path kInfiniband = "/sys/class/infiniband";

struct Model {
  const char* device;
  const char* name;
};

constexpr Model kModels[] = {
    {"0x1013", "ConnectX-4"},    {"0x1015", "ConnectX-4 Lx"}, {"0x1017", "ConnectX-5"},
    {"0x1019", "ConnectX-5 Ex"}, {"0x101b", "ConnectX-6"},    {"0x101d", "ConnectX-6 Dx"},
    {"0x101f", "ConnectX-6 Lx"}, {"0x1021", "ConnectX-7"},    {"0x1023", "ConnectX-8"},
    {"0xa2d6", "BlueField-2"},   {"0xa2dc", "BlueField-3"},   {"0x101e", "a virtual function"},
};

std::string model_of(const Machine& m, const PciPlace& place) {
  const std::string device = line_of(m, place.folder / "device").value_or("unknown");
  for (const Model& model : kModels) {
    if (device == model.device) return model.name;
  }
  return "PCI device " + device;
}

std::string vendor_of(const Machine& m, const PciPlace& place) {
  return line_of(m, place.folder / "vendor").value_or("");
}

std::string driver_of(const Machine& m, const PciPlace& place) {
  std::error_code error;
  const fs::path driver =
      fs::read_symlink(m.root / (place.folder / "driver").relative_path(), error);
  return error ? "" : driver.filename().string();
}

constexpr const char* kMellanox = "0x15b3";

Item check_device(const Machine& m, const Nic& nic) {
  const fs::path folder = kInfiniband / nic.name;
  return ok(
      "device",
      fmt::format("{} at {}, firmware {}, board {}, driver {}", model_of(m, *nic.place),
                  nic.place->address(), line_of(m, folder / "fw_ver").value_or("unknown"),
                  line_of(m, folder / "board_id").value_or("unknown"), driver_of(m, *nic.place)));
}

Item check_uverbs(const Machine& m, const Nic& nic) {
  const std::string name = "access";
  const fs::path classes = "/sys/class/infiniband_verbs";
  std::string uverbs;
  for (const std::string& entry : names_in(m, classes)) {
    if (line_of(m, classes / entry / "ibdev") == nic.name) uverbs = entry;
  }
  if (uverbs.empty()) {
    return missing(name, "no uverbs device of it: ib_uverbs is not loaded", "modprobe ib_uverbs");
  }
  const fs::path file = fs::path("/dev/infiniband") / uverbs;
  if (!is_there(m, file)) {
    return missing(name, file.string() + " is not there",
                   "container: --device=/dev/infiniband, or Kubernetes' RDMA device plugin; else "
                   "udevadm trigger");
  }
  if (!m.may_use(m.root / file.relative_path())) {
    return missing(name, file.string() + " may not be read and written by this user",
                   fmt::format("chmod 0666 {}, and to keep it a udev rule KERNEL==\"uverbs*\", "
                               "MODE=\"0666\"; container: --device={}",
                               file.string(), file.string()));
  }
  return ok(name, file.string() + " may be read and written");
}

Item check_devx(const Machine& m, const Nic& nic) {
  const std::string name = "DevX";
  if (!m.ask_devx) {
    return unknown(name, "only opening the device tells",
                   fmt::format("the first run: {} opens it", nic.name));
  }
  const DevxAnswer answer = m.ask_devx(nic.name);
  if (answer.works) return ok(name, answer.text);
  return missing(name, answer.text,
                 "firmware and kernel driver must both offer DevX: update the firmware, or take "
                 "DOCA-OFED's driver; what is wrong above stands in its way, too");
}

// The largest path MTU whose headers fit in the interface's, as the kernel reckons it.
unsigned roce_mtu(unsigned interface_bytes) {
  constexpr unsigned kHeaders = 96;
  for (const unsigned mtu : {4096u, 2048u, 1024u, 512u, 256u}) {
    if (interface_bytes >= mtu + kHeaders) return mtu;
  }
  return 0;
}

// The network interface of a port: that of its GIDs.
std::string interface_of(const Machine& m, const fs::path& port) {
  const fs::path folder = port / "gid_attrs/ndevs";
  for (const std::string& index : names_in(m, folder)) {
    if (const auto name = line_of(m, folder / index)) return *name;
  }
  return "";
}

std::string mtu_text(const Machine& m, const std::string& interface) {
  const fs::path folder = fs::path("/sys/class/net") / interface;
  const std::string mtu = line_of(m, folder / "mtu").value_or("");
  unsigned bytes = 0;
  if (interface.empty() || std::sscanf(mtu.c_str(), "%u", &bytes) != 1) return "MTU unknown";
  std::string text = fmt::format("MTU {} ({} has {})", roce_mtu(bytes), interface, bytes);
  if (roce_mtu(bytes) < 4096) text += ": 4096 from `ip link set " + interface + " mtu 4200` on";
  return text;
}

bool is_ethernet(const Machine& m, const fs::path& port) {
  return line_of(m, port / "link_layer") == "Ethernet";
}

Item check_port(const Machine& m, const Nic& nic, const std::string& number, Need need) {
  const fs::path port = kInfiniband / nic.name / "ports" / number;
  const std::string name = "port " + number;
  const bool ethernet = is_ethernet(m, port);
  const std::string interface = interface_of(m, port);
  const std::string state = line_of(m, port / "state").value_or("state unknown");
  std::string seen =
      fmt::format("{}, {}, {}, {}", state, line_of(m, port / "phys_state").value_or("link unknown"),
                  line_of(m, port / "link_layer").value_or("link layer unknown"),
                  line_of(m, port / "rate").value_or("rate unknown"));
  if (ethernet) {
    seen += ", " + mtu_text(m, interface);
  } else {
    seen += ", LID " + line_of(m, port / "lid").value_or("unknown");
  }
  if (state.find("ACTIVE") != std::string::npos) return ok(name, seen);
  if (ethernet) {
    return missing(name, seen,
                   fmt::format("ip link set {} up, at both ends; then cable, transceiver and "
                               "switch port (ethtool {})",
                               interface.empty() ? "INTERFACE" : interface,
                               interface.empty() ? "INTERFACE" : interface),
                   need);
  }
  return missing(name, seen,
                 state.find("INIT") != std::string::npos
                     ? "a subnet manager: opensm on one host, or the switch's"
                     : "cable, transceiver and switch port (ibstat)",
                 need);
}

struct Gid {
  std::string index;
  std::string type;
  std::string address;
  std::string interface;
  int rank = 0;  // the best is lowest
};

// As a run chooses: what reaches furthest comes first.
constexpr int kLinkOnly = 2;
constexpr int kNotV2 = 3;

// Of 0000:0000:0000:0000:0000:ffff:0a00:0005. Nothing for what is no GID, and for an empty slot.
std::optional<in6_addr> parse_gid(const std::string& text) {
  in6_addr gid{};
  if (inet_pton(AF_INET6, text.c_str(), &gid) != 1) return std::nullopt;
  const auto& bytes = gid.s6_addr;
  if (std::all_of(std::begin(bytes), std::end(bytes), [](unsigned char b) { return b == 0; })) {
    return std::nullopt;
  }
  return gid;
}

// 10.0.0.5 where that is what it stands for.
std::string gid_text(const in6_addr& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (IN6_IS_ADDR_V4MAPPED(&gid)) {
    inet_ntop(AF_INET, gid.s6_addr + 12, text.data(), text.size());
  } else {
    inet_ntop(AF_INET6, &gid, text.data(), text.size());
  }
  return text.data();
}

int rank_of(const std::string& type, const in6_addr& gid) {
  if (type != "RoCE v2") return kNotV2;
  if (IN6_IS_ADDR_V4MAPPED(&gid)) return 0;
  return IN6_IS_ADDR_LINKLOCAL(&gid) ? kLinkOnly : 1;
}

std::vector<Gid> gids_of(const Machine& m, const fs::path& port) {
  std::vector<Gid> gids;
  for (const std::string& index : names_in(m, port / "gids")) {
    const auto text = line_of(m, port / "gids" / index);
    const auto type = line_of(m, port / "gid_attrs/types" / index);
    if (!text || !type) continue;
    const auto gid = parse_gid(*text);
    if (!gid) continue;
    gids.push_back({index, *type, gid_text(*gid),
                    line_of(m, port / "gid_attrs/ndevs" / index).value_or(""),
                    rank_of(*type, *gid)});
  }
  return gids;
}

std::string gids_text(const std::vector<Gid>& gids) {
  constexpr std::size_t kMost = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(gids.size(), kMost); ++i) {
    text +=
        fmt::format("{}{} {} {}", i == 0 ? "" : "; ", gids[i].index, gids[i].type, gids[i].address);
  }
  if (gids.size() > kMost) text += fmt::format("; and {} more", gids.size() - kMost);
  return text;
}

Item check_gids(const Machine& m, const Nic& nic, const std::string& number, Need need) {
  const fs::path port = kInfiniband / nic.name / "ports" / number;
  const std::string name = "GID";
  const std::vector<Gid> gids = gids_of(m, port);
  if (!is_ethernet(m, port)) return ok(name, "not needed: LIDs will do; all: " + gids_text(gids));
  const std::string interface = interface_of(m, port);
  const std::string remedy = fmt::format(
      "ip address add 192.168.77.1/24 dev {}, with another address at the other end; the kernel "
      "makes a RoCE v2 GID of each; container: the host's network",
      interface.empty() ? "INTERFACE" : interface);
  if (gids.empty()) return missing(name, "all slots are empty or cannot be read", remedy, need);
  const auto best = std::min_element(gids.begin(), gids.end(),
                                     [](const Gid& a, const Gid& b) { return a.rank < b.rank; });
  const std::string taken =
      fmt::format("index {} would be taken, {} {}{}{}{}; all: {}", best->index, best->type,
                  best->address, best->interface.empty() ? "" : " of ", best->interface,
                  best->rank == kLinkOnly ? ", for this link only" : "", gids_text(gids));
  if (best->rank != kNotV2) return ok(name, taken);
  return missing(name, "no RoCE v2: " + taken, remedy, Need::kOptional);
}

Item check_relaxed_ordering(const Machine& m, const Nic& nic) {
  const std::string name = "relaxed ordering";
  const std::string& address = nic.place->address();
  switch (relaxed_ordering(text_of(m, nic.place->folder / "config").value_or(""))) {
    case Setting::kOn: return ok(name, "the NIC may use it");
    case Setting::kOff:
      return missing(name, "off in the NIC's PCIe device control: slower, not wrong",
                     fmt::format("setpci -s {} CAP_EXP+8.w=0010:0010, until the next boot; or the "
                                 "firmware setup's setting",
                                 address),
                     Need::kOptional);
    case Setting::kAbsent:
    case Setting::kUnreadable: break;
  }
  return unknown(name, "the PCI configuration space is root's to read",
                 fmt::format("lspci -vv -s {} as root: RlxdOrd+", address));
}

}  // namespace

Nics find_nics(const Machine& m) {
  Nics nics;
  for (const std::string& name : names_in(m, kInfiniband)) {
    auto place = place_of(m, kInfiniband / name / "device");
    const bool mlx5 =
        place && vendor_of(m, *place) == kMellanox && driver_of(m, *place) == "mlx5_core";
    if (mlx5) {
      nics.mlx5.push_back({name, std::move(place)});
    } else {
      nics.others.push_back(name);
    }
  }
  return nics;
}

Item no_nic(const Machine& m, const Nics& nics) {
  const std::string name = "mlx5 device";
  for (const std::string& address : names_in(m, "/sys/bus/pci/devices")) {
    const auto place = place_of(m, fs::path("/sys/bus/pci/devices") / address);
    // A network controller, and not a bridge of the same vendor.
    const bool network =
        place && line_of(m, place->folder / "class").value_or("").rfind("0x02", 0) == 0;
    if (!network || vendor_of(m, *place) != kMellanox) continue;
    const std::string driver = driver_of(m, *place);
    return missing(name,
                   fmt::format("{} at {} has {}, and is no RDMA device", model_of(m, *place),
                               address, driver.empty() ? "no driver" : "the driver " + driver),
                   driver == "mlx5_core" ? "modprobe mlx5_ib ib_uverbs"
                                         : "modprobe mlx5_core, then modprobe mlx5_ib; a NIC given "
                                           "to a virtual machine (vfio-pci) is not the host's");
  }
  const std::string others =
      nics.others.empty() ? "no RDMA device"
                          : fmt::format("no mlx5 device, but {}", fmt::join(nics.others, ", "));
  return missing(name, others + ", and no NIC of vendor 0x15b3 on PCI",
                 "a ConnectX-4 or later; in a virtual machine, passed through or a virtual "
                 "function; the software ConnectX needs none");
}

Section check_nic(const Machine& m, const Nic& nic, std::uint32_t port) {
  Section section{nic.name, {check_device(m, nic), check_uverbs(m, nic), check_devx(m, nic)}};
  const std::string wanted = std::to_string(port);
  const std::vector<std::string> ports = names_in(m, kInfiniband / nic.name / "ports");
  if (std::find(ports.begin(), ports.end(), wanted) == ports.end()) {
    section.items.push_back(missing(
        "port " + wanted, fmt::format("there are {}: {}", ports.size(), fmt::join(ports, ", ")),
        "another --ib-port"));
  }
  for (const std::string& number : ports) {
    const Need need = number == wanted ? Need::kNeeded : Need::kOptional;
    section.items.push_back(check_port(m, nic, number, need));
    section.items.push_back(check_gids(m, nic, number, need));
  }
  section.items.push_back(check_relaxed_ordering(m, nic));
  return section;
}

}  // namespace peal::bringup
