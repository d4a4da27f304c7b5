#include "explore/world.hpp"

#include <cstring>

#include "nic/refusal.hpp"

namespace peal::explore {
namespace {

constexpr std::size_t kLineBytes = 64;
constexpr std::uint32_t kGuardBytes = 8;
constexpr std::uint8_t kAckTimeout = 5;  // 131 us: where packets are lost, many fit into a wait

std::size_t round_up(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

nic::CoreOptions options_of(const Configuration& c, std::uint32_t number, World& world) {
  nic::CoreOptions o;
  o.nic_number = number;
  o.first_wqe_index = number == 1 ? c.first_index : 0;
  // Virtual time does not go on while an agent is between its doorbell and its record.
  o.record_grace_ns = 1'000'000;
  o.order = c.order;
  o.doorbell_source = c.doorbell_source;
  o.notify = [&world](const nic::Notice& n) {
    if (n.reason != nic::Refusal::kInjected) world.refusals.insert(nic::refusal_name(n.reason));
  };
  return o;
}

}  // namespace

Layout::Layout(const Configuration& c) {
  stride = static_cast<std::uint32_t>(round_up(c.payload_bytes, 8)) + kGuardBytes;
  slots = std::min(c.puts, 2 * (c.window + c.batch)) + 2;
  sink = round_up(landing_of(slots), kLineBytes);
  source_bytes = sink + kLineBytes;
  signal = round_up(signal_target_of(kSignals), kLineBytes);
  counter = signal + kLineBytes;
  constant = counter + kLineBytes;
  target_bytes = round_up(constant + c.payload_bytes, kLineBytes);
}

World::World(sim::Simulation& simulation, const Configuration& configuration, std::uint64_t s)
    : sim(simulation),
      c(configuration),
      seed(s),
      layout(c),
      link(sim, c.latency_ns_max, c.trouble),
      sender_nic(options_of(c, 1, *this), link.a()),
      receiver_nic(options_of(c, 2, *this), link.b()),
      engine(sim),
      source(layout.source_bytes * c.producers),
      target(layout.target_bytes * c.producers) {
  const engine::SimulatedCore sender{sender_nic.step(), [this] { return link.next_arrival_ns(); }};
  const engine::SimulatedCore receiver{receiver_nic.step(),
                                       [this] { return link.next_arrival_ns(); }};
  const std::uint32_t weight = 1 + sim.random().below(4);
  if (c.one_nic_agent) {
    const sim::Agent both = engine.add("nics", weight, {sender, receiver});
    link.served_by(both, both);
  } else {
    const sim::Agent a = engine.add("nic", weight, {sender});
    const sim::Agent b = engine.add("peer nic", 1 + sim.random().below(4), {receiver});
    link.served_by(a, b);
  }
  for (std::uint32_t p = 0; p < c.producers; ++p) {
    for (std::uint32_t i = 0; i < c.payload_bytes / 4; ++i) {
      const std::uint32_t word = pattern(p, ~std::uint64_t{0}, i);
      std::memcpy(target_of(p) + layout.constant + i * 4, &word, 4);
    }
  }
  make_queues();
  if (c.handler == NicHandler::kProxy) {
    engine.add("proxy", 1 + sim.random().below(4), {{[this](std::uint64_t) { return ring(); }}});
  }
  arm_fault();
}

void World::make_queues() {
  Context sender = Context::open(sender_nic.provider(engine));
  Context receiver = Context::open(receiver_nic.provider(engine));
  MemoryRegion from =
      MemoryRegion::create(sender, source.data(), source.size(), Access::kLocalOnly);
  MemoryRegion to =
      MemoryRegion::create(receiver, target.data(), target.size(), Access::kRemoteAll);
  client.emplace(Client{sender, receiver, std::move(from), std::move(to), {}, {}});
  QueuePairOptions options{.depth = c.depth,
                           .first_wqe_index = c.first_index,
                           .completion = c.completion,
                           .doorbell_record = c.doorbell != DoorbellOrder::kRingOnly};
  if (c.trouble.any()) options.ack_timeout = kAckTimeout;
  for (std::uint32_t i = 0; i < c.qps; ++i) {
    options.first_psn = Psn(static_cast<std::uint32_t>(sim.random().next()));
    client->qps.push_back(i > 0 && c.one_page ? QueuePair::create_companion(client->qps[0], options)
                                              : QueuePair::create(sender, options));
    client->peers.push_back(QueuePair::create(
        receiver, {.depth = 1, .first_psn = Psn(static_cast<std::uint32_t>(sim.random().next()))}));
    client->qps[i].connect(client->peers[i].address());
    client->peers[i].connect(client->qps[i].address());
    QueueHandle q = client->qps[i].handle();
    q.max_message_bytes = c.max_message_bytes;
    if (c.handler == NicHandler::kProxy) {
      proxy_words.push_back(std::make_unique<ProxyWord>());
      ProxyWord* word = proxy_words.back().get();
      word->pi = c.first_index;
      proxied.push_back({word, q.dbrec, q.doorbell, q.qpn, c.first_index});
      q.proxy = word;
      q.dbrec = nullptr;
      q.doorbell = nullptr;
    }
    queues.push_back(q);
  }
}

bool World::ring() {
  bool rang = false;
  for (host::ProxyQueue& q : proxied) rang |= host::ring_if_told<sim::SimMemory>(q);
  return rang;
}

void World::arm_fault() {
  const Qpn qpn = client->qps[0].address().qpn;
  std::vector<nic::Fault> faults;
  switch (c.fault.kind) {
    case FaultKind::kCqe:
      faults.push_back({nic::FaultKind::kCqe, c.fault.value, c.fault.at});
      break;
    case FaultKind::kHold:
      faults.push_back({nic::FaultKind::kHold, c.fault.value * 1000, 0});
      break;
    case FaultKind::kDelay:
      faults.push_back({nic::FaultKind::kDelay, c.fault.value * 1000, 0});
      break;
    case FaultKind::kNone:
    case FaultKind::kRkey: return;
  }
  engine.call([&] { sender_nic.core().arm_faults(qpn, faults); });
}

void World::name_memory() {
  sim::Trace& trace = sim.trace();
  // The one that the queue rings, and the other of its page, which the NIC looks at too.
  const auto name_registers = [&trace](const std::string& of, const QueueHandle& q) {
    auto* page = reinterpret_cast<std::byte*>(q.doorbell) - mlx5::uar_doorbell_offset(q.has_record);
    trace.name(of + "doorbell", q.doorbell, 8);
    trace.name(of + "other_doorbell", page + mlx5::uar_doorbell_offset(!q.has_record), 8);
  };
  for (std::uint32_t i = 0; i < c.qps; ++i) {
    const QueueHandle peer = client->peers[i].handle();
    trace.name("peer" + std::to_string(i) + ".dbrec", peer.dbrec, 4);
    name_registers("peer" + std::to_string(i) + ".", peer);
    const QueueHandle q = client->qps[i].handle();
    const std::string qp = "qp" + std::to_string(i) + ".";
    trace.name(qp + "sq", q.sq, c.depth * mlx5::kSlotBytes, mlx5::kSlotBytes);
    trace.name(qp + "cq", q.nic_cq, c.depth * mlx5::kCqeBytes, mlx5::kCqeBytes);
    if (q.has_record) trace.name(qp + "dbrec", q.dbrec, 4);
    if (i == 0 || !c.one_page) name_registers(qp, q);
    trace.name(qp + "marks", q.marks, c.depth * sizeof(std::uint64_t), sizeof(std::uint64_t));
    const auto counter = [&](const char* name, const auto& word) {
      trace.name(qp + name, &word, sizeof word);
    };
    counter("reserved", q.state->reserved);
    counter("ready", q.state->ready);
    counter("pending", q.state->pending);
    counter("rung", q.state->rung);
    counter("completed", q.state->completed);
    counter("error", q.state->error);
    counter("ring_lock", q.state->ring_lock);
    if (c.handler == NicHandler::kProxy) {
      counter("proxy.pi", proxy_words[i]->pi);
      counter("proxy.doorbells", proxy_words[i]->doorbells);
    }
  }
  for (std::uint32_t p = 0; p < c.producers; ++p) {
    const std::string of = std::to_string(p);
    trace.name("signal" + of, target_of(p) + layout.signal, 8);
    trace.name("counter" + of, target_of(p) + layout.counter, 8);
    trace.name("sink" + of, source_of(p) + layout.sink, 8);
    trace.name("source" + of, source_of(p), layout.landing_of(0), layout.stride);
    trace.name("landing" + of, source_of(p) + layout.landing_of(0), layout.landing_of(0),
               layout.stride);
    trace.name("target" + of, target_of(p), layout.signal, layout.stride);
  }
}

bool World::close() {
  engine.call([this] { proxied.clear(); });  // a proxy lets go of its queues first
  queues.clear();
  client.reset();
  bool empty = true;
  engine.call([&] {
    const nic::Commands::Objects none{};
    empty = sender_nic.core().commands().objects() == none &&
            receiver_nic.core().commands().objects() == none;
  });
  return empty;
}

}  // namespace peal::explore
