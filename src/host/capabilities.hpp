// One group of a device's capabilities, as QUERY_HCA_CAP answers, whoever opened the device.
#pragma once

#include <cstdint>
#include <string>

#include "host/devx.hpp"
#include "verbs/verbs.hpp"

namespace peal::host {

class Capabilities {
 public:
  // Their current values. Throws Error that begins with `what`.
  Capabilities(verbs::Verbs& verbs, ibv_context* device, std::uint16_t group,
               const std::string& what) {
    command_.set(mlx5::devx::header::op_mod, std::uint64_t{group} << 1 | 1);
    if (const int error = verbs.devx_general_cmd(device, command_.in.data(), command_.in.size(),
                                                 command_.out.data(), command_.out.size())) {
      throw command_.failure(error, what);
    }
  }

  // A field of the group.
  std::uint64_t get(mlx5::devx::Field field) const {
    return command_.get(mlx5::devx::within(mlx5::devx::query_hca_cap::capability, field));
  }

 private:
  Command<mlx5::devx::query_hca_cap::kInBytes, mlx5::devx::query_hca_cap::kOutBytes> command_{
      mlx5::devx::CommandOpcode::kQueryHcaCap};
};

}  // namespace peal::host
