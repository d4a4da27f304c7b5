// Result rows, and the table made from them. Input: rows as JSON, one a line.
#include <stdexcept>
#include <string>
#include <vector>

#include "fuzz/fuzz.hpp"
#include "ladder/row.hpp"
#include "ladder/table.hpp"

namespace peal::ladder {
namespace {

using test::require;

void check_row(std::string_view text, std::vector<Row>* rows) {
  Row row;
  try {
    row = parse_row(text);
  } catch (const std::runtime_error& e) {
    require(!std::string_view(e.what()).empty(), "a refusal says why");
    return;
  }
  const std::string line = to_json_line(row);
  require(line.find('\n') == std::string::npos, "a row is one line");
  require(to_json_line(parse_row(line)) == line, "a row that is written reads as the same row");
  rows->push_back(row);
}

void check_table(const std::vector<Row>& rows) {
  const std::vector<TableLine> lines = table_lines(rows);
  require(lines.empty() == rows.empty() && lines.size() <= rows.size(),
          "a line of the table is of one row at least");
  std::size_t moved = 0;
  std::size_t moved_rows = 0;
  for (const Row& row : rows) moved_rows += row.mpps.has_value() ? 1 : 0;
  for (const TableLine& line : lines) {
    require(line.cells.size() == lines.front().cells.size(), "all lines have as many cells");
    for (std::size_t i = 0; i < line.cells.size(); ++i) {
      const TableCell& cell = line.cells[i];
      require(cell.submit == lines.front().cells[i].submit, "a column is of one submit");
      require(!cell.gain || cell.mpps, "only what moved has a gain");
      moved += cell.mpps.has_value() ? 1 : 0;
    }
    require(!text_heading(line).empty(), "a heading says something");
    require(line.validated != text_line(line).ends_with("NOT VALID: nothing was moved"),
            "a line says when it is not valid, and only then");
  }
  require(moved == moved_rows, "each row's rate is in the table once");
  const std::string table = markdown_table(lines);
  require(table.empty() == lines.empty(), "a table of lines is not empty");
  require(table.empty() || table.back() == '\n', "each line of a table is ended");
}

}  // namespace
}  // namespace peal::ladder

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  std::vector<peal::ladder::Row> rows;
  peal::test::for_each_line(peal::test::text_of(data, bytes), [&rows](std::string_view line) {
    peal::ladder::check_row(line, &rows);
  });
  peal::ladder::check_table(rows);
  return 0;
}
