#include "ladder/row.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

#include "ladder/shallow_json.hpp"
#include "ladder/version.hpp"

namespace peal::ladder {
namespace {

using Json = nlohmann::ordered_json;

// Rows written before there was such a key are rows all the same.
constexpr bool kMayBeAbsent = true;

// The one place that knows the keys and their order.
template <class AnyRow, class Visit>
void visit_fields(AnyRow& row, Visit visit) {
  visit("schema", row.schema);
  visit("kind", row.kind);
  visit("provider", row.provider);
  visit("engine", row.engine);
  visit("link", row.link);
  visit("handler", row.handler);
  visit("handler_requested", row.handler_requested);
  visit("handler_why", row.handler_why);
  visit("stage", row.stage);
  visit("submit", row.submit);
  visit("doorbell", row.doorbell);
  visit("publish", row.publish);
  visit("exec", row.exec);
  visit("sharing", row.sharing);
  visit("completion", row.completion);
  visit("fence_scope", row.fence_scope);
  visit("memory", row.memory);
  visit("doorbell_memory", row.doorbell_memory);
  visit("device", row.device, kMayBeAbsent);
  visit("ib_port", row.ib_port, kMayBeAbsent);
  visit("gid_index", row.gid_index, kMayBeAbsent);
  visit("gid", row.gid, kMayBeAbsent);
  visit("gid_type", row.gid_type, kMayBeAbsent);
  visit("pkey_index", row.pkey_index, kMayBeAbsent);
  visit("pkey", row.pkey, kMayBeAbsent);
  visit("mtu", row.mtu, kMayBeAbsent);
  visit("traffic_class", row.traffic_class, kMayBeAbsent);
  visit("qp_timeout", row.qp_timeout, kMayBeAbsent);
  visit("retry", row.retry, kMayBeAbsent);
  visit("producers", row.producers);
  visit("qps", row.qps);
  visit("window", row.window);
  visit("window_effective", row.window_effective);
  visit("batch", row.batch);
  visit("batch_effective", row.batch_effective);
  visit("depth", row.depth);
  visit("payload_bytes", row.payload_bytes);
  visit("total_bytes", row.total_bytes);
  visit("region_bytes", row.region_bytes);
  visit("segments", row.segments);
  visit("puts", row.puts);
  visit("chunks", row.chunks);
  visit("noops", row.noops);
  visit("wqes", row.wqes);
  visit("doorbells", row.doorbells);
  visit("cqes", row.cqes);
  visit("retransmitted", row.retransmitted, kMayBeAbsent);
  visit("seconds", row.seconds);
  visit("gbps", row.gbps);
  visit("gbps_min", row.gbps_min);
  visit("gbps_max", row.gbps_max);
  visit("mpps", row.mpps);
  visit("latency_ns_p50", row.latency_ns_p50);
  visit("latency_ns_p99", row.latency_ns_p99);
  visit("latency_ns_max", row.latency_ns_max);
  visit("copy_ceiling_gbps", row.copy_ceiling_gbps);
  visit("validated", row.validated);
  visit("mismatches", row.mismatches);
  visit("clock", row.clock);
  visit("seed", row.seed);
  visit("deadline_s", row.deadline_s);
  visit("faults", row.faults);
  visit("order", row.order, kMayBeAbsent);
  visit("dbsrc", row.dbsrc, kMayBeAbsent);
  visit("rules", row.rules, kMayBeAbsent);
  visit("cpu", row.cpu);
  visit("gpu", row.gpu);
  visit("driver", row.driver);
  visit("kernel", row.kernel);
  visit("commit", row.commit);
  visit("version", row.version);
  visit("started", row.started);
}

template <class T>
Json to_json_value(const T& value) {
  return value;
}

template <class T>
Json to_json_value(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json to_json_value(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

// Each answers whether `json` is of the type of `value`, which then holds it.
bool read(const Json& json, std::string& value) {
  if (!json.is_string()) return false;
  value = json.get<std::string>();
  return true;
}

bool read(const Json& json, std::uint64_t& value) {
  if (!json.is_number_unsigned()) return false;
  value = json.get<std::uint64_t>();
  return true;
}

bool read(const Json& json, double& value) {
  if (!json.is_number()) return false;
  value = json.get<double>();
  return true;
}

bool read(const Json& json, bool& value) {
  if (!json.is_boolean()) return false;
  value = json.get<bool>();
  return true;
}

bool read(const Json& json, std::vector<std::string>& values) {
  if (!json.is_array()) return false;
  for (const Json& element : json) {
    if (!read(element, values.emplace_back())) return false;
  }
  return true;
}

template <class T>
bool read(const Json& json, std::optional<T>& value) {
  if (json.is_null()) {
    value.reset();
    return true;
  }
  return read(json, value.emplace());
}

// Not what an array or object holds: printing one takes stack for each level of it.
std::string shown(const Json& json) {
  if (json.is_structured()) return fmt::format("an {}", json.type_name());
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::system_error system_failure(const std::string& operation) {
  return {errno, std::generic_category(), operation};
}

std::string cpu_model() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const std::size_t value = line.find(": ");
    if (line.starts_with("model name") && value != std::string::npos) return line.substr(value + 2);
  }
  return {};
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[sizeof "2000-01-01T00:00:00Z"];
  const std::size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text, length};
}

}  // namespace

std::string to_json_line(const Row& row) {
  Json json = Json::object();
  visit_fields(row, [&](const char* key, const auto& value, bool = false) {
    json[key] = to_json_value(value);
  });
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Row parse_row(std::string_view line) {
  const Json json = parse_shallow_json<Json>(line);
  if (!json.is_object()) throw std::runtime_error("a row is one JSON object, and this is not");
  Row row;
  std::size_t keys = 0;
  visit_fields(row, [&](const char* key, auto& value, bool may_be_absent = false) {
    const auto found = json.find(key);
    if (found == json.end() && may_be_absent) return;
    if (found == json.end()) throw std::runtime_error(fmt::format("a row needs '{}'", key));
    if (!read(*found, value)) {
      throw std::runtime_error(fmt::format("a row's '{}' cannot be {}", key, shown(*found)));
    }
    // First of all keys: another schema has other keys.
    if (row.schema != kRowSchema) {
      throw std::runtime_error(
          fmt::format("rows of schema '{}' are unknown, only {}", row.schema, kRowSchema));
    }
    ++keys;
  });
  if (json.size() != keys) {
    throw std::runtime_error(fmt::format("a row has {} keys, and this one {}", keys, json.size()));
  }
  return row;
}

std::optional<Rate> rate(std::uint64_t bytes_moved, std::uint64_t puts, double seconds) {
  if (!(seconds > 0) || !std::isfinite(seconds)) return std::nullopt;
  const Rate r{.gbps = static_cast<double>(bytes_moved) * 8 / seconds / 1e9,
               .mpps = static_cast<double>(puts) / seconds / 1e6};
  if (!std::isfinite(r.gbps) || !std::isfinite(r.mpps)) return std::nullopt;
  return r;
}

std::optional<Spread> spread(std::vector<double> values) {
  const auto finite = [](double v) { return std::isfinite(v); };
  if (values.empty() || !std::all_of(values.begin(), values.end(), finite)) return std::nullopt;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  const double below = values[values.size() % 2 == 0 ? middle - 1 : middle];
  return Spread{
      .median = below + (values[middle] - below) / 2, .min = values.front(), .max = values.back()};
}

RowWriter RowWriter::create(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) throw system_failure("cannot open '" + path + "' for rows");
  return {fd, path};
}

RowWriter::RowWriter(RowWriter&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

RowWriter& RowWriter::operator=(RowWriter&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

RowWriter::~RowWriter() {
  if (fd_ >= 0) ::close(fd_);
}

void RowWriter::write(const Row& row) {
  if (!row.validated && row.engine != "null") {
    throw std::logic_error("a row that was not validated must not be written");
  }
  const std::string line = to_json_line(row) + '\n';
  ssize_t written = -1;
  do {
    written = ::write(fd_, line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written < 0) throw system_failure("cannot write a row to '" + path_ + "'");
  // The rest in a second write could land behind another writer's line.
  if (static_cast<std::size_t>(written) != line.size()) {
    throw std::system_error(EIO, std::generic_category(),
                            "only a part of a row was written to '" + path_ + "'");
  }
}

MachineFacts machine_facts() {
  utsname system{};
  if (::uname(&system) != 0) throw system_failure("uname");
  std::string cpu = cpu_model();
  // Some architectures name no model there.
  if (cpu.empty()) cpu = system.machine;
  return {.cpu = cpu,
          .kernel = system.release,
          .started = utc_now(),
          .version = version(),
          .commit = commit()};
}

}  // namespace peal::ladder
