// The documents that quote the software NIC, against what it says of itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "nic/refusal.hpp"
#include "sim/plants.hpp"

namespace peal::nic {
namespace {

namespace fs = std::filesystem;
using Cells = std::vector<std::string>;

std::string read_file(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string document(const std::string& name) {
  return read_file(fs::path(PEAL_SOURCE_DIR) / "docs" / name);
}

std::string_view trimmed(std::string_view text) {
  const std::size_t from = text.find_first_not_of(' ');
  if (from == std::string_view::npos) return {};
  return text.substr(from, text.find_last_not_of(' ') - from + 1);
}

// A row of a Markdown table. A bar between backticks ends a cell too; none is there.
Cells cells_of(std::string_view line) {
  Cells cells;
  for (std::size_t from = 1; from < line.size();) {
    const std::size_t to = std::min(line.find('|', from), line.size());
    cells.emplace_back(trimmed(line.substr(from, to - from)));
    from = to + 1;
  }
  return cells;
}

struct Table {
  Cells heading;
  std::vector<Cells> rows;

  // The place of a column, or the number of columns.
  std::size_t column(std::string_view name) const {
    return static_cast<std::size_t>(std::find(heading.begin(), heading.end(), name) -
                                    heading.begin());
  }
};

// Every row has as many cells as its heading, or the test fails.
std::vector<Table> tables_of(const std::string& text) {
  std::vector<Table> tables;
  std::istringstream lines(text);
  bool in_table = false;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with('|')) {
      in_table = false;
    } else if (!in_table) {
      tables.push_back({cells_of(line), {}});
      in_table = true;
    } else if (!line.starts_with("|-")) {
      tables.back().rows.push_back(cells_of(line));
      EXPECT_EQ(tables.back().rows.back().size(), tables.back().heading.size()) << line;
    }
  }
  return tables;
}

// What stands between backticks.
std::vector<std::string> quoted_in(std::string_view text) {
  std::vector<std::string> spans;
  for (std::size_t from = text.find('`'); from != std::string_view::npos;) {
    const std::size_t to = text.find('`', from + 1);
    if (to == std::string_view::npos) {
      ADD_FAILURE() << "a backtick without its partner: " << text;
      break;
    }
    spans.emplace_back(text.substr(from + 1, to - from - 1));
    from = text.find('`', to + 1);
  }
  return spans;
}

// All string literals as the compiler joins them, and the code between them.
std::string sources() {
  std::vector<fs::path> paths;
  for (const char* folder : {"src", "include"}) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(PEAL_SOURCE_DIR) / folder)) {
      const auto extension = entry.path().extension();
      if (extension == ".hpp" || extension == ".cpp" || extension == ".cu")
        paths.push_back(entry.path());
    }
  }
  std::string joined;
  for (const fs::path& path : paths) {
    const std::string text = read_file(path);
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '"') {
        std::size_t next = i + 1;
        while (next < text.size() && std::isspace(static_cast<unsigned char>(text[next]))) ++next;
        // Only across lines: "" and " " are literals of their own.
        const bool across = text.substr(i, next - i).find('\n') != std::string::npos;
        if (across && next < text.size() && text[next] == '"') {
          i = next;
          continue;
        }
      }
      joined += text[i];
    }
  }
  return joined;
}

// Whether the parts of `sentence`, in which … stands for a value, follow each other closely.
bool is_said(const std::string& source, const std::string& sentence) {
  constexpr std::string_view kValue = "…";
  constexpr std::size_t kCodeOfAValue = 120;
  std::vector<std::string> parts;
  for (std::size_t from = 0; from <= sentence.size();) {
    const std::size_t to = std::min(sentence.find(kValue, from), sentence.size());
    if (to > from) parts.push_back(sentence.substr(from, to - from));
    from = to + kValue.size();
  }
  if (parts.empty()) return false;
  for (std::size_t at = source.find(parts[0]); at != std::string::npos;
       at = source.find(parts[0], at + 1)) {
    std::size_t end = at + parts[0].size();
    const bool all = std::all_of(parts.begin() + 1, parts.end(), [&](const std::string& part) {
      const std::size_t next = source.find(part, end);
      if (next == std::string::npos || next - end > kCodeOfAValue) return false;
      end = next + part.size();
      return true;
    });
    if (all) return true;
  }
  return false;
}

struct LedgerRow {
  std::string rule, level, waivable;
  bool operator==(const LedgerRow&) const = default;
};
void PrintTo(const LedgerRow& r, std::ostream* os) {
  *os << r.rule << ", " << r.level << ", " << r.waivable;
}

const char* word_of(Strictness level) {
  switch (level) {
    case Strictness::kOff: return "not modelled";
    case Strictness::kWarn: return "warned";
    case Strictness::kRefuse: return "enforced";
  }
  return "";
}

TEST(FidelityDocument, HasARowForEachRuleWithItsLevelAndWhetherItCanBeWaived) {
  std::vector<LedgerRow> expected;
  const Rules rules = default_rules();
  for (std::size_t i = 1; i < kRefusals; ++i) {
    const auto r = static_cast<Refusal>(i);
    expected.push_back({refusal_name(r), word_of(rules[i]), can_be_waived(r) ? "yes" : "no"});
  }
  std::vector<LedgerRow> found;
  for (const Table& table : tables_of(document("FIDELITY.md"))) {
    const std::size_t rule = table.column("rule");
    const std::size_t level = table.column("level");
    const std::size_t waivable = table.column("waivable");
    if (rule == table.heading.size()) continue;
    ASSERT_LT(std::max(level, waivable), table.heading.size());
    for (const Cells& row : table.rows) {
      const auto names = quoted_in(row.at(rule));
      ASSERT_EQ(names.size(), 1u) << row.at(rule);
      found.push_back({names[0], row.at(level), row.at(waivable)});
    }
  }
  EXPECT_EQ(found, expected);
}

// How many sentences the document says that Peal says; each must be one. A rule that is named in
// front of a sentence is quoted with its own.
std::size_t check_quotes(const std::string& name) {
  static const std::string source = sources();
  std::size_t quoted = 0;
  for (const Table& table : tables_of(document(name))) {
    const std::size_t says = table.column("Peal says");
    if (says == table.heading.size()) continue;
    for (const Cells& row : table.rows) {
      const auto spans = quoted_in(row.at(says));
      for (std::size_t i = 0; i < spans.size(); ++i) {
        if (const auto rule = refusal_named(spans[i])) {
          EXPECT_EQ(++i < spans.size() ? spans[i] : "", refusal_text(*rule));
        } else {
          EXPECT_TRUE(is_said(source, spans[i])) << spans[i];
        }
        ++quoted;
      }
    }
  }
  return quoted;
}

TEST(TroubleshootingDocument, QuotesNothingThatIsNotSaid) {
  EXPECT_GT(check_quotes("TROUBLESHOOTING.md"), 40u);
}

TEST(AdoptingDocument, QuotesNothingThatIsNotSaid) {
  EXPECT_GT(check_quotes("ADOPTING.md"), 15u);
}

TEST(HardwareDocument, QuotesNothingThatIsNotSaid) {
  EXPECT_GT(check_quotes("HARDWARE.md"), 10u);
}

// In commands of ours, and in the first column of a table of options.
std::size_t check_options(const char* name) {
  const std::string text = document(name);
  std::string ours;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find("build/peal ");
    if (at != std::string::npos) ours += line.substr(at) + "\n";
  }
  for (const Table& table : tables_of(text)) {
    if (table.column("option") != 0) continue;
    for (const Cells& row : table.rows) ours += row[0] + "\n";
  }
  const std::string source = sources();
  std::size_t options = 0;
  for (std::size_t at = ours.find("--"); at != std::string::npos; at = ours.find("--", at + 2)) {
    const std::size_t end = ours.find_first_not_of("abcdefghijklmnopqrstuvwxyz-", at);
    const std::string option = ours.substr(at, end - at);
    // As it is declared: "--mtu" or "-m,--mtu".
    EXPECT_TRUE(source.find("\"" + option + "\",") != std::string::npos ||
                source.find("," + option + "\",") != std::string::npos)
        << option;
    ++options;
  }
  return options;
}

TEST(HardwareDocument, NamesOnlyOptionsThatAre) {
  EXPECT_GT(check_options("HARDWARE.md"), 20u);
}
TEST(RoceDocument, NamesOnlyOptionsThatAre) {
  EXPECT_GT(check_options("ROCE.md"), 10u);
}

// Only where hardware moved the bytes, and nothing is there that was not sent.
TEST(HardwareResults, AreOfKindHardwareAndTheOthersAreNot) {
  const fs::path results = fs::path(PEAL_SOURCE_DIR) / "results";
  EXPECT_NE(sources().find("\"hardware\""), std::string::npos) << "the kind that rows must carry";
  std::size_t rows_of_hardware = 0;
  for (const auto& entry : fs::recursive_directory_iterator(results)) {
    if (entry.path().extension() != ".jsonl") continue;
    const bool hardware = entry.path().parent_path().filename() == "hardware";
    std::ifstream rows(entry.path());
    for (std::string row; std::getline(rows, row); rows_of_hardware += hardware) {
      EXPECT_EQ(row.find("\"kind\":\"hardware\"") != std::string::npos, hardware) << entry.path();
      if (!hardware) continue;
      EXPECT_NE(row.find("\"validated\":true"), std::string::npos) << entry.path();
    }
  }
  const bool says_none =
      read_file(results / "hardware/README.md").find("There are none") != std::string::npos;
  EXPECT_EQ(says_none, rows_of_hardware == 0);
}

TEST(TroubleshootingDocument, NamesOnlyRulesThatAre) {
  std::size_t named = 0;
  for (const Table& table : tables_of(document("TROUBLESHOOTING.md"))) {
    const std::size_t rules = table.column("rules");
    if (rules == table.heading.size()) continue;
    for (const Cells& row : table.rows) {
      for (const std::string& name : quoted_in(row.at(rules))) {
        EXPECT_TRUE(refusal_named(name)) << name;
        ++named;
      }
    }
  }
  EXPECT_GT(named, 20u);
}

TEST(SimulationDocument, HasARowForEachPlant) {
  std::vector<Cells> expected;
  for (const sim::PlantName& p : sim::all_plants()) {
    expected.push_back({"`" + std::string(p.name) + "`", std::string(p.what)});
  }
  std::vector<Cells> found;
  for (const Table& table : tables_of(document("SIMULATION.md"))) {
    if (table.column("plant") == 0) found = table.rows;
  }
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace peal::nic
