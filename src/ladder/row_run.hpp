// One row: a stage at one size with one submit, from its queues to its verdict.
#pragma once

#include <exception>
#include <optional>
#include <vector>

#include "ladder/row_plan.hpp"
#include "ladder/runner.hpp"
#include "peal/host/qp_list.hpp"

namespace peal::ladder {

class RowRun {
 public:
  RowRun(const LadderOptions& options, const RunEnds& ends, const Interrupt& interrupt,
         const RunEvents& events, const Stage& stage, const SubmitVariant& submit,
         std::uint64_t payload_bytes);

  // Runs warm-up and repeats. The row is told only when everything was right.
  Outcome run();

 private:
  void plan();
  void open();
  void close();
  Outcome run_traffic();
  Outcome run_segment(const SegmentPlan& plan, bool timed);
  Outcome explain_failure(const SegmentPlan& plan, const std::vector<ProducerResult>& results);
  // What ended a queue: the latched error, completed by the NIC where a collapsed CQ cannot tell
  // it.
  struct Cause {
    std::uint8_t opcode = 0;
    std::uint8_t syndrome = 0;
    std::uint8_t vendor_syndrome = 0;
    std::string where;  // its WQE
  };
  Cause cause_of(std::uint32_t queue) const;
  std::string wqe_text(std::uint32_t queue, std::uint64_t index) const;
  std::string put_text(std::uint32_t p, std::uint64_t put) const;
  bool gave_up_on_peer(const Cause& cause) const;
  std::vector<std::string> overdue_qps(const std::vector<ProducerResult>& results) const;
  bool injected() const;
  Outcome explain_verdict(const Verdict& verdict) const;
  Outcome cross_check() const;
  std::uint32_t qps() const { return stage_.qps; }
  Qpn qpn(std::uint32_t i) const { return work_.queues[i].qpn; }
  void wait_until_quiet();
  void arm_faults();
  std::uint32_t unreached_faults() const;
  std::vector<nic::QpCounters> counters_of_qps() const;
  nic::QpCounters nic_counters() const;
  void tell_counters() const;
  bool tail() const { return options_.completion == CompletionMode::kTail; }
  std::uint64_t doorbells() const;
  void watch();
  std::uint32_t batch_effective() const;
  Row make_row() const;

  const LadderOptions& options_;
  const RunEnds& ends_;
  const Interrupt& interrupt_;
  const RunEvents& events_;
  const Stage& stage_;
  const SubmitVariant& submit_;
  const std::uint64_t payload_bytes_;
  const std::uint32_t depth_;

  RowPlan plan_;
  std::uint64_t region_bytes_ = 0;
  std::vector<MemoryRegion> region_;  // none or one
  std::optional<QpList> queue_pairs_;
  std::uint32_t mtu_bytes_ = 0;  // of the shortest of their paths
  SegmentWork work_;

  std::uint64_t next_sequence_ = 0;
  std::uint64_t first_timed_sequence_ = 0;
  std::vector<std::uint64_t> first_timed_index_;  // of each QP; none during warm-up
  std::uint32_t repeat_ = 0;
  unsigned watches_ = 0;
  std::exception_ptr peer_gone_;

  // Sums over the timed traffic.
  nic::QpCounters before_;  // of all QPs
  std::vector<nic::QpCounters> qp_before_;
  std::uint64_t doorbells_before_ = 0;
  ProducerResult posted_;  // of all producers
  std::uint64_t puts_ = 0;
  std::uint64_t segments_ = 0;
  double seconds_ = 0;
  double repeat_seconds_ = 0;
  std::vector<double> gbps_;
  std::vector<double> mpps_;
};

}  // namespace peal::ladder
