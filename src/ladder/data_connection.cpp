#include "ladder/data_connection.hpp"

#include <array>
#include <cstring>
#include <random>

namespace peal::ladder {
namespace {

using Token = std::array<std::byte, 16>;

Token bytes_of(std::uint64_t token) {
  Token bytes;
  std::memcpy(bytes.data(), "PEALDATA", 8);
  std::memcpy(bytes.data() + 8, &token, 8);
  return bytes;
}

}  // namespace

DataTicket random_ticket(const Socket& listener) {
  std::random_device random;
  return {local_port(listener), (std::uint64_t{random()} << 32) | random()};
}

Socket connect_data(const std::string& host, const DataTicket& ticket, Wait wait) {
  Socket socket = connect_to(host, ticket.port, wait);
  send_all(socket, bytes_of(ticket.token), "the data connection's token to leave", wait);
  return socket;
}

Socket accept_data(const Socket& listener, const DataTicket& ticket, Wait wait) {
  for (;;) {
    Accepted accepted = accept_one(listener, wait);
    if (accepted.outcome == AcceptOutcome::kInterrupted) {
      throw PeerError(PeerError::Kind::kInterrupted, "interrupted");
    }
    if (accepted.outcome == AcceptOutcome::kDeadline) {
      throw PeerError(PeerError::Kind::kTimeout, "the client never made its data connection");
    }
    Token shown;
    try {
      receive_all(accepted.socket, shown, "the data connection's token", wait);
    } catch (const PeerError& e) {
      if (e.kind() != PeerError::Kind::kClosed) throw;
      continue;
    }
    if (shown == bytes_of(ticket.token)) return std::move(accepted.socket);
  }
}

}  // namespace peal::ladder
