// Fault specs and numbers as users write them. Input: texts, one a line.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>

#include "fuzz/fuzz.hpp"
#include "ladder/fault.hpp"
#include "ladder/parse.hpp"
#include "ladder/usage_error.hpp"
#include "peal/mlx5/cqe.hpp"

namespace peal::ladder {
namespace {

using Kind = FaultSpec::Kind;
using test::require;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// What `parse` makes of it, or nothing where it refuses. Nothing but a UsageError may leave it.
template <class F>
auto accepted(F parse, std::string_view text) -> std::optional<decltype(parse())> {
  try {
    return parse();
  } catch (const UsageError& e) {
    // A NUL, which only a peer can send, ends what().
    if (!contains(text, std::string_view("\0", 1))) {
      require(contains(e.what(), text), "a refusal says what was given");
      require(contains(e.what(), "expected ") || contains(e.what(), " must be "),
              "a refusal says what is expected");
    }
    return std::nullopt;
  }
}

std::string place_text(const FaultSpec& f) {
  return "@" + std::to_string(f.at) + "/qp=" + std::to_string(f.qp);
}

std::string probability_text(double p) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", p);
  return text;
}

std::string print(const FaultSpec& f) {
  switch (f.kind) {
    case Kind::kCorrupt: return "corrupt" + place_text(f);
    case Kind::kNoop: return "noop" + place_text(f);
    case Kind::kCqe: return "cqe=" + std::to_string(f.value) + place_text(f);
    case Kind::kHold: return "hold=" + std::to_string(f.value);
    case Kind::kDelay: return "delay=" + std::to_string(f.value);
    case Kind::kPreset: return "preset=" + std::to_string(f.value);
    case Kind::kDrop: return "drop=" + probability_text(f.probability);
    case Kind::kDup: return "dup=" + probability_text(f.probability);
    case Kind::kReorder: return "reorder=" + probability_text(f.probability);
    case Kind::kLinkDelay: return "linkdelay=" + std::to_string(f.value);
    case Kind::kUarFail: return "uarfail";
    case Kind::kRegFail: return "regfail=" + std::to_string(f.value);
  }
  require(false, "a fault is of a kind that there is");
  return {};
}

void check_bounds(const FaultSpec& f) {
  constexpr std::uint64_t kDayMs = 86'400'000;
  const bool at_wqe = f.kind == Kind::kCorrupt || f.kind == Kind::kNoop || f.kind == Kind::kCqe;
  require(at_wqe || (f.at == 0 && f.qp == 0), "only a WQE's fault has a place");
  require(f.probability >= 0 && f.probability <= 1, "a probability is from 0 to 1");
  switch (f.kind) {
    case Kind::kCqe: {
      require(f.value >= 1 && f.value <= 0xff, "a syndrome is a byte and not 0");
      const std::string_view name = mlx5::syndrome_name(static_cast<std::uint8_t>(f.value));
      require(name != "unknown syndrome", "a syndrome is one that CQEs carry");
      return;
    }
    case Kind::kHold: require(f.value <= kDayMs, "a hold ends within a day"); return;
    case Kind::kDelay:
    case Kind::kLinkDelay: require(f.value <= kDayMs * 1000, "a delay ends within a day"); return;
    case Kind::kPreset:
      require(f.value <= std::uint64_t{1} << 63, "a preset index is at most 2^63");
      return;
    case Kind::kRegFail: require(f.value >= 1 && f.value <= 4095, "an errno is 1 to 4095"); return;
    default: require(f.value == 0, "only some faults have a value"); return;
  }
}

void check_fault(std::string_view text) {
  const auto fault = accepted([&] { return parse_fault(text); }, text);
  if (!fault) return;
  require(fault->text == text, "a fault keeps the text that it was written as");
  check_bounds(*fault);
  const FaultSpec again = parse_fault(print(*fault));
  require(again.kind == fault->kind && again.value == fault->value &&
              again.probability == fault->probability && again.at == fault->at &&
              again.qp == fault->qp,
          "a fault that is printed reads as the same fault");
}

void check_numbers(std::string_view text) {
  const auto decimal = try_parse_number(text);
  if (decimal) {
    require(try_parse_number(std::to_string(*decimal)) == decimal,
            "a number that is printed reads as the same number");
    require(try_parse_number(text, Base::kDecimalOrHex) == decimal,
            "a decimal number is one where hexadecimal is allowed too");
    require(text.find_first_not_of("0123456789") == std::string_view::npos,
            "a number is of digits alone");
  }

  constexpr Limits kLimits{2, std::uint64_t{1} << 40};
  const auto count = accepted([&] { return parse_count("--count", text, kLimits); }, text);
  const bool in_limits = decimal && *decimal >= kLimits.min && *decimal <= kLimits.max;
  require(count.has_value() == in_limits, "a count is a number within its limits");

  const auto sizes = accepted([&] { return parse_size_list("--size", text, kLimits); }, "");
  if (!sizes) return;
  const auto commas = static_cast<std::size_t>(std::count(text.begin(), text.end(), ','));
  require(sizes->size() == commas + 1, "a list has a size more than commas");
  std::string printed;
  for (const std::uint64_t size : *sizes) {
    require(size >= kLimits.min && size <= kLimits.max, "a size is within its limits");
    printed += (printed.empty() ? "" : ",") + std::to_string(size);
  }
  require(parse_size_list("--size", printed, kLimits) == *sizes,
          "a list that is printed reads as the same list");
}

}  // namespace
}  // namespace peal::ladder

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  peal::test::for_each_line(peal::test::text_of(data, bytes), [](std::string_view line) {
    peal::ladder::check_fault(line);
    peal::ladder::check_numbers(line);
  });
  return 0;
}
