#include "ladder/row.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace peal::ladder {
namespace {

constexpr const char* kKeys =
    "schema kind provider engine link handler handler_requested handler_why stage submit "
    "doorbell publish exec sharing completion fence_scope memory doorbell_memory device "
    "ib_port gid_index gid gid_type pkey_index pkey mtu traffic_class qp_timeout retry "
    "producers qps window "
    "window_effective batch batch_effective depth payload_bytes total_bytes region_bytes "
    "segments puts chunks noops wqes doorbells cqes retransmitted seconds gbps gbps_min gbps_max "
    "mpps "
    "latency_ns_p50 latency_ns_p99 latency_ns_max copy_ceiling_gbps validated mismatches "
    "clock seed deadline_s faults order dbsrc rules cpu gpu driver kernel commit version "
    "started";

Row valid_row() {
  Row row;
  row.kind = "software";
  row.engine = "threads";
  row.stage = "G";
  row.puts = 1000;
  row.seconds = 0.125;
  row.gbps = 8.0;
  row.seed = std::numeric_limits<std::uint64_t>::max();
  row.validated = true;
  row.faults = {"corrupt@3", "drop=0.5"};
  row.gpu = "H200";
  return row;
}

class RowFile {
 public:
  RowFile() {
    std::string pattern = ::testing::TempDir() + "peal_rows_XXXXXX";
    const int fd = ::mkstemp(pattern.data());
    if (fd < 0) throw std::runtime_error("mkstemp");
    ::close(fd);
    path_ = pattern;
  }
  ~RowFile() { std::filesystem::remove(path_); }
  RowFile(const RowFile&) = delete;
  RowFile& operator=(const RowFile&) = delete;

  const std::string& path() const { return path_; }
  std::vector<std::string> lines() const {
    std::ifstream in(path_);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }

 private:
  std::string path_;
};

// The text of a valid row after `edit` changed its JSON.
template <class Edit>
std::string edited_row(Edit edit) {
  auto document = nlohmann::ordered_json::parse(to_json_line(valid_row()));
  edit(document);
  return document.dump();
}

TEST(Row, HasExactlyTheSchemasKeysInOrder) {
  const auto document = nlohmann::ordered_json::parse(to_json_line(Row{}));
  std::istringstream keys(kKeys);
  std::string key;
  for (const auto& item : document.items()) {
    ASSERT_TRUE(keys >> key) << item.key();
    EXPECT_EQ(item.key(), key);
  }
  EXPECT_FALSE(keys >> key) << key;
  EXPECT_EQ(document["schema"], "peal.row.1");
}

TEST(Row, IsTheSameAfterItWasWrittenAndRead) {
  const Row row = valid_row();
  const std::string line = to_json_line(row);
  const Row read = parse_row(line);
  EXPECT_EQ(to_json_line(read), line);
  EXPECT_EQ(read.seed, row.seed);
  EXPECT_EQ(read.seconds, row.seconds);
  EXPECT_EQ(read.faults, row.faults);
  EXPECT_EQ(read.gpu, row.gpu);
  EXPECT_FALSE(read.driver);
  EXPECT_FALSE(read.mpps);
  EXPECT_TRUE(read.validated);
}

TEST(Row, WritesNullWhenANumberIsAbsentOrNotFinite) {
  Row row = valid_row();
  row.gbps = std::numeric_limits<double>::quiet_NaN();
  row.gbps_min = -std::numeric_limits<double>::infinity();
  row.gbps_max = std::numeric_limits<double>::infinity();
  const std::string line = to_json_line(row);
  const auto document = nlohmann::ordered_json::parse(line);
  for (const char* key : {"gbps", "gbps_min", "gbps_max", "mpps", "latency_ns_p50", "driver"}) {
    EXPECT_TRUE(document[key].is_null()) << key;
  }
  EXPECT_FALSE(parse_row(line).gbps);
}

TEST(Row, StaysOneLineOfValidJsonWhateverTheText) {
  Row row = valid_row();
  row.cpu = "two\nlines \"and\" a \\ and \xff\xfe";
  const std::string line = to_json_line(row);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_NO_THROW(parse_row(line));
}

TEST(Row, IsRefusedWhenAKeyIsMissingThatRowsAlwaysHad) {
  std::istringstream keys(kKeys);
  const std::set<std::string> later = {"order",   "dbsrc",         "rules",        "device",
                                       "ib_port", "gid_index",     "gid",          "gid_type",
                                       "mtu",     "traffic_class", "qp_timeout",   "retry",
                                       "pkey",    "pkey_index",    "retransmitted"};
  for (std::string key; keys >> key;) {
    const std::string without = edited_row([&](auto& document) { document.erase(key); });
    if (later.count(key) == 1) {
      EXPECT_NO_THROW(parse_row(without)) << key;
    } else {
      EXPECT_THROW(parse_row(without), std::runtime_error) << key;
    }
  }
}

TEST(Row, IsRefusedWhenAnyKeyHasAnotherType) {
  std::istringstream keys(kKeys);
  for (std::string key; keys >> key;) {
    const auto object = nlohmann::ordered_json::object();
    EXPECT_THROW(parse_row(edited_row([&](auto& document) { document[key] = object; })),
                 std::runtime_error)
        << key;
  }
  EXPECT_THROW(parse_row(edited_row([](auto& document) { document["puts"] = -1; })),
               std::runtime_error);
  EXPECT_THROW(parse_row(edited_row([](auto& document) { document["puts"] = 1.5; })),
               std::runtime_error);
  EXPECT_THROW(parse_row(edited_row([](auto& document) { document["puts"] = nullptr; })),
               std::runtime_error);
  EXPECT_THROW(parse_row(edited_row([](auto& document) { document["faults"] = {1}; })),
               std::runtime_error);
}

TEST(Row, IsRefusedWhenAValueIsNestedDeeply) {
  std::string line = to_json_line(valid_row());
  const std::string levels(200000, '[');
  const std::string value = "\"puts\":1000";
  line.replace(line.find(value), value.size(),
               "\"puts\":" + levels + std::string(levels.size(), ']'));
  try {
    parse_row(line);
    ADD_FAILURE() << "accepted";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "a row is one JSON object, and this is not");
  }
}

TEST(Row, IsRefusedWhenTheSchemaOrAKeyIsUnknown) {
  EXPECT_THROW(parse_row(edited_row([](auto& document) { document["schema"] = "peal.row.2"; })),
               std::runtime_error);
  EXPECT_THROW(parse_row(edited_row([](auto& document) { document["more"] = 1; })),
               std::runtime_error);
}

TEST(Row, IsRefusedWhenItIsNoJsonObject) {
  const std::string line = to_json_line(valid_row());
  for (const std::string& text : {std::string(), std::string("[]"), std::string("7"),
                                  line.substr(0, line.size() - 1), line + line}) {
    EXPECT_THROW(parse_row(text), std::runtime_error) << text;
  }
}

TEST(Rate, CountsInPowersOfTen) {
  const Rate r = rate(1'000'000'000, 2'000'000, 1.0).value();
  EXPECT_DOUBLE_EQ(r.gbps, 8.00);
  EXPECT_DOUBLE_EQ(r.mpps, 2.00);
  EXPECT_DOUBLE_EQ(rate(500'000'000, 1, 0.25)->gbps, 16.00);
}

TEST(Rate, IsFiniteForOneByteOnce) {
  const Rate r = rate(1, 1, 1e-9).value();
  EXPECT_DOUBLE_EQ(r.gbps, 8.0);
  EXPECT_DOUBLE_EQ(r.mpps, 1000.0);
}

TEST(Rate, IsAbsentWhenItWouldNotBeANumber) {
  EXPECT_FALSE(rate(1, 1, 0.0));
  EXPECT_FALSE(rate(0, 0, 0.0));
  EXPECT_FALSE(rate(1, 1, -1.0));
  EXPECT_FALSE(rate(1, 1, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_FALSE(rate(1, 1, std::numeric_limits<double>::infinity()));
  EXPECT_FALSE(rate(std::numeric_limits<std::uint64_t>::max(), 1, 1e-300));
}

TEST(Spread, GivesMedianMinAndMax) {
  const Spread odd = spread({5, 1, 3}).value();
  EXPECT_EQ(odd.median, 3);
  EXPECT_EQ(odd.min, 1);
  EXPECT_EQ(odd.max, 5);
  EXPECT_EQ(spread({4, 1, 2, 100})->median, 3);
  EXPECT_EQ(spread({7})->median, 7);
}

TEST(Spread, IsAbsentWithoutValuesOrWithOneThatIsNotFinite) {
  EXPECT_FALSE(spread({}));
  EXPECT_FALSE(spread({1, std::numeric_limits<double>::quiet_NaN(), 2}));
  EXPECT_FALSE(spread({std::numeric_limits<double>::infinity()}));
}

constexpr int kWriters = 8;
constexpr int kRowsPerWriter = 50;

void write_rows(const std::string& path, int writer) {
  RowWriter rows = RowWriter::create(path);
  Row row = valid_row();
  // Rows longer than a page, and of different lengths.
  row.cpu = std::string(static_cast<std::size_t>(5000 + 17 * writer), 'x');
  for (int i = 0; i < kRowsPerWriter; ++i) {
    row.seed = static_cast<std::uint64_t>(writer * kRowsPerWriter + i);
    rows.write(row);
  }
}

void expect_every_row_once(const RowFile& file) {
  std::set<std::uint64_t> seeds;
  for (const std::string& line : file.lines()) seeds.insert(parse_row(line).seed);
  EXPECT_EQ(file.lines().size(), std::size_t{kWriters * kRowsPerWriter});
  EXPECT_EQ(seeds.size(), std::size_t{kWriters * kRowsPerWriter});
}

TEST(RowWriter, KeepsLinesWholeWhenEightThreadsWrite) {
  const RowFile file;
  std::vector<std::thread> writers;
  for (int w = 0; w < kWriters; ++w) {
    writers.emplace_back([&, w] { write_rows(file.path(), w); });
  }
  for (std::thread& writer : writers) writer.join();
  expect_every_row_once(file);
}

TEST(RowWriter, KeepsLinesWholeWhenEightProcessesWrite) {
  const RowFile file;
  std::vector<pid_t> writers;
  for (int w = 0; w < kWriters; ++w) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      try {
        write_rows(file.path(), w);
      } catch (...) {
        ::_exit(1);
      }
      ::_exit(0);
    }
    writers.push_back(pid);
  }
  for (const pid_t pid : writers) {
    int status = -1;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  expect_every_row_once(file);
}

TEST(RowWriter, AppendsToWhatIsThere) {
  const RowFile file;
  RowWriter::create(file.path()).write(valid_row());
  RowWriter::create(file.path()).write(valid_row());
  EXPECT_EQ(file.lines().size(), 2u);
}

TEST(RowWriter, RefusesARowThatWasNotValidated) {
  const RowFile file;
  RowWriter rows = RowWriter::create(file.path());
  Row row = valid_row();
  row.validated = false;
  EXPECT_THROW(rows.write(row), std::logic_error);
  EXPECT_TRUE(file.lines().empty());
  row.engine = "null";
  rows.write(row);
  EXPECT_EQ(file.lines().size(), 1u);
}

TEST(RowWriter, ThrowsWhenTheFileCannotBeOpenedOrWritten) {
  EXPECT_THROW(RowWriter::create(::testing::TempDir() + "no/such/folder/rows.json"),
               std::system_error);
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full to fail a write with";
  RowWriter full = RowWriter::create("/dev/full");
  EXPECT_THROW(full.write(valid_row()), std::system_error);
}

TEST(RowWriter, KeepsItsFileWhenMoved) {
  const RowFile file;
  RowWriter first = RowWriter::create(file.path());
  RowWriter second = std::move(first);
  second.write(valid_row());
  first = std::move(second);
  first.write(valid_row());
  EXPECT_EQ(file.lines().size(), 2u);
}

TEST(MachineFacts, AreAllKnown) {
  const MachineFacts facts = machine_facts();
  EXPECT_FALSE(facts.cpu.empty());
  EXPECT_FALSE(facts.kernel.empty());
  EXPECT_FALSE(facts.version.empty());
  EXPECT_FALSE(facts.commit.empty());
  ASSERT_EQ(facts.started.size(), std::string("2000-01-01T00:00:00Z").size());
  EXPECT_EQ(facts.started[10], 'T');
  EXPECT_EQ(facts.started.back(), 'Z');
}

}  // namespace
}  // namespace peal::ladder
