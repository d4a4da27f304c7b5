#include "ladder/messages.hpp"

namespace peal::ladder {
namespace {

QueuePairAddress address_from(const nlohmann::json& j) {
  QueuePairAddress a;
  a.qpn = Qpn(j.at("qpn").get<std::uint32_t>());
  a.psn = Psn(j.at("psn").get<std::uint32_t>());
  a.lid = j.at("lid").get<std::uint16_t>();
  a.mtu_bytes = j.at("mtu").get<std::uint32_t>();
  return a;
}

nlohmann::json list_of(const std::vector<QueuePairAddress>& addresses) {
  nlohmann::json list = nlohmann::json::array();
  for (const QueuePairAddress& a : addresses) list.push_back(to_json(a));
  return list;
}

std::vector<QueuePairAddress> addresses_from(const nlohmann::json& list) {
  std::vector<QueuePairAddress> addresses;
  for (const auto& j : list) addresses.push_back(address_from(j));
  return addresses;
}

}  // namespace

nlohmann::json to_json(const QueuePairAddress& a) {
  return {{"qpn", a.qpn.value}, {"psn", a.psn.value}, {"lid", a.lid}, {"mtu", a.mtu_bytes}};
}

nlohmann::json to_json(const RowSetup& s) {
  return {{"stage", s.stage}, {"submit", s.submit}, {"payload_bytes", s.payload_bytes},
          {"slots", s.slots}, {"depth", s.depth},   {"qps", list_of(s.senders)}};
}

RowSetup row_setup_from(const nlohmann::json& j) {
  RowSetup s;
  s.stage = j.at("stage").get<std::string>();
  s.submit = j.at("submit").get<std::string>();
  s.payload_bytes = j.at("payload_bytes").get<std::uint64_t>();
  s.slots = j.at("slots").get<std::uint64_t>();
  s.depth = j.at("depth").get<std::uint32_t>();
  s.senders = addresses_from(j.at("qps"));
  return s;
}

nlohmann::json to_json(const Destination& d) {
  return {{"address", d.address}, {"rkey", d.rkey.value}, {"qps", list_of(d.receivers)}};
}

Destination destination_from(const nlohmann::json& j) {
  Destination d;
  d.address = j.at("address").get<std::uint64_t>();
  d.rkey = Rkey(j.at("rkey").get<std::uint32_t>());
  d.receivers = addresses_from(j.at("qps"));
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
  p.seed = j.at("seed").get<std::uint64_t>();
  p.producers = j.at("producers").get<std::uint32_t>();
  p.first_sequence = j.at("first_sequence").get<std::uint64_t>();
  p.puts_per_producer = j.at("puts_per_producer").get<std::uint64_t>();
  p.payload_bytes = j.at("payload_bytes").get<std::uint64_t>();
  p.first_timed_sequence = j.at("first_timed_sequence").get<std::uint64_t>();
  return p;
}

nlohmann::json to_json(const Verdict& v) {
  nlohmann::json j = {{"checked", v.checked}, {"mismatches", v.mismatches}};
  if (!v.first) return j;
  const Mismatch& m = *v.first;
  j["first"] = {{"kind", static_cast<int>(m.kind)},
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
  v.checked = j.at("checked").get<std::uint64_t>();
  v.mismatches = j.at("mismatches").get<std::uint64_t>();
  if (!j.contains("first")) return v;
  const nlohmann::json& f = j.at("first");
  Mismatch m;
  m.kind = static_cast<Wrong>(f.at("kind").get<int>());
  m.producer = f.at("producer").get<std::uint32_t>();
  m.sequence = f.at("sequence").get<std::uint64_t>();
  m.put_index = f.at("put_index").get<std::uint64_t>();
  m.warm_up = f.at("warm_up").get<bool>();
  m.byte_offset = f.at("byte_offset").get<std::uint64_t>();
  m.leading_guard = f.at("leading_guard").get<bool>();
  m.expected = f.at("expected").get<std::uint8_t>();
  m.found = f.at("found").get<std::uint8_t>();
  m.wrong_bytes = f.at("wrong_bytes").get<std::uint64_t>();
  m.other_producer = f.at("other_producer").get<std::uint32_t>();
  m.other_sequence = f.at("other_sequence").get<std::uint64_t>();
  v.first = m;
  return v;
}

}  // namespace peal::ladder
