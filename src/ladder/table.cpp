#include "ladder/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "ladder/stage.hpp"

namespace peal::ladder {
namespace {

// Below this a rate in PUTs says more than one in bits.
constexpr std::uint64_t kSmallBytes = 512;
constexpr std::string_view kNotValid = "NOT VALID: nothing was moved";

std::string change_of(const std::string& stage) {
  const auto* found = std::find_if(std::begin(kStages), std::end(kStages),
                                   [&stage](const Stage& s) { return s.name == stage; });
  return found == std::end(kStages) ? "" : std::string(found->change);
}

std::string rate_text(const TableLine& line, const TableCell& cell) {
  if (cell.gbps && line.bytes >= kSmallBytes) return four_digits(*cell.gbps) + " Gbps";
  if (cell.mpps) return four_digits(*cell.mpps) + " Mpps";
  return "-";
}

std::string gain_text(const TableCell& cell) {
  if (!cell.gain) return "-";
  const double percent = *cell.gain * 100;
  return percent < 100 ? fmt::format("{:+.1f} %", percent) : fmt::format("{:+.0f} %", percent);
}

std::string or_dash(const std::string& text) {
  return text.empty() ? "-" : text;
}

const TableCell* cell_of(const TableLine& line, const std::string& submit) {
  for (const TableCell& c : line.cells) {
    if (c.submit == submit) return &c;
  }
  return nullptr;
}

std::optional<double> gain_over(const TableCell* above, const TableCell& cell) {
  if (above == nullptr || !above->mpps || !cell.mpps || *above->mpps <= 0) return std::nullopt;
  return *cell.mpps / *above->mpps - 1;
}

// A cell in every line for every submit, so that no column holds what belongs under another: the
// last line of a run that failed lacks one.
void fill_columns(std::vector<TableLine>* lines) {
  TableLine columns;
  for (const TableLine& line : *lines) {
    for (const TableCell& c : line.cells) {
      if (cell_of(columns, c.submit) == nullptr) columns.cells.push_back({c.submit, {}, {}, {}});
    }
  }
  for (TableLine& line : *lines) {
    std::vector<TableCell> cells = columns.cells;
    for (TableCell& c : cells) {
      if (const TableCell* own = cell_of(line, c.submit)) c = *own;
    }
    line.cells = std::move(cells);
  }
}

}  // namespace

std::string four_digits(double value) {
  return value < 1e4 ? fmt::format("{:.4g}", value) : fmt::format("{:.0f}", value);
}

std::vector<TableLine> table_lines(std::span<const Row> rows) {
  std::vector<TableLine> lines;
  for (const Row& row : rows) {
    const bool same = !lines.empty() && lines.back().bytes == row.payload_bytes &&
                      lines.back().stage == row.stage &&
                      cell_of(lines.back(), row.submit) == nullptr;
    if (!same) {
      TableLine line;
      line.bytes = row.payload_bytes;
      line.stage = row.stage;
      line.change = change_of(row.stage);
      line.moved_by = row.kind;
      line.published_gain = published_gain(row.stage, row.payload_bytes);
      lines.push_back(line);
    }
    TableLine& line = lines.back();
    TableCell cell{row.submit, row.gbps, row.mpps, {}};
    if (lines.size() > 1 && lines[lines.size() - 2].bytes == line.bytes) {
      cell.gain = gain_over(cell_of(lines[lines.size() - 2], row.submit), cell);
    }
    line.validated &= row.validated;
    line.cells.push_back(cell);
  }
  fill_columns(&lines);
  return lines;
}

std::string text_heading(const TableLine& line) {
  std::string text = fmt::format("{:>9}  {:<12}", "bytes", "stage");
  for (const TableCell& c : line.cells) {
    text += fmt::format("{:>21} {:>10}", fmt::format("{} ({})", c.submit, line.moved_by), "gain");
  }
  return text + fmt::format("{:>16}  {}", "published gain", "the one change");
}

std::string text_line(const TableLine& line) {
  std::string text = fmt::format("{:>9}  {:<12}", line.bytes, line.stage);
  for (const TableCell& c : line.cells) {
    text += fmt::format("{:>21} {:>10}", rate_text(line, c), gain_text(c));
  }
  text += fmt::format("{:>16}  {}", or_dash(line.published_gain), line.change);
  return line.validated ? text : text + fmt::format("  {}", kNotValid);
}

std::string markdown_table(std::span<const TableLine> lines) {
  if (lines.empty()) return "";
  std::string heading = "| bytes | stage | the one change |";
  std::string rule = "|---:|---|---|";
  for (const TableCell& c : lines.front().cells) {
    heading += fmt::format(" {}, moved by {} | gain |", c.submit, lines.front().moved_by);
    rule += "---:|---:|";
  }
  std::string text = heading + " published gain |\n" + rule + "---:|\n";
  for (const TableLine& line : lines) {
    text += fmt::format("| {} | {} | {} |", line.bytes, line.stage,
                        line.validated ? line.change : fmt::format("**{}**", kNotValid));
    for (const TableCell& c : line.cells) {
      text += fmt::format(" {} | {} |", rate_text(line, c), gain_text(c));
    }
    text += fmt::format(" {} |\n", or_dash(line.published_gain));
  }
  return text;
}

}  // namespace peal::ladder
