// A result row: what ran, what it moved in what time, and on which machine. One JSON object a line.
// Knows how rows are written and read, not how they come about.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace peal::ladder {

inline constexpr const char* kRowSchema = "peal.row.1";

// The members are the JSON keys, in their order. An absent optional, or a number that is not
// finite, is null in JSON.
struct Row {
  std::string schema = kRowSchema;
  std::string kind;
  std::string provider;
  std::string engine;
  std::string link;
  std::string handler;
  std::string handler_requested;
  std::string handler_why;
  std::string stage;
  std::string submit;
  std::string doorbell;
  std::string publish;
  std::string exec;
  std::string sharing;
  std::string completion;
  std::string fence_scope;
  std::string memory;
  std::string doorbell_memory;
  std::string device;
  std::uint64_t ib_port = 0;
  std::optional<std::uint64_t> gid_index;
  std::optional<std::string> gid;
  std::optional<std::string> gid_type;
  std::uint64_t pkey_index = 0;
  std::optional<std::string> pkey;
  std::uint64_t mtu = 0;
  std::uint64_t traffic_class = 0;
  std::uint64_t qp_timeout = 0;
  std::uint64_t retry = 0;
  std::uint64_t producers = 0;
  std::uint64_t qps = 0;
  std::uint64_t window = 0;
  std::uint64_t window_effective = 0;
  std::uint64_t batch = 0;
  std::uint64_t batch_effective = 0;
  std::uint64_t depth = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t total_bytes = 0;
  std::uint64_t region_bytes = 0;
  std::uint64_t segments = 0;
  std::uint64_t puts = 0;
  std::uint64_t chunks = 0;
  std::uint64_t noops = 0;
  std::uint64_t wqes = 0;
  std::uint64_t doorbells = 0;
  std::uint64_t cqes = 0;
  std::optional<std::uint64_t> retransmitted;  // packets of the sender; null: it does not tell
  std::optional<double> seconds;
  std::optional<double> gbps;
  std::optional<double> gbps_min;
  std::optional<double> gbps_max;
  std::optional<double> mpps;
  std::optional<double> latency_ns_p50;
  std::optional<double> latency_ns_p99;
  std::optional<double> latency_ns_max;
  std::optional<double> copy_ceiling_gbps;
  bool validated = false;
  std::uint64_t mismatches = 0;
  std::string clock;
  std::uint64_t seed = 0;
  std::optional<double> deadline_s;
  std::vector<std::string> faults;
  std::string order;
  std::string dbsrc;
  std::vector<std::string> rules;  // that were not at their default
  std::string cpu;
  std::optional<std::string> gpu;
  std::optional<std::string> driver;
  std::string kernel;
  std::string commit;
  std::string version;
  std::string started;
};

// One line, without its end. Text that is not UTF-8 is replaced, so that every row can be written.
std::string to_json_line(const Row& row);

// Throws std::runtime_error for anything but a row of kRowSchema: not JSON, a key missing, unknown
// or of another type.
Row parse_row(std::string_view line);

struct Rate {
  double gbps;  // 10^9 bits per second
  double mpps;  // 10^6 PUTs per second
};

// Nothing when no time passed, or so little that the rate is not a finite number.
std::optional<Rate> rate(std::uint64_t bytes_moved, std::uint64_t puts, double seconds);

struct Spread {
  double median;  // of an even number of values, the mean of the middle two
  double min;
  double max;
};

// Nothing without values, or if one of them is not a finite number.
std::optional<Spread> spread(std::vector<double> values);

// Appends rows to a file that others may append to at the same time: a line is one write(2) with
// O_APPEND, so lines never interleave. May block as long as the file system does.
class RowWriter {
 public:
  // Creates the file if there is none. Throws std::system_error.
  static RowWriter create(const std::string& path);

  RowWriter(RowWriter&& other) noexcept;
  RowWriter& operator=(RowWriter&& other) noexcept;
  ~RowWriter();

  // Throws std::system_error if the line could not be written in whole, and std::logic_error for a
  // row that was not validated: only the engine "null", which moves nothing, may write one.
  void write(const Row& row);

 private:
  RowWriter(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  int fd_;
  std::string path_;
};

// What every row of a process says of the machine and the build.
struct MachineFacts {
  std::string cpu;
  std::string kernel;
  std::string started;  // now, ISO 8601, UTC
  std::string version;
  std::string commit;
};

MachineFacts machine_facts();

}  // namespace peal::ladder
