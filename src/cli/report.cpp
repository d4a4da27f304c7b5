#include "cli/report.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace peal::cli {
Report::Report(std::string command, const std::string& json_path, Format format)
    : command_(std::move(command)), terminal_(isatty(STDERR_FILENO) == 1), format_(format) {
  if (json_path == "-") {
    json_to_stdout_ = true;
  } else if (!json_path.empty()) {
    writer_ = ladder::RowWriter::create(json_path);
  }
}

Report::~Report() {
  clear_progress();
}

ladder::RunEvents Report::events(bool counters) {
  ladder::RunEvents events;
  events.row = [this](const ladder::Row& row) { take_row(row); };
  events.warn = [this](const std::string& sentence) { complain("warning: " + sentence); };
  events.note = [this](const std::string& line) { complain(line); };
  if (counters) events.counters = events.note;
  events.progress = [this](const std::string& what) { show_progress(what); };
  return events;
}

void Report::take_row(const ladder::Row& row) {
  clear_progress();
  if (writer_) writer_->write(row);
  if (json_to_stdout_) {
    fmt::print("{}\n", ladder::to_json_line(row));
    std::fflush(stdout);
    return;
  }
  rows_.push_back(row);
  if (format_ == Format::kText) print_lines(false);
}

// The newest line may still lack a submit; `all` prints it too.
void Report::print_lines(bool all) {
  const std::vector<ladder::TableLine> lines = ladder::table_lines(rows_);
  const std::size_t complete = all || lines.empty() ? lines.size() : lines.size() - 1;
  if (lines_printed_ == 0 && complete > 0) {
    const ladder::Row& row = rows_.front();
    fmt::print("bytes moved by: {} ({} engine, {} link, {} handler); not a hardware result\n",
               row.kind, row.engine, row.link, row.handler);
    fmt::print("{}\n", ladder::text_heading(lines.front()));
  }
  for (; lines_printed_ < complete; ++lines_printed_) {
    fmt::print("{}\n", ladder::text_line(lines[lines_printed_]));
  }
  std::fflush(stdout);
}

void Report::print_verdict() const {
  std::uint64_t puts = 0;
  bool validated = true;
  for (const ladder::Row& row : rows_) {
    puts += row.puts;
    validated &= row.validated;
  }
  if (validated) fmt::print("all {} payloads of the timed traffic validated\n", puts);
}

int Report::finish(const ladder::Outcome& outcome) {
  clear_progress();
  if (format_ == Format::kMarkdown) {
    fmt::print("{}", ladder::markdown_table(ladder::table_lines(rows_)));
  } else if (!rows_.empty()) {
    print_lines(true);
    if (outcome.good()) print_verdict();
  }
  std::fflush(stdout);
  for (const std::string& s : outcome.sentences()) complain(s);
  for (const std::string& s : outcome.details()) complain(s);
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
