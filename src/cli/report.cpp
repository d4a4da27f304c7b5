#include "cli/report.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace peal::cli {
namespace {

// Four digits that mean something, whatever the magnitude.
std::string number_or_dash(const std::optional<double>& value) {
  return value ? fmt::format("{:.4g}", *value) : "-";
}

}  // namespace

Report::Report(std::string command, const std::string& json_path)
    : command_(std::move(command)), terminal_(isatty(STDERR_FILENO) == 1) {
  if (json_path == "-") {
    json_to_stdout_ = true;
  } else if (!json_path.empty()) {
    writer_ = ladder::RowWriter::create(json_path);
  }
}

Report::~Report() {
  clear_progress();
}

ladder::RunEvents Report::events() {
  ladder::RunEvents events;
  events.row = [this](const ladder::Row& row) { print_row(row); };
  events.warn = [this](const std::string& sentence) { complain("warning: " + sentence); };
  events.progress = [this](const std::string& what) { show_progress(what); };
  return events;
}

void Report::print_row(const ladder::Row& row) {
  clear_progress();
  if (writer_) writer_->write(row);
  if (json_to_stdout_) {
    fmt::print("{}\n", ladder::to_json_line(row));
    std::fflush(stdout);
    return;
  }
  if (!title_printed_) {
    title_printed_ = true;
    fmt::print("bytes moved by: {} ({} engine, {} link); not a hardware result\n", row.kind,
               row.engine, row.link);
    fmt::print("{:<12} {:<9} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8}  {}\n", "stage", "submit",
               "bytes", "Gbps", "min", "max", "Mpps", "PUTs", "payloads");
  }
  fmt::print("{:<12} {:<9} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8}  {}\n", row.stage, row.submit,
             row.payload_bytes, number_or_dash(row.gbps), number_or_dash(row.gbps_min),
             number_or_dash(row.gbps_max), number_or_dash(row.mpps), row.puts,
             row.validated ? "all validated" : "NOT VALID: nothing was moved");
  std::fflush(stdout);
}

int Report::finish(const ladder::Outcome& outcome) {
  clear_progress();
  for (const std::string& s : outcome.sentences()) complain(s);
  return outcome.status();
}

void Report::say(const std::string& line) {
  clear_progress();
  fmt::print("peal {}: {}\n", command_, line);
  std::fflush(stdout);
}

void Report::complain(const std::string& line) {
  clear_progress();
  fmt::print(stderr, "peal {}: {}\n", command_, line);
}

void Report::show_progress(const std::string& what) {
  if (!terminal_ || what == progress_) return;
  progress_ = what;
  fmt::print(stderr, "\r\033[K{}", progress_);
  std::fflush(stderr);
}

void Report::clear_progress() {
  if (progress_.empty()) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  progress_.clear();
}

}  // namespace peal::cli
