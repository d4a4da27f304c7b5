// `peal devices --check`: the bring-up list.
#include "cli/check.hpp"

#include <fmt/format.h>

#include "bringup/check.hpp"
#include "bringup/devx.hpp"
#include "ladder/outcome.hpp"
#include "ladder/parse.hpp"
#include "verbs/rdma_core.hpp"

namespace peal::cli {
namespace {

bringup::DevxAnswer ask_this_machine(const std::string& device) {
  try {
    verbs::RdmaCore verbs;
    return bringup::ask_devx(verbs, device);
  } catch (const Error& e) {
    return {false, e.what()};
  }
}

}  // namespace

void add_check_options(CLI::App& devices, CheckArguments& arguments) {
  CLI::Option* check = devices.add_flag(
      "--check", arguments.check,
      "say instead what a run on a ConnectX needs of this machine, what is missing and what mends "
      "it; exit status 5 when something needed is missing");
  devices
      .add_option("--gpu", arguments.gpu,
                  "with --check: the GPU whose threads shall produce; default: none need to")
      ->needs(check);
  for (const char* other :
       {"--gid-index", "--gid-type", "--handler", "--fault", "--rule", "--rules"}) {
    check->excludes(devices.get_option(other));
  }
}

int print_check(const CheckArguments& arguments, const ladder::LadderArguments& run) {
  constexpr std::uint64_t kMostGpus = 1024;
  const ladder::DeviceOptions device = ladder::make_options(run).device;
  bringup::Wanted wanted{device.source, device.ib_port, {}};
  if (!arguments.gpu.empty()) {
    wanted.gpu =
        static_cast<std::uint32_t>(ladder::parse_count("--gpu", arguments.gpu, {0, kMostGpus - 1}));
  }
  bringup::Machine machine = bringup::this_machine();
  machine.ask_devx = ask_this_machine;
  const bringup::Report report = bringup::check(machine, wanted);
  fmt::print("{}", bringup::text_of(report));
  return report.lacking.empty() ? ladder::kExitValidated : ladder::kExitMachine;
}

}  // namespace peal::cli
