#include "ladder/row_run.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "ladder/qp_report.hpp"
#include "ladder/rules.hpp"
#include "ladder/usage_error.hpp"
#include "peal/mlx5/cqe.hpp"

namespace peal::ladder {
namespace {

constexpr std::uint64_t kWarmUpPuts = 256;  // of each producer, at most
constexpr unsigned kWatchesPerSign = 5;     // of life: two a second

}  // namespace

RowRun::RowRun(const LadderOptions& options, const RunEnds& ends, const Interrupt& interrupt,
               const RunEvents& events, const Stage& stage, const SubmitVariant& submit,
               std::uint64_t payload_bytes)
    : options_(options),
      ends_(ends),
      interrupt_(interrupt),
      events_(events),
      stage_(stage),
      submit_(submit),
      payload_bytes_(payload_bytes),
      depth_(options.depth_for(stage)) {}

void RowRun::plan() {
  plan_ = plan_row(options_, stage_, payload_bytes_, ends_.source.default_region_bytes());
  const std::string what =
      fmt::format("the payload region of {}", ends_.ends_here == 1 ? "one end" : "both ends");
  if (options_.region_bytes) {
    ends_.source.require(ends_.ends_here * *options_.region_bytes, what);
  }
}

void RowRun::open() {
  region_bytes_ = plan_.region_bytes(stage_);
  ends_.source.require(ends_.ends_here * region_bytes_, "the payload of this run");
  region_.push_back(MemoryRegion::create(ends_.context, ends_.source.take(region_bytes_),
                                         region_bytes_, Access::kLocalOnly));
  RowSetup setup;
  setup.stage = stage_.name;
  setup.submit = submit_.name;
  setup.payload_bytes = payload_bytes_;
  setup.slots = plan_.puts_per_segment * stage_.producers;
  setup.depth = depth_;
  QueuePairOptions entry = options_.path.of_queue_pairs();
  entry.depth = depth_;
  entry.first_wqe_index = options_.first_wqe_index();
  entry.completion = options_.completion;
  entry.doorbell_record = submit_.options.doorbell != DoorbellOrder::kRingOnly;
  queue_pairs_ = QpList::create(ends_.context, std::vector(stage_.qps, entry),
                                {.stop = ends_.producers.stop_word()});
  for (std::uint32_t i = 0; i < stage_.qps; ++i) {
    setup.senders.push_back((*queue_pairs_)[i].address());
  }
  const Destination destination = ends_.receiver.open_row(setup);
  queue_pairs_->connect(destination.receivers);
  mtu_bytes_ = ends_.context.mtu_bytes();
  for (const QueuePairAddress& peer : destination.receivers) {
    mtu_bytes_ = std::min(mtu_bytes_, peer.mtu_bytes);
  }
  for (std::uint32_t i = 0; i < stage_.qps; ++i) {
    work_.queues.push_back((*queue_pairs_)[i].handle());
    work_.queues.back().stop = ends_.producers.stop_word();
  }
  work_.device_queues = queue_pairs_->handles().data();
  work_.submit = submit_.options;
  work_.sharing = options_.sharing;
  work_.window = stage_.window;
  work_.batch = stage_.batch;
  work_.source = region_[0].address();
  work_.lkey = region_[0].lkey();
  work_.destination = destination.address;
  work_.rkey = destination.rkey;
  work_.timeout_ns = options_.deadline_ns();
}

void RowRun::close() {
  queue_pairs_.reset();
  region_.clear();
  ends_.source.give_back();
  ends_.receiver.close_row();
}

Outcome RowRun::run() {
  plan();
  ends_.notices.forget_told();
  open();
  Outcome outcome = run_traffic();
  tell_counters();
  if (outcome.good()) outcome.add(cross_check());
  if (outcome.good()) {
    if (const std::uint32_t n = unreached_faults()) {
      outcome.add(
          kExitUsage,
          fmt::format("{} of the faults asked for {} never reached: stage {} posted {} WQEs "
                      "in all",
                      n, n == 1 ? "was" : "were", stage_.name, posted_.wqes));
    }
  }
  if (!outcome.good()) return outcome;
  const Row row = make_row();
  close();
  events_.row(row);
  return outcome;
}

Outcome RowRun::run_traffic() {
  Outcome outcome;
  const auto run_puts = [&](std::uint64_t puts, bool timed) {
    for (std::uint64_t left = puts; left > 0 && outcome.good();) {
      SegmentPlan plan;
      plan.seed = options_.seed;
      plan.producers = stage_.producers;
      plan.first_sequence = next_sequence_;
      plan.puts_per_producer = std::min(left, plan_.puts_per_segment);
      plan.payload_bytes = payload_bytes_;
      plan.first_timed_sequence = first_timed_sequence_;
      outcome.add(run_segment(plan, timed));
      next_sequence_ += plan.puts_per_producer;
      left -= plan.puts_per_producer;
    }
  };

  const std::uint64_t warm_up = std::min({plan_.iters, plan_.puts_per_segment, kWarmUpPuts});
  first_timed_sequence_ = warm_up;
  run_puts(warm_up, false);
  if (!outcome.good()) return outcome;

  before_ = nic_counters();
  qp_before_ = counters_of_qps();
  doorbells_before_ = doorbells();
  for (std::uint32_t i = 0; i < qps(); ++i) {
    first_timed_index_.push_back((*queue_pairs_)[i].counters().reserved);
  }
  arm_faults();
  for (repeat_ = 1; repeat_ <= options_.repeat && outcome.good(); ++repeat_) {
    const std::uint64_t bytes_before = nic_counters().bytes_moved;
    repeat_seconds_ = 0;
    run_puts(plan_.iters, true);
    if (!outcome.good()) break;
    const std::uint64_t bytes = nic_counters().bytes_moved - bytes_before;
    if (const auto r = rate(bytes, plan_.iters * stage_.producers, repeat_seconds_)) {
      gbps_.push_back(r->gbps);
      mpps_.push_back(r->mpps);
    }
    seconds_ += repeat_seconds_;
  }
  return outcome;
}

Outcome RowRun::run_segment(const SegmentPlan& plan, bool timed) {
  Outcome outcome;
  if (interrupt_.raised()) {
    outcome.add(kExitInterrupted, "interrupted");
    return outcome;
  }
  events_.progress(fmt::format(
      "{} {} {} B: {}", stage_.name, submit_.name, payload_bytes_,
      timed ? fmt::format("{} of {}", repeat_, options_.repeat) : std::string("warm-up")));
  ends_.receiver.prepare(plan);
  ends_.source.fill(plan);
  work_.plan = plan;
  const std::vector<ProducerResult> results = ends_.producers.run(work_, [this] { watch(); });
  ends_.notices.tell(events_.note);

  std::vector<std::uint64_t> acknowledged;
  std::uint64_t start_ns = UINT64_MAX;
  std::uint64_t end_ns = 0;
  bool failed = false;
  for (const ProducerResult& r : results) {
    failed |= r.status != Status::kOk;
    acknowledged.push_back(r.acknowledged);
    start_ns = std::min(start_ns, r.start_ns);
    end_ns = std::max(end_ns, r.end_ns);
    if (!timed) continue;
    posted_.wqes += r.wqes;
    posted_.reservations += r.reservations;
    posted_.chunks += r.chunks;
    posted_.noops += r.noops;
    posted_.latencies.add(r.latencies);
    puts_ += r.acknowledged;
  }
  if (timed) {
    repeat_seconds_ += static_cast<double>(end_ns - start_ns) * 1e-9;
    ++segments_;
  }
  if (failed) {
    // As they are: the error state would flush what they show.
    const std::vector<std::string> overdue = overdue_qps(results);
    for (std::uint32_t i = 0; i < qps(); ++i) (*queue_pairs_)[i].to_error();
    wait_until_quiet();
    outcome.add(explain_failure(plan, results));
    outcome.add_details(overdue);
    ends_.notices.tell(events_.note);
  }
  // What failed so far is told even if the far end can no longer be asked.
  try {
    if (peer_gone_) std::rethrow_exception(peer_gone_);
    // With a null NIC nothing arrives, and nothing is claimed.
    if (!options_.null_nic) {
      outcome.add(explain_verdict(ends_.receiver.check(plan, acknowledged)));
    }
  } catch (...) {
    outcome.add(outcome_of_exception());
  }
  return outcome;
}

// Called a few times a second while producers run.
void RowRun::watch() {
  if (interrupt_.raised()) ends_.producers.stop();
  ends_.notices.tell(events_.note);
  try {
    if (ends_.receiver.watch_fd() >= 0 && !peer_gone_) {
      pollfd p{ends_.receiver.watch_fd(), POLLIN, 0};
      if (poll(&p, 1, 0) > 0) ends_.receiver.hear();
      if (++watches_ % kWatchesPerSign == 0) ends_.receiver.say_alive();
    }
  } catch (...) {
    peer_gone_ = std::current_exception();
    ends_.producers.stop();
  }
}

void RowRun::wait_until_quiet() {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::nanoseconds(options_.deadline_ns());
  for (bool quiet = false; !quiet && std::chrono::steady_clock::now() < deadline;
       std::this_thread::yield()) {
    quiet = true;
    ends_.inspect([&](const nic::Inspected& nic) {
      for (std::uint32_t i = 0; i < qps(); ++i) quiet &= nic.quiet(qpn(i));
    });
    if (ends_.nic != nullptr) continue;
    for (std::uint32_t i = 0; i < qps(); ++i) quiet &= (*queue_pairs_)[i].flushed();
  }
}

Outcome RowRun::explain_failure(const SegmentPlan& plan,
                                const std::vector<ProducerResult>& results) {
  Outcome outcome;
  for (std::uint32_t p = 0; p < results.size(); ++p) {
    const std::uint64_t put = plan.first_sequence + results[p].acknowledged;
    const std::string where = put_text(p, put);
    const std::uint32_t queue = work_.queue_of(p);
    switch (results[p].status) {
      case Status::kOk: break;
      case Status::kStopped:
        // It was told to; whoever told it explains why.
        if (interrupt_.raised()) outcome.add(kExitInterrupted, "interrupted");
        break;
      case Status::kCompletionError: {
        const Cause c = cause_of(queue);
        outcome.add(
            gave_up_on_peer(c) ? kExitDeadline : kExitCompletionError,
            fmt::format("{}: error CQE: {} (syndrome 0x{:02x}, vendor syndrome 0x{:02x}), "
                        "opcode {}, QPN 0x{:06x}, {}",
                        where, mlx5::syndrome_name(c.syndrome), c.syndrome, c.vendor_syndrome,
                        mlx5::opcode_name(c.opcode), qpn(queue).value, c.where));
        break;
      }
      default:
        outcome.add(kExitDeadline,
                    fmt::format("{}: no completion within {} s", where, options_.deadline_s));
        break;
    }
  }
  return outcome;
}

std::string RowRun::put_text(std::uint32_t p, std::uint64_t put) const {
  const bool warm_up = put < first_timed_sequence_;
  // Of PUTs behind one tail it is not known which have succeeded.
  return fmt::format("stage {}, producer {}, PUT {}{}{}", stage_.name, p,
                     warm_up ? put : put - first_timed_sequence_, tail() ? " or later" : "",
                     warm_up ? " of the warm-up" : "");
}

std::string RowRun::wqe_text(std::uint32_t queue, std::uint64_t index) const {
  if (first_timed_index_.empty()) return fmt::format("WQE index {} (in the warm-up)", index);
  return fmt::format("WQE index {} ({} of the timed traffic)", index,
                     index - first_timed_index_[queue]);
}

RowRun::Cause RowRun::cause_of(std::uint32_t queue) const {
  const QueueState state = (*queue_pairs_)[queue].counters();
  const LatchedError e = decode_error(state.error);
  Cause cause{e.opcode, e.syndrome, e.vendor_syndrome, {}};
  if (!e.index_unknown) {
    // The latch keeps 32 bits of the index; the others are those of the ring's end.
    const std::uint64_t end = state.reserved;
    cause.where = wqe_text(queue, end - (static_cast<std::uint32_t>(end) - e.index));
    return cause;
  }
  const nic::FirstError first = counters_of_qps()[queue].first_error;
  if (first.syndrome == 0) {
    cause.where = "WQE index unknown: a collapsed CQ shows the last CQE only";
    return cause;
  }
  cause.opcode = first.opcode;
  cause.syndrome = first.syndrome;
  cause.vendor_syndrome = first.vendor_syndrome;
  cause.where = wqe_text(queue, first.index) + ", as the NIC tells: a collapsed CQ does not";
  return cause;
}

// The NIC did so by itself: the peer is lost.
bool RowRun::gave_up_on_peer(const Cause& cause) const {
  return cause.syndrome == static_cast<int>(mlx5::Syndrome::kTransportRetryExceeded) && !injected();
}

// Where the QPs stand whose completions did not come in time.
std::vector<std::string> RowRun::overdue_qps(const std::vector<ProducerResult>& results) const {
  std::vector<bool> overdue(qps());
  for (std::uint32_t p = 0; p < results.size(); ++p) {
    const std::uint32_t queue = work_.queue_of(p);
    const Status status = results[p].status;
    if (status == Status::kDeadline ||
        (status == Status::kCompletionError && gave_up_on_peer(cause_of(queue)))) {
      overdue[queue] = true;
    }
  }
  std::vector<std::string> lines;
  for (std::uint32_t i = 0; i < qps(); ++i) {
    if (!overdue[i]) continue;
    std::optional<nic::QpDump> dump;
    ends_.inspect([&](const nic::Inspected& nic) { dump = nic.dump(qpn(i)); });
    for (std::string& line : standing_of(qpn(i), (*queue_pairs_)[i].counters(), dump)) {
      lines.push_back(std::move(line));
    }
  }
  return lines;
}

bool RowRun::injected() const {
  return std::any_of(options_.faults.begin(), options_.faults.end(), [](const FaultSpec& f) {
    return f.kind == FaultSpec::Kind::kCqe || is_of_link(f.kind);
  });
}

Outcome RowRun::explain_verdict(const Verdict& verdict) const {
  Outcome outcome;
  if (verdict.mismatches > 0) {
    outcome.add(kExitWrongPayload, wrong_payload_sentence(std::string(stage_.name), verdict));
  }
  return outcome;
}

std::string wrong_payload_sentence(const std::string& stage, const Verdict& verdict) {
  return fmt::format(
      "stage {}, {}; {} of {} payloads checked are wrong", stage,
      verdict.first ? describe(*verdict.first) : "bytes arrived after they had been acknowledged",
      verdict.mismatches, verdict.checked);
}

std::vector<nic::QpCounters> RowRun::counters_of_qps() const {
  std::vector<nic::QpCounters> all(qps());
  ends_.inspect([&](const nic::Inspected& nic) {
    for (std::uint32_t i = 0; i < qps(); ++i) all[i] = nic.counters(qpn(i));
  });
  return all;
}

nic::QpCounters RowRun::nic_counters() const {
  nic::QpCounters sum;
  if (ends_.nic == nullptr) {  // what the producers know to have been done
    sum.wqes_fetched = posted_.wqes;
    sum.cqes = tail() ? posted_.reservations : posted_.wqes;
    sum.bytes_moved = puts_ * payload_bytes_;
    return sum;
  }
  for (const nic::QpCounters& c : counters_of_qps()) {
    sum.wqes_fetched += c.wqes_fetched;
    sum.cqes += c.cqes;
    sum.bytes_moved += c.bytes_moved;
    sum.retransmitted += c.retransmitted;
  }
  return sum;
}

// Of the timed traffic, where there was any.
void RowRun::tell_counters() const {
  if (!events_.counters || ends_.nic == nullptr) return;
  const std::vector<nic::QpCounters> now = counters_of_qps();
  for (std::uint32_t i = 0; i < qps(); ++i) {
    const nic::QpCounters c = qp_before_.empty() ? now[i] : since(now[i], qp_before_[i]);
    events_.counters(fmt::format("counters stage={} submit={} payload_bytes={} {}", stage_.name,
                                 submit_.name, payload_bytes_, counters_line(qpn(i), c)));
  }
}

std::uint64_t RowRun::doorbells() const {
  std::uint64_t n = 0;
  for (std::uint32_t i = 0; i < qps(); ++i) n += (*queue_pairs_)[i].doorbells();
  return n;
}

// What the client posted, what the NIC took and what it answered must be the same, or some number
// of the row is not what it says.
Outcome RowRun::cross_check() const {
  Outcome outcome;
  const nic::QpCounters now = nic_counters();
  const std::uint64_t fetched = now.wqes_fetched - before_.wqes_fetched;
  const std::uint64_t cqes = now.cqes - before_.cqes;
  const std::uint64_t moved = now.bytes_moved - before_.bytes_moved;
  const std::uint64_t meant = options_.null_nic ? 0 : puts_ * payload_bytes_;
  // Every reservation has a tail.
  const std::uint64_t signalled = tail() ? posted_.reservations : posted_.wqes;
  if (posted_.wqes != fetched || signalled != cqes || moved != meant) {
    outcome.add(
        kExitWrongPayload,
        fmt::format("stage {}: the counts disagree: {} WQEs posted, {} fetched; {} CQEs of {}; {} "
                    "bytes moved of {}",
                    stage_.name, posted_.wqes, fetched, cqes, signalled, moved, meant));
  }
  return outcome;
}

void RowRun::arm_faults() {
  for (std::uint32_t i = 0; i < qps(); ++i) {
    std::vector<nic::Fault> faults;
    for (const FaultSpec& f : options_.faults) {
      if (f.qp != i) continue;
      switch (f.kind) {
        case FaultSpec::Kind::kCorrupt:
          faults.push_back({nic::FaultKind::kCorrupt, 0, f.at});
          break;
        case FaultSpec::Kind::kNoop: faults.push_back({nic::FaultKind::kNoop, 0, f.at}); break;
        case FaultSpec::Kind::kCqe: faults.push_back({nic::FaultKind::kCqe, f.value, f.at}); break;
        case FaultSpec::Kind::kHold:
          faults.push_back({nic::FaultKind::kHold, f.value * 1'000'000, 0});
          break;
        case FaultSpec::Kind::kDelay:
          faults.push_back({nic::FaultKind::kDelay, f.value * 1'000, 0});
          break;
        default: break;  // not of the traffic
      }
    }
    ends_.inspect([&](nic::Inspected& nic) { nic.arm_faults(qpn(i), faults); });
  }
}

std::uint32_t RowRun::unreached_faults() const {
  std::uint32_t n = 0;
  ends_.inspect([&](const nic::Inspected& nic) {
    for (std::uint32_t i = 0; i < qps(); ++i) n += nic.unreached_faults(qpn(i));
  });
  return n;
}

// The least of all producers.
std::uint32_t RowRun::batch_effective() const {
  std::uint32_t least = UINT32_MAX;
  for (std::uint32_t p = 0; p < stage_.producers; ++p) {
    least = std::min(least, effective_batch(producer_options(work_, p), depth_));
  }
  return least;
}

Row RowRun::make_row() const {
  static const MachineFacts machine = machine_facts();
  const nic::QpCounters now = nic_counters();
  Row r;
  r.kind = ends_.context.is_hardware() ? "hardware" : "software";
  r.provider = ends_.facts.provider;
  r.engine = options_.null_nic ? "null" : ends_.facts.engine;
  r.link = ends_.facts.link;
  const QueueHandle& queue = work_.queues[0];
  r.handler = nic_handler_name(queue.handler.resolved);
  r.handler_requested = nic_handler_name(queue.handler.requested);
  r.handler_why = handler_reason_text(queue.handler.why);
  r.stage = stage_.name;
  r.submit = submit_.name;
  // Where there is a record a proxy rings in one order, whatever the producers' is.
  r.doorbell =
      doorbell_order_name(queue.proxy != nullptr && queue.has_record ? DoorbellOrder::kRecordRing
                                                                     : submit_.options.doorbell);
  r.publish = publish_order_name(submit_.options.publish);
  r.exec = exec_name(options_.exec);
  r.sharing = sharing_name(options_.sharing);
  r.completion = completion_mode_name(options_.completion);
  r.fence_scope = scope_name(queue.fence_scope);
  r.memory = ends_.facts.memory;
  r.doorbell_memory = ends_.facts.doorbell_memory;
  r.device = ends_.context.device_name();
  r.ib_port = ends_.context.port();
  if (const auto port = ends_.context.gid()) {
    r.gid_index = port->index;
    r.gid = gid_text(port->gid);
    r.gid_type = gid_type_name(port->gid.type);
  }
  const PortPkey pkey = ends_.context.pkey();
  r.pkey_index = pkey.index;
  r.pkey = fmt::format("0x{:04x}", pkey.key);
  r.mtu = mtu_bytes_;
  r.traffic_class = options_.path.traffic_class;
  r.qp_timeout = options_.path.ack_timeout;
  r.retry = options_.path.retry_count;
  r.producers = stage_.producers;
  r.qps = stage_.qps;
  r.window = stage_.window;
  r.window_effective =
      std::min({std::uint64_t{stage_.window}, plan_.puts_per_segment * stage_.producers,
                std::uint64_t{depth_} * std::min(stage_.qps, stage_.producers)});
  r.batch = stage_.batch;
  r.batch_effective = batch_effective();
  r.depth = depth_;
  r.payload_bytes = payload_bytes_;
  r.total_bytes = now.bytes_moved - before_.bytes_moved;
  r.region_bytes = region_bytes_;
  r.segments = segments_;
  r.puts = puts_;
  r.chunks = posted_.chunks;
  r.noops = posted_.noops;
  r.wqes = posted_.wqes;
  r.doorbells = doorbells() - doorbells_before_;
  r.cqes = now.cqes - before_.cqes;
  if (ends_.nic != nullptr) r.retransmitted = now.retransmitted - before_.retransmitted;
  r.seconds = seconds_;
  if (!options_.null_nic) {
    if (const auto s = spread(gbps_)) {
      r.gbps = s->median;
      r.gbps_min = s->min;
      r.gbps_max = s->max;
    }
  }
  if (const auto s = spread(mpps_)) r.mpps = s->median;
  r.latency_ns_p50 = posted_.latencies.percentile(50);
  r.latency_ns_p99 = posted_.latencies.percentile(99);
  r.latency_ns_max = posted_.latencies.max();
  r.validated = !options_.null_nic;
  r.mismatches = 0;
  r.clock = ends_.producers.clock();
  r.seed = options_.seed;
  r.deadline_s = options_.deadline_s;
  for (const FaultSpec& f : options_.faults) r.faults.push_back(f.text);
  r.order = write_order_name(options_.order);
  r.dbsrc = doorbell_source_name(options_.doorbell_source);
  r.rules = changed_rules(options_.rules);
  r.cpu = machine.cpu;
  r.gpu = ends_.facts.gpu;
  r.driver = ends_.facts.driver;
  r.copy_ceiling_gbps = ends_.facts.copy_ceiling_gbps;
  r.kernel = machine.kernel;
  r.commit = machine.commit;
  r.version = machine.version;
  r.started = machine.started;
  return r;
}

}  // namespace peal::ladder
