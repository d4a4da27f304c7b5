#include "ladder/messages.hpp"

#include <fmt/format.h>

namespace peal::ladder {
namespace {

constexpr std::uint64_t k24Bits = 0xffffff;

[[noreturn]] void throw_not_understood(const std::string& why) {
  throw PeerError(PeerError::Kind::kProtocol,
                  "the peer sent a message that is not understood: " + why);
}

std::uint64_t number_of(const nlohmann::json& value, std::uint64_t max, const char* name) {
  if (value.is_number_unsigned() && value.get<std::uint64_t>() <= max) {
    return value.get<std::uint64_t>();
  }
  throw_not_understood(fmt::format("{} must be a whole number from 0 to {}", name, max));
}

const nlohmann::json& list_from(const nlohmann::json& j, const char* name) {
  const nlohmann::json& list = j.at(name);
  if (!list.is_array()) throw_not_understood(fmt::format("{} must be a list", name));
  return list;
}

Gid gid_from(const nlohmann::json& j) {
  Gid gid;
  const std::vector<std::uint64_t> bytes = numbers_from(j, "bytes");
  if (bytes.size() != gid.bytes.size()) throw_not_understood("a GID must be of 16 bytes");
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] > 255) throw_not_understood("a GID must be of 16 bytes");
    gid.bytes[i] = static_cast<std::uint8_t>(bytes[i]);
  }
  gid.type =
      static_cast<GidType>(number_up_to(static_cast<std::uint64_t>(GidType::kRoceV2), j, "type"));
  return gid;
}

QueuePairAddress address_from(const nlohmann::json& j) {
  QueuePairAddress a;
  a.qpn = Qpn(static_cast<std::uint32_t>(number_up_to(k24Bits, j, "qpn")));
  a.psn = Psn(static_cast<std::uint32_t>(number_up_to(k24Bits, j, "psn")));
  a.lid = number_from<std::uint16_t>(j, "lid");
  a.mtu_bytes = number_from<std::uint32_t>(j, "mtu");
  if (j.contains("gid")) a.gid = gid_from(j.at("gid"));
  if (j.contains("pkey")) a.pkey = number_from<std::uint16_t>(j, "pkey");
  return a;
}

nlohmann::json list_of(const std::vector<QueuePairAddress>& addresses) {
  nlohmann::json list = nlohmann::json::array();
  for (const QueuePairAddress& a : addresses) list.push_back(to_json(a));
  return list;
}

std::vector<QueuePairAddress> addresses_from(const nlohmann::json& j) {
  std::vector<QueuePairAddress> addresses;
  for (const auto& address : list_from(j, "qps")) addresses.push_back(address_from(address));
  return addresses;
}

}  // namespace

std::uint64_t number_up_to(std::uint64_t max, const nlohmann::json& j, const char* name) {
  return number_of(j.at(name), max, name);
}

std::vector<std::uint64_t> numbers_from(const nlohmann::json& j, const char* name) {
  std::vector<std::uint64_t> numbers;
  for (const auto& value : list_from(j, name)) {
    numbers.push_back(number_of(value, std::numeric_limits<std::uint64_t>::max(), name));
  }
  return numbers;
}

nlohmann::json to_json(const QueuePairAddress& a) {
  nlohmann::json j = {
      {"qpn", a.qpn.value}, {"psn", a.psn.value}, {"lid", a.lid}, {"mtu", a.mtu_bytes}};
  if (a.pkey) j["pkey"] = *a.pkey;
  if (a.gid) {
    j["gid"] = {{"bytes", a.gid->bytes}, {"type", static_cast<std::uint8_t>(a.gid->type)}};
  }
  return j;
}

nlohmann::json to_json(const RowSetup& s) {
  return {{"stage", s.stage}, {"submit", s.submit}, {"payload_bytes", s.payload_bytes},
          {"slots", s.slots}, {"depth", s.depth},   {"qps", list_of(s.senders)}};
}

RowSetup row_setup_from(const nlohmann::json& j) {
  RowSetup s;
  s.stage = j.at("stage").get<std::string>();
  s.submit = j.at("submit").get<std::string>();
  s.payload_bytes = number_from<std::uint64_t>(j, "payload_bytes");
  s.slots = number_from<std::uint64_t>(j, "slots");
  s.depth = number_from<std::uint32_t>(j, "depth");
  s.senders = addresses_from(j);
  return s;
}

nlohmann::json to_json(const Destination& d) {
  return {{"address", d.address}, {"rkey", d.rkey.value}, {"qps", list_of(d.receivers)}};
}

Destination destination_from(const nlohmann::json& j) {
  Destination d;
  d.address = number_from<std::uint64_t>(j, "address");
  d.rkey = Rkey(number_from<std::uint32_t>(j, "rkey"));
  d.receivers = addresses_from(j);
  return d;
}

nlohmann::json to_json(const SegmentPlan& p) {
  return {{"seed", p.seed},
          {"producers", p.producers},
          {"first_sequence", p.first_sequence},
          {"puts_per_producer", p.puts_per_producer},
          {"payload_bytes", p.payload_bytes},
          {"first_timed_sequence", p.first_timed_sequence}};
}

SegmentPlan segment_plan_from(const nlohmann::json& j) {
  SegmentPlan p;
  p.seed = number_from<std::uint64_t>(j, "seed");
  p.producers = number_from<std::uint32_t>(j, "producers");
  p.first_sequence = number_from<std::uint64_t>(j, "first_sequence");
  p.puts_per_producer = number_from<std::uint64_t>(j, "puts_per_producer");
  p.payload_bytes = number_from<std::uint64_t>(j, "payload_bytes");
  p.first_timed_sequence = number_from<std::uint64_t>(j, "first_timed_sequence");
  return p;
}

nlohmann::json to_json(const Verdict& v) {
  nlohmann::json j = {{"checked", v.checked}, {"mismatches", v.mismatches}};
  if (!v.first) return j;
  const Mismatch& m = *v.first;
  j["first"] = {{"kind", static_cast<std::uint8_t>(m.kind)},
                {"producer", m.producer},
                {"sequence", m.sequence},
                {"put_index", m.put_index},
                {"warm_up", m.warm_up},
                {"byte_offset", m.byte_offset},
                {"leading_guard", m.leading_guard},
                {"expected", m.expected},
                {"found", m.found},
                {"wrong_bytes", m.wrong_bytes},
                {"other_producer", m.other_producer},
                {"other_sequence", m.other_sequence}};
  return j;
}

Verdict verdict_from(const nlohmann::json& j) {
  Verdict v;
  v.checked = number_from<std::uint64_t>(j, "checked");
  v.mismatches = number_from<std::uint64_t>(j, "mismatches");
  if (!j.contains("first")) return v;
  const nlohmann::json& f = j.at("first");
  Mismatch m;
  m.kind = static_cast<Wrong>(number_up_to(static_cast<std::uint64_t>(Wrong::kGuard), f, "kind"));
  m.producer = number_from<std::uint32_t>(f, "producer");
  m.sequence = number_from<std::uint64_t>(f, "sequence");
  m.put_index = number_from<std::uint64_t>(f, "put_index");
  m.warm_up = f.at("warm_up").get<bool>();
  m.byte_offset = number_from<std::uint64_t>(f, "byte_offset");
  m.leading_guard = f.at("leading_guard").get<bool>();
  m.expected = number_from<std::uint8_t>(f, "expected");
  m.found = number_from<std::uint8_t>(f, "found");
  m.wrong_bytes = number_from<std::uint64_t>(f, "wrong_bytes");
  m.other_producer = number_from<std::uint32_t>(f, "other_producer");
  m.other_sequence = number_from<std::uint64_t>(f, "other_sequence");
  v.first = m;
  return v;
}

}  // namespace peal::ladder
