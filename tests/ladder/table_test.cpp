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

}  // namespace
}  // namespace peal::ladder
