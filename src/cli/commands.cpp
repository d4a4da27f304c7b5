#include "cli/commands.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "cli/check.hpp"
#include "cli/decode.hpp"
#include "cli/devices.hpp"
#include "cli/explore.hpp"
#include "cli/report.hpp"
#include "cli/self_description.hpp"
#include "ladder/options.hpp"
#include "ladder/parse.hpp"
#include "ladder/rules.hpp"
#include "ladder/runs.hpp"
#include "ladder/usage_error.hpp"
#include "ladder/version.hpp"
#include "peal/host/log.hpp"

namespace peal::cli {
namespace {

using ladder::LadderArguments;

void add_rule_option(CLI::App& app, LadderArguments& a) {
  app.add_option("--rule", a.rules,
                 "NAME=off, NAME=warn or NAME=refuse: how strictly the NICs keep a rule, see "
                 "`peal devices --rules`; may be repeated")
      ->take_all();
}

void add_counters_option(CLI::App& app, bool& counters) {
  app.add_flag("--counters", counters,
               "after each row, what the NIC counted for each QP, on the standard error");
}

void add_device_options(CLI::App& app, LadderArguments& a) {
  app.add_option(
      "--provider", a.provider,
      "where the NIC comes from: software, or rdma_core (the system's RDMA libraries and "
      "a ConnectX); default: software");
  app.add_option("-d,--device", a.device,
                 "this end's, by name; of a ladder also FROM,TO; default: the first");
  app.add_option("-i,--ib-port", a.ib_port, "the device's port; default: 1");
  app.add_option("-x,--gid-index", a.gid_index,
                 "of the port's GID table; default: on Ethernet RoCE v2 by IPv4 first");
  app.add_option("--gid-type", a.gid_type, "ib, roce_v1 or roce_v2: that the GID must be of");
  app.add_option("--pkey-index", a.pkey_index, "of the port's partition key table; default: 0");
}

void add_path_options(CLI::App& app, LadderArguments& a) {
  app.add_option("-m,--mtu", a.mtu,
                 "bytes that a packet carries at most: 256 to 4096; default: what both ports can");
  app.add_option("--traffic-class", a.traffic_class,
                 "of the packets, where there is a GID: DSCP and ECN; default: 0");
  app.add_option(
      "-u,--qp-timeout", a.qp_timeout,
      "of an acknowledgement: 4.096 us * 2^N, N from 1 to 31; default: 18, or 16 with --link roce");
  app.add_option("--retry", a.retry, "retransmissions after that, 0 to 7; default: 6");
}

// perftest's names are accepted where they mean the same.
void add_traffic_options(CLI::App& app, LadderArguments& a) {
  app.add_option("--stages", a.stages, "stages to run, in this order; default: all");
  app.add_option("-s,--size", a.size, "payload bytes, a list; default: 4096,65536,1048576");
  app.add_option("-n,--iters", a.iters, "PUTs per producer, size and repeat; default: by size");
  app.add_option("--repeat", a.repeat, "timed repeats, median reported; default: 5");
  app.add_option("--submit", a.submit, "original, peal or both; default: both");
  app.add_option("--doorbell", a.doorbell, "ring_record_ring, record_ring or ring_only");
  app.add_option("--publish", a.publish, "in_order or combine");
  app.add_option("--producers", a.producers, "producer threads; default: the stage's");
  app.add_option("-q,--qps", a.qps, "queue pairs; default: the stage's");
  app.add_option("--window", a.window,
                 "PUTs in flight, all producers together, where the stage has more than one; "
                 "default: the stage's");
  app.add_option(
      "-l,--batch", a.batch,
      "PUTs behind one doorbell, where the stage has more than one; default: the stage's");
  app.add_option(
      "-t,--depth", a.depth,
      "slots of each send queue, a power of two; default: 1024 over a stage's queues together");
  app.add_option("--sharing", a.sharing, "exclusive, block or device; default: device");
  app.add_option("--completion", a.completion,
                 "CQEs: of every WQE, or of each reservation's tail; default: every");
  add_device_options(app, a);
  app.add_option(
      "--engine", a.engine,
      "what runs the NICs: threads (a CPU thread), gpu (a kernel) or gpu-fused (blocks of "
      "the producers' kernel); default: threads");
  add_path_options(app, a);
  app.add_option("--initiator", a.initiator,
                 "cpu or gpu: of which the producers are threads; default: gpu with --engine gpu, "
                 "else cpu");
  app.add_option("--exec", a.exec, "a producer is a thread, a warp or a block; default: thread");
  app.add_option(
      "--memory", a.memory,
      "FROM or FROM,TO: where the payload lies, each host, gpu or gpuN; default: gpu with "
      "--engine gpu, else host");
  app.add_option("--doorbell-memory", a.doorbell_memory,
                 "host (a ring crosses PCIe) or gpu; default: host");
  app.add_option("--gpu", a.gpu, "the producers' GPU; default: 0");
  app.add_option("--nic-gpu", a.nic_gpu, "the GPU of the NIC's kernel; default: the producers'");
  app.add_option("--nic-blocks", a.nic_blocks,
                 "blocks of the NIC's kernel; default: --blocks-per-qp for each QP, at most 64");
  app.add_option("--blocks-per-qp", a.blocks_per_qp,
                 "of them, how many serve one queue; default: 1");
  app.add_option("--handler", a.handler,
                 "who rings: automatic, direct or proxy; default: automatic");
  app.add_option("--nic", a.nic, "null: complete without moving the payload");
  app.add_option("--order", a.order,
                 "writes become visible in the order of posting (strict), or by their "
                 "acknowledgement (relaxed); default: relaxed");
  app.add_option("--dbsrc", a.dbsrc,
                 "which word tells the NIC how far to fetch: the doorbell (mmio) or its record "
                 "(dbr); default: mmio");
  add_rule_option(app, a);
  app.add_option("--region", a.region, "payload memory of each end; default: 256M or less");
  app.add_option("--deadline", a.deadline, "seconds that any wait may take; default: 5");
  app.add_option("--seed", a.seed, "of the payload; default: 1");
  app.add_option("--fault", a.faults,
                 "corrupt@K, noop@K, cqe=SYNDROME@K (each with /qp=Q), hold=MS, delay=US, "
                 "preset=PI, regfail=ERRNO, uarfail; of --link roce drop=P, dup=P, reorder=P "
                 "(probabilities of each packet), linkdelay=US; may be repeated")
      ->take_all();
}

// `joined` says by what, and which is the default.
void add_link_options(CLI::App& app, LadderArguments& a, const std::string& joined,
                      const std::string& port_of) {
  app.add_option("--link", a.link, "what joins software NICs: " + joined);
  app.add_option("--roce-port", a.roce_port,
                 "UDP port of " + port_of +
                     " with --link roce; other implementations use 4791; default: 0, a free one");
  app.add_option("--capture", a.capture,
                 "with --link roce, write this end's packets to this file, as pcap");
}

// The library's texts may run over several lines, and so may what a user typed; a user gets one.
std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

int usage(const std::string& command, const std::string& sentence) {
  fmt::print(stderr, "peal{}{}: {}\n", command.empty() ? "" : " ", command, one_line(sentence));
  return ladder::kExitUsage;
}

// PEAL_LOG: how much of what the library tells goes to the standard error. False: it says nothing
// that is known.
bool take_log_level() {
  const char* text = std::getenv("PEAL_LOG");
  if (text == nullptr || *text == '\0') return true;
  for (const LogLevel level :
       {LogLevel::kError, LogLevel::kWarning, LogLevel::kInfo, LogLevel::kDebug}) {
    if (std::string_view(text) != log_level_name(level)) continue;
    set_log(level, [](LogLevel of, const std::string& line) {
      fmt::print(stderr, "{}\n", one_line(fmt::format("peal: {}: {}", log_level_name(of), line)));
    });
    return true;
  }
  return false;
}

std::uint16_t parse_port(const std::string& text, std::uint64_t least) {
  if (text.empty()) return ladder::kDefaultPort;
  return static_cast<std::uint16_t>(ladder::parse_count("--port", text, {least, 65535}));
}

// Where rows go, as typed.
struct Output {
  std::string json;
  std::string format;
};

void add_output_options(CLI::App& app, Output& output) {
  app.add_option("--json", output.json,
                 "append rows to this file, one JSON object a line; - : stdout");
  app.add_option("--format", output.format, "of the table: text or markdown; default: text");
}

Format parse_format(const std::string& text) {
  if (text.empty() || text == "text") return Format::kText;
  if (text == "markdown") return Format::kMarkdown;
  throw ladder::UsageError("--format must be one of text, markdown, not '" + text + "'");
}

// What joins two processes does not join the ends of one, and the other way round.
void check_link(const LadderArguments& a, const char* other, const char* own) {
  if (a.link == other) {
    throw ladder::UsageError(fmt::format("--link must be one of {}, roce, not '{}'", own, other));
  }
}

int run_ladder_command(const LadderArguments& a, const Output& output, bool counters) {
  check_link(a, "stream", "loopback");
  const ladder::LadderOptions options = ladder::make_options(a);
  const Format format = parse_format(output.format);
  const ladder::Interrupt interrupt;
  Report report("ladder", output.json, format);
  return report.finish(ladder::run_local(options, interrupt, report.events(counters)));
}

int run_client_command(const LadderArguments& a, const std::string& host, const std::string& port,
                       const Output& output, bool counters) {
  check_link(a, "loopback", "stream");
  const ladder::LadderOptions options = ladder::make_options(a);
  const ladder::ClientOptions client{host, parse_port(port, 1)};
  const Format format = parse_format(output.format);
  const ladder::Interrupt interrupt;
  Report report("client", output.json, format);
  return report.finish(ladder::run_client(client, a, options, interrupt, report.events(counters)));
}

int run_server_command(const LadderArguments& a, const std::string& bind, const std::string& port,
                       bool once, const std::string& timeout) {
  check_link(a, "loopback", "stream");
  ladder::ServerOptions server;
  if (!bind.empty()) server.bind = bind;
  server.port = parse_port(port, 0);
  server.once = once;
  if (!timeout.empty()) {
    server.idle_timeout_s =
        static_cast<double>(ladder::parse_count("--timeout", timeout, {1, 31'536'000}));
  }
  server.deadline_s = ladder::make_options(a).deadline_s;
  server.required = a;
  const ladder::Interrupt interrupt;
  Report report("server", "");
  return report.finish(run_server(
      server, interrupt, [&](const std::string& line) { report.say(line); },
      [&](const std::string& line) { report.complain(line); }));
}

int run_devices_command(const LadderArguments& a, bool rules) {
  const ladder::LadderOptions options = ladder::make_options(a);
  if (rules) {
    fmt::print("{}", ladder::table_of_rules(options.rules));
    return ladder::kExitValidated;
  }
  Report report("devices", "");
  print_devices(options, report.events());
  return ladder::kExitValidated;
}

void add_decode_commands(CLI::App& app, DecodeArguments& a) {
  CLI::App* decode = app.add_subcommand("decode", "say what a dumped WQE, CQE or packet means");
  decode->require_subcommand(1);
  CLI::App* wqe = decode->add_subcommand("wqe", "a send WQE, from its first byte on");
  CLI::App* cqe = decode->add_subcommand("cqe", "a CQE's 64 bytes, or its last 16");
  CLI::App* packet = decode->add_subcommand("packet", "a RoCEv2 packet, to its ICRC");
  for (CLI::App* command : {wqe, cqe, packet}) {
    command->add_option("HEX", a.hex, "the bytes, in memory order; - : standard input")->required();
    command->add_option("--words", a.words,
                        "be, or le or le64 where a little-endian host printed words of 4 or 8 "
                        "bytes; default: be");
    command->footer(
        "Exit status: 0 nothing wrong; 2 wrong usage, or no such bytes; 3 the bytes were decoded\n"
        "and say that something is wrong.");
  }
  for (CLI::App* command : {wqe, cqe}) {
    command->add_option("--qpn", a.qpn, "the QPN that it should hold");
  }
  wqe->add_option("--index", a.index, "the index that the WQE should have, as software counts");
  wqe->add_option("--depth", a.depth, "slots of its send queue, a power of two");
  wqe->add_option("--lkey", a.lkey, "the lkey that it should hold, in host order");
  wqe->add_option("--rkey", a.rkey, "the rkey that it should hold, in host order");
  cqe->add_option("--number", a.number, "which CQE of its ring is awaited, from 0");
  cqe->add_option("--entries", a.entries, "entries of its ring, a power of two; with --number");
  packet->add_option("--from", a.from,
                     "the header that the bytes begin with: ip, ethernet or bth; default: guessed");
}

int run_decode_command(const std::string& command, const DecodeArguments& a) {
  const bool wrong = command == "decode wqe"   ? print_wqe(a)
                     : command == "decode cqe" ? print_cqe(a)
                                               : print_packet(a);
  return wrong ? ladder::kExitCompletionError : ladder::kExitValidated;
}

// The command that was typed, which may be one of another's, such as `decode wqe`.
const CLI::App& chosen_command(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : chosen_command(*chosen.front());
}

// "ladder", "decode wqe"; empty where none was typed.
std::string name_of(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  if (parent == nullptr) return "";
  const std::string above = name_of(*parent);
  return above + (above.empty() ? "" : " ") + command.get_name();
}

}  // namespace

int run(int argc, char** argv) {
  CLI::App app{"GPU-initiated RDMA PUT, its ladder of stages, and a software ConnectX to run it on",
               "peal"};
  app.set_version_flag("--version", fmt::format("{} ({})", ladder::version(), ladder::commit()));
  app.require_subcommand(1);
  app.footer(
      "Exit status: 0 all validated; 1 wrong payload, or a seed that found something; 2 wrong "
      "usage, or a\nfault never reached; 3 completion error, or a decoded one; 4 deadline passed "
      "or "
      "peer lost; 5 the\nmachine lacks something; 130 interrupted.");

  LadderArguments arguments;
  Output output;
  std::string port;
  std::string host;
  std::string bind;
  std::string timeout;
  bool once = false;
  bool counters = false;
  bool rules = false;

  CLI::App* ladder = app.add_subcommand("ladder", "run the stages, both ends in this process");
  add_traffic_options(*ladder, arguments);
  add_link_options(*ladder, arguments, "loopback or roce; default: loopback",
                   "the end that PUTs go to");
  ladder->add_option("--bind", arguments.roce_address,
                     "address of both ends with --link roce; default: 127.0.0.1");
  add_output_options(*ladder, output);
  add_counters_option(*ladder, counters);

  CLI::App* client = app.add_subcommand("client", "run the stages against a server");
  client->add_option("HOST", host, "the server's name or address")->required();
  client->add_option("-p,--port", port, "the server's port; default: 18515");
  add_output_options(*client, output);
  add_counters_option(*client, counters);
  add_traffic_options(*client, arguments);
  add_link_options(*client, arguments, "stream or roce; default: stream", "this end");

  CLI::App* server = app.add_subcommand(
      "server", "receive and check PUTs; traffic options given here must be the client's");
  server->add_option("--bind", bind, "address to listen on; default: 0.0.0.0");
  server->add_option("-p,--port", port, "port to listen on, 0 for a free one; default: 18515");
  server->add_flag("--once", once, "serve one client, then exit with its status");
  server->add_option("--timeout", timeout, "exit when no client came for so many seconds");
  add_traffic_options(*server, arguments);
  add_link_options(*server, arguments, "stream or roce; default: what the client says", "this end");

  CLI::App* devices = app.add_subcommand("devices", "say what a run would use, and who would ring");
  add_device_options(*devices, arguments);
  devices->add_option("--handler", arguments.handler,
                      "automatic, direct or proxy; default: automatic");
  devices->add_option("--fault", arguments.faults, "uarfail: the doorbell page cannot be mapped");
  devices->add_flag("--rules", rules,
                    "list the NIC's rules instead, by tabs: name, level, whether breaking it is "
                    "waivable or fails at every level (kept), what is wrong");
  add_rule_option(*devices, arguments);
  CheckArguments check;
  add_check_options(*devices, check);

  DecodeArguments decode;
  add_decode_commands(app, decode);

  ExploreArguments explore;
  add_explore_command(app, explore);

  std::string shell;
  app.add_subcommand("man", "print the manual page, for `man -l -`");
  app.add_subcommand("completion", "print a script that completes commands and options")
      ->add_option("SHELL", shell, "bash")
      ->required();

  if (!take_log_level()) {
    return usage("", fmt::format("PEAL_LOG must be error, warning, info or debug, not '{}'",
                                 std::getenv("PEAL_LOG")));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    return usage(name_of(chosen_command(app)), std::string(e.what()) + " (see --help)");
  }

  const CLI::App& chosen = chosen_command(app);
  const std::string command = name_of(chosen);
  for (const CLI::Option* option : chosen.get_options()) {
    for (const std::string& text : option->results()) {
      if (text.empty()) return usage(command, option->get_name() + " was given an empty value");
    }
  }
  try {
    if (command == "ladder") return run_ladder_command(arguments, output, counters);
    if (command == "devices" && check.check) return print_check(check, arguments);
    if (command == "devices") return run_devices_command(arguments, rules);
    if (command == "client") {
      return run_client_command(arguments, host, port, output, counters);
    }
    if (command == "man" || command == "completion") {
      fmt::print("{}", command == "man" ? man_page(app) : completion_script(app, shell));
      return ladder::kExitValidated;
    }
    if (command == "explore") return run_explore_command(explore);
    if (command.starts_with("decode")) return run_decode_command(command, decode);
    return run_server_command(arguments, bind, port, once, timeout);
  } catch (const ladder::UsageError& e) {
    return usage(command, e.what());
  } catch (const std::exception& e) {
    fmt::print(stderr, "peal {}: {}\n", command, e.what());
    return ladder::kExitMachine;
  }
}

}  // namespace peal::cli
