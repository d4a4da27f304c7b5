// The path from a queue pair to its peer, as INIT2RTR is told of it.
#pragma once

#include "host/context_impl.hpp"
#include "host/devx.hpp"
#include "peal/host/queue_pair.hpp"

namespace peal::host {

using ModifyQp = Command<mlx5::devx::modify_qp::kInBytes, mlx5::devx::modify_qp::kOutBytes>;

// Throws Error where ports with these keys drop each other's packets (IBTA 10.9.3): they are of two
// partitions, or limited members of one.
void require_same_partition(const PortPkey& here, std::uint16_t peer);

// By LID, or where the context uses a GID by that. Asks for the peer's Ethernet address, which may
// block for as long as the kernel's neighbour discovery does. Throws Error, also when the ends'
// GIDs are of different types.
void set_path(const Context::Impl& context, const QueuePairOptions& options, Qpn qpn,
              const QueuePairAddress& peer, ModifyQp& rtr);

}  // namespace peal::host
