// `peal client`: the sending end of a run between two processes.
#include "engine/threads.hpp"
#include "ladder/channel.hpp"
#include "ladder/data_connection.hpp"
#include "ladder/device_runs.hpp"
#include "ladder/gpu/runs.hpp"
#include "ladder/links.hpp"
#include "ladder/messages.hpp"
#include "ladder/nics.hpp"
#include "ladder/runs.hpp"

namespace peal::ladder {
namespace {

// Tells the server how the run ended here, and hears how it ended there.
void end_alike(Channel& channel, double deadline_s, Outcome* outcome) {
  nlohmann::json sentences = nlohmann::json::array();
  for (const std::string& s : outcome->sentences()) sentences.push_back(s);
  // Not interruptible: Ctrl-C has been heard, and the deadline bounds it.
  channel.send({{"type", "end"}, {"status", outcome->status()}, {"sentences", sentences}},
               wait_for(deadline_s, -1));
  for (;;) {
    // An answer that the run no longer waited for may come first.
    const nlohmann::json answer = channel.receive_any("the peer's end", wait_for(deadline_s, -1));
    if (answer.at("type") != "end") continue;
    const int status =
        read_message([&] { return int{number_from<std::uint8_t>(answer, "status")}; });
    if (!is_exit_status(status)) {
      throw PeerError(PeerError::Kind::kProtocol, "the peer ended with a status that is none");
    }
    outcome->add(status, "");
    return;
  }
}

// Says hello, and makes and joins the link of software NICs; devices have one of their own.
void meet(Channel& channel, const ClientOptions& client, const LadderArguments& arguments,
          const LadderOptions& options, link::Capture* capture, const Interrupt& interrupt,
          PeerLink& link) {
  const auto wait = [&] { return wait_for(options.deadline_s, interrupt.fd()); };
  nlohmann::json hello = {{"type", "hello"},
                          {"arguments", to_json(arguments)},
                          {"parameters", parameters_of(arguments)}};
  if (options.link == LinkKind::kRoce) {
    link.roce.emplace(options, local_address(channel.socket()), options.roce.udp_port,
                      RunEnd::kSender, capture);
    hello["roce"] = to_json(link.roce->address());
  }
  channel.send(hello, wait());
  const nlohmann::json welcome = channel.receive("welcome", wait());
  if (link.roce) {
    link.roce->connect(read_message([&] {
      return roce_address_from(welcome.at("roce"), local_address(channel.socket()),
                               peer_address(channel.socket()));
    }));
  } else if (options.provider == ProviderKind::kSoftware) {
    const DataTicket ticket = read_message([&] {
      return DataTicket{number_from<std::uint16_t>(welcome, "data_port"),
                        number_from<std::uint64_t>(welcome, "token")};
    });
    link.stream.emplace(connect_data(client.host, ticket, wait()).release());
  }
}

Outcome run_connected(Channel& channel, PeerLink& link, const LadderOptions& options,
                      const Interrupt& interrupt, const RunEvents& events, Notices& notices) {
  try {
    RemoteReceiver far_end(channel, options.deadline_s, interrupt);
    if (options.provider == ProviderKind::kRdmaCore) {
      return run_device_sender(options, far_end, interrupt, events, notices);
    }
    const LinkEnd end = link.end();
    if (options.needs_gpu()) {
      return gpu::run_sender(options, end, far_end, interrupt, events, notices);
    }
    verbs::SoftwareNic sender(sender_options(options, notices.listener()), end.link, end.port);
    engine::ThreadsEngine engine({sender.step()});
    HostPayload source;
    CpuProducers producers;
    const RunEnds ends{&sender.core(),
                       &engine,
                       open_sender(sender, engine, options, events),
                       producers,
                       source,
                       far_end,
                       notices,
                       {.link = end.name}};
    return run_ladder(options, ends, interrupt, events);
  } catch (...) {
    return outcome_of_exception();
  }
}

}  // namespace

Outcome run_client(const ClientOptions& client, const LadderArguments& arguments,
                   const LadderOptions& options, const Interrupt& interrupt,
                   const RunEvents& events) {
  Outcome outcome;
  try {
    std::optional<link::Capture> capture;
    if (!options.roce.capture.empty()) capture.emplace(options.roce.capture);
    Channel channel(
        connect_to(client.host, client.port, wait_for(options.deadline_s, interrupt.fd())));
    PeerLink link;
    meet(channel, client, arguments, options, capture ? &*capture : nullptr, interrupt, link);
    Notices notices;
    outcome = run_connected(channel, link, options, interrupt, events, notices);
    notices.tell(events.note);  // of how this end ended
    link.tell(events.note);
    if (capture) close_capture(*capture, events.note);
    // A peer that has been waited for in vain is not waited for again.
    if (outcome.status() != kExitDeadline) end_alike(channel, options.deadline_s, &outcome);
  } catch (...) {
    // A peer that went after it had refused has said why.
    if (!outcome.good()) return outcome;
    outcome.add(outcome_of_exception());
  }
  return outcome;
}

}  // namespace peal::ladder
