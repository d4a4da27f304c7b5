// What is told of a queue pair besides its row.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nic/dump.hpp"
#include "peal/device/queue_handle.hpp"

namespace peal::ladder {

// Where it stands, as its client and as its NIC see it: a line each way, and more of the NIC. Its
// producers have ended.
std::vector<std::string> standing_of(Qpn qpn, const QueueState& client,
                                     const std::optional<nic::QpDump>& nic);

// What the NIC did between two looks at its counters.
nic::QpCounters since(const nic::QpCounters& now, const nic::QpCounters& before);

// "qpn=0x001001 doorbells=40 wqes=20 ..."
std::string counters_line(Qpn qpn, const nic::QpCounters& counters);

}  // namespace peal::ladder
