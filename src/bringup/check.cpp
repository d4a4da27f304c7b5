#include "bringup/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "bringup/parts.hpp"

namespace peal::bringup {
namespace {

const char* status_word(Status status) {
  switch (status) {
    case Status::kOk: return "ok";
    case Status::kMissing: return "missing";
    case Status::kUnknown: return "unknown";
  }
  return "";
}

std::vector<std::string> lacking_in(const Section& section) {
  std::vector<std::string> names;
  for (const Item& item : section.items) {
    if (item.status == Status::kMissing && item.need == Need::kNeeded) {
      names.push_back(section.title + ": " + item.name);
    }
  }
  return names;
}

void append(std::vector<std::string>& all, const std::vector<std::string>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// The NICs that were asked for, each with what it lacks.
void add_nics(const Machine& machine, const Wanted& wanted, const std::vector<Gpu>& gpus,
              Report& report) {
  Nics nics = find_nics(machine);
  if (!wanted.device.empty()) {
    std::string names;
    for (const Nic& nic : nics.mlx5) names += (names.empty() ? "" : ", ") + nic.name;
    std::erase_if(nics.mlx5, [&](const Nic& nic) { return nic.name != wanted.device; });
    if (nics.mlx5.empty() && !names.empty()) {
      report.sections.push_back({wanted.device,
                                 {missing("mlx5 device", "no such one; there are " + names,
                                          "--device with one of them")}});
      append(report.lacking, lacking_in(report.sections.back()));
      return;
    }
  }
  if (nics.mlx5.empty()) {
    report.sections.push_back({"NIC", {no_nic(machine, nics)}});
    append(report.lacking, lacking_in(report.sections.back()));
    return;
  }
  std::optional<std::vector<std::string>> best;
  for (const Nic& nic : nics.mlx5) {
    report.sections.push_back(check_nic(machine, nic, wanted.port));
    const std::vector<std::string> lacking = lacking_in(report.sections.back());
    if (!best || lacking.size() < best->size()) best = lacking;
    if (!gpus.empty()) report.sections.push_back(check_paths(machine, nic, gpus));
  }
  append(report.lacking, *best);
}

}  // namespace

Report check(const Machine& machine, const Wanted& wanted) {
  Report report;
  for (Section& section : std::vector{check_libraries(machine), check_process(machine)}) {
    append(report.lacking, lacking_in(section));
    report.sections.push_back(std::move(section));
  }
  std::vector<Gpu> gpus = find_gpus(machine);
  Section of_gpus = check_gpus(machine, gpus, wanted.gpu);
  if (wanted.gpu) std::erase_if(gpus, [&](const Gpu& gpu) { return gpu.number != *wanted.gpu; });
  add_nics(machine, wanted, gpus, report);
  append(report.lacking, lacking_in(of_gpus));
  report.sections.push_back(std::move(of_gpus));
  return report;
}

std::string text_of(const Report& report) {
  std::size_t width = 0;
  for (const Section& section : report.sections) {
    for (const Item& item : section.items) width = std::max(width, item.name.size());
  }
  std::string text;
  for (const Section& section : report.sections) {
    text += section.title + "\n";
    for (const Item& item : section.items) {
      const bool optional = item.status == Status::kMissing && item.need == Need::kOptional;
      text += fmt::format("  {:<7}  {:<{}}  {}{}\n", status_word(item.status), item.name, width,
                          optional ? "(not needed) " : "", item.seen);
      if (!item.remedy.empty()) text += fmt::format("  {:<7}  {}\n", "", "-> " + item.remedy);
    }
  }
  return text + (report.lacking.empty()
                     ? "nothing that is needed is known to be missing\n"
                     : fmt::format("needed and missing: {}\n", fmt::join(report.lacking, "; ")));
}

}  // namespace peal::bringup
