// Whether a device can be opened for DevX, and what it tells of itself then.
#pragma once

#include <string>

#include "bringup/machine.hpp"
#include "verbs/verbs.hpp"

namespace peal::bringup {

// Opens the device, asks for its capabilities, and closes it.
DevxAnswer ask_devx(verbs::Verbs& verbs, const std::string& device);

}  // namespace peal::bringup
