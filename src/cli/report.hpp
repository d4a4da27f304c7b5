// What a run prints: progress on a terminal, a table of rows, JSON lines, the verdict.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ladder/outcome.hpp"
#include "ladder/row.hpp"
#include "ladder/runner.hpp"
#include "ladder/table.hpp"

namespace peal::cli {

enum class Format : std::uint8_t { kText, kMarkdown };

class Report {
 public:
  // `json_path`: a file that rows are appended to; "-" for the standard output, which then carries
  // nothing else; empty for none. Throws std::system_error.
  Report(std::string command, const std::string& json_path, Format format = Format::kText);
  ~Report();
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  // `counters`: tells those of each QP, too.
  ladder::RunEvents events(bool counters = false);
  // Prints the rest of the table, what went wrong to the standard error, and returns the exit
  // status.
  int finish(const ladder::Outcome& outcome);

  void say(const std::string& line);
  void complain(const std::string& line);

 private:
  void take_row(const ladder::Row& row);
  void print_lines(bool all);
  void print_verdict() const;
  void show_progress(const std::string& what);
  void clear_progress();

  std::string command_;
  bool json_to_stdout_ = false;
  bool terminal_ = false;
  std::string progress_;  // on the terminal now
  Format format_;
  std::vector<ladder::Row> rows_;
  std::size_t lines_printed_ = 0;
  std::optional<ladder::RowWriter> writer_;
};

}  // namespace peal::cli
