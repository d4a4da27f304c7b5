// What a run prints: progress on a terminal, a table of rows, JSON lines, the verdict.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ladder/outcome.hpp"
#include "ladder/row.hpp"
#include "ladder/runner.hpp"

namespace peal::cli {

class Report {
 public:
  // `json_path`: a file that rows are appended to; "-" for the standard output, which then carries
  // nothing else; empty for none. Throws std::system_error.
  Report(std::string command, const std::string& json_path);
  ~Report();
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  ladder::RunEvents events();
  // Prints what went wrong, to the standard error, and returns the exit status.
  int finish(const ladder::Outcome& outcome);

  void say(const std::string& line);
  void complain(const std::string& line);

 private:
  void print_row(const ladder::Row& row);
  void show_progress(const std::string& what);
  void clear_progress();

  std::string command_;
  bool json_to_stdout_ = false;
  bool terminal_ = false;
  std::string progress_;  // on the terminal now
  bool title_printed_ = false;
  std::optional<ladder::RowWriter> writer_;
};

}  // namespace peal::cli
