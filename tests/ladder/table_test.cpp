#include "ladder/table.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "ladder/stage.hpp"

namespace peal::ladder {
namespace {

Row row_of(const std::string& stage, std::uint64_t bytes, const std::string& submit, double mpps) {
  Row r;
  r.kind = "software";
  r.stage = stage;
  r.submit = submit;
  r.payload_bytes = bytes;
  r.mpps = mpps;
  r.gbps = mpps * static_cast<double>(bytes) * 8 / 1000;
  r.validated = true;
  return r;
}

std::vector<Row> four_rows() {
  return {row_of("serial", 4096, "original", 0.5), row_of("serial", 4096, "peal", 1.0),
          row_of("window", 4096, "original", 0.75), row_of("window", 4096, "peal", 3.5)};
}

TEST(Table, SaysWhatMovedTheBytesInTheTitleOfEachColumn) {
  const auto lines = table_lines(four_rows());
  EXPECT_NE(text_heading(lines[0]).find("original (software)"), std::string::npos);
  EXPECT_NE(text_heading(lines[0]).find("peal (software)"), std::string::npos);
  const std::string markdown = markdown_table(lines);
  EXPECT_NE(
      markdown.find("| original, moved by software | gain | peal, moved by software | gain |"),
      std::string::npos);
}

TEST(Table, HasALineForEachStageAndSizeWithGainsOverTheLineAbove) {
  EXPECT_EQ(
      markdown_table(table_lines(four_rows())),
      "| bytes | stage | the one change | original, moved by software | gain | peal, moved by "
      "software | gain | published gain |\n"
      "|---:|---|---|---:|---:|---:|---:|---:|\n"
      "| 4096 | serial | the original: one WQE, ring, wait | 16.38 Gbps | - | 32.77 Gbps | - "
      "| - |\n"
      "| 4096 | window | a window of PUTs in flight, the oldest awaited first | 24.58 Gbps | "
      "+50.0 % | 114.7 Gbps | +250 % | +53.2 % |\n");
}

TEST(Table, HasNoGainOverALineOfAnotherSize) {
  const auto lines = table_lines(std::vector<Row>{row_of("independent", 4096, "peal", 2),
                                                  row_of("serial", 65536, "peal", 1),
                                                  row_of("window", 65536, "peal", 0.5)});
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_FALSE(lines[0].cells[0].gain);
  EXPECT_FALSE(lines[1].cells[0].gain);
  EXPECT_DOUBLE_EQ(lines[2].cells[0].gain.value(), -0.5);
  EXPECT_EQ(lines[0].published_gain, "+30.3 %");
}

TEST(Table, GivesSmallPayloadsAndANullNicInPuts) {
  const auto lines = table_lines(std::vector<Row>{row_of("batch", 8, "peal", 15.5)});
  EXPECT_NE(text_line(lines[0]).find("15.5 Mpps"), std::string::npos);
  Row null = row_of("batch", 4096, "peal", 2);
  null.gbps.reset();
  null.validated = false;
  const auto nothing = table_lines(std::vector<Row>{null});
  EXPECT_NE(text_line(nothing[0]).find("2 Mpps"), std::string::npos);
  EXPECT_NE(text_line(nothing[0]).find("NOT VALID: nothing was moved"), std::string::npos);
  EXPECT_EQ(markdown_table(nothing).substr(markdown_table(nothing).rfind("| 4096")),
            "| 4096 | batch | **NOT VALID: nothing was moved** | 2 Mpps | - | - |\n");
}

// The second submit of the last stage failed.
TEST(Table, KeepsEveryColumnWhenALineLacksASubmit) {
  std::vector<Row> rows = four_rows();
  rows.pop_back();
  const auto lines = table_lines(rows);
  ASSERT_EQ(lines.size(), 2u);
  ASSERT_EQ(lines[1].cells.size(), 2u);
  EXPECT_EQ(lines[1].cells[1].submit, "peal");
  EXPECT_EQ(text_line(lines[1]).size() - lines[1].change.size(),
            text_line(lines[0]).size() - lines[0].change.size());
  const std::string markdown = markdown_table(lines);
  EXPECT_EQ(markdown.substr(markdown.rfind("| 4096")),
            "| 4096 | window | a window of PUTs in flight, the oldest awaited first | 24.58 Gbps | "
            "+50.0 % | - | - | +53.2 % |\n");
}

TEST(Table, SaysGbpsFrom512BytesOn) {
  const auto lines = table_lines(
      std::vector<Row>{row_of("serial", 511, "peal", 1), row_of("serial", 512, "peal", 1)});
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(text_line(lines[0]).find("1 Mpps"), std::string::npos);
  EXPECT_NE(text_line(lines[1]).find("4.096 Gbps"), std::string::npos);
}

// Submits that differ do not make one line of two stages or of two sizes.
TEST(Table, KeepsStagesAndSizesApartWhateverTheSubmits) {
  const auto lines = table_lines(std::vector<Row>{row_of("serial", 8, "original", 1),
                                                  row_of("window", 8, "peal", 2),
                                                  row_of("window", 64, "original", 3)});
  ASSERT_EQ(lines.size(), 3u);
  for (const TableLine& line : lines) {
    for (const TableCell& c : line.cells) EXPECT_FALSE(c.gain);
  }
}

TEST(Table, IsNotValidWhenOneOfItsSubmitsIsNot) {
  for (const bool first : {true, false}) {
    std::vector<Row> rows = four_rows();
    rows[first ? 0 : 1].validated = false;
    const auto lines = table_lines(rows);
    EXPECT_FALSE(lines[0].validated);
    EXPECT_TRUE(lines[1].validated);
  }
}

TEST(Table, HasNoGainOverNothing) {
  std::vector<Row> rows = four_rows();
  rows[0].mpps = 0;
  rows[1].mpps.reset();
  const auto lines = table_lines(rows);
  ASSERT_EQ(lines.size(), 2u);
  for (const TableCell& c : lines[1].cells) EXPECT_FALSE(c.gain) << c.submit;
}

TEST(Table, HasAPublishedGainOnlyWhereOneWasPublished) {
  EXPECT_EQ(published_gain("window", 4096), "+53.2 %");
  EXPECT_EQ(published_gain("window", 65536), "+77.1 %");
  EXPECT_EQ(published_gain("window", 64), "");
  EXPECT_EQ(published_gain("batch", 4096), "");
}

TEST(Table, KeepsRepeatedRowsApart) {
  const auto lines =
      table_lines(std::vector<Row>{row_of("serial", 8, "peal", 1), row_of("serial", 8, "peal", 2)});
  EXPECT_EQ(lines.size(), 2u);
}

TEST(Table, OfNoRowsIsEmpty) {
  EXPECT_TRUE(table_lines({}).empty());
  EXPECT_EQ(markdown_table({}), "");
}

TEST(Table, StandsInTheDocumentsAsTheRecordedRowsGiveIt) {
  const std::string root = PEAL_SOURCE_DIR;
  const auto text_of = [&root](const std::string& name) {
    std::ifstream file(root + name);
    EXPECT_TRUE(file) << name;
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  };
  std::istringstream file(text_of("/results/software.jsonl"));
  std::vector<Row> rows;
  for (std::string line; std::getline(file, line);) rows.push_back(parse_row(line));
  // Every stage at every size with both submits, all validated.
  EXPECT_EQ(rows.size(), std::size(kStages) * 3 * 2);
  for (const Row& row : rows) {
    EXPECT_TRUE(row.validated);
    EXPECT_EQ(row.kind, "software");
  }
  const std::string table = markdown_table(table_lines(rows));
  EXPECT_NE(text_of("/README.md").find(table), std::string::npos)
      << "README.md must hold this table:\n"
      << table;
  // A line of docs/STAGES.md for each stage, with the change in the table's words.
  const std::string stages = text_of("/docs/STAGES.md");
  for (const Stage& stage : kStages) {
    EXPECT_NE(stages.find("| " + std::string(stage.name) + " | " + std::string(stage.change)),
              std::string::npos)
        << stage.name;
  }
  for (const PublishedGain& gain : kPublishedGains) {
    EXPECT_NE(stages.find(gain.gain), std::string::npos) << gain.gain;
  }
}

}  // namespace
}  // namespace peal::ladder
