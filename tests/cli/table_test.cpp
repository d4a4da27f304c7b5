// The table that the command prints, against the rows that it wrote.
#include "ladder/table.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "cli/peal.hpp"

namespace peal::test {
namespace {

std::vector<ladder::Row> rows_in(const std::string& path) {
  std::vector<ladder::Row> rows;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) rows.push_back(ladder::parse_row(line));
  return rows;
}

TEST(CommandTable, RunsAllStagesWithBothSubmitsAtThreeSizes) {
  const RowFile file;
  const std::uint64_t iters = scaled(20);
  const Ended e = run_peal(words("ladder --repeat 1 --iters " + std::to_string(iters) + " --json") +
                           Arguments{file.path()});
  EXPECT_EQ(e.status, 0) << e.err;
  const auto rows = rows_in(file.path());
  ASSERT_EQ(rows.size(), 5u * 3 * 2);
  std::size_t i = 0;
  for (const std::uint64_t bytes : {4096u, 65536u, 1048576u}) {
    for (const std::string stage : {"serial", "window", "batch", "shared", "independent"}) {
      for (const std::string submit : {"original", "peal"}) {
        EXPECT_EQ(rows[i].payload_bytes, bytes);
        EXPECT_EQ(rows[i].stage, stage);
        EXPECT_EQ(rows[i].submit, submit);
        ++i;
      }
    }
  }
  const auto table = ladder::table_lines(rows);
  std::string text = ladder::text_heading(table[0]) + "\n";
  for (const auto& line : table) text += ladder::text_line(line) + "\n";
  EXPECT_TRUE(contains(e.out, text)) << e.out;
  // Three stages of one producer and two of four.
  EXPECT_TRUE(contains(e.out, "all " + std::to_string(iters * (3 + 8) * 3 * 2) + " payloads"))
      << e.out;
}

TEST(CommandTable, IsMarkdownWhenAskedFor) {
  const RowFile file;
  const Ended e =
      run_peal(words("ladder --size 8,4096 --iters 20 --repeat 1 --format markdown --json") +
               Arguments{file.path()});
  EXPECT_EQ(e.status, 0) << e.err;
  EXPECT_EQ(e.out, ladder::markdown_table(ladder::table_lines(rows_in(file.path()))));
  EXPECT_EQ(run_peal("ladder --format html").status, 2);
}

TEST(CommandTable, KeepsTheLinesBeforeAFailureAndCallsNothingValidated) {
  const Ended e = run_peal(
      "ladder --stages serial --size 64,1M --iters 9 --repeat 1 --region 40K --submit peal");
  EXPECT_EQ(e.status, 2);
  EXPECT_EQ(lines(e.out), 3u) << e.out;
  EXPECT_TRUE(contains(e.out, "       64  serial ")) << e.out;
  EXPECT_FALSE(contains(e.out, "validated")) << e.out;
  EXPECT_TRUE(contains(e.err, "--region 40960 holds no slot")) << e.err;
}

}  // namespace
}  // namespace peal::test
