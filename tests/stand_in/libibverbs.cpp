// libibverbs.so.1, as far as Peal asks for it.
#include <arpa/inet.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "engine/threads.hpp"
#include "link/loopback.hpp"
#include "link/stream.hpp"
#include "stand_in/stand_in.hpp"
#include "verbs/software_nic.hpp"

#undef ibv_get_device_list
#undef ibv_query_port

namespace peal::stand_in {
namespace {

const char* setting(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

bool ethernet() {
  return std::strcmp(setting("PEAL_STAND_IN_LINK_LAYER"), "ethernet") == 0;
}

int refusal(std::string_view operation) {
  const std::string all = std::string(",") + setting("PEAL_STAND_IN_REFUSE");
  const std::size_t at = all.find("," + std::string(operation) + "=");
  if (at == std::string::npos) return 0;
  return std::atoi(all.c_str() + at + operation.size() + 2);
}

// A port's link that also leads back to its own queue pairs, as a ConnectX's does.
class Hairpin final : public link::Link {
 public:
  Hairpin(std::uint32_t number, link::Link& out) : number_(number), out_(out) {}

  std::uint32_t max_payload_bytes() const override { return out_.max_payload_bytes(); }
  bool try_send(const link::Segment& s) override {
    return (s.destination_qpn.value / nic::kMaxQps == number_ ? self_.a() : out_).try_send(s);
  }
  bool try_receive(link::Segment* s) override {
    return self_.b().try_receive(s) || out_.try_receive(s);
  }
  bool payload_stays() const override { return out_.payload_stays(); }
  bool discard(Qpn qpn, link::SegmentRole role, Psn from, std::int32_t psns) override {
    const bool own = self_.a().discard(qpn, role, from, psns);
    return out_.discard(qpn, role, from, psns) || own;
  }
  bool busy() const override { return back_.busy() || out_.busy(); }
  bool closed() const override { return out_.closed(); }

 private:
  std::uint32_t number_;
  link::Link& out_;
  link::Loopback self_;
  link::Link& back_ = self_.a();
};

struct Device {
  Device(std::uint32_t number, link::Link& out)
      : hairpin(number, out), nic({.nic_number = number}, hairpin) {
    std::strcpy(device.name, number == 1 ? "mlx5_0" : "mlx5_1");
  }
  Hairpin hairpin;
  verbs::SoftwareNic nic;
  std::shared_ptr<verbs::Verbs> table;
  ibv_device device{};
};

struct StandIn {
  StandIn() {
    const std::string fd = setting("PEAL_STAND_IN_FD");
    std::vector<engine::Step> steps;
    if (fd.empty()) {
      devices.push_back(std::make_unique<Device>(1, loopback.a()));
      devices.push_back(std::make_unique<Device>(2, loopback.b()));
    } else {
      stream = std::make_unique<link::StreamLink>(std::stoi(fd));
      const std::string number = setting("PEAL_STAND_IN_NUMBER");
      devices.push_back(std::make_unique<Device>(number == "2" ? 2 : 1, *stream));
    }
    for (const auto& d : devices) steps.push_back(d->nic.step());
    engine = std::make_unique<engine::ThreadsEngine>(steps);
    for (const auto& d : devices) d->table = d->nic.provider(*engine, refusal).verbs;
  }

  Device* find(const ibv_device* device) const {
    for (const auto& d : devices) {
      if (&d->device == device) return d.get();
    }
    return nullptr;
  }

  link::Loopback loopback;
  std::unique_ptr<link::StreamLink> stream;
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<engine::ThreadsEngine> engine;
  std::mutex mutex;
  std::map<const void*, verbs::Verbs*> makers;
};

StandIn& the() {
  static StandIn stand_in;
  return stand_in;
}

}  // namespace

verbs::Verbs& of(ibv_context* context) {
  return *the().find(context->device)->table;
}

verbs::Verbs& maker_of(const void* object) {
  const std::lock_guard lock(the().mutex);
  return *the().makers.at(object);
}

void note(const void* object, verbs::Verbs& by) {
  const std::lock_guard lock(the().mutex);
  the().makers[object] = &by;
}

void forget(const void* object) {
  const std::lock_guard lock(the().mutex);
  the().makers.erase(object);
}

ibv_context* open(ibv_device* device) {
  Device* d = the().find(device);
  ibv_context* context = d->table->open_device(device);
  if (context != nullptr) context->device = device;
  return context;
}

}  // namespace peal::stand_in

using namespace peal::stand_in;

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  const int error = refusal("get_device_list");
  if (error != 0) {
    errno = error;
    return nullptr;
  }
  const auto& devices = the().devices;
  auto** list = new ibv_device* [devices.size() + 1] {};
  for (std::size_t i = 0; i < devices.size(); ++i) list[i] = &devices[i]->device;
  if (count != nullptr) *count = static_cast<int>(devices.size());
  return list;
}

void ibv_free_device_list(ibv_device** list) {
  delete[] list;
}

const char* ibv_get_device_name(ibv_device* device) {
  return device->name;
}

int ibv_close_device(ibv_context* context) {
  return of(context).close_device(context);
}

int ibv_query_port(ibv_context* context, std::uint8_t port, _compat_ibv_port_attr* attributes) {
  ibv_port_attr all{};
  if (const int error = of(context).query_port(context, port, &all)) return error;
  if (ethernet()) {
    all.link_layer = IBV_LINK_LAYER_ETHERNET;
    all.lid = 0;
    all.gid_tbl_len = 8;
  }
  // The older attributes end where these do not.
  constexpr std::size_t kCompatBytes = 48;
  std::memcpy(attributes, &all, kCompatBytes);
  return 0;
}

// Empty slots, then those of one interface: RoCE v1 and v2 on the link, then of its IPv4 address.
int _ibv_query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index,
                      ibv_gid_entry* entry, std::uint32_t, std::size_t) {
  if (!ethernet()) {
    return of(context).query_gid(context, static_cast<std::uint8_t>(port), index, entry);
  }
  if (port != 1 || index >= 8) return EINVAL;
  if (index < 2 || index > 5) return ENODATA;
  const auto number = static_cast<std::uint8_t>(context->device->name[5] - '0' + 1);
  *entry = ibv_gid_entry{};
  entry->gid_index = index;
  entry->port_num = port;
  entry->gid_type = index % 2 == 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
  std::uint8_t* raw = entry->gid.raw;
  if (index < 4) {
    raw[0] = 0xfe;
    raw[1] = 0x80;
  } else {
    raw[10] = raw[11] = 0xff;
    raw[12] = 192;
    raw[14] = 2;
  }
  raw[15] = number;
  return 0;
}

int ibv_query_pkey(ibv_context* context, std::uint8_t port, int index, __be16* pkey) {
  std::string keys = setting("PEAL_STAND_IN_PKEYS");
  if (keys.empty()) {
    std::uint16_t key = 0;
    if (of(context).query_pkey(context, port, static_cast<std::uint16_t>(index), &key)) return -1;
    *pkey = htons(key);
    return 0;
  }
  std::istringstream stream(keys);
  std::string key;
  for (int i = 0; i <= index; ++i) {
    if (!std::getline(stream, key, ',')) return -1;
  }
  *pkey = htons(static_cast<std::uint16_t>(std::stoul(key, nullptr, 0)));
  return port == 1 ? 0 : -1;
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  return of(context).alloc_pd(context);
}

int ibv_dealloc_pd(ibv_pd* pd) {
  return of(pd->context).dealloc_pd(pd);
}

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attributes) {
  if (const int error = refusal("create_ah")) {
    errno = error;
    return nullptr;
  }
  auto* made = new Ah;
  made->ah.context = pd->context;
  made->ah.pd = pd;
  made->av.rmac[0] = 2;
  std::memcpy(&made->av.rmac[2], &attributes->grh.dgid.raw[12], 4);
  return &made->ah;
}

int ibv_destroy_ah(ibv_ah* ah) {
  delete reinterpret_cast<Ah*>(ah);
  return 0;
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t iova,
                         unsigned access) {
  return of(pd->context).reg_mr_iova(pd, address, bytes, iova, static_cast<int>(access));
}

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t bytes, std::uint64_t iova,
                          int fd, int access) {
  return of(pd->context).reg_dmabuf_mr(pd, offset, bytes, iova, fd, access);
}

int ibv_dereg_mr(ibv_mr* mr) {
  return of(mr->context).dereg_mr(mr);
}

}  // extern "C"
