// One DevX command as a value: its input, its output, and the error that it ends with.
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <string>

#include "mlx5/layout.hpp"
#include "peal/host/error.hpp"

namespace peal::host {

template <std::size_t InBytes, std::size_t OutBytes>
struct Command {
  std::array<std::byte, InBytes> in{};
  std::array<std::byte, OutBytes> out{};

  explicit Command(mlx5::devx::CommandOpcode opcode) {
    set(mlx5::devx::header::opcode, static_cast<std::uint16_t>(opcode));
  }
  void set(mlx5::devx::Field field, std::uint64_t value) {
    mlx5::devx::set(in.data(), field, value);
  }
  std::uint64_t get(mlx5::devx::Field field) const { return mlx5::devx::get(out.data(), field); }

  // The error of a command that ended with `error`. Where the device answered, its status says
  // more; some versions of libmlx5 turn it into an errno value, others answer EREMOTEIO.
  Error failure(int error, const std::string& what) const {
    const auto status = static_cast<std::uint8_t>(get(mlx5::devx::header::status));
    if (error != EREMOTEIO && status == 0) return system_error(error, what);
    const auto syndrome = static_cast<std::uint32_t>(get(mlx5::devx::header::syndrome));
    char text[96];
    std::snprintf(text, sizeof text, ": command status 0x%02x (%s), syndrome 0x%x", status,
                  mlx5::devx::command_status_name(status), syndrome);
    return Error(error, what + text, status, syndrome);
  }
};

}  // namespace peal::host
