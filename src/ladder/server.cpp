// `peal server`: the receiving end of runs between two processes.
#include <fmt/format.h>

#include "engine/threads.hpp"
#include "ladder/channel.hpp"
#include "ladder/data_connection.hpp"
#include "ladder/links.hpp"
#include "ladder/messages.hpp"
#include "ladder/nics.hpp"
#include "ladder/runs.hpp"
#include "ladder/usage_error.hpp"
#include "peal/host/rdma_core.hpp"

namespace peal::ladder {
namespace {

using Say = std::function<void(const std::string&)>;

// One client, from hello to end.
class Session {
 public:
  // `note` hears what this end's NIC holds against the client. `capture` may be null.
  Session(const ServerOptions& server, link::Capture* capture, const Interrupt& interrupt,
          Socket socket, Say note)
      : server_(server),
        capture_(capture),
        interrupt_(interrupt),
        note_(std::move(note)),
        channel_(std::move(socket)),
        deadline_s_(server.deadline_s) {}

  // Whether this client's payloads were checked at all.
  bool checks() const { return !null_nic_; }

  Outcome run() {
    Outcome outcome;
    try {
      const LadderOptions options = greet();
      outcome = serve(options);
    } catch (const PeerError& e) {
      outcome = outcome_of_exception();
      // One that is gone cannot be told.
      if (e.kind() != PeerError::Kind::kClosed) refuse(outcome);
    } catch (...) {
      outcome = outcome_of_exception();
      refuse(outcome);
    }
    notices_.tell(note_);
    link_.tell(note_);
    return outcome;
  }

 private:
  Wait wait(std::uint64_t bytes = 0) const { return wait_for(deadline_s_, interrupt_.fd(), bytes); }

  // Tells the client why this end gives up; if even that cannot be sent, nothing is lost.
  void refuse(const Outcome& outcome) {
    try {
      channel_.send({{"type", "error"},
                     {"status", outcome.status()},
                     {"message", outcome.sentences().empty() ? "" : outcome.sentences().front()}},
                    wait_for(server_.deadline_s, -1));
    } catch (const PeerError&) {
    }
  }

  // What the client asks for must be what this server was started with, where it was.
  LadderOptions greet() {
    const nlohmann::json hello = channel_.receive("hello", wait());
    const LadderArguments theirs =
        read_message([&] { return arguments_from(hello.at("arguments")); });
    LadderOptions options = make_options(theirs);  // refuses what this build does not know
    const LadderOptions here = make_options(server_.required);
    options.device = here.device;
    options.roce = here.roce;
    const nlohmann::json asked = parameters_of(theirs);
    nlohmann::json mine = asked;
    mine.update(given_parameters(server_.required));
    if (const auto difference = first_difference(mine, asked)) throw UsageError(*difference);
    deadline_s_ = std::max(server_.deadline_s, options.deadline_s);
    null_nic_ = options.null_nic;
    if (options.link == LinkKind::kRoce) {
      roce_peer_ = read_message([&] {
        return roce_address_from(hello.at("roce"), local_address(channel_.socket()),
                                 peer_address(channel_.socket()));
      });
    }
    return options;
  }

  // Its payload lies in this machine's memory, whatever the sender's lies in.
  Outcome serve(const LadderOptions& options) {
    HostPayload destination;
    if (options.provider == ProviderKind::kRdmaCore) {
      LocalReceiver receiver(open_receiver(rdma_core(), options), destination,
                             options.path.of_queue_pairs());
      channel_.send({{"type", "welcome"}}, wait());
      return serve(receiver);
    }
    join(options);
    const LinkEnd end = link_.end();
    verbs::SoftwareNic nic(receiver_options(options, notices_.listener()), end.link, end.port);
    engine::ThreadsEngine engine({nic.step()});
    LocalReceiver receiver(open_receiver(nic.provider(engine), options), destination,
                           options.path.of_queue_pairs());
    return serve(receiver);
  }

  // Welcomes the client, and makes the link of software NICs.
  void join(const LadderOptions& options) {
    if (options.link == LinkKind::kRoce) {
      link_.roce.emplace(options, local_address(channel_.socket()), options.roce.udp_port,
                         RunEnd::kReceiver, capture_);
      link_.roce->connect(roce_peer_);
      channel_.send({{"type", "welcome"}, {"roce", to_json(link_.roce->address())}}, wait());
      return;
    }
    const Socket listener = listen_on(server_.bind, 0);
    const DataTicket ticket = random_ticket(listener);
    channel_.send({{"type", "welcome"}, {"data_port", ticket.port}, {"token", ticket.token}},
                  wait());
    link_.stream.emplace(accept_data(listener, ticket, wait()).release());
  }

  Outcome serve(LocalReceiver& receiver) {
    for (;;) {
      const nlohmann::json message =
          channel_.receive_any("the client's next message", wait(row_bytes_));
      notices_.tell(note_);
      const std::string type = message.at("type").get<std::string>();
      if (type == "alive") continue;
      if (type == "end") return end(message);
      channel_.send(read_message([&] { return answer(type, message, receiver); }), wait());
    }
  }

  nlohmann::json answer(const std::string& type, const nlohmann::json& message,
                        LocalReceiver& receiver) {
    if (type == "row") {
      const RowSetup setup = row_setup_from(message);
      notices_.forget_told();
      stage_ = printable(setup.stage);
      // The client fills as much before it speaks again.
      row_bytes_ = SlotLayout::for_payload(setup.payload_bytes).bytes_for(setup.slots);
      nlohmann::json reply = to_json(receiver.open_row(setup));
      reply["type"] = "row_ready";
      return reply;
    }
    if (type == "segment") {
      receiver.prepare(segment_plan_from(message));
      return {{"type", "segment_ready"}};
    }
    if (type == "check") {
      const Verdict verdict =
          receiver.check(segment_plan_from(message), numbers_from(message, "acknowledged"));
      if (verdict.mismatches > 0) {
        verdict_.add(kExitWrongPayload, wrong_payload_sentence(stage_, verdict));
      }
      nlohmann::json reply = to_json(verdict);
      reply["type"] = "verdict";
      return reply;
    }
    if (type == "row_done") {
      receiver.close_row();
      return {{"type", "row_closed"}};
    }
    throw PeerError(PeerError::Kind::kProtocol,
                    "the client sent a '" + type + "' message, which this server does not know");
  }

  // Both ends exit alike: each takes the worse of the two verdicts.
  Outcome end(const nlohmann::json& message) {
    Outcome theirs = read_message([&] {
      Outcome o;
      const int status = number_from<std::uint8_t>(message, "status");
      if (!is_exit_status(status)) {
        throw PeerError(PeerError::Kind::kProtocol, "the client ended with a status that is none");
      }
      o.add(status, "");
      for (const auto& s : message.at("sentences")) o.add(status, printable(s.get<std::string>()));
      return o;
    });
    Outcome both = verdict_;
    both.add(theirs);
    channel_.send({{"type", "end"}, {"status", both.status()}}, wait());
    return both;
  }

  const ServerOptions& server_;
  link::Capture* const capture_;
  const Interrupt& interrupt_;
  const Say note_;
  Notices notices_;
  Channel channel_;
  RoceAddress roce_peer_;  // as the client told it
  PeerLink link_;
  double deadline_s_;  // the longer of both ends'
  bool null_nic_ = false;
  std::uint64_t row_bytes_ = 0;
  std::string stage_;
  Outcome verdict_;
};

// All that the session holds is closed on return.
std::pair<Outcome, bool> serve_client(const ServerOptions& server, link::Capture* capture,
                                      const Interrupt& interrupt, Socket socket, Say note) {
  Session session(server, capture, interrupt, std::move(socket), std::move(note));
  const Outcome outcome = session.run();
  return {outcome, session.checks()};
}

}  // namespace

Outcome run_server(const ServerOptions& server, const Interrupt& interrupt, const Say& say,
                   const Say& complain) {
  Outcome worst;
  try {
    std::optional<link::Capture> capture;  // of all clients
    const std::string capture_path = make_options(server.required).roce.capture;
    if (!capture_path.empty()) capture.emplace(capture_path);
    const Socket listener = listen_on(server.bind, server.port);
    say(fmt::format("listening on {}, port {}", server.bind, local_port(listener)));
    for (std::uint64_t client = 1;; ++client) {
      const double patience = server.idle_timeout_s > 0 ? server.idle_timeout_s : 365.0 * 24 * 3600;
      Accepted accepted = accept_one(listener, wait_for(patience, interrupt.fd()));
      if (accepted.outcome == AcceptOutcome::kInterrupted) {
        // Between clients a signal is the ordinary end of a server that was not told `once`.
        if (server.once) worst.add(kExitInterrupted, "interrupted");
        return worst;
      }
      if (accepted.outcome == AcceptOutcome::kDeadline) {
        if (client == 1) {
          worst.add(kExitDeadline,
                    fmt::format("no client came within {} s", server.idle_timeout_s));
        }
        return worst;
      }
      const auto of_client = [&complain, client](const std::string& s) {
        complain(fmt::format("client {}: {}", client, s));
      };
      const auto [outcome, checked] = serve_client(server, capture ? &*capture : nullptr, interrupt,
                                                   std::move(accepted.socket), of_client);
      if (capture) close_capture(*capture, of_client);
      for (const std::string& s : outcome.sentences()) of_client(s);
      say(fmt::format("client {}: {}", client,
                      !outcome.good() ? fmt::format("failed with status {}", outcome.status())
                      : checked       ? std::string("all payloads validated")
                                      : "NOT VALID: nothing was moved"));
      worst.add(outcome.status(), "");
      if (server.once || interrupt.raised()) return worst;
    }
  } catch (...) {
    worst.add(outcome_of_exception());
  }
  return worst;
}

}  // namespace peal::ladder
