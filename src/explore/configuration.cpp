#include "explore/configuration.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdio>

#include "sim/random.hpp"

namespace peal::explore {
namespace {

// ---- Values as text -----------------------------------------------------------------------------

std::optional<std::uint64_t> number_of(std::string_view text) {
  std::uint64_t v = 0;
  const bool hex = text.starts_with("0x");
  if (hex) text.remove_prefix(2);
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), v, hex ? 16 : 10);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return v;
}

// A multiple of `step`.
template <class T>
bool set_number(T& to, std::string_view text, std::uint64_t min, std::uint64_t max,
                std::uint64_t step = 1) {
  const auto v = number_of(text);
  if (!v || *v < min || *v > max || *v % step != 0) return false;
  to = static_cast<T>(*v);
  return true;
}

template <class E>
struct Named {
  E value;
  const char* name;
};
template <class E, std::size_t N>
std::string name_in(const std::array<Named<E>, N>& names, E value) {
  for (const Named<E>& n : names) {
    if (n.value == value) return n.name;
  }
  return "";
}
template <class E, std::size_t N>
bool set_named(const std::array<Named<E>, N>& names, E& to, std::string_view text) {
  for (const Named<E>& n : names) {
    if (text != n.name) continue;
    to = n.value;
    return true;
  }
  return false;
}

constexpr std::array<Named<Work>, 2> kWorks = {
    {{Work::kWindow, "window"}, {Work::kTickets, "tickets"}}};
constexpr std::array<Named<DoorbellOrder>, 3> kDoorbells = {
    {{DoorbellOrder::kRingRecordRing, "ring_record_ring"},
     {DoorbellOrder::kRecordRing, "record_ring"},
     {DoorbellOrder::kRingOnly, "ring_only"}}};
constexpr std::array<Named<PublishOrder>, 2> kPublishes = {
    {{PublishOrder::kInOrder, "in_order"}, {PublishOrder::kCombine, "combine"}}};
constexpr std::array<Named<Sharing>, 3> kSharings = {
    {{Sharing::kExclusive, "exclusive"}, {Sharing::kBlock, "block"}, {Sharing::kDevice, "device"}}};
constexpr std::array<Named<CompletionMode>, 2> kCompletions = {
    {{CompletionMode::kEvery, "every"}, {CompletionMode::kTail, "tail"}}};
constexpr std::array<Named<NicHandler>, 2> kHandlers = {
    {{NicHandler::kDirect, "direct"}, {NicHandler::kProxy, "proxy"}}};
constexpr std::array<Named<nic::DoorbellSource>, 2> kSources = {
    {{nic::DoorbellSource::kRegister, "mmio"}, {nic::DoorbellSource::kRecord, "dbr"}}};
constexpr std::array<Named<nic::WriteOrder>, 2> kOrders = {
    {{nic::WriteOrder::kStrict, "strict"}, {nic::WriteOrder::kRelaxed, "relaxed"}}};
constexpr std::array<Named<bool>, 2> kYesNo = {{{false, "no"}, {true, "yes"}}};

std::string fault_text(const Fault& f) {
  char hex[24];
  switch (f.kind) {
    case FaultKind::kNone: return "none";
    case FaultKind::kCqe:
      std::snprintf(hex, sizeof hex, "0x%02x", static_cast<unsigned>(f.value));
      return std::string("cqe=") + hex + "@" + std::to_string(f.at);
    case FaultKind::kRkey: return "rkey@" + std::to_string(f.at);
    case FaultKind::kHold: return "hold=" + std::to_string(f.value);
    case FaultKind::kDelay: return "delay=" + std::to_string(f.value);
  }
  return "";
}

bool set_fault(Fault& to, std::string_view text) {
  Fault f;
  const auto take = [&text](std::string_view head) {
    if (!text.starts_with(head)) return false;
    text.remove_prefix(head.size());
    return true;
  };
  if (text == "none") {
    to = f;
    return true;
  }
  if (take("cqe=")) {
    f.kind = FaultKind::kCqe;
    const auto at = text.find('@');
    if (at == std::string_view::npos || !set_number(f.value, text.substr(0, at), 1, 0x22)) {
      return false;
    }
    text.remove_prefix(at + 1);
  } else if (take("rkey@")) {
    f.kind = FaultKind::kRkey;
  } else if (take("hold=")) {
    f.kind = FaultKind::kHold;
  } else if (take("delay=")) {
    f.kind = FaultKind::kDelay;
  } else {
    return false;
  }
  auto& rest = f.kind == FaultKind::kHold || f.kind == FaultKind::kDelay ? f.value : f.at;
  if (!set_number(rest, text, 0, 1'000'000'000)) return false;
  to = f;
  return true;
}

template <auto Member, std::uint64_t kMin, std::uint64_t kMax, std::uint64_t kStep = 1>
Option number(const char* name, const char* what) {
  return {name, what, [](const Configuration& c) { return std::to_string(c.*Member); },
          [](Configuration& c, std::string_view text) {
            return set_number(c.*Member, text, kMin, kMax, kStep);
          }};
}
template <auto Member>
Option of_link(const char* name, const char* what) {
  return {name, what, [](const Configuration& c) { return std::to_string(c.trouble.*Member); },
          [](Configuration& c, std::string_view text) {
            return set_number(c.trouble.*Member, text, 0, 1000);
          }};
}
template <auto Member, const auto& kNames>
Option named(const char* name, const char* what) {
  return {
      name, what, [](const Configuration& c) { return name_in(kNames, c.*Member); },
      [](Configuration& c, std::string_view text) { return set_named(kNames, c.*Member, text); }};
}

}  // namespace

const std::vector<Option>& all_options() {
  using C = Configuration;
  constexpr std::uint64_t kMost = std::uint64_t{1} << 30;
  static const std::vector<Option> options = {
      number<&C::producers, 1, 6>("producers", "1 to 6"),
      number<&C::qps, 1, 6>("qps", "1 to 6, and no more than producers"),
      number<&C::window, 1, 4096>("window", "operations in flight of each producer, to 4096"),
      number<&C::batch, 1, 4096>("batch", "PUTs behind one doorbell, to 4096"),
      {"depth", "slots of each send queue, a power of two to 32768",
       [](const C& c) { return std::to_string(c.depth); },
       [](C& c, std::string_view text) {
         std::uint32_t depth = 0;
         if (!set_number(depth, text, 1, 32768) || !std::has_single_bit(depth)) return false;
         c.depth = depth;
         return true;
       }},
      number<&C::puts, 1, kMost>("puts", "operations of each producer"),
      number<&C::payload_bytes, 4, 65536, 4>("size", "payload bytes, a multiple of 4 to 65536"),
      named<&C::work, kWorks>("work", "window or tickets: how producers wait"),
      number<&C::mixed, 0, 1000>("mixed", "of 1000 operations, those that are no PUT"),
      named<&C::doorbell, kDoorbells>("doorbell", "ring_record_ring, record_ring or ring_only"),
      named<&C::publish, kPublishes>("publish", "in_order or combine"),
      named<&C::sharing, kSharings>("sharing", "exclusive, block or device"),
      named<&C::completion, kCompletions>("completion", "every or tail"),
      named<&C::handler, kHandlers>("handler", "direct or proxy"),
      named<&C::doorbell_source, kSources>("dbsrc", "mmio or dbr"),
      named<&C::order, kOrders>("order", "strict or relaxed"),
      number<&C::first_index, 0, ~std::uint64_t{0}>("first", "index of each QP's first WQE"),
      number<&C::max_message_bytes, 4, kMost, 4>(
          "max-message", "bytes above which a PUT is chunked, a multiple of 4"),
      named<&C::one_page, kYesNo>("one-page", "yes: all QPs ring on one UAR page"),
      named<&C::one_nic_agent, kYesNo>("one-nic-agent", "yes: one agent steps both NICs"),
      number<&C::latency_ns_max, 0, kMost>("latency", "of the link, at most, in ns"),
      of_link<&sim::LinkTrouble::lost>("lost", "of 1000 packets, those that never arrive"),
      of_link<&sim::LinkTrouble::doubled>("doubled", "of 1000 packets, those that arrive twice"),
      of_link<&sim::LinkTrouble::overtaken>("overtaken",
                                            "of 1000 packets, those that later ones may overtake"),
      number<&C::timeout_us, 1, kMost>("timeout", "of each wait, in us"),
      {"fault", "none, cqe=SYNDROME@K, rkey@K, hold=US or delay=US",
       [](const C& c) { return fault_text(c.fault); },
       [](C& c, std::string_view text) { return set_fault(c.fault, text); }},
      number<&C::switches, 1, 1000>(
          "switches", "of 1000 operations on memory, those after which another agent may go on"),
      number<&C::stale, 0, 1000>(
          "stale", "of 1000 loads, those that may return any store they are allowed to"),
  };
  return options;
}

namespace {

std::uint64_t draw_first_index(sim::Random& r) {
  switch (r.below(4)) {
    case 0: return 0;
    case 1: return (std::uint64_t{1} << 16) - r.below(40);
    case 2: return (std::uint64_t{1} << r.one_of({31u, 32u})) - r.below(40);
    default: return r.next() >> 1;
  }
}

Fault draw_fault(sim::Random& r, const Configuration& c) {
  const std::uint64_t at = r.below(c.puts);
  switch (r.below(20)) {
    case 0: return {FaultKind::kCqe, r.one_of<std::uint64_t>({0x04, 0x13, 0x14, 0x15}), at};
    case 1: return {FaultKind::kRkey, 0, at};
    case 2: return {FaultKind::kHold, r.below(500), 0};
    case 3: return {FaultKind::kHold, 3 * c.timeout_us, 0};
    case 4: return {FaultKind::kDelay, r.below(50), 0};
    default: return {};
  }
}

// The shape of one of the ladder's stages, or none of them.
void draw_shape(sim::Random& r, Configuration& c) {
  const std::uint32_t window = 1 + r.below(r.one_of({4u, 16u}));
  const std::uint32_t batch = 1 + r.below(window);
  const std::uint32_t producers = 2 + r.below(3);
  struct Shape {
    std::uint32_t producers, qps, window, batch;
  };
  const Shape shapes[] = {
      {1, 1, 1, 1},                           // serial
      {1, 1, window, 1},                      // window
      {1, 1, window, batch},                  // batch
      {producers, 1, window, batch},          // shared
      {producers, producers, window, batch},  // independent
      {1 + r.below(4), 1 + r.below(4), 1 + r.below(window), batch},
  };
  const Shape& s = shapes[r.one_of({0u, 1u, 2u, 3u, 3u, 4u, 5u, 5u})];
  c.producers = s.producers;
  c.qps = s.qps;
  c.window = s.window;
  c.batch = s.batch;
}

// Where there is no record, each QP's register is believed, and is its own.
void mend_doorbell(Configuration& c) {
  if (c.doorbell != DoorbellOrder::kRingOnly) return;
  c.doorbell_source = nic::DoorbellSource::kRegister;
  c.one_page = false;
}

Configuration draw(std::uint64_t seed) {
  sim::Random r(seed ^ 0x7065616c);  // another sequence than the run's
  Configuration c;
  draw_shape(r, c);
  c.depth = 1u << r.below(7);
  c.puts = 1 + r.below(24);
  c.payload_bytes = r.one_of({4u, 8u, 16u, 64u, 132u});
  c.work = r.one_of({Work::kWindow, Work::kTickets});
  c.mixed = r.one_of({0u, 0u, 100u, 400u});
  c.doorbell = r.one_of(
      {DoorbellOrder::kRingRecordRing, DoorbellOrder::kRecordRing, DoorbellOrder::kRingOnly});
  c.publish = r.one_of({PublishOrder::kInOrder, PublishOrder::kCombine});
  c.sharing = r.one_of({Sharing::kExclusive, Sharing::kBlock, Sharing::kDevice});
  c.completion = r.one_of({CompletionMode::kEvery, CompletionMode::kTail});
  c.handler = r.one_of({NicHandler::kDirect, NicHandler::kDirect, NicHandler::kProxy});
  c.doorbell_source = r.one_of({nic::DoorbellSource::kRegister, nic::DoorbellSource::kRecord});
  c.order = r.one_of({nic::WriteOrder::kStrict, nic::WriteOrder::kRelaxed});
  c.first_index = draw_first_index(r);
  if (r.below(6) == 0) c.max_message_bytes = 4 * (1 + r.below(16));
  c.one_page = r.below(3) == 0;
  c.one_nic_agent = r.below(3) == 0;
  c.latency_ns_max = r.one_of({0u, 100u, 5000u});
  c.fault = draw_fault(r, c);
  c.switches = r.one_of({20u, 100u, 300u, 900u});
  c.stale = r.one_of({100u, 500u, 1000u});
  if (r.below(4) == 0) {
    c.trouble = {r.one_of({0u, 10u, 50u}), r.one_of({0u, 50u, 100u}), r.one_of({0u, 50u, 100u})};
  }
  mend_doorbell(c);
  return c;
}

}  // namespace

void mend(Configuration& c) {
  c.qps = std::min(c.qps, c.producers);
  if (c.sharing == Sharing::kExclusive && c.qps < c.producers) c.sharing = Sharing::kDevice;
  c.batch = std::min(c.batch, c.window);
  mend_doorbell(c);
}

Configuration configuration_of(std::uint64_t seed, const std::vector<Given>& given) {
  Configuration c = draw(seed);
  bool doorbell_given = false;
  for (const Given& g : given) {
    for (const Option& o : all_options()) {
      if (g.name == o.name) o.set(c, g.value);
    }
    doorbell_given |= g.name == "doorbell";
  }
  // What was given goes before what was drawn.
  if (!doorbell_given && (c.one_page || c.doorbell_source == nic::DoorbellSource::kRecord) &&
      c.doorbell == DoorbellOrder::kRingOnly) {
    c.doorbell = DoorbellOrder::kRecordRing;
  }
  mend(c);
  return c;
}

std::string to_options(const Configuration& c) {
  std::string all;
  for (const Option& o : all_options()) {
    all += (all.empty() ? "--" : " --") + std::string(o.name) + " " + o.get(c);
  }
  return all;
}

}  // namespace peal::explore
