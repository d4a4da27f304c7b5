#include <array>
#include <cerrno>
#include <string>
#include <system_error>

#include "engine/threads.hpp"
#include "link/loopback.hpp"
#include "peal/host/error.hpp"
#include "peal/host/software.hpp"
#include "verbs/software_nic.hpp"

namespace peal {

struct SoftwareFabric::Impl {
  explicit Impl(const std::shared_ptr<verbs::DeviceMemory>& memory)
      : ends{nics[0].provider(engine, memory), nics[1].provider(engine, memory)} {}

  link::Loopback loopback;
  std::array<verbs::SoftwareNic, 2> nics{
      verbs::SoftwareNic({.nic_number = 1, .key_secret = nic::random_secret()}, loopback.a()),
      verbs::SoftwareNic({.nic_number = 2, .key_secret = nic::random_secret()}, loopback.b()),
  };
  engine::ThreadsEngine engine{{nics[0].step(), nics[1].step()}};
  std::array<Provider, 2> ends;
};

SoftwareFabric SoftwareFabric::create(std::shared_ptr<verbs::DeviceMemory> memory) {
  if (memory == nullptr) memory = std::make_shared<verbs::HostMemory>();
  try {
    return SoftwareFabric(std::make_shared<Impl>(memory));
  } catch (const std::system_error& e) {
    throw system_error(e.code().value(), "starting the thread of the software NICs");
  }
}

// What it hands out keeps all of it alive.
Provider SoftwareFabric::provider(std::size_t end) const {
  if (end >= impl_->ends.size()) {
    throw Error(EINVAL, "a software fabric has the ends 0 and 1, but no " + std::to_string(end));
  }
  const Provider& p = impl_->ends[end];
  return {std::shared_ptr<verbs::Verbs>(impl_, p.verbs.get()), p.memory};
}

}  // namespace peal
