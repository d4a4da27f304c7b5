// An open device with its protection domain.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "peal/device/nic_handler.hpp"
#include "peal/host/error.hpp"
#include "peal/host/gid.hpp"
#include "peal/host/provider.hpp"

namespace peal {

struct ContextOptions {
  std::string device = {};  // by name; empty: the first
  std::uint8_t port = 1;
  // Of the GID table; absent: on Ethernet the first of those that reach furthest (RoCE v2 by IPv4,
  // by IPv6, on the link alone, RoCE v1), on InfiniBand none, as a LID is enough.
  std::optional<std::uint32_t> gid_index = {};
  std::optional<GidType> gid_type = {};  // that the GID must be of
  std::uint16_t pkey_index = 0;          // of the partition key table
  std::uint32_t mtu_bytes = 0;           // the most that packets carry; 0: what the port can
  NicHandler handler = NicHandler::kAutomatic;
  // Called by open(), on its thread, at most once: says why automatic became proxy.
  std::function<void(const std::string&)> warn = {};
};

// Which partition a port's queue pairs are in. In the key's highest bit: as a full member.
struct PortPkey {
  std::uint16_t index = 0;
  std::uint16_t key = 0;
};

// Cheap to copy: copies share one open device, which is closed when the last copy and the last
// object made from it are gone. Any thread.
class Context {
 public:
  // Opens the device, checks that its port is active, has the GID, the partition and the MTU asked
  // for, and that it can do RC queues, makes a protection domain, and decides who rings its queues:
  // automatic becomes direct, or with one warning proxy when a UAR page cannot be mapped for the
  // producers. Throws Error, also when direct was asked for and cannot be had.
  static Context open(Provider provider, const ContextOptions& options = {});

  const std::string& device_name() const;
  std::uint16_t lid() const;
  std::uint8_t port() const;
  // That packets of its queue pairs may carry; a peer may allow less.
  std::uint32_t mtu_bytes() const;
  // That its queue pairs use; none where a LID is all of the path.
  std::optional<PortGid> gid() const;
  PortPkey pkey() const;
  // Whether there is a device on a bus behind it, and not software that answers alike.
  bool is_hardware() const;
  std::uint32_t max_sq_depth() const;
  // Whether the device offers queue pairs without a doorbell record.
  bool offers_recordless() const;
  // Of every queue pair of this context.
  HandlerChoice handler() const;

  struct Impl;
  Impl& impl() const { return *impl_; }

 private:
  explicit Context(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

}  // namespace peal
