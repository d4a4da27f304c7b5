// An open device with its protection domain.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "peal/host/error.hpp"
#include "peal/host/provider.hpp"

namespace peal {

struct ContextOptions {
  std::string device;  // by name; empty: the first
  std::uint8_t port = 1;
};

// Cheap to copy: copies share one open device, which is closed when the last copy and the last
// object made from it are gone. Any thread.
class Context {
 public:
  // Opens the device, checks that its port is active and that it can do RC queues, and makes a
  // protection domain. Throws Error.
  static Context open(Provider provider, const ContextOptions& options = {});

  const std::string& device_name() const;
  std::uint16_t lid() const;
  std::uint32_t active_mtu_bytes() const;
  std::uint32_t max_sq_depth() const;

  struct Impl;
  Impl& impl() const { return *impl_; }

 private:
  explicit Context(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

}  // namespace peal
