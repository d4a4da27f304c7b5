#include "ladder/qp_report.hpp"

#include <fmt/format.h>

namespace peal::ladder {
namespace {

nic::ReasonCounts since(const nic::ReasonCounts& now, const nic::ReasonCounts& before) {
  nic::ReasonCounts counts;
  for (std::size_t i = 0; i < nic::kRefusals; ++i) {
    counts.refused[i] = now.refused[i] - before.refused[i];
    counts.warned[i] = now.warned[i] - before.warned[i];
  }
  return counts;
}

// " refused:injected=1 warned:cq-too-small=2"
std::string by_rule(const char* what, const std::array<std::uint64_t, nic::kRefusals>& counts) {
  std::string text;
  for (std::size_t i = 0; i < nic::kRefusals; ++i) {
    if (counts[i] == 0) continue;
    text +=
        fmt::format(" {}:{}={}", what, nic::refusal_name(static_cast<nic::Refusal>(i)), counts[i]);
  }
  return text;
}

}  // namespace

std::vector<std::string> standing_of(Qpn qpn, const QueueState& client,
                                     const std::optional<nic::QpDump>& nic) {
  const std::string qp = fmt::format("QPN 0x{:06x}: ", qpn.value);
  std::vector<std::string> lines;
  lines.push_back(fmt::format("{}client: {} reserved, {} published, {} rung, {} completed", qp,
                              client.reserved, client.ready, client.rung, client.completed));
  if (!nic) return lines;
  for (const std::string& line : nic::lines(*nic)) lines.push_back(qp + "NIC: " + line);
  return lines;
}

nic::QpCounters since(const nic::QpCounters& now, const nic::QpCounters& before) {
  nic::QpCounters c = now;
  c.doorbells -= before.doorbells;
  c.wqes_fetched -= before.wqes_fetched;
  c.writes -= before.writes;
  c.noops -= before.noops;
  c.reads -= before.reads;
  c.atomics -= before.atomics;
  c.cqes -= before.cqes;
  c.error_cqes -= before.error_cqes;
  c.bytes_moved -= before.bytes_moved;
  c.retransmitted -= before.retransmitted;
  c.stray_responses -= before.stray_responses;
  c.received_writes -= before.received_writes;
  c.received_bytes -= before.received_bytes;
  c.served_reads -= before.served_reads;
  c.served_bytes -= before.served_bytes;
  c.served_atomics -= before.served_atomics;
  c.duplicate_requests -= before.duplicate_requests;
  c.reasons = since(now.reasons, before.reasons);
  return c;
}

std::string counters_line(Qpn qpn, const nic::QpCounters& c) {
  return fmt::format(
             "qpn=0x{:06x} doorbells={} wqes={} writes={} reads={} atomics={} noops={} cqes={} "
             "error_cqes={} bytes={}",
             qpn.value, c.doorbells, c.wqes_fetched, c.writes, c.reads, c.atomics, c.noops, c.cqes,
             c.error_cqes, c.bytes_moved) +
         (c.retransmitted == 0 ? "" : fmt::format(" retransmitted={}", c.retransmitted)) +
         by_rule("refused", c.reasons.refused) + by_rule("warned", c.reasons.warned);
}

}  // namespace peal::ladder
