// What a QP of the software ConnectX has done.
#pragma once

#include <array>
#include <cstdint>

#include "nic/check.hpp"

namespace peal::nic {

struct QpCounters {
  std::uint64_t doorbells = 0;  // rings seen that named this QP
  std::uint64_t wqes_fetched = 0;
  std::uint64_t writes = 0;  // RDMA WRITE WQEs among them
  std::uint64_t noops = 0;   // NOP WQEs among them
  std::uint64_t cqes = 0;
  std::uint64_t error_cqes = 0;       // among them; flushed ones too
  std::uint64_t bytes_moved = 0;      // payload that the responder acknowledged
  std::uint64_t received_writes = 0;  // as responder
  std::uint64_t received_bytes = 0;
  std::array<std::uint64_t, static_cast<std::size_t>(Refusal::kCount)> refusals{};
  // The NIC's own view of the ring, for a look from outside.
  std::uint64_t producer_index = 0;
  std::uint64_t consumer_index = 0;
};

}  // namespace peal::nic
