// What a QP of the software ConnectX has done.
#pragma once

#include <cstdint>

#include "nic/refusal.hpp"

namespace peal::nic {

// The WQE that ended a QP: what a collapsed CQ, which shows the last CQE only, cannot tell.
struct FirstError {
  std::uint64_t index = 0;
  std::uint8_t opcode = 0;
  std::uint8_t syndrome = 0;  // 0: no WQE's error ended it
  std::uint8_t vendor_syndrome = 0;
  Refusal reason = Refusal::kNone;  // kNone: the NIC has not ended it since it was created or reset
};

struct QpCounters {
  std::uint64_t doorbells = 0;  // rings seen that named this QP
  std::uint64_t wqes_fetched = 0;
  std::uint64_t writes = 0;  // RDMA WRITE WQEs among them
  std::uint64_t noops = 0;   // NOP WQEs among them
  std::uint64_t reads = 0;   // RDMA READ WQEs among them
  std::uint64_t atomics = 0;
  std::uint64_t cqes = 0;
  std::uint64_t error_cqes = 0;       // among them; flushed ones too
  std::uint64_t bytes_moved = 0;      // payload of writes acknowledged and of reads answered
  std::uint64_t retransmitted = 0;    // packets sent again, or asked for again
  std::uint64_t stray_responses = 0;  // that answer nothing, or nothing any more
  std::uint64_t received_writes = 0;  // as responder
  std::uint64_t received_bytes = 0;
  std::uint64_t served_reads = 0;
  std::uint64_t served_bytes = 0;
  std::uint64_t served_atomics = 0;
  std::uint64_t duplicate_requests = 0;  // packets of them, answered again and not executed
  ReasonCounts reasons;
  FirstError first_error;
  // The NIC's own view of the ring, for a look from outside.
  std::uint64_t producer_index = 0;
  std::uint64_t consumer_index = 0;
};

}  // namespace peal::nic
