// The ladder as a table: a line for each stage at each size, the submits beside each other, the
// gain over the line above, and the gain that was published for this stage where one was. Made from
// rows alone, so that recorded rows give the same table as the run did.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ladder/row.hpp"

namespace peal::ladder {

struct TableCell {
  std::string submit;
  std::optional<double> gbps;
  std::optional<double> mpps;
  std::optional<double> gain;  // over the line above, as a ratio minus 1
};

struct TableLine {
  std::uint64_t bytes = 0;
  std::string stage;
  std::string change;
  std::string moved_by;  // of the first cell's row: "software"
  bool validated = true;
  std::vector<TableCell> cells;
  std::string published_gain;  // empty where none was published
};

// Four digits that mean something, or all before the point.
std::string four_digits(double value);

// Rows in the order in which the ladder ran them: those of one size and stage make a line. Every
// line has the same submits in the same order, if with a cell of nothing.
std::vector<TableLine> table_lines(std::span<const Row> rows);

// Without an end of line. The heading names the submits of its line.
std::string text_heading(const TableLine& line);
std::string text_line(const TableLine& line);

// The whole table, every line of it ended.
std::string markdown_table(std::span<const TableLine> lines);

}  // namespace peal::ladder
