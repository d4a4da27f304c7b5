// The software ConnectX: tables, commands, requester and responder behind one step function.
// No thread, no socket, no clock: an engine calls everything from one thread and brings the time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "link/link.hpp"
#include "nic/commands.hpp"
#include "nic/inspected.hpp"
#include "nic/progress.hpp"
#include "nic/refusal.hpp"
#include "nic/requester.hpp"
#include "nic/responder.hpp"

namespace peal::nic {

// For CoreOptions::key_secret. The system's random numbers.
inline std::uint64_t random_secret() {
  std::random_device random;
  return (std::uint64_t{random()} << 32) | random();
}

struct CoreOptions {
  // Tells apart the QPNs and keys of the NICs of one run; 1 to 4095.
  std::uint32_t nic_number = 1;
  // Makes memory keys what nobody guesses: 64 random bits. 0 counts them up.
  std::uint64_t key_secret = 0;
  // Completes every write without moving its payload: measures the submit path alone.
  bool null_payload = false;
  // Where the WQE counter of a QP starts: near a wrap, for instance. Hardware starts at 0.
  std::uint64_t first_wqe_index = 0;
  std::uint8_t log_max_message = kLogMaxMessage;
  // How long a doorbell and its doorbell record may disagree, and a WAIT may wait, before the
  // client is at fault. A second suits threads, which may be suspended between the two stores; a
  // virtual clock can be stricter.
  std::uint64_t record_grace_ns = 1'000'000'000;
  WriteOrder order = WriteOrder::kRelaxed;
  DoorbellSource doorbell_source = DoorbellSource::kRegister;
  // Whether it offers QPs without a doorbell record, as the newest hardware does.
  bool offers_recordless = true;
  Rules rules = default_rules();
  Notify notify = {};  // told of each broken rule that is not off
};

template <class M>
class Core final : public Inspected, private QueueEvents {
 public:
  Core(const CoreOptions& options, link::Link& link)
      : options_(options),
        tables_(std::make_unique<Tables>()),
        rules_(tables_->rules, options.notify),
        link_(link),
        requester_(*tables_, link, rules_,
                   {options.null_payload, options.doorbell_source, options.record_grace_ns}),
        responder_(*tables_, link, rules_, options.order),
        commands_(*tables_, *this, {options.log_max_message, options.offers_recordless}) {
    tables_->rules = options.rules;
    tables_->qpn_base = options.nic_number * kMaxQps;
    tables_->key_base = options.nic_number * kMaxKeys;
    tables_->key_secret = options.key_secret;
  }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // Does a bounded amount of what there is to do at `now_ns`; false when there was nothing.
  bool step(std::uint64_t now_ns) {
    now_ns_ = now_ns;
    bool worked = receive();
    responder_.place_late();
    worked |= responder_.send_answers();
    worked |= requester_.step(now_ns);
    return worked;
  }

  Commands& commands() { return commands_; }
  const Tables& tables() const { return *tables_; }
  const CoreOptions& options() const { return options_; }
  const DropCounters& drops() const { return responder_.drops(); }
  // The rules that were broken where no QP was concerned.
  const ReasonCounts& reasons() const { return reasons_; }

  void arm_faults(Qpn qpn, const std::vector<Fault>& faults) override {
    if (const auto i = index_of(qpn)) requester_.arm(i, faults);
  }
  std::uint32_t unreached_faults(Qpn qpn) const override {
    const auto i = index_of(qpn);
    return i ? requester_.unreached(i) : 0;
  }
  QpCounters counters(Qpn qpn) const override {
    const auto i = index_of(qpn);
    return i ? requester_.counters(i) : QpCounters{};
  }
  std::optional<QpDump> dump(Qpn qpn) const override {
    const auto i = index_of(qpn);
    return i ? std::optional(requester_.dump(i, now_ns_)) : std::nullopt;
  }
  bool quiet(Qpn qpn) const override {
    const auto i = index_of(qpn);
    return i ? requester_.quiet(i) : true;
  }

  // ---- For an engine with a data path of its own ----------------------------------------------

  // From now on such an engine serves all queues, wherever they lie: step() is not called, and the
  // core looks at none of them. Dumps read WQEs and records through `read`.
  void serve_elsewhere(ReadMemory read) { requester_.serve_elsewhere(std::move(read)); }
  // How far that engine has come with a QP. A first error is counted, told and ends the QP.
  void report(Qpn qpn, const Progress& progress) {
    const auto i = index_of(qpn);
    if (i == 0) return;
    tables_->cqs[tables_->qps[i].cq].produced = progress.cq_produced;
    take_progress(tables_->qps[i], requester_.own_state(i), progress, rules_);
  }
  // What it is to commit for this QP; null where there is no such QP.
  const ArmedFaults* armed_faults(Qpn qpn) {
    const auto i = index_of(qpn);
    return i ? &requester_.own_state(i).faults : nullptr;
  }
  // It has refused a request to this QP, as the responder.
  void refuse(Qpn qpn, Refusal why) {
    const auto i = index_of(qpn);
    if (i == 0) return;
    rules_.broken(why, requester_.own_counters(i).reasons, qpn);
    if (ends_responder(why)) tables_->qps[i].state = QpState::kError;
  }

 private:
  static constexpr std::uint32_t kSegmentsPerStep = 64;

  std::uint32_t index_of(Qpn qpn) const {
    const QpEntry* qp = tables_->find_qp(qpn);
    return qp == nullptr ? 0 : tables_->index_of(*qp);
  }

  bool receive() {
    link::Segment segment;
    std::uint32_t received = 0;
    for (; received < kSegmentsPerStep && link_.try_receive(&segment); ++received) {
      QpEntry* qp = tables_->find_qp(segment.destination_qpn);
      if (qp == nullptr) {
        responder_.count_unknown_qp();
      } else if (link::role_of(segment.kind) == link::SegmentRole::kResponse) {
        if (qp->state != QpState::kRts) {
          responder_.count_wrong_state();
        } else if (!requester_.respond(*qp, segment, now_ns_)) {
          responder_.count_wrong_source();
        }
      } else {
        responder_.receive(*qp, segment, requester_.own_counters(index_of(qp->qpn)));
      }
    }
    return received != 0;
  }

  void qp_created(std::uint32_t qp) override {
    // Rung for a QP that is gone: not for this one, though it may have the same number.
    uar_freed(tables_->uars[tables_->qps[qp].uar]);
    requester_.create(qp, options_.first_wqe_index);
    responder_.reset(qp);
    ring_emptied(qp, options_.first_wqe_index);
    tables_->qps[qp].made_generation = ring_generation_;
  }
  void qp_destroyed(std::uint32_t qp) override {
    requester_.destroy(qp);
    responder_.reset(qp);
  }
  void qp_reset(std::uint32_t qp) override {
    requester_.reset(qp);
    responder_.reset(qp);
    ring_emptied(qp, 0);
  }
  void ring_emptied(std::uint32_t qp, std::uint64_t first_index) {
    tables_->qps[qp].ring_generation = ++ring_generation_;
    tables_->qps[qp].first_index = first_index;
  }
  bool uar_freed(const UarEntry& uar) override {
    return requester_.is_elsewhere() || !requester_.doorbells().left_behind(uar) ||
           !rules_.broken(Refusal::kDoorbellLeftBehind, reasons_, Qpn());
  }
  bool rule_broken(Refusal reason, std::uint32_t qp) override {
    return rules_.broken(reason, qp == 0 ? reasons_ : requester_.own_counters(qp).reasons,
                         tables_->qps[qp].qpn);
  }
  void qp_receives_from(std::uint32_t qp, Psn psn) override { responder_.start_at_psn(qp, psn); }
  void qp_sends_from(std::uint32_t qp, Psn psn) override { requester_.start_at_psn(qp, psn); }
  void region_forgotten(std::uint32_t key) override {
    requester_.forget_region(key, now_ns_);
    responder_.forget_region(
        key, [this](std::uint32_t qp) -> QpCounters& { return requester_.own_counters(qp); });
  }

  CoreOptions options_;
  std::unique_ptr<Tables> tables_;
  RuleBook rules_;
  ReasonCounts reasons_;
  link::Link& link_;
  std::uint64_t now_ns_ = 0;
  std::uint64_t ring_generation_ = 0;
  Requester<M> requester_;
  Responder<M> responder_;
  Commands commands_;
};

}  // namespace peal::nic
