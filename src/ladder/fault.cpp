#include "ladder/fault.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <limits>
#include <optional>

#include "ladder/parse.hpp"
#include "ladder/usage_error.hpp"
#include "peal/mlx5/cqe.hpp"

namespace peal::ladder {
namespace {

using Kind = FaultSpec::Kind;

constexpr std::uint64_t kMaxPreset = std::uint64_t{1} << 63;
constexpr std::uint64_t kDayMs = 24 * 60 * 60 * std::uint64_t{1000};
constexpr std::uint64_t kDayUs = kDayMs * 1000;
constexpr std::uint64_t kMaxErrno = 4095;  // of the kernel's error pointers

struct Form {
  std::string_view name;
  Kind kind;
  bool has_value;
  bool at_wqe;
  std::string_view expected;
};

constexpr Form kForms[] = {
    {"corrupt", Kind::kCorrupt, false, true, "corrupt@K or corrupt@K/qp=Q, whole numbers from 0"},
    {"noop", Kind::kNoop, false, true, "noop@K or noop@K/qp=Q, whole numbers from 0"},
    {"cqe", Kind::kCqe, true, true,
     "cqe=SYNDROME@K or cqe=SYNDROME@K/qp=Q, K and Q whole numbers from 0 and SYNDROME that of an "
     "error CQE, such as 0x13"},
    {"hold", Kind::kHold, true, false, "hold=MS, whole milliseconds up to a day"},
    {"delay", Kind::kDelay, true, false, "delay=US, whole microseconds up to a day"},
    {"preset", Kind::kPreset, true, false, "preset=PI, a whole number from 0 to 2^63"},
    {"drop", Kind::kDrop, true, false, "drop=P, a probability from 0 to 1"},
    {"dup", Kind::kDup, true, false, "dup=P, a probability from 0 to 1"},
    {"reorder", Kind::kReorder, true, false, "reorder=P, a probability from 0 to 1"},
    {"linkdelay", Kind::kLinkDelay, true, false, "linkdelay=US, whole microseconds up to a day"},
    {"uarfail", Kind::kUarFail, false, false, "uarfail and nothing after it"},
    {"regfail", Kind::kRegFail, true, false,
     "regfail=ERRNO, a number from 1 to 4095 or a name such as ENOMEM"},
};

struct ErrnoName {
  std::string_view name;
  int value;
};

constexpr ErrnoName kErrnoNames[] = {
    {"EPERM", EPERM},
    {"EIO", EIO},
    {"EAGAIN", EAGAIN},
    {"ENOMEM", ENOMEM},
    {"EACCES", EACCES},
    {"EFAULT", EFAULT},
    {"EBUSY", EBUSY},
    {"ENODEV", ENODEV},
    {"EINVAL", EINVAL},
    {"ENOSPC", ENOSPC},
    {"ENOSYS", ENOSYS},
    {"EOPNOTSUPP", EOPNOTSUPP},
    {"EPROTONOSUPPORT", EPROTONOSUPPORT},
};

const Form* find_form(std::string_view name) {
  for (const Form& form : kForms) {
    if (form.name == name) return &form;
  }
  return nullptr;
}

std::optional<std::uint64_t> try_parse_up_to(std::string_view text, std::uint64_t max,
                                             Base base = Base::kDecimal) {
  const auto number = try_parse_number(text, base);
  return number && *number <= max ? number : std::nullopt;
}

std::optional<std::uint64_t> try_parse_syndrome(std::string_view text) {
  const auto number = try_parse_up_to(text, 0xff, Base::kDecimalOrHex);
  if (!number || *number == 0) return std::nullopt;
  const std::string_view name = mlx5::syndrome_name(static_cast<std::uint8_t>(*number));
  return name == "unknown syndrome" ? std::nullopt : number;
}

std::optional<std::uint64_t> try_parse_errno(std::string_view text) {
  for (const ErrnoName& known : kErrnoNames) {
    if (known.name == text) return static_cast<std::uint64_t>(known.value);
  }
  const auto number = try_parse_up_to(text, kMaxErrno);
  return number && *number != 0 ? number : std::nullopt;
}

std::optional<double> try_parse_probability(std::string_view text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  // The comparison also refuses NaN; the sign is looked at because of -0.
  if (error != std::errc() || stopped != end || !(number >= 0 && number <= 1) ||
      text.starts_with('-')) {
    return std::nullopt;
  }
  return number;
}

bool parse_value(std::string_view text, FaultSpec& spec) {
  std::optional<std::uint64_t> value;
  switch (spec.kind) {
    case Kind::kCqe: value = try_parse_syndrome(text); break;
    case Kind::kHold: value = try_parse_up_to(text, kDayMs); break;
    case Kind::kDelay:
    case Kind::kLinkDelay: value = try_parse_up_to(text, kDayUs); break;
    case Kind::kPreset: value = try_parse_up_to(text, kMaxPreset, Base::kDecimalOrHex); break;
    case Kind::kRegFail: value = try_parse_errno(text); break;
    case Kind::kDrop:
    case Kind::kDup:
    case Kind::kReorder: {
      const auto probability = try_parse_probability(text);
      spec.probability = probability.value_or(0);
      return probability.has_value();
    }
    case Kind::kCorrupt:
    case Kind::kNoop:
    case Kind::kUarFail: return false;
  }
  spec.value = value.value_or(0);
  return value.has_value();
}

// "K" or "K/qp=Q".
bool parse_place(std::string_view text, FaultSpec& spec) {
  constexpr std::string_view kQp = "/qp=";
  if (const std::size_t slash = text.find('/'); slash != std::string_view::npos) {
    const std::string_view suffix = text.substr(slash);
    if (!suffix.starts_with(kQp)) return false;
    const auto qp =
        try_parse_up_to(suffix.substr(kQp.size()), std::numeric_limits<std::uint32_t>::max());
    if (!qp) return false;
    spec.qp = static_cast<std::uint32_t>(*qp);
    text = text.substr(0, slash);
  }
  const auto at = try_parse_number(text);
  spec.at = at.value_or(0);
  return at.has_value();
}

// `rest` is what follows the name.
bool parse_rest(std::string_view rest, const Form& form, FaultSpec& spec) {
  if (form.at_wqe) {
    const std::size_t at = rest.find('@');
    if (at == std::string_view::npos || !parse_place(rest.substr(at + 1), spec)) return false;
    rest = rest.substr(0, at);
  }
  if (!form.has_value) return rest.empty();
  return rest.starts_with('=') && parse_value(rest.substr(1), spec);
}

std::string known_names() {
  std::string names;
  for (const Form& form : kForms) {
    if (!names.empty()) names += ", ";
    names += form.name;
  }
  return names;
}

}  // namespace

FaultSpec parse_fault(std::string_view text) {
  const std::string_view name = text.substr(0, text.find_first_of("=@/"));
  const Form* const form = find_form(name);
  if (form == nullptr) {
    throw UsageError(fmt::format("fault '{}' is unknown: expected one of {}", text, known_names()));
  }
  FaultSpec spec;
  spec.kind = form->kind;
  spec.text = text;
  if (!parse_rest(text.substr(name.size()), *form, spec)) {
    throw UsageError(
        fmt::format("fault '{}' is not understood: expected {}", text, form->expected));
  }
  return spec;
}

}  // namespace peal::ladder
