// Whether a command sets a bit of no field that this NIC knows: one that hardware may well hold
// against it, since reserved bits must be 0.
#pragma once

#include <cstddef>
#include <span>

#include "mlx5/layout.hpp"

namespace peal::nic {

// `in` is at least as long as its command's shape; opcodes other than those of creating and
// changing queues are not looked at.
bool sets_unknown_field(mlx5::devx::CommandOpcode opcode, std::span<const std::byte> in);

// Bits of opt_param_mask that have a meaning (the kernel's MLX5_QP_OPTPAR_*).
inline constexpr std::uint32_t kKnownOptParams =
    0x000000ff | 1u << 8 | 1u << 9 | 1u << 10 | 1u << 12 | 1u << 13 | 1u << 14 | 1u << 15 |
    1u << 16 | 1u << 18 | 1u << 19 | 1u << 20 | 1u << 21 | 1u << 25;

}  // namespace peal::nic
