// One simulated producer: posts operations, waits for them, and looks at what they have done.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "explore/checkers.hpp"
#include "explore/world.hpp"
#include "peal/device/producer.hpp"

namespace peal::explore {

struct Operation {
  enum class Kind : std::uint8_t { kPut, kInline, kGet, kAdd, kSignal };
  Kind kind = Kind::kPut;
  std::uint64_t sequence = 0;
  std::uint64_t ticket = 0;  // only where tickets are awaited
  std::uint32_t place = 0;   // its slot, or which of the PUTs with a signal it is
};

template <Sharing S>
class ProducerAgent {
 public:
  using Memory = sim::SimMemory;

  ProducerAgent(World& world, Findings& findings, LandingChecker& landing, std::uint32_t number)
      : w_(world),
        c_(world.c),
        findings_(findings),
        landing_(landing),
        number_(number),
        queue_(world.queues[number % world.c.qps]),
        busy_(world.layout.slots) {}

  void run() {
    if (c_.work == Work::kWindow) {
      run_window();
    } else {
      run_tickets();
    }
  }

  // After the run, by whoever knows that all before `completed` is done.
  template <class Done>
  void finish(const Done& is_done) {
    for (const Operation& o : open_) {
      if (is_done(o)) done(o);
    }
    open_.clear();
  }

  std::uint32_t qp() const { return number_ % c_.qps; }
  std::uint64_t done_operations() const { return done_; }
  std::uint32_t signals() const { return static_cast<std::uint32_t>(signals_.size()); }
  std::uint64_t sequence_of_signal(std::uint32_t n) const { return signals_[n]; }

 private:
  static constexpr std::uint64_t kSlackNs = 1'000'000;  // that a wait may take beyond its deadline

  std::uint64_t timeout_ns() const { return c_.timeout_us * 1000; }
  SubmitOptions submit() const { return {c_.doorbell, c_.publish}; }
  sim::Random& random() { return w_.sim.random(); }
  bool breaks_here() const { return number_ == 0 && c_.fault.kind == FaultKind::kRkey; }
  std::string name_of(const Operation& o) const {
    static constexpr const char* kNames[] = {"PUT", "inline PUT", "GET", "fetch-add",
                                             "PUT with signal"};
    return "producer " + std::to_string(number_) + "'s " + kNames[static_cast<int>(o.kind)] + " " +
           std::to_string(o.sequence);
  }

  // ---- Operations ------------------------------------------------------------------------------

  Operation::Kind draw_kind() {
    using Kind = Operation::Kind;
    if (!random().chance(c_.mixed)) return Kind::kPut;
    const bool inlines = c_.payload_bytes <= mlx5::kMaxInlineBytes;
    switch (random().below(4)) {
      case 0: return inlines ? Kind::kInline : Kind::kPut;
      case 1: return Kind::kGet;
      case 2: return Kind::kAdd;
      default: return signals() < Layout::kSignals ? Kind::kSignal : Kind::kPut;
    }
  }

  // A slot that no open operation uses; false where there is none.
  bool take_slot(Operation& o) {
    if (o.kind == Operation::Kind::kSignal) {
      o.place = signals();
      signals_.push_back(o.sequence);
      return true;
    }
    const std::uint32_t slot = next_slot_ % w_.layout.slots;
    if (busy_[slot]) return false;
    busy_[slot] = true;
    ++next_slot_;
    o.place = slot;
    return true;
  }

  Operation begin(Operation::Kind kind) {
    Operation o;
    o.kind = kind;
    o.sequence = next_sequence_++;
    return o;
  }

  std::size_t target_of(const Operation& o) const {
    return o.kind == Operation::Kind::kSignal ? w_.layout.signal_target_of(o.place)
                                              : w_.layout.target_of(o.place);
  }
  std::size_t in_target(const Operation& o) const {
    return number_ * w_.layout.target_bytes + target_of(o);
  }
  bool writes(const Operation& o) const {
    return o.kind != Operation::Kind::kGet && o.kind != Operation::Kind::kAdd;
  }

  // What it writes is made, in its source or for a WQE, and its landing is expected.
  void prepare(const Operation& o, std::uint32_t* words) {
    if (!writes(o)) return;
    for (std::uint32_t i = 0; i < c_.payload_bytes / 4; ++i) {
      words[i] = w_.pattern(number_, o.sequence, i);
    }
    landing_.ask(in_target(o), c_.payload_bytes);
    if (o.kind != Operation::Kind::kInline) {
      w_.sim.write(source_of(o), words, c_.payload_bytes);
    }
  }
  std::byte* source_of(const Operation& o) {
    return w_.source_of(number_) + (o.kind == Operation::Kind::kSignal
                                        ? w_.layout.signal_source_of(o.place)
                                        : w_.layout.source_of(o.place));
  }

  Put put_of(const Operation& o) {
    Rkey rkey = w_.client->to.rkey();
    if (breaks_here() && o.sequence == c_.fault.at) rkey = Rkey(rkey.value ^ 0xff);
    return {reinterpret_cast<std::uint64_t>(source_of(o)), w_.client->from.lkey(),
            reinterpret_cast<std::uint64_t>(w_.target_of(number_) + target_of(o)), rkey,
            c_.payload_bytes};
  }
  FetchAdd add_to(std::size_t at) {
    return {{reinterpret_cast<std::uint64_t>(w_.target_of(number_) + at),
             w_.client->to.rkey(),
             {reinterpret_cast<std::uint64_t>(w_.source_of(number_) + w_.layout.sink),
              w_.client->from.lkey()}},
            1};
  }

  // `to` has the operations as members.
  template <class Poster>
  Status post(Poster& to, const Operation& o) {
    words_.resize(c_.payload_bytes / 4);
    prepare(o, words_.data());
    const Fence fence = random().below(8) == 0 ? Fence::kBefore : Fence::kNone;
    switch (o.kind) {
      case Operation::Kind::kPut: return to.put(put_of(o), fence);
      case Operation::Kind::kInline: {
        const Put p = put_of(o);
        return to.put_inline({words_.data(), c_.payload_bytes, p.remote_address, p.rkey}, fence);
      }
      case Operation::Kind::kGet:
        return to.get(
            {reinterpret_cast<std::uint64_t>(w_.source_of(number_) + w_.layout.landing_of(o.place)),
             w_.client->from.lkey(),
             reinterpret_cast<std::uint64_t>(w_.target_of(number_) + w_.layout.constant),
             w_.client->to.rkey(), c_.payload_bytes},
            fence);
      case Operation::Kind::kAdd: return to.fetch_add(add_to(w_.layout.counter), fence);
      case Operation::Kind::kSignal:
        return to.put_signal(put_of(o), add_to(w_.layout.signal), fence);
    }
    return Status::kInvalid;
  }

  // It has been acknowledged: what it did must be there.
  void done(const Operation& o) {
    ++done_;
    if (o.kind != Operation::Kind::kSignal) busy_[o.place] = false;
    if (o.kind == Operation::Kind::kAdd) return;
    const bool reads = o.kind == Operation::Kind::kGet;
    if (!reads) landing_.acknowledge(in_target(o), c_.payload_bytes, name_of(o));
    const std::byte* at = reads ? w_.source_of(number_) + w_.layout.landing_of(o.place)
                                : w_.target_of(number_) + target_of(o);
    words_.resize(c_.payload_bytes / 4);
    w_.sim.read(at, words_.data(), c_.payload_bytes);
    for (std::uint32_t i = 0; i < c_.payload_bytes / 4; ++i) {
      const std::uint32_t expected = w_.pattern(number_, reads ? ~std::uint64_t{0} : o.sequence, i);
      if (words_[i] == expected) continue;
      findings_.add("payload", name_of(o) + " was acknowledged, but byte " + std::to_string(i * 4) +
                                   " of what it " + (reads ? "read" : "wrote") +
                                   " is not there yet");
      return;
    }
  }

  // Whether a call may end like this.
  void judge(Status status, const char* call) {
    if (status == Status::kOk) return;
    failed_ = true;
    if (status == Status::kCompletionError && c_.fault.ends_in_error()) return;
    if (status == Status::kDeadline && c_.ends_at_deadline()) return;
    std::string said;
    for (const std::string& refusal : w_.refusals) said += (said.empty() ? "" : ", ") + refusal;
    findings_.add(status == Status::kDeadline ? "deadline" : "status",
                  "producer " + std::to_string(number_) + "'s " + call + " ended with " +
                      status_name(status) + (said.empty() ? "" : "; the NIC refused: " + said));
  }

  // ---- A window --------------------------------------------------------------------------------

  void run_window() {
    std::vector<InFlight> fifo(c_.window);
    ProducerOptions options;
    options.submit = submit();
    options.window = c_.window;
    options.batch = c_.batch;
    options.producers_on_queue = (c_.producers - qp() + c_.qps - 1) / c_.qps;
    options.timeout_ns = timeout_ns();
    Producer<Memory, S> producer(queue_, options, fifo.data());
    while (next_sequence_ < c_.puts && !failed_) {
      const Operation::Kind kind = draw_kind();
      if (kind == Operation::Kind::kPut) {
        put_run(producer);
      } else {
        Operation o = begin(kind);
        make_room(producer, o);
        if (failed_) break;
        open_.push_back(o);
        judge(post(producer, o), "call");
      }
      take_note(producer);
    }
    judge(producer.flush(), "flush");
    producer.settle();
    take_note(producer);
  }

  void make_room(Producer<Memory, S>& producer, Operation& o) {
    if (take_slot(o)) return;
    judge(producer.flush(), "flush");
    take_note(producer);
    if (!failed_) take_slot(o);
  }

  void put_run(Producer<Memory, S>& producer) {
    const auto left = static_cast<std::uint32_t>(c_.puts - next_sequence_);
    const std::uint32_t n = 1 + random().below(std::min({left, 2 * c_.batch, w_.layout.slots}));
    std::vector<Operation>& run = run_;
    run.clear();
    words_.resize(c_.payload_bytes / 4);
    for (std::uint32_t i = 0; i < n; ++i) {
      Operation o = begin(Operation::Kind::kPut);
      if (!take_slot(o)) {
        judge(producer.flush(), "flush");
        take_note(producer);
        if (failed_ || !take_slot(o)) {
          --next_sequence_;
          break;
        }
      }
      prepare(o, words_.data());
      run.push_back(o);
    }
    for (const Operation& o : run) open_.push_back(o);
    if (failed_) return;
    judge(producer.put_many(run.size(), [&](std::uint64_t i) { return put_of(run[i]); }),
          "put_many");
  }

  void take_note(const Producer<Memory, S>& producer) {
    while (done_ < producer.completed_puts() && !open_.empty()) {
      const Operation o = open_.front();
      open_.pop_front();
      done(o);
    }
  }

  // ---- Tickets ---------------------------------------------------------------------------------

  struct TicketPoster {
    SendQueue<Memory, S>& queue;
    std::uint64_t timeout_ns;
    Posted posted{};
    Status put(const Put& p, Fence f) { return peal::put(queue, p, &posted, timeout_ns, f); }
    Status put_inline(const PutInline& p, Fence f) {
      return peal::put_inline(queue, p, &posted, timeout_ns, f);
    }
    Status get(const Get& g, Fence f) { return peal::get(queue, g, &posted, timeout_ns, f); }
    Status fetch_add(const FetchAdd& a, Fence f) {
      return peal::fetch_add(queue, a, &posted, timeout_ns, f);
    }
    Status put_signal(const Put& p, const FetchAdd& a, Fence f) {
      return peal::put_signal(queue, p, a, &posted, timeout_ns, f);
    }
  };

  void run_tickets() {
    SendQueue<Memory, S> queue(queue_, submit());
    while (next_sequence_ < c_.puts && !failed_) {
      if (open_.size() < c_.window && random().below(4) != 0) {
        post_ticket(queue);
      } else if (!open_.empty()) {
        wait_for(queue, open_[random().below(static_cast<std::uint32_t>(open_.size()))].ticket);
      }
      if (done_ != 0 && random().below(4) == 0) look_back(queue);
    }
    // Some are left for whoever comes after.
    while (!open_.empty() && (failed_ || random().below(4) != 0)) {
      wait_for(queue, open_.front().ticket);
      if (failed_) break;
    }
    if (failed_) look_back_after_error(queue);
  }

  void post_ticket(SendQueue<Memory, S>& queue) {
    Operation o = begin(draw_kind());
    while (!take_slot(o)) {
      wait_for(queue, open_.front().ticket);
      if (failed_) return;
    }
    TicketPoster poster{queue, timeout_ns()};
    const Status status = post(poster, o);
    judge(status, "call");
    if (status != Status::kOk) return;
    o.ticket = poster.posted.ticket;
    open_.push_back(o);
  }

  void wait_for(SendQueue<Memory, S>& queue, std::uint64_t ticket) {
    const std::uint64_t start_ns = Memory::now_ns();
    const Status status = wait(queue, ticket, timeout_ns());
    const std::uint64_t took_ns = Memory::now_ns() - start_ns;
    if (took_ns > timeout_ns() + kSlackNs &&
        w_.sim.scheduler().trouble() == sim::Scheduler::Trouble::kNone) {
      findings_.add("bound", "producer " + std::to_string(number_) + "'s wait took " +
                                 std::to_string(took_ns / 1000) + " us, of " +
                                 std::to_string(c_.timeout_us) + " that it may");
    }
    judge(status, "wait");
    if (status == Status::kOk) all_done_to(ticket);
  }

  // A ticket stands for all before it on its queue.
  void all_done_to(std::uint64_t ticket) {
    newest_done_ = std::max(newest_done_, ticket);
    while (!open_.empty() && open_.front().ticket <= ticket) {
      const Operation o = open_.front();
      open_.pop_front();
      done(o);
    }
  }

  // What has succeeded must go on to.
  void look_back(SendQueue<Memory, S>& queue) {
    if (newest_done_ == 0) return;
    const Status status = queue.completions().try_wait(newest_done_);
    if (status == Status::kOk) return;
    findings_.add("ticket", "producer " + std::to_string(number_) + "'s ticket " +
                                std::to_string(newest_done_) + " had succeeded, and is now " +
                                status_name(status));
  }

  // Each ticket ends, the ones before the failed one with success.
  void look_back_after_error(SendQueue<Memory, S>& queue) {
    look_back(queue);
    if (c_.ends_at_deadline()) return;
    LatchedError e;
    if (!queue.completions().error(&e) || e.index_unknown || e.abandoned) return;
    while (!open_.empty()) {
      const Operation o = open_.front();
      open_.pop_front();
      const Status status = wait(queue, o.ticket, timeout_ns());
      const bool before =
          static_cast<std::int32_t>(static_cast<std::uint32_t>(o.ticket) - e.index) < 0;
      const Status expected = before ? Status::kOk : Status::kCompletionError;
      if (status != expected) {
        findings_.add("ticket", name_of(o) + " (ticket " + std::to_string(o.ticket) + ") is " +
                                    status_name(status) + ", but the first error is at " +
                                    std::to_string(e.index));
      }
      if (status == Status::kOk) done(o);
    }
  }

  World& w_;
  const Configuration& c_;
  Findings& findings_;
  LandingChecker& landing_;
  std::uint32_t number_;
  QueueHandle queue_;
  std::vector<bool> busy_;
  std::vector<std::uint32_t> words_;
  std::vector<Operation> run_;
  std::deque<Operation> open_;  // posted, and not known to be done
  std::uint64_t next_sequence_ = 0;
  std::uint32_t next_slot_ = 0;
  std::vector<std::uint64_t> signals_;  // of each PUT with a signal, its sequence
  std::uint64_t done_ = 0;
  std::uint64_t newest_done_ = 0;
  bool failed_ = false;
};

}  // namespace peal::explore
