// The second connection of a run, which carries the NICs' segments. It goes to a port of its own,
// and shows a token, so that a stranger's connection is never taken for it.
#pragma once

#include <cstdint>
#include <string>

#include "ladder/socket.hpp"

namespace peal::ladder {

struct DataTicket {
  std::uint16_t port = 0;
  std::uint64_t token = 0;
};

// The client's side. Throws PeerError.
Socket connect_data(const std::string& host, const DataTicket& ticket, Wait wait);

// The server's side: connections with another token are closed, and it waits on. Throws PeerError.
Socket accept_data(const Socket& listener, const DataTicket& ticket, Wait wait);

DataTicket random_ticket(const Socket& listener);

}  // namespace peal::ladder
